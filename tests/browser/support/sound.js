// Spoken sound for a fake microphone, and how much of it is in what came back.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** Samples per second of what is compared: all of a voice that matters for likeness. */
export const RATE = 8_000;

/** One breath without a pause: a voice detector hears one turn. */
const SENTENCE = 'The quick brown fox jumps over the lazy dog while the band plays on';

/**
 * Makes a WAV of spoken text in a folder. Returns its path, and its samples at RATE.
 *
 * @param {string} text
 * @param {{folder: string, name: string, rate: number, effects?: string[]}} how `effects` of sox are in the WAV and not in the samples
 */
export function say(text, { folder, name, rate, effects = [] }) {
  const [raw, file, narrow] = ['raw', '', 'narrow'].map((kind) => join(folder, `${name}${kind && '.'}${kind}.wav`));
  execFileSync('espeak-ng', ['-s', '150', '-w', raw, text]);
  execFileSync('sox', [raw, '-r', String(rate), '-c', '1', '-b', '16', file, 'norm', '-6', ...effects]);
  execFileSync('sox', [raw, '-r', String(RATE), '-c', '1', '-b', '16', narrow, 'norm', '-6']);
  return { file, samples: samplesOf(readFileSync(narrow)) };
}

/**
 * Makes a WAV of the sentence with silence around it, which a browser plays over and over as its microphone.
 * Returns its path, and the sentence's samples at RATE; and the path of a smaller WAV of three rounds.
 */
export function speak(folder) {
  const rounds = join(folder, 'rounds.wav');
  const spoken = say(SENTENCE, { folder, name: 'spoken', rate: 48_000, effects: ['pad', '0.5', '2.5'] });
  execFileSync('sox', [spoken.file, '-r', '16000', rounds, 'repeat', '2']);
  return { ...spoken, rounds };
}

/** The samples of a 16-bit mono WAV, between -1 and 1. */
function samplesOf(wav) {
  const start = wav.indexOf('data', 12, 'latin1') + 8;
  return Float32Array.from({ length: (wav.length - start) >> 1 }, (_, n) => wav.readInt16LE(start + 2 * n) / 32_768);
}

/** Samples as a page sends them: base64 of 16-bit little-endian. */
export function samplesFrom(base64) {
  const bytes = Buffer.from(base64, 'base64');
  return Float32Array.from({ length: bytes.length >> 1 }, (_, n) => bytes.readInt16LE(2 * n) / 32_768);
}

/** Root mean square. */
export function loudness(samples) {
  return Math.sqrt(samples.reduce((sum, value) => sum + value * value, 0) / Math.max(1, samples.length));
}

/**
 * For each loud second of `sent`, the normalised cross-correlation with its best place in `received`: 1 for the same sound at any
 * volume, below 0.4 for other speech. Second by second, because a receiver may stretch a pause.
 */
export function likeness(sent, received) {
  const pieces = [];
  for (let start = 0; start + RATE <= sent.length; start += RATE) pieces.push(sent.subarray(start, start + RATE));
  const loud = pieces.filter((piece) => loudness(piece) > 0.3 * loudness(sent));
  return loud.map((piece) => correlation(piece, received));
}

function correlation(piece, received) {
  const own = piece.reduce((sum, value) => sum + value * value, 0);
  let energy = received.subarray(0, piece.length).reduce((sum, value) => sum + value * value, 0);
  let best = 0;
  const products = slide(piece, received);
  for (let lag = 0; lag + piece.length < received.length; lag += 1) {
    // Near-silence has no shape to compare.
    if (energy > 1e-3 * own) best = Math.max(best, products[lag] / Math.sqrt(own * energy));
    energy += received[lag + piece.length] ** 2 - received[lag] ** 2;
  }
  return best;
}

/** The sum of products of `piece` with `received` at each lag, by way of their spectra. */
function slide(piece, received) {
  const size = 2 ** Math.ceil(Math.log2(piece.length + received.length));
  const [a, b] = [piece, received].map((samples) => {
    const real = new Float64Array(size);
    real.set(samples);
    const imaginary = new Float64Array(size);
    transform(real, imaginary);
    return { real, imaginary };
  });
  const real = Float64Array.from(a.real, (value, k) => value * b.real[k] + a.imaginary[k] * b.imaginary[k]);
  // Conjugated, so that the forward transform does for the inverse: the result is real.
  const imaginary = Float64Array.from(a.real, (value, k) => a.imaginary[k] * b.real[k] - value * b.imaginary[k]);
  transform(real, imaginary);
  return real.map((value) => value / size);
}

/** The discrete Fourier transform in place, radix 2; the length must be a power of 2. */
function transform(real, imaginary) {
  const size = real.length;
  for (let n = 1, reversed = 0; n < size; n += 1) {
    let bit = size >> 1;
    for (; reversed & bit; bit >>= 1) reversed ^= bit;
    reversed |= bit;
    if (n < reversed) {
      [real[n], real[reversed]] = [real[reversed], real[n]];
      [imaginary[n], imaginary[reversed]] = [imaginary[reversed], imaginary[n]];
    }
  }
  for (let half = 1; half < size; half *= 2) {
    for (let k = 0; k < half; k += 1) {
      const angle = (-Math.PI * k) / half;
      const [cosine, sine] = [Math.cos(angle), Math.sin(angle)];
      for (let low = k; low < size; low += 2 * half) {
        const high = low + half;
        const turnedReal = real[high] * cosine - imaginary[high] * sine;
        const turnedImaginary = real[high] * sine + imaginary[high] * cosine;
        real[high] = real[low] - turnedReal;
        imaginary[high] = imaginary[low] - turnedImaginary;
        real[low] += turnedReal;
        imaginary[low] += turnedImaginary;
      }
    }
  }
}

/** Which share of the energy lies at `hertz`: near 1 for a pure tone of that pitch. */
export function shareOfTone(samples, hertz) {
  let [inPhase, quadrature] = [0, 0];
  samples.forEach((value, n) => {
    const angle = (2 * Math.PI * hertz * n) / RATE;
    inPhase += value * Math.cos(angle);
    quadrature += value * Math.sin(angle);
  });
  const energy = samples.reduce((sum, value) => sum + value * value, 0);
  return energy === 0 ? 0 : (2 * (inPhase ** 2 + quadrature ** 2)) / (samples.length * energy);
}

/** All stretches of so many seconds, one every tenth of a second. */
export function stretches(samples, seconds) {
  const length = Math.min(samples.length, Math.round(seconds * RATE));
  const starts = Array.from({ length: Math.floor((samples.length - length) / (RATE / 10)) + 1 }, (_, n) => n * (RATE / 10));
  return starts.map((start) => samples.subarray(start, start + length));
}

/** The loudest stretch of so many seconds. */
export function loudest(samples, seconds) {
  return stretches(samples, seconds).reduce((best, one) => (loudness(one) > loudness(best) ? one : best));
}

/** The value in the middle, the upper one of two. */
export function median(values) {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];
}
