// Debian's Chromium, whose microphone plays a WAV over and over.

import { chromium } from 'playwright-core';

import { watchPeers } from './page.js';

/** Starts it. `microphone` is a WAV's path; null: it has none. What it `allows` is every page's microphone, or what a context permits. */
export function launchChromium(microphone, allows = true) {
  return chromium.launch({
    executablePath: process.env.FIRSTHOP_CHROMIUM ?? '/usr/bin/chromium',
    args: [
      // As root, and in a namespace already.
      '--no-sandbox',
      ...(allows ? ['--use-fake-ui-for-media-stream'] : []),
      ...(microphone ? ['--use-fake-device-for-media-stream', `--use-file-for-fake-audio-capture=${microphone}`] : []),
      '--autoplay-policy=no-user-gesture-required',
      '--disable-quic',
      '--disable-background-networking',
    ],
  });
}

/** A context of its own, as of another person; its pages keep their peer connections. */
export async function person(browser) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, permissions: ['microphone'] });
  context.setDefaultTimeout(20_000);
  await context.addInitScript(watchPeers);
  return context;
}
