// The test tree's model server, which speaks the Realtime protocol over a real WebSocket: see its own documentation.

import { say } from './sound.js';
import { Teller } from './teller.js';

const PORT = 8765;

/** Several seconds, so that there is something to interrupt. */
const ANSWER =
  'Certainly I am going to tell you all about the weather over there, and about the sea, and about the ships that come and go, ' +
  'while you are listening to my voice and to nobody else';

export class ModelServer {
  /** The transceiver's settings of it. */
  settings = { backend: 'realtime', 'backend-url': `ws://127.0.0.1:${PORT}/v1/realtime` };
  #program;

  /** Starts it; its answer is made in this folder. */
  static async start(folder) {
    const server = new ModelServer(say(ANSWER, { folder, name: 'answer', rate: 24_000 }));
    await server.#program.ready(() => server.#program.lines.includes('ready'), 30);
    return server;
  }

  constructor({ file, samples }) {
    /** What it says, at the rate at which sound is compared. */
    this.answer = samples;
    this.#program = new Teller('python3', 'tests/e2e/firsthop/realtime_server.py', `--port=${PORT}`, `--answer=${file}`);
  }

  /**
   * What its books have of a type of event that it took ('in') or gave ('out'), from line `since` on: { wall, event }, the time in
   * seconds of the wall's clock.
   */
  events(direction, type, since = 0) {
    return this.#program.books.slice(since).filter((one) => one.direction === direction && one.event.type === type);
  }

  /** How many lines its books have by now. */
  get lines() {
    return this.#program.books.length;
  }

  stop() {
    this.#program.stop();
  }
}
