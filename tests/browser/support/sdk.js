// Pages with OpenAI's Agents SDK, of which only the URL is changed.

import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { KEY, URL_OF_API } from './stack.js';

/** The SDK's own bundle for browsers, which lies beside its modules: a folder to serve at /modules/. */
export const MODULES = join(dirname(fileURLToPath(import.meta.resolve('@openai/agents-realtime'))), 'bundle');

/** A client secret as the server of a page mints it, with a key. */
async function clientSecret() {
  const minted = await fetch(`${URL_OF_API}/v1/realtime/client_secrets`, {
    method: 'POST',
    headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/json' },
    body: '{}',
  });
  return (await minted.json()).value;
}

/**
 * A page that calls when it is opened and writes the type of each event to the console. `hangUp()` ends the call, `interrupt()` the
 * answer, and `mute(true)` the microphone.
 *
 * @param {string} agent what an agent is made of, as JavaScript; it may use `tool`
 * @param {string} [more] what else is listened to; it may use `session`
 */
export async function sdkPage(agent, more = '') {
  return `<!doctype html><title>SDK</title><audio autoplay></audio>
    <script type="module">
      import { OpenAIRealtimeWebRTC, RealtimeAgent, RealtimeSession, tool } from '/modules/openai-realtime-agents.mjs';
      const transport = new OpenAIRealtimeWebRTC({
        baseUrl: '${URL_OF_API}/v1/realtime/calls',
        audioElement: document.querySelector('audio'),
      });
      const session = new RealtimeSession(new RealtimeAgent(${agent}), { transport });
      session.on('transport_event', ({ type }) => console.log(type));
      session.on('error', ({ error }) => console.error(JSON.stringify(error)));
      ${more}
      await session.connect({ apiKey: '${await clientSecret()}' });
      console.log('connected', transport.callId);
      globalThis.hangUp = () => session.close();
      globalThis.interrupt = () => session.interrupt();
      globalThis.mute = (muted) => session.mute(muted);
    </script>`;
}
