// Where the caller's voice comes from: the microphone, a recording, or a voice-like tone.
//
// Each function gives { stream, label, stop } or throws a SourceError whose `code` says why not.

/** Why there is no voice: microphone-refused, -missing, -busy, -insecure or -failed, or recording-failed. */
export class SourceError extends Error {
  constructor(code, message = '') {
    super(message);
    this.code = code;
  }
}

/** Asks for the microphone. */
export async function microphone() {
  if (!navigator.mediaDevices?.getUserMedia) {
    // Browsers hide it on pages that did not come over a secure connection.
    throw new SourceError(globalThis.isSecureContext ? 'microphone-failed' : 'microphone-insecure');
  }
  let stream;
  try {
    stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: true, noiseSuppression: true, autoGainControl: true },
    });
  } catch (error) {
    throw new SourceError(CODES[error.name] ?? 'microphone-failed', error.message);
  }
  const label = stream.getAudioTracks()[0].label || 'Microphone';
  return { stream, label, stop: () => stream.getTracks().forEach((track) => track.stop()) };
}

const CODES = {
  NotAllowedError: 'microphone-refused',
  SecurityError: 'microphone-refused',
  NotFoundError: 'microphone-missing',
  OverconstrainedError: 'microphone-missing',
  NotReadableError: 'microphone-busy',
  AbortError: 'microphone-busy',
};

/** Plays a recording of this server over and over, in place of a microphone. */
export async function recording(context, url) {
  let buffer;
  try {
    const response = await fetch(url);
    if (!response.ok) throw new Error(`${url} answers ${response.status}`);
    buffer = await context.decodeAudioData(await response.arrayBuffer());
  } catch (error) {
    throw new SourceError('recording-failed', error.message);
  }
  return loop(context, buffer, 'Recording');
}

/** Plays a tone that rises, falls and pauses like speech. */
export async function tone(context) {
  const samples = voiceLike(context.sampleRate);
  const buffer = context.createBuffer(1, samples.length, context.sampleRate);
  buffer.copyToChannel(samples, 0);
  return loop(context, buffer, 'Voice-like tone');
}

function loop(context, buffer, label) {
  const player = new AudioBufferSourceNode(context, { buffer, loop: true });
  const out = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
  player.connect(out);
  player.start();
  const stop = () => {
    player.stop();
    out.stream.getTracks().forEach((track) => track.stop());
  };
  return { stream: out.stream, label, stop };
}

/** Five syllables and a pause, four seconds: a buzz of 110 to 150 Hz through the resonances of vowels, so that voice detectors take it. */
export function voiceLike(rate) {
  const samples = new Float32Array(4 * rate);
  const vowels = [
    [730, 1090, 2440],
    [270, 2290, 3010],
    [570, 840, 2410],
    [530, 1840, 2480],
    [300, 870, 2240],
  ];
  const syllable = 0.44;
  vowels.forEach((formants, index) => {
    const begin = Math.round((0.2 + index * 0.5) * rate);
    const length = Math.round(syllable * rate);
    const filters = formants.map((hertz, i) => resonator(hertz, 60 + 40 * i, rate));
    let phase = 0;
    for (let n = 0; n < length; n += 1) {
      const part = n / length;
      phase += (110 + 40 * Math.sin(Math.PI * (part + index / 5))) / rate;
      const buzz = 2 * (phase % 1) - 1;
      const envelope = Math.sin(Math.PI * part) ** 0.7;
      const voice = filters.reduce((sum, filter, i) => sum + filter(buzz) / (1 + i), 0);
      samples[begin + n] = envelope * voice;
    }
    // Vowels differ much in strength: each is brought to the same.
    const sound = samples.subarray(begin, begin + length);
    const peak = sound.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
    sound.forEach((value, n) => (sound[n] = (0.4 * value) / peak));
  });
  return samples;
}

/** A two-pole band-pass around `hertz`. */
function resonator(hertz, width, rate) {
  const r = Math.exp((-Math.PI * width) / rate);
  const a = 2 * r * Math.cos((2 * Math.PI * hertz) / rate);
  let [y1, y2] = [0, 0];
  return (x) => {
    const y = (1 - r) * x + a * y1 - r * r * y2;
    [y1, y2] = [y, y1];
    return y;
  };
}
