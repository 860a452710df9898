// What the page says when a call does not come about, in Chromium at the width of a phone: each time in words, and accessible.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { afterEach, suite, test } from 'node:test';

import { violations } from './support/axe.js';
import { launchChromium, person } from './support/chromium.js';
import { CallPage } from './support/page.js';
import { stage } from './support/stage.js';

const PHONE = { width: 390, height: 844 };

suite('a call that does not come about', { timeout: 240_000 }, () => {
  const one = () => ({ settings: { backend: 'echo', 'sessions-per-worker': '1' }, stop() {} });
  const here = stage(({ file }) => launchChromium(file), one);
  let contexts = [];

  afterEach(async () => {
    for (const context of contexts) await context.close();
    contexts = [];
    await here.stack.empty();
  });

  async function open(inBrowser = here.browser) {
    const context = await person(inBrowser);
    contexts.push(context);
    const page = new CallPage(await context.newPage());
    await page.page.setViewportSize(PHONE);
    await page.open();
    return page;
  }

  /** Starts a call that must fail so. `noise`: what the browser itself writes to the console of a request that failed. */
  async function fails(page, end, words, noise = null, seconds = 20) {
    await page.press('primary');
    await page.reach('failed', seconds);
    assert.equal((await page.state()).end, end);
    assert.match(await page.text('alert'), words);
    assert.deepEqual(await violations(page), []);
    const wide = await page.page.evaluate(() => document.documentElement.scrollWidth);
    assert(wide <= PHONE.width, `the page is ${wide} pixels wide`);
    const errors = page.errors.splice(0);
    // The call was asked for once. What else the browser fetches by itself (the page's icon, at times) fails alike.
    const ofCalls = errors.filter((error) => error.endsWith('/v1/realtime/calls'));
    assert(ofCalls.length === (noise ? 1 : 0) && errors.every((error) => noise?.test(error)), JSON.stringify(errors));
  }

  test('a refused microphone', async () => {
    const shy = await launchChromium(here.spoken.file, false);
    try {
      const page = await open(shy);
      await page.page.context().clearPermissions();
      await fails(page, 'microphone-refused', /let this page listen/);
    } finally {
      await shy.close();
      contexts = [];
    }
  });

  test('no microphone', async () => {
    const deaf = await launchChromium(null);
    try {
      await fails(await open(deaf), 'microphone-missing', /no microphone/);
    } finally {
      await deaf.close();
      contexts = [];
    }
  });

  test('a wrong key', async () => {
    const page = await open();
    await page.page.click('[data-testid=settings] summary', { noWaitAfter: true });
    await page.page.fill('[data-testid=key]', 'wrong');
    await fails(page, 'key-refused', /key/, /401/);
  });

  test('a server that is gone', async () => {
    const page = await open();
    await here.stack.stopSignaling();
    try {
      await fails(page, 'server-unreachable', /No connection/, /ERR_CONNECTION_REFUSED/);
    } finally {
      await here.stack.startSignaling();
    }
  });

  test('a server that is full', async () => {
    const first = await open();
    await first.call();
    await fails(await open(), 'server-full', /no room/, /503/);
    await first.leave();
    await here.stack.canPlace();
  });

  test('a computer without a network is told so, and not of firewalls', async () => {
    execFileSync('ip', ['link', 'set', 'private', 'down']);
    try {
      await fails(await open(), 'no-network', /no network/);
    } finally {
      execFileSync('ip', ['link', 'set', 'private', 'up']);
      execFileSync('ip', ['route', 'add', 'default', 'via', '10.78.1.2']);
    }
  });

  test('a network that lets no UDP pass', async () => {
    const page = await open();
    execFileSync('nft', ['-f', '-'], {
      input: 'table inet wall { chain out { type filter hook output priority filter; udp dport 3478 drop; }; }\n',
    });
    try {
      await fails(page, 'never-connected', /no packet came through/, null, 40);
    } finally {
      execFileSync('nft', ['delete', 'table', 'inet', 'wall']);
    }
  });
});
