// A bot built with pipecat-ai answers a browser.

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';

import { launchChromium, person } from './support/chromium.js';
import { CallPage } from './support/page.js';
import { PipecatBot } from './support/pipecat-bot.js';
import { likeness } from './support/sound.js';
import { stage } from './support/stage.js';
import { until } from './support/until.js';

/** What two passes through Opus, two changes of rate, noise suppression and a bot's pace leave of the best second; unrelated speech stays under 0.4. */
const ALIKE = 0.5;

suite('a bot of Pipecat and Chromium', { timeout: 240_000 }, () => {
  const here = stage(({ file }) => launchChromium(file), PipecatBot.start);

  test('the caller hears what the bot plays back, is answered in writing, and interrupts it', async (t) => {
    const page = new CallPage(await (await person(here.browser)).newPage());
    await page.open();
    await page.call();
    await page.event('output_audio_buffer.started', 30);
    const alike = likeness(here.spoken.samples, await page.record(12));
    t.diagnostic(`likeness of each second: ${alike.map((one) => one.toFixed(2))}`);
    assert(Math.max(...alike) > ALIKE);
    assert.deepEqual(here.behind.notes('audio').map(({ rate, channels }) => [rate, channels]), [[16_000, 1]]);

    const text = 'What time is it?';
    const item = { type: 'message', role: 'user', content: [{ type: 'input_text', text }] };
    await page.sendEvent({ type: 'conversation.item.create', item });
    await page.event('parrot.said');
    assert.equal(here.behind.notes('transcription')[0].text, text);
    await page.event('bot-ready');
    await page.sendEvent({ type: 'response.cancel' });
    await page.event('output_audio_buffer.cleared');
    await until('the bot is told so', () => here.behind.notes('interruption').length > 0, 20);

    await page.leave();
    await here.stack.empty();
    assert.deepEqual(page.errors, []);
  });
});
