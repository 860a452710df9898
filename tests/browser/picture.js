// Takes the README's pictures of the page in a call anew: tests/browser/run picture.js

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { launchChromium } from './support/chromium.js';
import { CallPage } from './support/page.js';
import { speak } from './support/sound.js';
import { REPOSITORY, Stack } from './support/stack.js';

/** Long enough for the plots to show something, in milliseconds. */
const CALL = 12_000;

const folder = mkdtempSync(join(tmpdir(), 'firsthop-voice-'));
const stack = await Stack.start();
const browser = await launchChromium(speak(folder).file);
try {
  for (const colorScheme of ['light', 'dark']) {
    const context = await browser.newContext({ viewport: { width: 960, height: 900 }, deviceScaleFactor: 2, colorScheme, permissions: ['microphone'] });
    const call = new CallPage(await context.newPage());
    await call.open();
    await call.press('primary');
    await call.reach('open');
    await call.page.waitForTimeout(CALL);
    await call.page.screenshot({ path: join(REPOSITORY, `docs/page-${colorScheme}.png`), fullPage: true });
    await call.leave();
    await context.close();
  }
} finally {
  await browser.close();
  await stack.stop();
  rmSync(folder, { recursive: true, force: true });
}
