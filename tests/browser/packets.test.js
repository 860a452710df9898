// The judgement of packets itself.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { interruption, missing, runs } from './support/packets.js';

/** Packets of these sizes, in time, their numbers and timestamps from just before the end of both. */
function sent(sizes, { at = 1_000, sequence = 0xfffe, ticks = 0xffff_fc00 } = {}) {
  return sizes.map((bytes, n) => ({ sequence: (sequence + n) & 0xffff, ticks: (ticks + 960 * n) >>> 0, bytes, at: at + 20 * n }));
}

const ITEM = Array.from({ length: 50 }, (_, n) => 80 + (n % 7));
const TAIL = [70, 55, 40, 39, 38, 32, 32, 32, 32, 32];

test('what never came is missing, and what came late is not', () => {
  const packets = sent(ITEM);
  assert.equal(missing(packets), 0);
  assert.equal(missing([]), 0);
  [packets[1], packets[5]] = [packets[5], packets[1]];
  assert.equal(missing(packets), 0);
  packets.splice(20, 2);
  assert.equal(missing(packets), 2);
});

test('a run ends where time was left out', () => {
  const first = sent(ITEM);
  const second = sent(TAIL, { sequence: 48, ticks: 960 * 500 });
  assert.deepEqual(runs([...first, ...second]), [first, second]);
});

test('an interruption is judged by the silence after it, late packets by their place', () => {
  const cut = sent([...ITEM, ...TAIL]);
  const last = 1_000 + 20 * (ITEM.length - 1);
  assert.deepEqual(interruption(cut, { event: last - 15, told: last - 5 }), { sent: 1_000, received: 5, paced: 15 });
  for (const packet of cut.slice(3)) packet.at += 70;
  assert.deepEqual(interruption(cut, { event: last - 15, told: last + 65 }), { sent: 1_000, received: 5, paced: 15 });
  // Whoever goes on to talk is found out, by either.
  const on = sent([...ITEM, ...ITEM, ...TAIL]);
  const { received, paced } = interruption(on, { event: last, told: last });
  assert.deepEqual([received, paced], [1_000, 1_000]);
});

test('without silence nothing is judged', () => {
  assert.equal(interruption(sent(ITEM), { event: 1_000, told: 1_000 }), null);
});
