// The three programs with their usual ports, in the network namespace of this process.

import { execFileSync, spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';

import { until } from './until.js';

export const REPOSITORY = resolve(import.meta.dirname, '../../..');

/** The private address of this namespace: where the relay listens. */
export const ADDRESS = '10.78.1.1';
export const UDP_PORT = 3478;
export const KEY = 'dev';
/** Browsers let only a page of localhost use a microphone without TLS. */
export const URL_OF_API = 'http://localhost:8080';

const READY_SECONDS = 30;
const STOP_SECONDS = 15;

const FLEET = `
[[cluster]]
id = 1
name = "test"
signaling = "${URL_OF_API}"
relays = [{ address = "127.0.0.1", cores = 1 }]

[[ingress]]
id = 0
name = "private"
ipv4 = "${ADDRESS}:${UDP_PORT}"
`;

export class Stack {
  /** What the programs printed, a line each: { program, line }. */
  lines = [];
  #binaries;
  #folder;
  #running = new Map();

  /** Starts all three and waits until calls can be placed. `backend` are the transceiver's settings of it. */
  static async start(backend = { backend: 'echo' }) {
    if (!process.env.FIRSTHOP_BROWSER_NAMESPACE) throw new Error('start these tests by tests/browser/run: they need a network namespace');
    const stack = new Stack();
    try {
      await stack.#startAll(backend);
    } catch (error) {
      await stack.stop();
      throw error;
    }
    return stack;
  }

  constructor() {
    this.#binaries = binaries();
    this.#folder = mkdtempSync(join(tmpdir(), 'firsthop-browser-'));
    const file = (name) => join(this.#folder, name);
    execFileSync(join(this.#binaries, 'keys'), ['init', this.#folder], { stdio: 'pipe' });
    writeFileSync(file('control-secret'), `${randomBytes(24).toString('hex')}\n`, { mode: 0o600 });
    const digest = createHash('sha256').update(KEY).digest('hex');
    writeFileSync(file('api-keys.toml'), `[[key]]\nname = "test"\nsha256 = "${digest}"\n`);
    writeFileSync(file('fleet.toml'), FLEET);
  }

  async #startAll(backend) {
    await this.#launch('transceiver', { 'control-secret-file': join(this.#folder, 'control-secret'), workers: '1', ...backend });
    await this.startRelay();
    await this.startSignaling();
  }

  /** Starts signaling, and waits until calls can be placed. */
  async startSignaling() {
    await this.#launch('signaling', {
      'control-secret-file': join(this.#folder, 'control-secret'),
      'api-keyring': join(this.#folder, 'api.toml'),
      'api-keys': join(this.#folder, 'api-keys.toml'),
      listen: 'localhost:8080',
      transceivers: 'http://127.0.0.1:5080',
    });
    await this.canPlace();
  }

  /** Waits until signaling knows of a transceiver with room. It asks them once a second. */
  async canPlace() {
    const ready = async () => (await fetch(`${URL_OF_API}/readyz`).catch(() => null))?.status === 200;
    await until('signaling is ready to place calls', ready, READY_SECONDS, () => this.tail());
  }

  /** Ends signaling, as an operator does. */
  async stopSignaling() {
    await this.#end('signaling', 'SIGTERM');
  }

  async startRelay() {
    // There are few cores where tests run: an idle relay shall not spin on one.
    await this.#launch('relay', { listen: `${ADDRESS}:${UDP_PORT}`, cores: '1', spin: 'off', drain: '0' });
  }

  /** Ends the relay as a crash would. */
  async killRelay() {
    await this.#end('relay', 'SIGKILL');
  }

  /** Ends a call through the API, as the server side of an app does. Returns the status. */
  async hangUp(id) {
    const response = await fetch(`${URL_OF_API}/v1/realtime/calls/${id}/hangup`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${KEY}` },
    });
    return response.status;
  }

  /** How many sessions the transceiver has. */
  async sessions() {
    return total(await scrape(5080), 'firsthop_transceiver_sessions');
  }

  /** How many it has ever made. */
  async sessionsCreated() {
    return total(await scrape(5080), 'firsthop_transceiver_sessions_created_total');
  }

  /** How many ICE restarts it has carried out. */
  async iceRestarts() {
    return total(await scrape(5080), 'firsthop_transceiver_ice_restarts_total');
  }

  /** How many flows the relay has. */
  async flows() {
    return total(await scrape(9101), 'firsthop_relay_flows');
  }

  /** Waits until no call is left anywhere. */
  async empty() {
    await until('the sessions are gone', async () => (await this.sessions()) === 0, 10);
    await until('the flows are gone', async () => (await this.flows()) === 0, 10);
  }

  /** What any program warned of. */
  complaints() {
    return this.lines.filter(({ line }) => /"level":"(WARN|ERROR)"|panicked at|^Error:/.test(line));
  }

  /** The programs' last words. */
  tail(count = 40) {
    return this.lines.slice(-count).map(({ program, line }) => `\n  ${program}: ${line}`).join('');
  }

  /** Asks each to stop. Throws when one does not, or not with status 0. */
  async stop() {
    const failures = [];
    for (const program of ['signaling', 'relay', 'transceiver']) {
      const status = await this.#end(program, 'SIGTERM');
      if (status !== 0) failures.push(`${program} ended with ${status}`);
    }
    rmSync(this.#folder, { recursive: true, force: true });
    if (failures.length > 0) throw new Error(failures.join(', '));
  }

  async #launch(program, settings) {
    const common = { keyring: join(this.#folder, 'data.toml'), fleet: join(this.#folder, 'fleet.toml'), cluster: '1', 'log-format': 'json' };
    const flags = Object.entries({ ...common, ...settings }).map(([name, value]) => `--${name}=${value}`);
    // The programs read their settings from the environment too: none may come in from outside.
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('FIRSTHOP_')));
    const child = spawn(join(this.#binaries, program), flags, { stdio: ['ignore', 'pipe', 'pipe'], env });
    const began = this.lines.length;
    let ended = null;
    const exit = new Promise((done) => {
      child.on('error', (error) => done((ended = error.message)));
      child.on('close', (status, signal) => done((ended = status ?? signal)));
    });
    this.#running.set(program, { child, exit });
    for (const stream of [child.stdout, child.stderr]) {
      let rest = '';
      stream.setEncoding('utf8').on('data', (text) => {
        const lines = (rest + text).split('\n');
        rest = lines.pop();
        this.lines.push(...lines.map((line) => ({ program, line })));
      });
    }
    const ready = () => {
      if (ended !== null) throw new Error(`${program} ended with ${ended}: ${this.tail()}`);
      return this.lines.slice(began).some((one) => one.program === program && one.line.includes('"ready"'));
    };
    await until(`${program} is ready`, ready, READY_SECONDS, () => this.tail());
  }

  /** Signals a program and waits for its end; one that will not end is killed. Returns its status, or the signal's name. */
  async #end(program, signal) {
    const running = this.#running.get(program);
    if (!running) return 0;
    this.#running.delete(program);
    running.child.kill(signal);
    const late = setTimeout(() => running.child.kill('SIGKILL'), 1000 * STOP_SECONDS);
    const status = await running.exit;
    clearTimeout(late);
    return status;
  }
}

/** The folder with the built programs: `FIRSTHOP_BINARIES`, or what cargo builds now with the dev profile. */
function binaries() {
  const { FIRSTHOP_BINARIES: given, CARGO_TARGET_DIR: target } = process.env;
  if (given) return resolve(given);
  execFileSync('cargo', ['build', '--quiet', '--workspace', '--bins', '--locked'], { cwd: REPOSITORY, stdio: 'inherit' });
  return resolve(REPOSITORY, target ?? 'target', 'debug');
}

async function scrape(port) {
  return (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
}

/** The sum over a metric's label sets. */
function total(text, name) {
  const lines = text.split('\n').filter((line) => line.startsWith(`${name} `) || line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}
