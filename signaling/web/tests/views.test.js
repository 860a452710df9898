import assert from 'node:assert/strict';
import { test } from 'node:test';
import { answers } from '../answering.js';
import { message, parse } from '../compose.js';
import { FLOOR, fraction, loudness } from '../meters.js';
import { ceiling, paths } from '../plots.js';
import { layout } from '../setup.js';
import { voiceLike } from '../source.js';
import { ENDINGS, failureWords, stateWords } from '../words.js';

const states = (steps) => steps.map((step) => step.state).join(' ');

test('a set-up under way shows the step that runs and those that wait', () => {
  const steps = layout({ request: { start: 0, end: 40 } }, 0, 50, false);
  assert.equal(states(steps), 'done running waiting waiting waiting');
  assert.deepEqual([steps[0].left, steps[0].width, steps[1].left, steps[1].width], [0, 80, 80, 20]);
});

test('a set-up that failed shows where, on the scale of the time until then', () => {
  const steps = layout({ request: { start: 0, end: 50 } }, 0, 100, true);
  assert.equal(states(steps), 'done stopped missed missed missed');
  assert.deepEqual([steps[1].left, steps[1].width], [50, 50]);
});

test('a complete set-up fills the scale, whenever it is looked at', () => {
  const phases = {
    request: { start: 0, end: 10 },
    ice: { start: 10, end: 20 },
    dtls: { start: 20, end: 30 },
    channel: { start: 30, end: 35 },
    audio: { start: 30, end: 100 },
  };
  const steps = layout(phases, 0, 99_999, false);
  assert.equal(states(steps), 'done done done done done');
  assert.deepEqual([steps[4].left, steps[4].width], [30, 70]);
});

test('a call without a first sound ends with the other steps to scale', () => {
  const phases = { request: { start: 0, end: 10 }, ice: { start: 10, end: 20 }, dtls: { start: 20, end: 40 }, channel: { start: 40, end: 50 } };
  const steps = layout(phases, 0, 60_000, true);
  assert.equal(steps[0].width, 20);
  assert.equal(steps[4].state, 'stopped');
});

test('a plot has a gap where a value is missing, and its newest value at the right edge', () => {
  const { line, area } = paths([1, 2, null, 4], 4);
  assert.equal(line.match(/M/g).length, 2);
  assert.match(line, /L300\.0 1\.5$/);
  assert.equal(area.match(/Z/g).length, 2);
  assert.deepEqual(paths([null], 4), { line: '', area: '' });
});

test('a scale ends at a round number', () => {
  assert.deepEqual([0.7, 2, 10, 11, 51, 100, 230].map(ceiling), [1, 2, 10, 20, 100, 100, 500]);
});

test('loudness is in decibels of full scale, and bounded', () => {
  assert.equal(loudness(new Float32Array(8)), FLOOR);
  assert.equal(loudness(new Float32Array(8).fill(1)), 0);
  assert.equal(Math.round(loudness(new Float32Array(8).fill(0.1))), -20);
  assert.deepEqual([fraction(FLOOR), fraction(0)], [0, 1]);
});

test('only an object with a type is an event', () => {
  assert.deepEqual(parse('{"type":"x"}'), { event: { type: 'x' } });
  for (const text of ['', '{', '[]', 'null', '"x"', '{}', '{"type":1}']) assert.ok(parse(text).error, text);
  assert.equal(message('hi').item.content[0].text, 'hi');
});

test('what answers is there when it says or plays something, until its connection is lost', () => {
  const lost = { type: 'error', error: { code: 'backend_disconnected' } };
  const said = [{ type: 'session.created' }, { type: 'session.updated' }, { type: 'output_audio_buffer.started' }, { type: 'bot-ready' }];
  assert.deepEqual(said.map(answers), [true, true, true, true]);
  assert.equal(answers(lost), false);
  const ours = [null, {}, { type: 1 }, { type: 'error', error: {} }, { type: 'output_audio_buffer.cleared' }, { type: 'output_audio_buffer.stopped' }];
  assert.deepEqual(ours.map(answers), ours.map(() => null));
});

test('the synthetic voice sounds, pauses and never clips', () => {
  const rate = 8000;
  const samples = voiceLike(rate);
  assert.equal(samples.length, 4 * rate);
  assert.ok(samples.every((value) => Math.abs(value) <= 0.401));
  assert.ok(loudness(samples.subarray(0.3 * rate, 0.5 * rate)) > -30);
  assert.equal(loudness(samples.subarray(3 * rate)), FLOOR);
});

test('there are words for every state and for every code that a call or a source gives', async () => {
  const { readFile } = await import('node:fs/promises');
  for (const state of ['idle', 'asking', 'requesting', 'connecting', 'slow', 'open', 'waiting', 'silent', 'interrupted', 'recovering']) {
    const words = stateWords(state, { demo: false, echo: true, muted: false, place: 'here' });
    assert.ok(words.chip && words.title && words.text, state);
  }
  const unknown = failureWords('server-failed', { place: 'here', said: null }).title;
  for (const file of ['call.js', 'source.js', 'page.js']) {
    const source = await readFile(new URL(`../${file}`, import.meta.url), 'utf8');
    const codes = source.match(/(?<!\$\()'(microphone|recording|server|key|offer|answer|never|no|session|connection|model)-[a-z]+'/g) ?? [];
    for (const code of codes.map((quoted) => quoted.slice(1, -1)).filter((code) => code !== 'server-failed')) {
      assert.ok(ENDINGS[code] || failureWords(code, { place: 'here', said: null }).title !== unknown, code);
    }
  }
});
