// Calls from other people's pages: the README's example as it stands there, and OpenAI's SDK with only its URL changed.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { launchChromium, person } from './support/chromium.js';
import { ONE_TURN, recordIn } from './support/page.js';
import { serve } from './support/site.js';
import { likeness, samplesFrom, speak } from './support/sound.js';
import { KEY, REPOSITORY, Stack, URL_OF_API } from './support/stack.js';
import { until } from './support/until.js';

/** As in chromium.test.js. */
const ALIKE = 0.6;

suite("another site's page", { timeout: 120_000 }, () => {
  let folder;
  let spoken;
  let stack;
  let browser;

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'firsthop-voice-'));
    spoken = speak(folder);
    stack = await Stack.start();
    browser = await launchChromium(spoken.file);
  });

  after(async () => {
    await browser?.close();
    await stack?.stop();
    rmSync(folder, { recursive: true, force: true });
    assert.deepEqual(stack.complaints(), []);
  });

  /** Opens a page of a site of its own, runs `use` with it and with what it has written to the console, and leaves. */
  async function visit(html, modules, use) {
    const site = await serve(html, modules);
    const context = await person(browser);
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
      await stack.empty();
    }
  }

  test('the example of the README calls, hears and gets events', async () => {
    const example = exampleOf(readFileSync(join(REPOSITORY, 'README.md'), 'utf8'));
    await visit(`<!doctype html><title>Example</title>${example}`, null, async ({ page, said, account }) => {
      await until('a whole turn', () => said.includes(ONE_TURN.at(-1)), 30, account);
      assert.deepEqual(said.slice(0, ONE_TURN.length), ONE_TURN);
      const alike = likeness(spoken.samples, samplesFrom(await page.evaluate(recordIn, 10)));
      assert(Math.max(...alike) > ALIKE, `likeness of each second: ${alike}`);
    });
  });

  test("OpenAI's Agents SDK connects, sets its session and gets events", async () => {
    // A page holds a client secret, which its server has minted with a key.
    const minted = await fetch(`${URL_OF_API}/v1/realtime/client_secrets`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
      body: '{}',
    });
    const { value: secret } = await minted.json();
    // The SDK's own bundle for browsers lies beside its modules.
    const modules = join(dirname(fileURLToPath(import.meta.resolve('@openai/agents-realtime'))), 'bundle');
    const html = `<!doctype html><title>SDK</title>
      <script type="module">
        import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession } from '/modules/openai-realtime-agents.mjs';
        const transport = new OpenAIRealtimeWebRTC({ baseUrl: '${URL_OF_API}/v1/realtime/calls' });
        const session = new RealtimeSession(new RealtimeAgent({ name: 'Echo', instructions: 'Repeat.' }), { transport });
        session.on('transport_event', ({ type }) => console.log(type));
        session.on('error', ({ error }) => console.error(JSON.stringify(error)));
        await session.connect({ apiKey: '${secret}' });
        console.log('connected', transport.callId);
        globalThis.hangUp = () => session.close();
      </script>`;
    await visit(html, modules, async ({ page, said, account }) => {
      await until('a whole turn', () => said.includes(ONE_TURN.at(-1)), 40, account);
      assert(said.includes('session.updated'), account());
      assert(said.some((line) => line.startsWith('connected rtc_')), account());
      await page.evaluate(() => globalThis.hangUp());
      await stack.empty();
    });
  });
});

/** The HTML block of the README's section about one's own page. */
function exampleOf(readme) {
  const section = readme.split(/^## /m).find((part) => part.startsWith('Call it from your own page'));
  const [, block] = section.match(/```html\n([\s\S]*?)```/);
  return block;
}
