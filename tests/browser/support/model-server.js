// The test tree's model server, which speaks the Realtime protocol over a real WebSocket: see its own documentation.

import { execFileSync, spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { REPOSITORY } from './stack.js';
import { until } from './until.js';

const PORT = 8765;

/** Several seconds, so that there is something to interrupt. */
const ANSWER =
  'Certainly I am going to tell you all about the weather over there, and about the sea, and about the ships that come and go, ' +
  'while you are listening to my voice and to nobody else';

export class ModelServer {
  static URL = `ws://127.0.0.1:${PORT}/v1/realtime`;

  /** Its books: { time, direction, event }. */
  books = [];
  #child;
  #ready = false;

  /** Starts it; its answer is made in this folder. */
  static async start(folder) {
    const [raw, answer] = ['answer.raw.wav', 'answer.wav'].map((name) => join(folder, name));
    execFileSync('espeak-ng', ['-s', '150', '-w', raw, ANSWER]);
    execFileSync('sox', [raw, '-r', '24000', '-c', '1', '-b', '16', answer, 'norm', '-6']);
    const server = new ModelServer(answer);
    await until('the model server is ready', () => server.#ready, 30);
    return server;
  }

  constructor(answer) {
    const program = join(REPOSITORY, 'tests/e2e/firsthop/realtime_server.py');
    this.#child = spawn('python3', [program, `--port=${PORT}`, `--answer=${answer}`], { stdio: ['ignore', 'pipe', 'inherit'] });
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      if (line.startsWith('{')) this.books.push(JSON.parse(line));
      else this.#ready ||= line === 'ready';
    });
  }

  /** The events of a type that it took ('in') or gave ('out'). */
  events(direction, type) {
    return this.books.filter((one) => one.direction === direction && one.event.type === type).map((one) => one.event);
  }

  stop() {
    this.#child.kill('SIGKILL');
  }
}
