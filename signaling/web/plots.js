// A small plot of one quantity over the last minute, as SVG with its present values in words beside it.

/** How many readings are shown, one a second. */
const WINDOW = 60;

const WIDTH = 300;
const HEIGHT = 64;

export class Plot {
  #root;
  #series;
  #unit;
  #least;
  #zero;
  #title;
  #graphic;
  #lines = [];
  #areas = [];
  #values = [];

  /**
   * @param {HTMLElement} root gets the plot
   * @param {object} options
   * @param {string} options.title what is plotted
   * @param {string} options.unit its unit
   * @param {number} options.least the scale is never smaller: little noise shall look little
   * @param {string} [options.zero] what 0 is called, where it only means too small to tell
   * @param {Array<{key: string, label: string}>} options.series which members of a sample are plotted
   */
  constructor(root, { title, unit, least, zero = `0 ${unit}`, series }) {
    this.#root = root;
    this.#title = title;
    this.#unit = unit;
    this.#least = least;
    this.#zero = zero;
    this.#series = series;
    this.#graphic = svg('svg', { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: 'none', role: 'img' });
    for (const y of [0.5, HEIGHT / 2, HEIGHT - 0.5]) {
      this.#graphic.append(svg('line', { class: 'grid', x1: 0, x2: WIDTH, y1: y, y2: y }));
    }
    series.forEach((_, index) => {
      const area = svg('path', { class: `area series-${index}` });
      const line = svg('path', { class: `line series-${index}` });
      this.#areas.push(area);
      this.#lines.push(line);
      this.#graphic.append(area, line);
    });
    root.replaceChildren(...this.#frame());
    this.reset();
  }

  reset() {
    this.#values = [];
    this.#draw();
  }

  /** Takes the next reading. */
  push(sample) {
    this.#values.push(this.#series.map(({ key }) => sample[key] ?? null));
    if (this.#values.length > WINDOW) this.#values.shift();
    this.#draw();
  }

  #frame() {
    const heading = html('h3', 'plot-title', this.#title);
    const now = html('p', 'plot-now');
    this.#series.forEach(({ label }, index) => {
      const item = html('span', `plot-value series-${index}`);
      if (label) item.append(html('span', 'plot-label', label), ' ');
      item.append(html('b', '', '–'));
      now.append(item);
    });
    const area = html('div', 'plot-area');
    area.append(this.#graphic, html('span', 'plot-top'), html('span', 'plot-bottom', '0'));
    const head = html('div', 'plot-head');
    head.append(heading, now);
    return [head, area];
  }

  #draw() {
    const top = ceiling(Math.max(this.#least, ...this.#values.flat().filter((v) => v !== null)));
    this.#series.forEach(({ key }, index) => {
      const column = this.#values.map((row) => row[index]);
      const { line, area } = paths(column, top);
      this.#lines[index].setAttribute('d', line);
      this.#areas[index].setAttribute('d', area);
      const latest = column.findLast((value) => value !== null) ?? null;
      this.#root.querySelectorAll('.plot-value b')[index].textContent = this.#worded(latest);
      if (latest === null) delete this.#root.dataset[key];
      else this.#root.dataset[key] = String(round(latest));
    });
    this.#root.querySelector('.plot-top').textContent = `${round(top)} ${this.#unit}`;
    this.#graphic.setAttribute('aria-label', this.#words());
  }

  #worded(value) {
    if (value === null) return '–';
    return value === 0 ? this.#zero : `${round(value)} ${this.#unit}`;
  }

  #words() {
    const parts = this.#series.map(({ label }, index) => {
      const known = this.#values.map((row) => row[index]).filter((value) => value !== null);
      if (known.length === 0) return null;
      const range = `${round(Math.min(...known))} to ${round(Math.max(...known))} ${this.#unit}`;
      return `${label ? `${label} ` : ''}${range}`;
    });
    const known = parts.filter((part) => part !== null);
    return `${this.#title} over the last minute: ${known.join(', ') || 'nothing measured yet'}.`;
  }
}

/** SVG paths of a column of values, `null` making a gap. The newest value is at the right edge. */
export function paths(values, top) {
  const x = (index) => WIDTH - ((values.length - 1 - index) * WIDTH) / (WINDOW - 1);
  const y = (value) => HEIGHT - 1.5 - (Math.min(value, top) / top) * (HEIGHT - 3);
  let [line, area] = ['', ''];
  let run = [];
  const close = () => {
    if (run.length > 0) {
      // A single reading is drawn as a short dash.
      const points = run.length === 1 ? [[run[0][0] - 2, run[0][1]], run[0]] : run;
      const stroke = points.map(([px, py]) => `${px.toFixed(1)} ${py.toFixed(1)}`).join('L');
      line += `M${stroke}`;
      area += `M${points[0][0].toFixed(1)} ${HEIGHT}L${stroke}L${points.at(-1)[0].toFixed(1)} ${HEIGHT}Z`;
    }
    run = [];
  };
  values.forEach((value, index) => {
    if (value === null) close();
    else run.push([x(index), y(value)]);
  });
  close();
  return { line, area };
}

/** The next round number (1, 2 or 5 times a power of ten) at or above a positive value. */
export function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= value * 0.999);
}

function round(value) {
  return value < 10 ? Number(value.toFixed(1)) : Math.round(value);
}

function svg(name, attributes) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function html(name, className, text = '') {
  const element = document.createElement(name);
  if (className) element.className = className;
  element.textContent = text;
  return element;
}
