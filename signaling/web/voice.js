// The voices on the page: two meters and the ribbon, moved while a call lasts.

import { FLOOR, Meter, fraction } from './meters.js';
import { Ribbon } from './ribbon.js';

/** How often the numbers beside the meters change, in milliseconds: they are read, not watched. */
const NUMBERS = 250;

/** Below this a microphone gives no sound at all, not even noise, in dB. */
const DEAD = -59.5;

/** How long it may do so before the person is told, in milliseconds. */
const PATIENCE = 6_000;

export class Voice {
  #ribbon;
  #context = null;
  #you;
  #answer;
  #turn = 0;
  #numbers = 0;
  #alive = 0;
  #onSilence;

  /**
   * @param {object} options
   * @param {HTMLCanvasElement} options.canvas
   * @param {{meter: HTMLElement, level: HTMLElement}} options.you
   * @param {{meter: HTMLElement, level: HTMLElement}} options.answer
   * @param {(silent: boolean) => void} options.onSilence told when the microphone seems dead, and when it is alive again
   */
  constructor({ canvas, you, answer, onSilence }) {
    this.#ribbon = new Ribbon(canvas);
    this.#you = { ...you, source: null };
    this.#answer = { ...answer, source: null };
    this.#onSilence = onSilence;
  }

  /** Shows what the caller says, from now on. */
  start(context, stream) {
    this.stop();
    this.#ribbon.reset();
    this.#alive = performance.now();
    this.#context = context;
    this.#you.source = new Meter(context, stream);
    const turn = (now) => {
      this.#turn = requestAnimationFrame(turn);
      this.#show(now);
    };
    this.#turn = requestAnimationFrame(turn);
  }

  /** Shows what comes back, too. */
  hear(context, stream) {
    this.#answer.source?.close();
    this.#answer.source = new Meter(context, stream);
  }

  /** Marks an interruption in the ribbon. */
  mark() {
    this.#ribbon.mark();
  }

  /** Begins the wait anew: a microphone that is muted on purpose looks dead. */
  forgiveSilence() {
    this.#alive = performance.now();
    this.#onSilence(false);
  }

  /** Forgets what was drawn. */
  clear() {
    this.#ribbon.reset();
  }

  /** Lets both meters fall; the ribbon keeps its last picture. */
  stop() {
    cancelAnimationFrame(this.#turn);
    for (const lane of [this.#you, this.#answer]) {
      lane.source?.close();
      lane.source = null;
      say(lane, FLOOR);
      lane.meter.firstElementChild.style.transform = 'scaleX(0)';
    }
  }

  #show(now) {
    const levels = [this.#you, this.#answer].map((lane) => {
      const level = lane.source?.read(now) ?? FLOOR;
      const shown = lane.source?.shown ?? FLOOR;
      lane.meter.firstElementChild.style.transform = `scaleX(${fraction(shown).toFixed(3)})`;
      return level;
    });
    this.#ribbon.push(now, height(levels[0]), height(levels[1]));
    if (now - this.#numbers >= NUMBERS) {
      this.#numbers = now;
      say(this.#you, this.#you.source?.shown ?? FLOOR);
      say(this.#answer, this.#answer.source?.shown ?? FLOOR);
    }
    // A context that does not run, as in browsers without any sound device, hears nothing and so proves nothing.
    if (levels[0] > DEAD || this.#context.state !== 'running') {
      if (now - this.#alive > PATIENCE) this.#onSilence(false);
      this.#alive = now;
    } else if (now - this.#alive > PATIENCE) {
      this.#onSilence(true);
    }
  }
}

/** A bar's height: loudness in dB alone makes all speech look alike. */
function height(level) {
  return Math.min(1, 1.5 * fraction(level) ** 1.8);
}

function say({ meter, level }, decibels) {
  const rounded = Math.round(decibels);
  const words = rounded <= FLOOR ? 'silent' : `${rounded} dB`.replace('-', '−');
  meter.setAttribute('aria-valuenow', String(rounded));
  meter.setAttribute('aria-valuetext', words);
  level.textContent = words;
}
