// The test tree's bot, built with pipecat-ai: it plays back what it hears. See its own documentation.

import { join } from 'node:path';

import { REPOSITORY } from './stack.js';
import { Teller } from './teller.js';

const PORT = 8765;

/** Its environment, from tests/e2e/pipecat.lock: scripts/test makes it. */
const PYTHON = join(REPOSITORY, 'tests/e2e/.venv-pipecat/bin/python');

export class PipecatBot {
  /** The transceiver's settings of it. */
  settings = { backend: 'pipecat', 'backend-url': `ws://127.0.0.1:${PORT}` };
  #program = new Teller(PYTHON, 'tests/e2e/firsthop/pipecat_bot.py', `--port=${PORT}`);

  static async start() {
    const bot = new PipecatBot();
    // It loads half a gigabyte of Python.
    await bot.#program.ready(() => bot.notes('ready').length > 0, 120);
    return bot;
  }

  /** What it has told of this kind. */
  notes(kind) {
    return this.#program.books.filter((one) => one.kind === kind);
  }

  stop() {
    this.#program.stop();
  }
}
