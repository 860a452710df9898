// A program of the test tree that tells what happens to it: every line of JSON that it prints is kept.

import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { createInterface } from 'node:readline';

import { REPOSITORY } from './stack.js';
import { until } from './until.js';

export class Teller {
  /** What it has told, in order. */
  books = [];
  /** Its other lines. */
  lines = [];
  #child;
  #ended = null;

  /** Starts a program: an interpreter and what it is given, paths in the repository first. */
  constructor(interpreter, file, ...settings) {
    this.#child = spawn(interpreter, [join(REPOSITORY, file), ...settings], { stdio: ['ignore', 'pipe', 'inherit'] });
    this.#child.on('error', (error) => (this.#ended ??= error.message));
    this.#child.on('exit', (status, signal) => (this.#ended ??= `it ended with ${status ?? signal}`));
    createInterface({ input: this.#child.stdout }).on('line', (line) => {
      if (line.startsWith('{')) this.books.push(JSON.parse(line));
      else this.lines.push(line);
    });
  }

  /** Waits until it has told so; gives up at once when it has ended. */
  async ready(isReady, seconds) {
    const there = () => {
      if (this.#ended !== null) throw new Error(this.#ended);
      return isReady();
    };
    await until(`${this.#child.spawnargs[1]} is ready`, there, seconds, () => this.lines.join('\n'));
  }

  stop() {
    this.#child.kill('SIGKILL');
  }
}
