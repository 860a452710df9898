// What axe-core says of a page.

import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** What it finds on a `CallPage`: each rule with the elements that break it. */
export async function violations(page) {
  await page.page.evaluate(axe);
  const { violations: found } = await page.page.evaluate(() => globalThis.axe.run());
  return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target).join(' ')}`);
}
