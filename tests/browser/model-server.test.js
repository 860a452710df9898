// A conversation with a model server by OpenAI's SDK in Chromium: a tool is called, the user interrupts, again and again, and it goes on.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { launchChromium, person } from './support/chromium.js';
import { ModelServer } from './support/model-server.js';
import { serve } from './support/site.js';
import { speak } from './support/sound.js';
import { KEY, Stack, URL_OF_API } from './support/stack.js';
import { until } from './support/until.js';

/** A client that has been gone for longer would have been lost. */
const HELD_SECONDS = 72;

suite('a model server', { timeout: 240_000 }, () => {
  let folder;
  let model;
  let stack;
  let browser;

  before(async () => {
    folder = mkdtempSync(join(tmpdir(), 'firsthop-model-'));
    const { file } = speak(folder);
    model = await ModelServer.start(folder);
    stack = await Stack.start({ backend: 'realtime', 'backend-url': ModelServer.URL });
    browser = await launchChromium(file);
  });

  after(async () => {
    await browser?.close();
    await stack?.stop();
    model?.stop();
    rmSync(folder, { recursive: true, force: true });
    assert.deepEqual(stack.complaints(), []);
  });

  test("OpenAI's Agents SDK runs a tool call, is interrupted and goes on", async () => {
    const minted = await fetch(`${URL_OF_API}/v1/realtime/client_secrets`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
      body: '{}',
    });
    const { value: secret } = await minted.json();
    const modules = join(dirname(fileURLToPath(import.meta.resolve('@openai/agents-realtime'))), 'bundle');
    const html = `<!doctype html><title>SDK</title>
      <script type="module">
        import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from '/modules/openai-realtime-agents.mjs';
        const weather = tool({
          name: 'weather',
          description: 'Tells the weather.',
          parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
          strict: true,
          execute: async () => 'sunny',
        });
        const agent = new RealtimeAgent({ name: 'Guide', instructions: 'Be brief.', tools: [weather] });
        const transport = new OpenAIRealtimeWebRTC({ baseUrl: '${URL_OF_API}/v1/realtime/calls' });
        const session = new RealtimeSession(agent, { transport });
        session.on('transport_event', ({ type }) => console.log(type));
        session.on('agent_tool_end', (_context, _agent, { name }, result) => console.log('tool', name, result));
        session.on('error', ({ error }) => console.error(JSON.stringify(error)));
        await session.connect({ apiKey: '${secret}' });
        globalThis.hangUp = () => session.close();
      </script>`;
    const site = await serve(html, modules);
    const page = await (await person(browser)).newPage();
    const [said, errors] = [[], []];
    page.on('console', (message) => (message.type() === 'error' ? errors : said).push(message.text()));
    page.on('pageerror', (error) => errors.push(`not caught: ${error.message}`));
    const account = () => JSON.stringify({ said, errors });
    const count = (type) => said.filter((one) => one === type).length;
    const began = Date.now();
    await page.goto(site.url);

    await until('the tool has run', () => said.includes('tool weather sunny'), 40, account);
    await until('the answer begins', () => count('output_audio_buffer.started') >= 1, 40, account);
    const [result] = model.events('in', 'conversation.item.create');
    assert.equal(result.item.output, 'sunny');

    // The microphone plays its sentence over and over: each round interrupts the answer to the one before.
    await until('an interruption', () => count('output_audio_buffer.cleared') >= 1, 30, account);
    await until('it goes on', () => count('output_audio_buffer.started') >= 2, 30, account);
    const held = () => Date.now() - began > 1000 * HELD_SECONDS && count('output_audio_buffer.cleared') >= 5;
    await until(`the call has lasted ${HELD_SECONDS} s`, held, 2 * HELD_SECONDS, account);
    const truncated = model.events('in', 'conversation.item.truncate');
    assert.equal(new Set(truncated.map((one) => one.item_id)).size, truncated.length, 'each item is cut once');
    assert(truncated.length >= 5 && truncated.every((one) => one.audio_end_ms > 0), JSON.stringify(truncated));
    assert(!said.includes('response.output_audio.delta'), 'audio goes by the track');

    await page.evaluate(() => globalThis.hangUp());
    await stack.empty();
    assert.deepEqual(errors, []);
    await site.close();
  });
});
