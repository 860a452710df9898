// A call from a third stack, beside those of the browsers: werift.

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';

import { ONE_TURN } from './support/page.js';
import { missing } from './support/packets.js';
import { likeness, median } from './support/sound.js';
import { stage } from './support/stage.js';
import { Telephone } from './support/telephone.js';
import { until } from './support/until.js';

/** What G.711 leaves of spoken sound, and twice the pass through it; unrelated speech stays under 0.4. */
const ALIKE = 0.8;

suite('werift', { timeout: 240_000 }, () => {
  const here = stage(() => null);

  test('a caller with G.711 alone hears what it said, gets and gives events, and hangs up', async (t) => {
    const caller = new Telephone();
    const account = () => JSON.stringify({ states: caller.states, events: caller.types(), packets: caller.packets().length });
    const got = (type) => until(type, () => caller.types().includes(type), 60, account);
    try {
      await caller.call();
      await until('the channel is open', () => caller.channelIsOpen, 20, account);
      await got('session.created');
      assert.equal(await here.stack.flows(), 1, 'it goes by the relay');
      caller.speak(here.spoken.samples);
      await got('output_audio_buffer.stopped');
      assert.deepEqual(caller.types(), ONE_TURN);
      const alike = likeness(here.spoken.samples, caller.heard());
      t.diagnostic(`likeness of each second: ${alike.map((one) => one.toFixed(2))}`);
      // A socket of node's takes nothing while the machine is busy elsewhere: what came has its place, and most came.
      assert(median(alike) > ALIKE);
      assert(missing(caller.packets()) < caller.packets().length / 10);
      assert(caller.packets().every(({ payloadType }) => payloadType === 0));

      caller.send({ type: 'session.update', session: { type: 'realtime', instructions: 'Be brief.' } });
      await got('session.updated');
      assert.equal(await here.stack.hangUp(caller.id), 200);
      await here.stack.empty();
    } finally {
      await caller.close();
    }
  });
});
