// The network card: reads a call's statistics once a second and shows them.

import { Plot } from './plots.js';
import { read, Silence } from './stats.js';

/** How often statistics are read, in milliseconds. */
const PERIOD = 1_000;

const BOTH_WAYS = (key) => [
  { key: `${key}Down`, label: 'in' },
  { key: `${key}Up`, label: 'out' },
];

export class Network {
  #card;
  #plots;
  #timer = 0;
  #expects;
  #onSilence;

  /**
   * `card` holds the plots' places and the facts, by id. `expects` says whether the other side sends without pause at the moment, and
   * `onSilence` is told when nothing comes nevertheless, and when something does again.
   */
  constructor(card, { expects, onSilence }) {
    this.#card = card;
    this.#expects = expects;
    this.#onSilence = onSilence;
    const at = (id) => card.querySelector(id);
    this.#plots = [
      new Plot(at('#plot-round-trip'), {
        title: 'Round trip',
        unit: 'ms',
        least: 10,
        // Browsers count whole milliseconds.
        zero: '< 1 ms',
        series: [{ key: 'roundTrip', label: '' }],
      }),
      new Plot(at('#plot-jitter'), { title: 'Jitter', unit: 'ms', least: 10, series: BOTH_WAYS('jitter') }),
      new Plot(at('#plot-loss'), { title: 'Loss', unit: '%', least: 2, series: BOTH_WAYS('loss') }),
    ];
  }

  /** Shows a call until it ends. */
  follow(call) {
    clearInterval(this.#timer);
    for (const plot of this.#plots) plot.reset();
    for (const id of ['#codec', '#rate', '#buffer', '#lost', '#call-id']) this.#say(id, '–');
    this.#path(null);
    let counters = null;
    let busy = false;
    let silent = false;
    const silence = new Silence();
    const reading = async () => {
      if (busy) return;
      busy = true;
      const report = await call.stats().catch(() => null);
      busy = false;
      if (call.state === 'ended') clearInterval(this.#timer);
      if (!report || call.state === 'ended' || !call.phases.dtls) return;
      const reading = read(report, counters);
      counters = reading.counters;
      this.#show(reading, call);
      const before = silent;
      silent = silence.take(counters.received, this.#expects(), performance.now());
      if (silent !== before) this.#onSilence(silent);
    };
    this.#timer = setInterval(reading, PERIOD);
    call.addEventListener('phase', ({ detail }) => {
      if (detail.name === 'request') this.#say('#call-id', call.id ?? '–');
      // The first reading comes with the connection, so that the path is seen at once.
      if (detail.name === 'dtls') void reading();
    });
  }

  #show({ sample, path, lost, codec }, call) {
    // Browsers repeat the last values while no packet comes: better a gap.
    for (const plot of this.#plots) plot.push(call.state === 'recovering' ? {} : sample);
    this.#path(path);
    this.#say('#codec', codec ?? '–');
    if (sample.rateDown !== null || sample.rateUp !== null) {
      this.#say('#rate', `${kilobits(sample.rateDown)} in, ${kilobits(sample.rateUp)} out kbit/s`);
    }
    if (lost) this.#say('#lost', `${lost.lost} of ${lost.sent.toLocaleString('en')} in`);
    if (sample.buffer !== null) this.#say('#buffer', `${Math.round(sample.buffer)} ms`);
  }

  #path(path) {
    const box = this.#card.querySelector('#path');
    if (path === null) {
      box.textContent = 'Not known yet';
      return;
    }
    const end = ({ address, type }, name) => {
      const part = document.createElement('span');
      part.className = 'path-end';
      const words = document.createElement('span');
      words.className = 'path-kind';
      words.textContent = type ? `${name}, ${KINDS[type] ?? type}` : name;
      const where = document.createElement('span');
      where.className = 'mono';
      where.textContent = address ?? 'address hidden';
      part.append(words, where);
      return part;
    };
    const arrow = document.createElement('span');
    arrow.className = 'path-link';
    arrow.textContent = path.protocol;
    box.replaceChildren(end(path.local, 'You'), arrow, end(path.remote, 'Server'));
  }

  #say(id, text) {
    this.#card.querySelector(id).textContent = text;
  }
}

/** The kinds of ICE candidates (RFC 8445 section 5.1.1) in words. */
const KINDS = {
  host: 'own address',
  srflx: 'behind NAT',
  prflx: 'seen by the peer',
  relay: 'by TURN',
};

function kilobits(rate) {
  return rate === null ? '–' : String(Math.round(rate));
}
