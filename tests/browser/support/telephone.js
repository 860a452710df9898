// A caller that is no browser: a peer of werift's, WebRTC written in TypeScript, that speaks G.711 and nothing else.

import { MediaStreamTrack, RTCPeerConnection, RTCRtpCodecParameters, RtpHeader, RtpPacket } from 'werift';

import { RATE } from './sound.js';
import { KEY, URL_OF_API } from './stack.js';

/** Samples in a packet: 20 ms. */
const FRAME = RATE / 50;
const FRAME_MS = 20;

const PCMU = new RTCRtpCodecParameters({ mimeType: 'audio/PCMU', clockRate: RATE, channels: 1, payloadType: 0 });

export class Telephone {
  /** The events that came on the channel. */
  events = [];
  /** The states of the connection, in order. */
  states = [];
  /** The call's id. */
  id = null;
  channelIsOpen = false;
  #peer = new RTCPeerConnection({ iceServers: [], codecs: { audio: [PCMU], video: [] } });
  #channel = this.#peer.createDataChannel('oai-events');
  #track = new MediaStreamTrack({ kind: 'audio' });
  #packets = [];
  #speaking = null;

  /** Calls, and is connected soon. */
  async call() {
    const peer = this.#peer;
    const transceiver = peer.addTransceiver(this.#track, { direction: 'sendrecv' });
    peer.connectionStateChange.subscribe((state) => this.states.push(state));
    transceiver.onTrack.subscribe((track) => track.onReceiveRtp.subscribe(({ header, payload }) => this.#packets.push({ header, payload })));
    this.#channel.stateChanged.subscribe((state) => (this.channelIsOpen = state === 'open'));
    this.#channel.onMessage.subscribe((text) => this.events.push(JSON.parse(text)));
    await peer.setLocalDescription(await peer.createOffer());
    const answer = await fetch(`${URL_OF_API}/v1/realtime/calls`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${KEY}`, 'Content-Type': 'application/sdp' },
      body: peer.localDescription.sdp,
    });
    if (answer.status !== 201) throw new Error(`signaling answered ${answer.status}: ${await answer.text()}`);
    this.id = answer.headers.get('location').split('/').at(-1);
    await peer.setRemoteDescription({ type: 'answer', sdp: await answer.text() });
  }

  /** The types of the events that came. */
  types() {
    return this.events.map(({ type }) => type);
  }

  send(event) {
    this.#channel.send(JSON.stringify(event));
  }

  /** Says these samples, of RATE, in real time, and then nothing. */
  speak(samples) {
    const began = performance.now();
    let sent = 0;
    this.#speaking = setInterval(() => {
      const due = Math.floor((performance.now() - began) / FRAME_MS);
      for (; sent < due; sent += 1) {
        const frame = Float32Array.from({ length: FRAME }, (_, n) => samples[sent * FRAME + n] ?? 0);
        const header = new RtpHeader({ payloadType: 0, sequenceNumber: sent & 0xffff, timestamp: sent * FRAME, marker: sent === 0 });
        this.#track.writeRtp(new RtpPacket(header, Buffer.from(frame.map(compress))));
      }
    }, FRAME_MS / 2);
  }

  /** What was heard so far, each packet at the place that its timestamp gives it; samples of RATE. */
  heard() {
    const first = this.#packets[0]?.header.timestamp ?? 0;
    const placed = this.#packets.map(({ header, payload }) => ({ at: (header.timestamp - first) | 0, payload }));
    const whole = new Float32Array(Math.max(0, ...placed.map(({ at, payload }) => at + payload.length)));
    for (const { at, payload } of placed) {
      if (at >= 0) whole.set(Float32Array.from(payload, expand), at);
    }
    return whole;
  }

  /** The sequence numbers and payload types of what came. */
  packets() {
    return this.#packets.map(({ header }) => ({ sequence: header.sequenceNumber, payloadType: header.payloadType }));
  }

  async close() {
    clearInterval(this.#speaking);
    await this.#peer.close();
  }
}

/** G.711, µ-law: a sample between -1 and 1 as a byte. */
function compress(sample) {
  const value = Math.min(32_635, Math.round(Math.abs(sample) * 32_768)) + 132;
  const segment = 24 - Math.clz32(value);
  return ~((sample < 0 ? 0x80 : 0) | (segment << 4) | ((value >> (segment + 3)) & 0x0f)) & 0xff;
}

/** The other way round. */
function expand(byte) {
  const code = ~byte & 0xff;
  const value = ((((code & 0x0f) << 3) + 132) << ((code >> 4) & 7)) - 132;
  return (code & 0x80 ? -value : value) / 32_768;
}
