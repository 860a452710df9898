// A conversation with a model server in Firefox.

import { suite } from 'node:test';

import { conversation } from './support/conversation.js';
import { launchFirefox, tab } from './support/firefox.js';
import { watchPackets } from './support/packets.js';

async function open(browser, { rounds }) {
  const page = await tab(browser, rounds);
  await page.evaluateOnNewDocument(watchPackets);
  return page;
}

suite('a model server and Firefox', { timeout: 300_000 }, () => conversation(launchFirefox, open));
