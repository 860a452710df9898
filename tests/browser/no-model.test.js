// What the page says of a call with no model behind it, in Chromium: while the server looks for one, and in the end.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { suite, test } from 'node:test';

import { violations } from './support/axe.js';
import { launchChromium, person } from './support/chromium.js';
import { CallPage } from './support/page.js';
import { stage } from './support/stage.js';

const PORT = 8765;

/** A server that is asked for a WebSocket, and says nothing until it is told how to refuse it. */
class Reluctant {
  #held = [];
  #server = createServer((_, response) => this.#held.push(response));

  begin() {
    return new Promise((resolve) => this.#server.listen(PORT, '127.0.0.1', resolve));
  }

  /** It is not there any more. */
  vanish() {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  /** From now on it answers so. */
  refuse(status) {
    const answer = (response) => response.writeHead(status, { Connection: 'close' }).end();
    this.#server.removeAllListeners('request').on('request', (_, response) => answer(response));
    this.#held.splice(0).forEach(answer);
  }
}

const nothing = () => ({
  settings: { backend: 'realtime', 'backend-url': `ws://127.0.0.1:${PORT}/v1/realtime` },
  complaints: /"WARN".*the model server (could not be connected to|wants a key that it accepts)/,
  stop() {},
});

suite('a call without a model', { timeout: 240_000 }, () => {
  const here = stage(({ file }) => launchChromium(file), nothing);

  /** A call on a screen of this size, which waits for the model server until `then` decides what becomes of that; it must end so. */
  async function waitsAndFails(size, then, end, title, hint) {
    const server = new Reluctant();
    await server.begin();
    const context = await person(here.browser);
    try {
      const page = new CallPage(await context.newPage());
      await page.page.setViewportSize(size);
      await page.open();
      await page.call();
      assert.match(await page.text('title'), /^Connecting to the model server/);
      await looksWell(page, size);
      then(server);
      await page.reach('failed', 60);
      assert.equal((await page.state()).end, end);
      assert.equal(await page.text('title'), title);
      assert.match(await page.text('alert'), hint);
      await looksWell(page, size);
      assert.deepEqual(page.errors, []);
    } finally {
      // Else the programs would wait for this call when they are asked to end.
      await context.close();
      server.vanish();
    }
    await here.stack.empty();
  }

  async function looksWell(page, { width }) {
    assert.deepEqual(await violations(page), []);
    const wide = await page.page.evaluate(() => document.documentElement.scrollWidth);
    assert(wide <= width, `the page is ${wide} pixels wide`);
  }

  test('a model server that is not there', async () => {
    const size = { width: 390, height: 844 };
    const gone = (server) => server.vanish();
    await waitsAndFails(size, gone, 'model-unreachable', 'The model server cannot be reached', /could not be reached.*FIRSTHOP_BACKEND_URL/s);
  });

  test('a model server that wants another key', async () => {
    const size = { width: 1280, height: 800 };
    const refuses = (server) => server.refuse(401);
    await waitsAndFails(size, refuses, 'model-refused', 'The model server wants another key', /HTTP status 401.*FIRSTHOP_BACKEND_KEY/s);
  });
});
