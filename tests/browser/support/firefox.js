// Debian's Firefox ESR, whose microphone is a pure tone: it has no way to play a file there.

import puppeteer from 'puppeteer-core';

import { watchPeers } from './page.js';

/** The tone's frequency, in hertz. */
export const TONE = 700;

export function launchFirefox() {
  return puppeteer.launch({
    browser: 'firefox',
    executablePath: process.env.FIRSTHOP_FIREFOX ?? '/usr/bin/firefox-esr',
    headless: true,
    extraPrefsFirefox: {
      'media.navigator.permission.disabled': true,
      'media.navigator.streams.fake': true,
      'media.navigator.audio.fake_frequency': TONE,
      'media.autoplay.default': 0,
      'media.autoplay.blocking_policy': 0,
    },
  });
}

/** A new tab; it keeps its peer connections. */
export async function tab(browser) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  await page.evaluateOnNewDocument(watchPeers);
  return page;
}
