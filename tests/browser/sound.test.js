// The measure itself: what it finds alike, and what not.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { likeness, loudest, RATE, shareOfTone } from './support/sound.js';

/** Noise that is the same on every run. */
function noise(length, seed) {
  let state = seed;
  return Float32Array.from({ length }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 31 - 1;
  });
}

const tone = (hertz) => Float32Array.from({ length: 2 * RATE }, (_, n) => Math.sin((2 * Math.PI * hertz * n) / RATE));

test('the same sound, later and softer, is alike', () => {
  const sent = noise(2 * RATE, 1);
  const received = new Float32Array(5 * RATE);
  received.set(sent.map((value) => 0.2 * value), 1_234);
  assert(likeness(sent, received).every((one) => one > 0.99));
});

test('another sound is not', () => {
  assert(likeness(noise(2 * RATE, 1), noise(5 * RATE, 2)).every((one) => one < 0.1));
  assert.deepEqual(likeness(noise(RATE, 1), new Float32Array(5 * RATE)), [0]);
});

test('a tone is told from another and from noise', () => {
  assert(shareOfTone(tone(700), 700) > 0.99);
  assert(shareOfTone(tone(710), 700) < 0.01);
  assert(shareOfTone(noise(2 * RATE, 3), 700) < 0.01);
  assert.equal(shareOfTone(new Float32Array(10), 700), 0);
});

test('the loudest stretch is found in silence', () => {
  const sound = new Float32Array(3 * RATE);
  sound.set(tone(700).subarray(0, RATE), RATE);
  assert.equal(shareOfTone(loudest(sound, 1), 700) > 0.99, true);
});
