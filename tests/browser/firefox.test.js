// Calls from Firsthop's page in Firefox.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';

import { launchFirefox, tab, TONE } from './support/firefox.js';
import { callWith, CallPage, mediaOf, OFFERS, ONE_TURN } from './support/page.js';
import { likeness, loudest, loudness, median, shareOfTone, stretches } from './support/sound.js';
import { ADDRESS, KEY, UDP_PORT, URL_OF_API } from './support/stack.js';
import { stage } from './support/stage.js';
import { until } from './support/until.js';

/** As in chromium.test.js. */
const ALIKE = 0.6;

suite('Firefox', { timeout: 240_000 }, () => {
  const here = stage(launchFirefox);
  let page;

  beforeEach(async () => {
    page = new CallPage(await tab(here.browser));
    await page.open();
  });

  afterEach(async () => {
    await page.leave();
    await page.page.close();
    await here.stack.empty();
    assert.deepEqual(page.errors, []);
  });

  test('a call shows each step of its set-up, and its path through the relay', async () => {
    await page.call();
    await until('the set-up is complete', async () => (await page.number('setup-total', 'ms')) > 0, 15);
    for (const phase of ['request', 'ice', 'dtls', 'channel', 'audio']) assert((await page.number(`setup-${phase}`, 'ms')) >= 0, phase);
    await until('the path is known', async () => (await page.text('path')).includes(`${ADDRESS}:${UDP_PORT}`), 10);
    await until('the codec is known', async () => /Opus/.test(await page.text('codec')), 10);
  });

  test('the caller hears the tone that its microphone gives', async () => {
    await page.call();
    await page.soundGrows();
    const recorded = await page.record(3);
    assert(loudness(loudest(recorded, 0.5)) > 0.005, `loudness ${loudness(recorded)}`);
    // A gap that the player concealed shifts the tone's phase: the best piece counts.
    const shares = stretches(recorded, 0.5).map((piece) => shareOfTone(piece, TONE));
    assert(Math.max(...shares) > 0.8, `share of ${TONE} Hz: ${shares}`);
  });

  test('a caller that speaks hears what it said, and gets the events of a turn in order', async () => {
    await page.page.close();
    page = new CallPage(await tab(here.browser, here.spoken.rounds));
    await page.open();
    await page.call();
    await page.event('output_audio_buffer.started');
    const heard = await page.record(10);
    const alike = likeness(here.spoken.samples, heard);
    assert(Math.max(...alike) > ALIKE && median(alike) > ALIKE / 2, `likeness of each second: ${alike.map((one) => one.toFixed(2))}`);
    assert.deepEqual((await page.events()).slice(0, ONE_TURN.length), ONE_TURN);
  });

  test('an event written as JSON goes out, and its answer comes', async () => {
    await page.call();
    await page.event('session.created');
    await page.sendEvent({ type: 'session.update', session: { type: 'realtime' } });
    await page.event('session.updated');
    assert.deepEqual(await page.events('out'), ['session.update']);
  });

  test('sound flows again after the relay was killed and started, in the same connection', async () => {
    await page.call();
    await page.soundGrows();
    const [before, created] = [await page.turns(), await here.stack.sessionsCreated()];
    await here.stack.killRelay();
    await here.stack.startRelay();
    await page.soundGrows();
    assert.equal((await page.state()).state, 'open');
    assert.deepEqual(await page.turns(), before);
    assert.equal(await here.stack.sessionsCreated(), created);
  });

  test('hanging up in the page ends the call on the server', async () => {
    await page.call();
    assert.equal(await here.stack.sessions(), 1);
    await page.press('primary');
    await page.reach('ended');
    assert.equal((await page.state()).end, 'hung-up');
    await here.stack.empty();
  });

  test('hanging up on the server ends the call in the page', async () => {
    await page.call();
    assert.equal(await here.stack.hangUp(await page.text('call-id')), 200);
    await page.reach('ended');
    assert.equal((await page.state()).end, 'server-ended');
  });

  test('reloading the page ends its call', async () => {
    await page.call();
    await page.page.reload();
    await page.reach('idle');
    await here.stack.empty();
  });

  test('offers of every kind are answered so that Firefox connects', async () => {
    for (const kind of OFFERS) {
      const media = await page.page.evaluate(callWith, { url: URL_OF_API, key: KEY, kind });
      assert.deepEqual(media, mediaOf(kind, 109), kind);
    }
  });
});
