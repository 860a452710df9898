// What the tests of a file share: spoken sound, what is behind the transceiver, the programs, a browser. Made before the first of them,
// taken down after the last.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';

import { speak } from './sound.js';
import { Stack } from './stack.js';

/** Nothing: sessions hear themselves. */
const echo = () => ({ settings: { backend: 'echo' }, stop() {} });

/**
 * Sets a suite's stage, and clears it. Whoever warned of anything but what `behind` expects fails the suite.
 *
 * @param {(spoken: {file: string}) => Promise<object>} launch starts a browser, with the sound for its microphone
 * @param {(folder: string) => object | Promise<object>} [behind] starts what is behind the transceiver: its `settings` of it,
 *   `stop`, and the `complaints` about it that are right
 * @returns {{folder: string, spoken: object, behind: object, stack: Stack, browser: object}} filled before the first test
 */
export function stage(launch, behind = echo) {
  const made = {};
  before(async () => {
    made.folder = mkdtempSync(join(tmpdir(), 'firsthop-browser-'));
    made.spoken = speak(made.folder);
    made.behind = await behind(made.folder);
    made.stack = await Stack.start(made.behind.settings);
    made.browser = await launch(made.spoken);
  });
  after(async () => {
    await made.browser?.close();
    await made.stack?.stop();
    made.behind?.stop();
    rmSync(made.folder, { recursive: true, force: true });
    const expected = made.behind.complaints;
    assert.deepEqual(made.stack.complaints().filter(({ line }) => !expected?.test(line)), []);
  });
  return made;
}
