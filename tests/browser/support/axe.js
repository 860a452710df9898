// What axe-core says of a page.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What it finds on a `CallPage` whose colours have changed: each rule with the elements that break it. */
export async function violations(page) {
  await page.page.evaluate(axe);
  // Half-way from one colour to the next is a colour that nobody chose. A transition that another one takes the place of rejects.
  await page.page.evaluate(async () => {
    const changing = () => document.getAnimations().filter((one) => one instanceof CSSTransition);
    while (changing().length > 0) await Promise.allSettled(changing().map((one) => one.finished));
  });
  const { violations: found } = await page.page.evaluate(() => globalThis.axe.run());
  return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target).join(' ')}`);
}
