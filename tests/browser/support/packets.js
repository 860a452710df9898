// The packets of a call's sound as a browser receives them: watched in the page, judged here.

/** What the server sends at a time, in milliseconds and in ticks of Opus' clock. */
const FRAME_MS = 20;
const FRAME_TICKS = 960;

/** After sound that was cut comes silence. The encoder needs so many frames, the fade among them, until nothing is left of the sound. */
const SETTLING = 5;

/**
 * Runs in every page before its own scripts: a transform between the network and the decoder notes what each connection receives, and
 * passes it on as it is. `globalThis.packets` has of each packet its sequence number, its timestamp, its length, and when it came, in
 * milliseconds of the wall's clock; `globalThis.told` of each event on the channel its type, its id, and when it came by the same clock.
 */
export function watchPackets() {
  const script = `onrtctransform = ({ transformer: { readable, writable } }) => {
    const note = (frame, out) => {
      const { sequenceNumber: sequence, rtpTimestamp: ticks } = frame.getMetadata();
      postMessage({ sequence, ticks, bytes: frame.data.byteLength, at: performance.timeOrigin + performance.now() });
      out.enqueue(frame);
    };
    readable.pipeThrough(new TransformStream({ transform: note })).pipeTo(writable);
  };`;
  const Original = globalThis.RTCPeerConnection;
  globalThis.packets = [];
  globalThis.told = [];
  globalThis.RTCPeerConnection = class extends Original {
    createDataChannel(...given) {
      const channel = super.createDataChannel(...given);
      channel.addEventListener('message', ({ data }) => {
        const at = performance.timeOrigin + performance.now();
        const { type, event_id: id } = JSON.parse(data);
        globalThis.told.push({ type, id, at });
      });
      return channel;
    }

    addTrack(...given) {
      const sender = super.addTrack(...given);
      const { receiver } = this.getTransceivers().find((one) => one.sender === sender);
      const worker = new Worker(URL.createObjectURL(new Blob([script], { type: 'text/javascript' })));
      worker.addEventListener('message', ({ data }) => globalThis.packets.push(data));
      // At once: a transform that is set later is passed by in Chromium.
      receiver.transform = new RTCRtpScriptTransform(worker);
      return sender;
    }
  };
}

/** How many sequence numbers never came, between the first and the last of these. */
export function missing(packets) {
  let at = 0;
  const came = packets.map(({ sequence }, n) => {
    // The 16-bit number goes on around the one before.
    if (n > 0) at += ((sequence - packets[n - 1].sequence) << 16) >> 16;
    return at;
  });
  return came.length === 0 ? 0 : Math.max(...came) - Math.min(...came) + 1 - new Set(came).size;
}

/** Cuts packets where time was left out between them: each run is what was said in one go. */
export function runs(packets) {
  const found = [];
  for (const packet of packets) {
    const last = found.at(-1)?.at(-1);
    if (last && ((packet.ticks - last.ticks) | 0) === FRAME_TICKS) found.at(-1).push(packet);
    else found.push([packet]);
  }
  return found;
}

/**
 * Judges a run that was cut by an event which left the model server at `event`, and of which the client was told at `told`, both in
 * milliseconds of the wall's clock.
 *
 * How many frames the item had is told by their sizes: at the end of the run is silence, packets of the same few bytes. How long the
 * last of them came after the event is told twice. `received` is what the client sees; a busy machine may
 * keep one of the two waiting. `paced` is against the time at which the event left the model, and takes as the packet's time its place in the
 * run: as many times 20 ms after the first as there are packets between, where the beginning is taken from the packet that came soonest
 * for its place. That is what the server decides: it counts the frames that it has sent after the event.
 *
 * @returns {{sent: number, received: number, paced: number} | null} milliseconds; null when the silence is not to be seen
 */
export function interruption(run, { event, told }) {
  const silent = run.length - 1 - run.findLastIndex(({ bytes }) => bytes !== run.at(-1).bytes);
  const frames = run.length - silent - SETTLING;
  if (silent < 2 || frames < 1) return null;
  const began = Math.min(...run.map(({ at }, n) => at - FRAME_MS * n));
  return {
    sent: FRAME_MS * frames,
    received: run[frames - 1].at - told,
    paced: began + FRAME_MS * (frames - 1) - event,
  };
}
