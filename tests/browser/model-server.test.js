// A conversation with a model server in Chromium.

import { suite } from 'node:test';

import { launchChromium, person } from './support/chromium.js';
import { conversation } from './support/conversation.js';
import { watchPackets } from './support/packets.js';

async function open(browser) {
  const context = await person(browser);
  await context.addInitScript(watchPackets);
  return context.newPage();
}

suite('a model server and Chromium', { timeout: 300_000 }, () => conversation(({ file }) => launchChromium(file), open));
