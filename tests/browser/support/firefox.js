// Debian's Firefox ESR, whose microphone is a pure tone: it cannot be told to play a file in its place, but a page can.

import { readFileSync } from 'node:fs';

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

/** A new tab; it keeps its peer connections. With a WAV's path, its pages get that from the start in place of the microphone. */
export async function tab(browser, wav = null) {
  const page = await browser.newPage();
  await page.setViewport({ width: 1280, height: 900 });
  await page.evaluateOnNewDocument(watchPeers);
  if (wav) await page.evaluateOnNewDocument(playInstead, readFileSync(wav, 'base64'));
  return page;
}

/** Runs in a page: its microphone is a recording, played by the media player. (Without a sound card no AudioContext runs here.) */
function playInstead(base64) {
  // An empty page has none.
  if (!navigator.mediaDevices) return;
  navigator.mediaDevices.getUserMedia = async () => {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const player = new Audio(URL.createObjectURL(new Blob([bytes], { type: 'audio/wav' })));
    const stream = player.mozCaptureStream();
    player.loop = true;
    await player.play();
    // It must live as long as the page.
    globalThis.player = player;
    return stream;
  };
}
