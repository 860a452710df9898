// Calls from other people's pages: the README's example as it stands there, OpenAI's SDK with only its URL changed, and a WHIP client.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { launchChromium, person } from './support/chromium.js';
import { callWith, mediaOf, OFFERS, ONE_TURN, recordIn } from './support/page.js';
import { MODULES, sdkPage } from './support/sdk.js';
import { serve } from './support/site.js';
import { likeness, samplesFrom } from './support/sound.js';
import { KEY, REPOSITORY, URL_OF_API } from './support/stack.js';
import { stage } from './support/stage.js';
import { until } from './support/until.js';

/** As in chromium.test.js. */
const ALIKE = 0.6;

suite("another site's page", { timeout: 240_000 }, () => {
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

  test('offers of every kind are answered so that Chromium connects', async () => {
    await visit('<!doctype html><title>Offers</title>', null, async ({ page }) => {
      for (const kind of OFFERS) {
        const media = await page.evaluate(callWith, { url: URL_OF_API, key: KEY, kind });
        assert.deepEqual(media, mediaOf(kind, 111), kind);
      }
    });
  });

  test('whip-whep publishes a microphone, trickles, restarts ICE and deletes', async () => {
    const modules = dirname(fileURLToPath(import.meta.resolve('whip-whep/whip.js')));
    const html = `<!doctype html><title>WHIP</title>
      <script type="module">
        import { WHIPClient } from '/modules/whip.js';
        globalThis.publish = async () => {
          const microphone = await navigator.mediaDevices.getUserMedia({ audio: true });
          const peer = new RTCPeerConnection();
          peer.addTransceiver(microphone.getAudioTracks()[0], { direction: 'sendonly', streams: [microphone] });
          const client = new WHIPClient();
          Object.assign(globalThis, { peer, client });
          await client.publish(peer, '${URL_OF_API}/whip/notes', '${KEY}');
        };
      </script>`;
    await visit(html, modules, async ({ page, said, account }) => {
      const asked = [];
      page.on('response', (response) => {
        const method = response.request().method();
        // The page's own files, and an icon that a browser asks for by itself, are of no interest.
        if (method !== 'GET') asked.push(`${method} ${response.status()}`);
      });
      const [created, restarts] = [await here.stack.sessionsCreated(), await here.stack.iceRestarts()];
      const whole = async () => JSON.stringify({ asked, path: await page.evaluate(pathOfPeer), said: account() });
      const onPath = async (ufrag) => {
        const { state, selected, wanted, remote } = await page.evaluate(pathOfPeer);
        return state === 'connected' && selected === wanted && remote !== ufrag && remote;
      };
      await page.evaluate(() => globalThis.publish());
      const first = await until('the first path', () => onPath(null), 20, whole);
      await until('what it trickled was taken', () => asked.includes('PATCH 204'), 10, whole);

      // The server side of the app watches, and tells what of the microphone arrives.
      const id = await page.evaluate(() => globalThis.client.resourceURL.pathname.split('/').at(-1));
      await page.evaluate(watch, { url: URL_OF_API.replace('http', 'ws'), id, key: KEY });
      const heard = () => said.filter((line) => line === 'sideband input_audio_buffer.speech_started').length;
      await until('speech is heard', () => heard() > 0, 40, whole);

      await page.evaluate(() => globalThis.client.restart());
      await until('the path after the restart', () => onPath(first), 20, whole);
      const before = heard();
      await until('speech is heard after the restart', () => heard() > before, 40, whole);
      await until('the restart is counted', async () => (await here.stack.iceRestarts()) === restarts + 1, 10, whole);
      assert.equal(await here.stack.sessions(), 1);
      assert.equal(await here.stack.sessionsCreated(), created + 1);

      // whip-whep closes its connection before it deletes, which tells the server as well. Here deleting alone shall end the session.
      await page.evaluate(() => {
        globalThis.client.pc = { close: () => {} };
        return globalThis.client.stop();
      });
      await until('the sideband is told the end', () => said.includes('sideband closed 1000 hung_up'), 10, whole);
      await here.stack.empty();
      assert.deepEqual([...new Set(asked)].toSorted(), ['DELETE 200', 'PATCH 200', 'PATCH 204', 'POST 201'], account());
    });
  });
});

/** Runs in the page: the state of its connection, and whose ufrag the path in use and the descriptions have. */
async function pathOfPeer() {
  const { peer } = globalThis;
  const report = await peer.getStats();
  const transport = [...report.values()].find(({ type }) => type === 'transport');
  const pair = report.get(transport?.selectedCandidatePairId);
  const ufrag = (description) => description?.sdp.match(/a=ice-ufrag:(\S+)/)?.[1];
  return {
    state: peer.iceConnectionState,
    selected: report.get(pair?.localCandidateId)?.usernameFragment,
    wanted: ufrag(peer.localDescription),
    remote: ufrag(peer.remoteDescription),
  };
}

/** Runs in the page: writes to the console what a call's sideband says. */
function watch({ url, id, key }) {
  const sideband = new WebSocket(`${url}/v1/realtime?call_id=${id}`, ['realtime', `openai-insecure-api-key.${key}`]);
  sideband.addEventListener('message', ({ data }) => console.log('sideband', JSON.parse(data).type));
  sideband.addEventListener('close', ({ code, reason }) => console.log('sideband closed', code, reason));
}

/** The HTML block of the README's section about one's own page. */
function exampleOf(readme) {
  const section = readme.split(/^## /m).find((part) => part.startsWith('Call it from your own page'));
  const [, block] = section.match(/```html\n([\s\S]*?)```/);
  return block;
}
