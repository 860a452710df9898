// One WebRTC call to a server that speaks OpenAI's Realtime calls API, and what becomes of it.
//
// Needs nothing else of this page, so another page may import it as it is:
//
//     const call = new Call({ url: 'https://voice.example/v1/realtime/calls', key, stream });
//     call.addEventListener('track', ({ detail }) => { audio.srcObject = detail.stream; });
//     await call.start();
//
// Events, each with a `detail`:
//
//   state    { state, end }        see `state`; `end` is { code, message, failed, at } when the state is 'ended'
//   phase    { name, start, end }  a step of the set-up is over; times are performance.now()
//   track    { stream }            the server's audio
//   channel  { open }              the data channel is open; it closes only with the call
//   message  { event, text }       came on the channel; `event` is null when the text is not a JSON object
//   sent     { event, text }       went out on the channel
//
// Why a call ended, `end.code`:
//
//   hung-up, cancelled                                        ended here
//   server-ended, session-expired, model-ended,
//   connection-lost                                           ended elsewhere, after it had connected
//   model-unreachable, model-refused, model-failed            the server had no model to answer with; `message` is its word
//   server-unreachable, server-slow, key-refused, server-full,
//   server-failed, offer-refused, no-such-service             the request failed; `message` is the server's word, if it gave one
//   answer-unusable, no-network, never-connected,
//   never-secured                                             the answer came, and no call came of it

/** The data channel's label, which the API fixes. */
export const CHANNEL = 'oai-events';

/** How long the server may take to answer the offer, in milliseconds. */
const ANSWER_TIMEOUT = 15_000;

/** How long packets may take to find a way after the answer. Browsers give up by themselves, some only after half a minute. */
const CONNECT_TIMEOUT = 20_000;

/** How long the browser may take to find any network at all to speak over. Chromium does not speak over loopback alone, and looks on. */
const NETWORK_TIMEOUT = 5_000;

/** How long a hang-up waits for the server's word before the connection is closed anyway. */
const HANGUP_TIMEOUT = 2_000;

/** What the server's last error says of why it ends the call, as codes of this module; `failed` is that of `end`. */
const CAUSES = new Map([
  ['session_expired', { code: 'session-expired', failed: false }],
  ['backend_closed', { code: 'model-ended', failed: false }],
  ['backend_unreachable', { code: 'model-unreachable', failed: true }],
  ['backend_refused', { code: 'model-refused', failed: true }],
  ['backend_failed', { code: 'model-failed', failed: true }],
]);

/** The steps of a call's set-up in the order in which they end. */
export const PHASES = ['request', 'ice', 'dtls', 'channel', 'audio'];

export class Call extends EventTarget {
  /** 'new', 'requesting', 'connecting', 'open', 'recovering' (no packets come through at the moment) or 'ended'. */
  state = 'new';
  /** Why it ended. */
  end = null;
  /** The call's id (`rtc_…`) once the server has given one. */
  id = null;
  /** The steps that are over, by name: { start, end }. */
  phases = {};
  /** performance.now() at the start. */
  began = 0;

  #url;
  #key;
  #stream;
  #pc = null;
  #channel = null;
  #location = null;
  #abort = new AbortController();
  #timer = 0;
  #networks = 0;
  #cause = { code: 'server-ended', failed: false, message: null };
  #sent = 0;

  /**
   * @param {object} options
   * @param {string} [options.url] where calls are made
   * @param {string} options.key the API key or client secret
   * @param {MediaStream} options.stream what is said; its first audio track is sent. The call never stops it.
   */
  constructor({ url = '/v1/realtime/calls', key, stream }) {
    super();
    this.#url = new URL(url, globalThis.location?.href);
    this.#key = key;
    this.#stream = stream;
  }

  /** Makes the call. Resolves when the answer is in place or the call has ended; everything after that comes as events. */
  async start() {
    this.began = performance.now();
    this.#become('requesting');
    const pc = (this.#pc = new RTCPeerConnection());
    const [track] = this.#stream.getAudioTracks();
    const { receiver } = pc.addTransceiver(track, { direction: 'sendrecv', streams: [this.#stream] });
    this.#watchAudio(receiver.track);
    this.#watchChannel(pc.createDataChannel(CHANNEL));
    pc.addEventListener('track', ({ streams: [stream], track }) => {
      this.#emit('track', { stream: stream ?? new MediaStream([track]) });
    });
    pc.addEventListener('icecandidate', ({ candidate }) => {
      if (candidate?.candidate) this.#networks += 1;
    });
    pc.addEventListener('iceconnectionstatechange', () => this.#follow());
    pc.addEventListener('connectionstatechange', () => this.#follow());
    try {
      await pc.setLocalDescription();
      const answer = await this.#request(pc.localDescription.sdp);
      if (answer === null || this.state === 'ended') return;
      this.#pass('request', this.began);
      this.#become('connecting');
      this.#timer = setTimeout(() => this.#noPathSoFar(), NETWORK_TIMEOUT);
      await pc.setRemoteDescription({ type: 'answer', sdp: answer });
      // Only now does the transport exist in every browser.
      pc.getSenders()[0].transport?.addEventListener('statechange', () => this.#follow());
      this.#follow();
    } catch (error) {
      this.#finish('answer-unusable', { message: error.message, failed: true });
    }
  }

  /** Whether events can be sent now. */
  get channelOpen() {
    return this.#channel?.readyState === 'open';
  }

  /** Sends an event, giving it an `event_id` if it has none. Returns what was sent, or null when the channel is not open. */
  send(event) {
    if (!this.channelOpen) return null;
    this.#sent += 1;
    const whole = { event_id: `page_${this.#sent}`, ...event };
    const text = JSON.stringify(whole);
    this.#channel.send(text);
    this.#emit('sent', { event: whole, text });
    return whole;
  }

  /**
   * Makes the server stop speaking: drops what waits to be played, and ends the response that makes more of it, where there can be one.
   * Returns what was sent.
   */
  interrupt({ responses = true } = {}) {
    const events = [{ type: 'output_audio_buffer.clear' }];
    if (responses) events.push({ type: 'response.cancel' });
    return events.map((event) => this.send(event)).filter((sent) => sent !== null);
  }

  /** Ends the call, or its set-up. */
  hangUp() {
    this.#finish(this.phases.dtls ? 'hung-up' : 'cancelled');
  }

  /** The connection's statistics, or null when there is none. */
  async stats() {
    return this.state === 'ended' ? null : ((await this.#pc?.getStats()) ?? null);
  }

  /** Posts the offer. Returns the answer's SDP, or null when the call has ended. */
  async #request(sdp) {
    const late = setTimeout(() => this.#finish('server-slow', { failed: true }), ANSWER_TIMEOUT);
    try {
      const response = await fetch(this.#url, {
        method: 'POST',
        headers: { Authorization: `Bearer ${this.#key}`, 'Content-Type': 'application/sdp' },
        body: sdp,
        signal: this.#abort.signal,
      });
      const text = await response.text();
      if (!response.ok) {
        this.#finish(codeOfStatus(response.status), { message: messageOf(text), failed: true });
        return null;
      }
      if (!text.startsWith('v=0')) {
        this.#finish('no-such-service', { failed: true });
        return null;
      }
      const location = response.headers.get('Location');
      if (location) {
        this.#location = new URL(location, this.#url);
        this.id = this.#location.pathname.split('/').find((part) => part.startsWith('rtc_')) ?? null;
      }
      return text;
    } catch {
      // Also an abort: then the call has ended already, and this says nothing new.
      this.#finish('server-unreachable', { failed: true });
      return null;
    } finally {
      clearTimeout(late);
    }
  }

  #watchAudio(track) {
    // A remote track is muted until its first packet.
    const heard = () => this.#pass('audio', this.phases.dtls?.end ?? this.began);
    track.addEventListener('unmute', heard, { once: true });
  }

  #watchChannel(channel) {
    this.#channel = channel;
    channel.addEventListener('open', () => {
      this.#follow();
      this.#pass('channel', this.phases.dtls?.end ?? this.began);
      this.#emit('channel', { open: true });
    });
    channel.addEventListener('message', ({ data }) => {
      if (typeof data !== 'string') return;
      const event = objectOf(data);
      const cause = event?.type === 'error' && CAUSES.get(event.error?.code);
      if (cause) this.#cause = { ...cause, message: typeof event.error.message === 'string' ? event.error.message : null };
      this.#emit('message', { event, text: data });
    });
    // The server closes the channel only with the call.
    channel.addEventListener('close', () => this.#endedByServer());
  }

  /** Draws the conclusions from the connection's states, whichever of them changed: browsers differ in the order. */
  #follow() {
    const pc = this.#pc;
    if (this.state === 'ended' || this.state === 'requesting') return;
    const ice = pc.iceConnectionState;
    const dtls = pc.getSenders()[0]?.transport?.state;
    const reached = ice === 'connected' || ice === 'completed';
    if (reached) this.#pass('ice', this.phases.request.end);
    if (reached && (dtls ?? pc.connectionState) === 'connected') {
      this.#pass('dtls', this.phases.ice.end);
      clearTimeout(this.#timer);
      this.#become('open');
    } else if (ice === 'failed' || (pc.connectionState === 'failed' && !reached)) {
      // Chromium tells it of the connection first, and of ICE only then.
      if (this.phases.dtls) this.#finish('connection-lost');
      else this.#neverConnected();
    } else if (dtls === 'closed' || dtls === 'failed' || pc.connectionState === 'failed') {
      // ICE lives and the secured connection does not: the other side closed it, or it never came to be.
      if (this.phases.dtls) this.#endedByServer();
      else this.#finish('never-secured', { failed: true });
    } else if (ice === 'disconnected' && this.state === 'open') {
      this.#become('recovering');
    }
  }

  #noPathSoFar() {
    if (this.#networks === 0 && !this.phases.ice) this.#neverConnected();
    else this.#timer = setTimeout(() => this.#neverConnected(), CONNECT_TIMEOUT - NETWORK_TIMEOUT);
  }

  #neverConnected() {
    const without = this.#networks === 0 ? 'no-network' : 'never-connected';
    this.#finish(this.phases.ice ? 'never-secured' : without, { failed: true });
  }

  #endedByServer() {
    const { code, failed, message } = this.#cause;
    this.#finish(code, { message, failed, told: true });
  }

  #pass(name, start) {
    if (this.phases[name] || this.state === 'ended') return;
    const end = performance.now();
    this.phases[name] = { start, end };
    this.#emit('phase', { name, start, end });
  }

  /** `told`: it was the server that ended the call. */
  #finish(code, { message = null, failed = false, told = false } = {}) {
    if (this.state === 'ended') return;
    clearTimeout(this.#timer);
    this.end = { code, message, failed, at: performance.now() };
    this.#become('ended');
    this.#abort.abort();
    void this.#close(!told);
  }

  /** Closes the connection; first tells the server, unless it was the server that ended the call. */
  async #close(tell) {
    for (const sender of this.#pc?.getSenders() ?? []) void sender.replaceTrack(null).catch(() => {});
    if (tell && this.#location) {
      // `keepalive` lets it out even when the page is being left.
      const request = fetch(`${this.#location.href}/hangup`, {
        method: 'POST',
        headers: { Authorization: `Bearer ${this.#key}` },
        keepalive: true,
      }).catch(() => {});
      // Were the connection closed at once, the server might know of no such call when the request arrives.
      const late = new Promise((resolve) => setTimeout(resolve, HANGUP_TIMEOUT));
      await Promise.race([request, late]);
    }
    this.#pc?.close();
  }

  #become(state) {
    if (this.state === state || this.state === 'ended') return;
    this.state = state;
    this.#emit('state', { state, end: this.end });
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

function codeOfStatus(status) {
  if (status === 401 || status === 403) return 'key-refused';
  if (status === 404 || status === 405) return 'no-such-service';
  if (status === 429 || status === 503) return 'server-full';
  return status < 500 ? 'offer-refused' : 'server-failed';
}

/** The message in an error of the API's shape. */
function messageOf(text) {
  const message = objectOf(text)?.error?.message;
  return typeof message === 'string' ? message : null;
}

function objectOf(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}
