// The set-up of a call as a small waterfall: when each step began and ended, on one scale.

import { PHASES } from './call.js';

/** How often the step that is under way grows, in milliseconds. */
const TICK = 100;

export class Setup {
  #rows;
  #total;
  #call = null;
  #timer = 0;

  /** `list` holds one row per phase (`data-phase`); `total` is where the sum is said. */
  constructor(list, total) {
    this.#rows = new Map(PHASES.map((name) => [name, list.querySelector(`[data-phase="${name}"]`)]));
    this.#total = total;
  }

  /** Shows a call from its start on. */
  follow(call) {
    this.#call = call;
    for (const row of this.#rows.values()) {
      row.dataset.state = 'waiting';
      delete row.dataset.ms;
    }
    call.addEventListener('phase', () => this.#draw());
    call.addEventListener('state', () => this.#draw());
    clearInterval(this.#timer);
    this.#timer = setInterval(() => this.#draw(), TICK);
    this.#draw();
  }

  #draw() {
    const call = this.#call;
    const over = call.state === 'ended';
    const steps = layout(call.phases, call.began, call.end?.at ?? performance.now(), over);
    for (const step of steps) {
      const row = this.#rows.get(step.name);
      row.dataset.state = step.state === 'stopped' && call.end.failed ? 'failed' : step.state;
      if (step.state === 'done') row.dataset.ms = step.length.toFixed(1);
      const bar = row.querySelector('.bar');
      bar.style.left = `${step.left}%`;
      bar.style.width = `${step.width}%`;
      row.querySelector('.ms').textContent = wordsOf(step, call.end?.failed);
    }
    const complete = steps.every((step) => step.state === 'done');
    if (complete) {
      const total = call.phases.audio.end - call.began;
      this.#total.dataset.ms = total.toFixed(1);
      this.#total.textContent = `${milliseconds(total)} from the first request to the first sound.`;
    } else {
      delete this.#total.dataset.ms;
      this.#total.textContent = over ? 'The call ended before all steps were done.' : 'Under way …';
    }
    if (complete || over) clearInterval(this.#timer);
  }
}

/**
 * Where the bars lie: one { name, state, length, left, width } per phase, `left` and `width` in per cent of the longest time.
 *
 * `state` is done, running, waiting (for the steps before it), or, when the call is `over`, stopped (it was under way) or missed.
 */
export function layout(phases, began, now, over) {
  const ends = Object.values(phases).map((phase) => phase.end);
  const all = ends.length === PHASES.length;
  // A call that lasted a while without one step, as a first sound, shows the steps that there were.
  const stopped = over && !phases.dtls;
  const last = all || (over && !stopped) ? Math.max(began + 1, ...ends) : now;
  const scale = 100 / Math.max(1, last - began);
  const place = (name, state, start, end) => ({
    name,
    state,
    length: end - start,
    left: (start - began) * scale,
    width: Math.max(0, end - start) * scale,
  });
  return PHASES.map((name) => {
    const phase = phases[name];
    if (phase) return place(name, 'done', phase.start, phase.end);
    const start = startOf(name, phases, began);
    if (start === null) return place(name, over ? 'missed' : 'waiting', began, began);
    if (over) return place(name, 'stopped', start, stopped ? now : start);
    return place(name, 'running', start, now);
  });
}

/** When a step that is not over began, or null while it waits for another. */
function startOf(name, phases, began) {
  const after = { request: null, ice: 'request', dtls: 'ice', channel: 'dtls', audio: 'dtls' }[name];
  return after === null ? began : (phases[after]?.end ?? null);
}

function wordsOf({ state, length }, failed) {
  if (state === 'done') return milliseconds(length);
  return { running: '…', waiting: '', stopped: failed ? 'failed' : 'stopped', missed: '–' }[state];
}

function milliseconds(time) {
  if (time >= 10_000) return `${(time / 1000).toFixed(1)} s`;
  return `${time < 10 ? time.toFixed(1) : Math.round(time)} ms`;
}
