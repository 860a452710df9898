// How loud a stream is: a meter per stream, on one AudioContext for the page.

/** The quietest level shown, in dB of full scale. */
export const FLOOR = -60;

/** How fast a falling level follows, in dB per second. A rising one follows at once. */
const RELEASE = 40;

export class Meter {
  /** What is shown now, in dB of full scale, FLOOR to 0. */
  shown = FLOOR;
  #source;
  #analyser;
  #samples;
  #read = 0;

  constructor(context, stream) {
    this.#source = new MediaStreamAudioSourceNode(context, { mediaStream: stream });
    // 2,048 samples are 43 ms at 48 kHz: no sound between two turns of drawing is missed.
    this.#analyser = new AnalyserNode(context, { fftSize: 2048 });
    this.#samples = new Float32Array(this.#analyser.fftSize);
    this.#source.connect(this.#analyser);
  }

  /** The level now, in dB of full scale; also moves `shown`. */
  read(now) {
    this.#analyser.getFloatTimeDomainData(this.#samples);
    const level = loudness(this.#samples);
    const fallen = this.shown - (RELEASE * (now - this.#read)) / 1000;
    this.#read = now;
    this.shown = Math.max(FLOOR, level, Math.min(this.shown, fallen));
    return level;
  }

  close() {
    this.#source.disconnect();
  }
}

/** The root mean square of samples in dB of full scale, FLOOR to 0. */
export function loudness(samples) {
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  const level = 10 * Math.log10(sum / samples.length);
  return Math.min(0, Math.max(FLOOR, level));
}

/** Where a level lies between FLOOR (0) and full scale (1). */
export function fraction(level) {
  return 1 - level / FLOOR;
}
