// Calls from other people's pages: the README's example as it stands there, and OpenAI's SDK with only its URL changed.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { suite, test } from 'node:test';

import { launchChromium, person } from './support/chromium.js';
import { ONE_TURN, recordIn } from './support/page.js';
import { MODULES, sdkPage } from './support/sdk.js';
import { serve } from './support/site.js';
import { likeness, samplesFrom } from './support/sound.js';
import { REPOSITORY } from './support/stack.js';
import { stage } from './support/stage.js';
import { until } from './support/until.js';

/** As in chromium.test.js. */
const ALIKE = 0.6;

suite("another site's page", { timeout: 120_000 }, () => {
  const here = stage(({ file }) => launchChromium(file));

  /** Opens a page of a site of its own, runs `use` with it and with what it has written to the console, and leaves. */
  async function visit(html, modules, use) {
    const site = await serve(html, modules);
    const context = await person(here.browser);
    const page = await context.newPage();
    const [said, errors] = [[], []];
    page.on('console', (message) => (message.type() === 'error' ? errors : said).push(message.text()));
    page.on('pageerror', (error) => errors.push(`not caught: ${error.message}`));
    const account = () => JSON.stringify({ said, errors });
    try {
      await page.goto(site.url);
      await use({ page, said, account });
      assert.deepEqual(errors, []);
    } finally {
      await page.evaluate(() => globalThis.peers.forEach((peer) => peer.close()));
      await context.close();
      await site.close();
      await here.stack.empty();
    }
  }

  test('the example of the README calls, hears and gets events', async () => {
    const example = exampleOf(readFileSync(join(REPOSITORY, 'README.md'), 'utf8'));
    await visit(`<!doctype html><title>Example</title>${example}`, null, async ({ page, said, account }) => {
      await until('a whole turn', () => said.includes(ONE_TURN.at(-1)), 30, account);
      assert.deepEqual(said.slice(0, ONE_TURN.length), ONE_TURN);
      const alike = likeness(here.spoken.samples, samplesFrom(await page.evaluate(recordIn, 10)));
      assert(Math.max(...alike) > ALIKE, `likeness of each second: ${alike}`);
    });
  });

  test("OpenAI's Agents SDK connects, sets its session and gets events", async () => {
    const html = await sdkPage("{ name: 'Echo', instructions: 'Repeat.' }");
    await visit(html, MODULES, async ({ page, said, account }) => {
      await until('a whole turn', () => said.includes(ONE_TURN.at(-1)), 40, account);
      assert(said.includes('session.updated'), account());
      assert(said.some((line) => line.startsWith('connected rtc_')), account());
      await page.evaluate(() => globalThis.hangUp());
      await here.stack.empty();
    });
  });
});

/** The HTML block of the README's section about one's own page. */
function exampleOf(readme) {
  const section = readme.split(/^## /m).find((part) => part.startsWith('Call it from your own page'));
  const [, block] = section.match(/```html\n([\s\S]*?)```/);
  return block;
}
