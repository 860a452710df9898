// Calls from Firsthop's page in Chromium.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, suite, test } from 'node:test';

import { violations } from './support/axe.js';
import { launchChromium, person } from './support/chromium.js';
import { CallPage, ONE_TURN } from './support/page.js';
import { likeness, loudness, median } from './support/sound.js';
import { ADDRESS, UDP_PORT } from './support/stack.js';
import { stage } from './support/stage.js';
import { until } from './support/until.js';

/** What two passes through Opus and the browser's noise suppression leave of spoken sound; unrelated speech stays under 0.4. */
const ALIKE = 0.6;

const PHASES = ['request', 'ice', 'dtls', 'channel', 'audio'];

suite('Chromium', { timeout: 240_000 }, () => {
  const here = stage(({ file }) => launchChromium(file));
  let context;
  let pages;

  beforeEach(async () => {
    context = await person(here.browser);
    pages = [];
  });

  afterEach(async () => {
    // Closing the context alone would not tell the pages, nor would they the server.
    for (const page of pages) await page.leave();
    await context.close();
    await here.stack.empty();
    for (const page of pages) assert.deepEqual(page.errors, []);
  });

  async function open() {
    const page = new CallPage(await context.newPage());
    pages.push(page);
    await page.open();
    return page;
  }

  test('a call shows each step of its set-up, and its path through the relay', async () => {
    const page = await open();
    await page.call();
    await until('the set-up is complete', async () => (await page.number('setup-total', 'ms')) > 0, 15);
    await page.event('session.created');
    assert.match(await page.text('title'), /You are on/);
    const times = await Promise.all(PHASES.map((phase) => page.number(`setup-${phase}`, 'ms')));
    assert(times.every((time) => time >= 0 && time < 10_000), `milliseconds of ${PHASES}: ${times}`);
    await until('the path is known', async () => (await page.text('path')).includes(`${ADDRESS}:${UDP_PORT}`), 10);
    await until('the codec is known', async () => /Opus/.test(await page.text('codec')), 10);
    await until('the round trip is measured', async () => (await page.number('plot-round-trip', 'roundTrip')) >= 0, 10);
  });

  test('the caller hears what it said', async () => {
    const page = await open();
    await page.call();
    await page.event('output_audio_buffer.started');
    // More than one round of what the microphone plays, wherever it is now.
    const heard = await page.record(10);
    assert(loudness(heard) > 0.005, `loudness ${loudness(heard)}`);
    const alike = likeness(here.spoken.samples, heard);
    assert(Math.max(...alike) > ALIKE && median(alike) > ALIKE / 2, `likeness of each second: ${alike.map((one) => one.toFixed(2))}`);
  });

  test('the events of a turn come in order', async () => {
    const page = await open();
    await page.call();
    await page.event('output_audio_buffer.stopped', 30);
    assert.deepEqual((await page.events()).slice(0, ONE_TURN.length), ONE_TURN);
  });

  test('an echo is offered no text, which it could not read, and interrupting it draws no error', async () => {
    const page = await open();
    await page.call();
    await page.event('session.created');
    await page.page.waitForSelector('[data-testid=say-not]', { state: 'visible' });
    assert(await page.page.isHidden('[data-testid=say]'));
    await page.press('interrupt');
    await page.event('output_audio_buffer.cleared');
    assert.deepEqual(await page.events('out'), ['output_audio_buffer.clear']);
    assert(!(await page.events()).includes('error'));
  });

  test('what is written as JSON goes out on the channel', async () => {
    const page = await open();
    await page.call();
    await page.event('session.created');
    await page.sendEvent({ type: 'response.create' });
    await page.event('response.done');
    assert.deepEqual(await page.events('out'), ['response.create']);
  });

  test('sound flows again after the relay was killed and started, in the same connection', async () => {
    const page = await open();
    await page.call();
    await page.soundGrows();
    const [before, created] = [await page.turns(), await here.stack.sessionsCreated()];
    await here.stack.killRelay();
    await here.stack.startRelay();
    await page.soundGrows();
    assert.equal((await page.state()).state, 'open');
    // No new description, no new handshake, no new session.
    assert.deepEqual(await page.turns(), before);
    assert.equal(await here.stack.sessionsCreated(), created);
  });

  test('the page says that nothing is heard while the relay is gone, and takes it back when sound flows again', async () => {
    const page = await open();
    await page.call();
    await page.event('session.created');
    await page.soundGrows();
    const says = (words) => async () => words.test(await page.text('title'));
    await here.stack.killRelay();
    await until('the page says so', says(/The line is silent/), 15);
    await here.stack.startRelay();
    await page.soundGrows(30);
    await until('the page takes it back', says(/You are on/), 15);
    assert.equal((await page.state()).state, 'open');
  });

  test('hanging up in the page ends the call on the server', async () => {
    const page = await open();
    await page.call();
    assert.equal(await here.stack.sessions(), 1);
    await page.press('primary');
    await page.reach('ended');
    assert.equal((await page.state()).end, 'hung-up');
    await here.stack.empty();
  });

  test('hanging up on the server ends the call in the page', async () => {
    const page = await open();
    await page.call();
    assert.equal(await here.stack.hangUp(await page.text('call-id')), 200);
    await page.reach('ended');
    assert.equal((await page.state()).end, 'server-ended');
    // The page does not hang up once more.
    await page.call();
    await page.press('primary');
    await page.reach('ended');
  });

  test('reloading the page ends its call, and it can call again', async () => {
    const page = await open();
    await page.call();
    const first = await page.text('call-id');
    await page.page.reload();
    await page.reach('idle');
    await here.stack.empty();
    await page.call();
    await page.soundGrows();
    assert.notEqual(await page.text('call-id'), first);
  });

  test('two tabs call at once, and one goes on when the other has hung up', async () => {
    const [first, second] = [await open(), await open()];
    await first.page.bringToFront();
    await first.call();
    await second.page.bringToFront();
    await second.call();
    assert.equal(await here.stack.sessions(), 2);
    await Promise.all([first.soundGrows(), second.soundGrows()]);
    await second.press('primary');
    await second.reach('ended');
    await until('one session is left', async () => (await here.stack.sessions()) === 1, 10);
    await first.soundGrows();
    assert.equal((await first.state()).state, 'open');
  });

  for (const theme of ['light', 'dark']) {
    test(`axe finds nothing to complain of before, in and after a call, ${theme}`, async () => {
      const page = await open();
      await page.page.emulateMedia({ colorScheme: theme, reducedMotion: 'reduce' });
      const found = { before: await violations(page) };
      await page.call();
      await page.event('output_audio_buffer.started');
      found.in = await violations(page);
      await page.press('primary');
      await page.reach('ended');
      found.after = await violations(page);
      assert.deepEqual(found, { before: [], in: [], after: [] });
    });
  }
});
