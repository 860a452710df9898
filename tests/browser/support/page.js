// Drives Firsthop's page in a browser, and reads what it shows. Works with a page of Playwright and of Puppeteer alike.

import assert from 'node:assert/strict';

import { samplesFrom } from './sound.js';
import { URL_OF_API } from './stack.js';
import { until } from './until.js';

/** The events of one turn with the echo backend. */
export const ONE_TURN = [
  'session.created',
  'input_audio_buffer.speech_started',
  'output_audio_buffer.started',
  'input_audio_buffer.speech_stopped',
  'input_audio_buffer.committed',
  'output_audio_buffer.stopped',
];

/** The states of a page whose call is over. */
const OVER = ['ended', 'failed'];

/**
 * Runs in every page before its own scripts: keeps the peer connections that it makes and notes each turn of their states, so that a test
 * can tell a path that healed from one that was made anew.
 */
export function watchPeers() {
  const Original = globalThis.RTCPeerConnection;
  globalThis.peers = [];
  globalThis.turns = [];
  globalThis.RTCPeerConnection = class extends Original {
    constructor(...given) {
      super(...given);
      globalThis.peers.push(this);
      this.addEventListener('connectionstatechange', () => globalThis.turns.push(`connection ${this.connectionState}`));
      this.addEventListener('negotiationneeded', () => globalThis.turns.push('negotiation needed'));
    }

    async setRemoteDescription(description) {
      globalThis.turns.push(description.type);
      await super.setRemoteDescription(description);
      this.sctp?.transport.addEventListener('statechange', (event) => globalThis.turns.push(`dtls ${event.target.state}`));
    }
  };
}

export class CallPage {
  /** Errors that the page or the browser wrote to the console, or that nobody caught. */
  errors = [];

  constructor(page, url = `${URL_OF_API}/`) {
    this.page = page;
    this.url = url;
    page.on('console', (message) => {
      if (message.type() === 'error') this.errors.push(`${message.text()} ${message.location().url ?? ''}`.trim());
    });
    page.on('pageerror', (error) => this.errors.push(`not caught: ${error.message}`));
  }

  async open() {
    await this.page.goto(this.url);
    await this.reach('idle');
  }

  /** Goes away from the page, as a person does: a call that is open ends. */
  async leave() {
    await this.page.goto('about:blank');
  }

  async press(name) {
    // No button leads elsewhere. Waiting for that all the same has been seen not to end, in a browser that had just been started on a busy machine.
    await this.page.click(`[data-testid=${name}]`, { noWaitAfter: true });
  }

  /** Starts a call and waits until it is open. */
  async call() {
    await this.press('primary');
    await this.reach('open', 30);
  }

  state() {
    return this.page.evaluate(() => ({ ...document.body.dataset }));
  }

  /** Waits for a state of the page; gives up at once when the call is over instead. */
  async reach(wanted, seconds = 20) {
    const there = async () => {
      const { state, end } = await this.state();
      assert(state === wanted || !OVER.includes(state) || OVER.includes(wanted) || wanted === 'idle', `the call is ${state}: ${end}`);
      return state === wanted;
    };
    await until(`the page is ${wanted}`, there, seconds, () => this.#account());
  }

  async #account() {
    return JSON.stringify({ ...(await this.state()), events: await this.events(), turns: await this.turns(), errors: this.errors });
  }

  text(name) {
    return this.page.evaluate((id) => document.querySelector(`[data-testid=${id}]`).textContent, name);
  }

  /** A `data-…` attribute as a number; NaN when it is not there. */
  number(name, attribute) {
    const path = { name, attribute };
    return this.page.evaluate((at) => Number(document.querySelector(`[data-testid=${at.name}]`).dataset[at.attribute]), path);
  }

  /** Types of the events that came on the channel, in order. */
  events(direction = 'in') {
    return this.page.evaluate(
      (wanted) => [...document.querySelectorAll(`[data-testid=log] .row[data-direction=${wanted}]`)].map((row) => row.dataset.type),
      direction,
    );
  }

  /** Sends an event by the form that takes any JSON. */
  async sendEvent(event) {
    await this.page.evaluate((text) => {
      document.querySelector('[data-testid=raw]').closest('details').open = true;
      document.querySelector('[data-testid=raw-text]').value = text;
    }, JSON.stringify(event));
    await this.press('raw-send');
  }

  /** Waits until an event of this type has come. */
  async event(type, seconds = 20) {
    await until(`the event ${type}`, async () => (await this.events()).includes(type), seconds, () => this.#account());
  }

  /** What happened to the peer connections so far. */
  turns() {
    return this.page.evaluate(() => globalThis.turns);
  }

  /** The inbound audio's counters, of the newest connection. */
  inbound() {
    return this.page.evaluate(async () => {
      const report = await globalThis.peers.at(-1).getStats();
      const found = [...report.values()].find((one) => one.type === 'inbound-rtp' && one.kind === 'audio');
      return { packets: found?.packetsReceived ?? 0, energy: found?.totalAudioEnergy ?? 0 };
    });
  }

  /** Waits until more packets, and sound in them, have come in from now on. */
  async soundGrows(seconds = 15) {
    const before = await this.inbound();
    const grown = async () => {
      const now = await this.inbound();
      return now.packets > before.packets + 25 && now.energy > before.energy + 1e-6;
    };
    await until('sound comes in', grown, seconds, async () => JSON.stringify([before, await this.inbound(), await this.turns()]));
  }

  /** Records what the page plays for so long; samples at 8 kHz. */
  async record(seconds) {
    return samplesFrom(await this.page.evaluate(recordIn, seconds));
  }
}

/** What a page may offer: audio alone, with a channel, with a channel and video, and with no codec but PCMU. */
export const OFFERS = ['audio', 'data', 'video', 'pcmu'];

/**
 * Runs in a page: makes a call by an offer of this kind, waits until it is connected and ends it. Returns the answer's media lines, of video
 * alone that it is refused: which codecs are listed then is the browser's own affair.
 */
export async function callWith({ url, key, kind }) {
  const peer = new RTCPeerConnection();
  const audio = peer.addTransceiver('audio', { streams: [new MediaStream()] });
  if (kind === 'video') peer.addTransceiver('video');
  if (kind === 'pcmu') {
    const { codecs } = RTCRtpReceiver.getCapabilities('audio');
    audio.setCodecPreferences(codecs.filter(({ mimeType }) => mimeType === 'audio/PCMU'));
  }
  const greeted = new Promise((resolve) => {
    if (kind === 'audio') resolve();
    else peer.createDataChannel('oai-events').addEventListener('message', resolve);
  });
  const connected = new Promise((resolve, reject) => {
    peer.addEventListener('connectionstatechange', () => {
      if (peer.connectionState === 'connected') resolve();
      if (peer.connectionState === 'failed') reject(new Error('the connection failed'));
    });
  });
  await peer.setLocalDescription();
  const headers = { Authorization: `Bearer ${key}`, 'Content-Type': 'application/sdp' };
  const { sdp: body } = peer.localDescription;
  const response = await fetch(`${url}/v1/realtime/calls`, { method: 'POST', headers, body });
  const answer = await response.text();
  if (response.status !== 201) throw new Error(`${response.status}: ${answer}`);
  await peer.setRemoteDescription({ type: 'answer', sdp: answer });
  await Promise.all([connected, greeted]);
  await fetch(new URL(response.headers.get('Location'), url), { method: 'DELETE', headers });
  peer.close();
  return answer.match(/^m=.*$/gm).map((line) => line.trim().replace(/^(m=video 0) .*/, '$1'));
}

/** What an answer has to say to each of them, given the browser's payload type of Opus. */
export function mediaOf(kind, opus) {
  const [audio, channel] = [`m=audio 3478 UDP/TLS/RTP/SAVPF ${opus}`, 'm=application 3478 UDP/DTLS/SCTP webrtc-datachannel'];
  return { audio: [audio], data: [audio, channel], video: [audio, 'm=video 0', channel], pcmu: ['m=audio 3478 UDP/TLS/RTP/SAVPF 0', channel] }[kind];
}

/** Records the page's `<audio>` and gives it as base64 of 16-bit samples at 8 kHz. Runs in the page. */
export async function recordIn(seconds) {
  const { srcObject } = document.querySelector('audio');
  const recorder = new MediaRecorder(srcObject);
  const parts = [];
  recorder.addEventListener('dataavailable', ({ data }) => parts.push(data));
  const stopped = new Promise((resolve) => recorder.addEventListener('stop', resolve));
  recorder.start();
  setTimeout(() => recorder.stop(), 1000 * seconds);
  await stopped;
  // Decoding resamples to the context's rate.
  const context = new OfflineAudioContext(1, 8_000, 8_000);
  const sound = (await context.decodeAudioData(await new Blob(parts).arrayBuffer())).getChannelData(0);
  const whole = Int16Array.from(sound, (value) => Math.max(-1, Math.min(1, value)) * 32_767);
  const bytes = new Uint8Array(whole.buffer);
  let text = '';
  for (let start = 0; start < bytes.length; start += 8_192) text += String.fromCharCode(...bytes.subarray(start, start + 8_192));
  return btoa(text);
}
