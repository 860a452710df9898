// Draws what was said and what came back as two rows of bars that move to the left: the caller's up, the answer's down.

/** Milliseconds per bar. */
const STEP = 50;

/** Width of a bar and of the gap after it, in CSS pixels. */
const BAR = 3;
const GAP = 3;

/** How many bars are kept at least: more than any width shows. */
const COLUMNS = 300;

/** At most this many turns of drawing per second: it is a picture of loudness, not a film. */
const FRAMES = 30;

export class Ribbon {
  #canvas;
  #context;
  #columns = [];
  #current = null;
  #drawn = 0;
  #colours = null;
  #still;

  constructor(canvas) {
    this.#canvas = canvas;
    this.#context = canvas.getContext('2d');
    this.#still = matchMedia('(prefers-reduced-motion: reduce)');
    const repaint = () => {
      this.#colours = null;
      this.#paint(performance.now());
    };
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
    new ResizeObserver(repaint).observe(canvas);
  }

  /** Forgets everything: what is drawn then is a sketch of a conversation. */
  reset() {
    this.#columns = [];
    this.#current = null;
    this.#paint(performance.now());
  }

  /** Takes the levels now (0 to 1), and draws if it is time to. */
  push(now, up, down) {
    const slot = Math.floor(now / STEP);
    // A page in the background gets few turns: what was missed is drawn as silence.
    for (let next = Math.max((this.#current?.slot ?? slot - 1) + 1, slot - COLUMNS); next <= slot; next += 1) {
      this.#current = { slot: next, up: 0, down: 0, mark: false };
      this.#columns.push(this.#current);
    }
    if (this.#columns.length > 2 * COLUMNS) this.#columns.splice(0, COLUMNS);
    this.#current.up = Math.max(this.#current.up, up);
    this.#current.down = Math.max(this.#current.down, down);
    if (now - this.#drawn < 1000 / FRAMES - 2) return;
    this.#drawn = now;
    this.#paint(now);
  }

  /** Marks this moment: an interruption. */
  mark() {
    if (this.#current) this.#current.mark = true;
  }

  #paint(now) {
    const { clientWidth: width, clientHeight: height } = this.#canvas;
    if (width === 0) return;
    const scale = Math.min(3, globalThis.devicePixelRatio || 1);
    if (this.#canvas.width !== Math.round(width * scale) || this.#canvas.height !== Math.round(height * scale)) {
      this.#canvas.width = Math.round(width * scale);
      this.#canvas.height = Math.round(height * scale);
    }
    this.#colours ??= coloursOf(this.#canvas);
    const g = this.#context;
    g.setTransform(scale, 0, 0, scale, 0, 0);
    g.clearRect(0, 0, width, height);
    if (this.#columns.length === 0) this.#sketch(width, height);
    else this.#history(now, width, height);
  }

  #history(now, width, height) {
    // Whoever wants no motion gets whole steps twice a second instead of a glide.
    const time = this.#still.matches ? Math.floor(now / 500) * 500 : now;
    const edge = time / STEP;
    for (let i = this.#columns.length - 1; i >= 0; i -= 1) {
      const column = this.#columns[i];
      if (column.slot > edge) continue;
      const x = width - BAR - (edge - column.slot) * (BAR + GAP);
      if (x < -BAR) break;
      this.#bar(x, column.up, column.down, height, 1);
      if (column.mark) this.#line(x, height);
    }
  }

  #sketch(width, height) {
    const columns = Math.floor(width / (BAR + GAP));
    const voice = (n) => {
      const words = Math.max(0, Math.sin(n / 9) + 0.35 * Math.sin(n / 3.1)) * (0.65 + 0.35 * Math.sin(n * 1.7));
      return Math.min(1, 0.9 * words * Math.sin((Math.PI * n) / columns));
    };
    for (let n = 0; n < columns; n += 1) {
      this.#bar(n * (BAR + GAP), voice(n), voice(n - 7), height, 0.45);
    }
  }

  #bar(x, up, down, height, opacity) {
    const g = this.#context;
    const middle = height / 2;
    const room = middle - 3;
    g.globalAlpha = opacity;
    for (const [level, top, colour] of [
      [up, true, this.#colours.up],
      [down, false, this.#colours.down],
    ]) {
      const length = Math.max(2, level * room);
      g.fillStyle = level > 0.02 ? colour : this.#colours.quiet;
      g.beginPath();
      g.roundRect(x, top ? middle - 1.5 - length : middle + 1.5, BAR, length, BAR / 2);
      g.fill();
    }
    g.globalAlpha = 1;
  }

  #line(x, height) {
    this.#context.fillStyle = this.#colours.mark;
    this.#context.fillRect(x + BAR / 2 - 0.75, 0, 1.5, height);
  }
}

function coloursOf(canvas) {
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(name).trim();
  return { up: colour('--you'), down: colour('--answer'), quiet: colour('--line-strong'), mark: colour('--bad') };
}
