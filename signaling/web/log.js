// The event log: what went over the data channel, and what happened to the call, in order.

/** How many rows are kept. */
const ROWS = 400;

const DIRECTIONS = {
  in: { sign: '↓', words: 'received' },
  out: { sign: '↑', words: 'sent' },
  note: { sign: '·', words: 'note' },
};

export class EventLog {
  #list;
  #empty;
  #box;
  #entries = [];
  #last = null;
  #pinned = true;
  #began = performance.now();

  /** `box` scrolls and holds `list` and, while there is nothing, `empty`. */
  constructor(box, list, empty) {
    this.#box = box;
    this.#list = list;
    this.#empty = empty;
    // The newest row stays in view until someone scrolls up to read.
    box.addEventListener('scroll', () => {
      this.#pinned = box.scrollHeight - box.scrollTop - box.clientHeight < 24;
    });
    new ResizeObserver(() => this.#follow()).observe(box);
  }

  /** Forgets all rows. */
  clear() {
    this.#entries = [];
    this.#last = null;
    this.#list.replaceChildren();
    this.#empty.hidden = false;
  }

  /** From here on times count from 0. */
  restart() {
    this.#began = performance.now();
    this.#last = null;
  }

  /** Something that happened to the call. */
  note(text, tone = 'plain') {
    this.#add('note', text, null, tone);
  }

  /** An event of the channel; `event` is null when `text` is no JSON object. `tone` is 'bad' or 'plain'. */
  add(direction, event, text, tone = event?.type === 'error' ? 'bad' : 'plain') {
    const type = typeof event?.type === 'string' ? event.type : 'not an event';
    // A transcript comes in dozens of pieces: they share a row.
    if (direction === 'in' && this.#last?.type === type && type.endsWith('.delta')) {
      this.#last.more(text);
      this.#entries.push(text);
      return;
    }
    this.#add(direction, type, text, tone, digest(event));
  }

  /** All events as JSON lines. */
  text() {
    return this.#entries.join('\n');
  }

  #add(direction, type, text, tone, summary = '') {
    const row = document.createElement('li');
    row.className = 'row';
    row.dataset.direction = direction;
    row.dataset.type = type;
    row.dataset.tone = tone;
    const head = document.createElement(text === null ? 'div' : 'summary');
    const { sign, words } = DIRECTIONS[direction];
    head.append(
      part('row-time', ((performance.now() - this.#began) / 1000).toFixed(2)),
      part('row-sign', sign, true),
      part('visually-hidden', `${words} `),
      breakable(part('row-type', type)),
    );
    const note = part('row-digest', summary);
    head.append(note);
    if (text === null) {
      row.append(head);
      this.#last = null;
    } else {
      const texts = [text];
      row.append(unfolding(head, texts));
      this.#last = {
        type,
        more: (next) => {
          texts.push(next);
          note.textContent = `× ${texts.length}`;
        },
      };
      this.#entries.push(text);
    }
    this.#list.append(row);
    while (this.#list.childElementCount > ROWS) this.#list.firstElementChild.remove();
    if (this.#entries.length > 4 * ROWS) this.#entries.splice(0, ROWS);
    this.#empty.hidden = true;
    this.#follow();
  }

  #follow() {
    if (this.#pinned) this.#box.scrollTop = this.#box.scrollHeight;
  }
}

/** A row that shows its texts when it is opened; they are laid out only then. */
function unfolding(head, texts) {
  const details = document.createElement('details');
  const body = document.createElement('pre');
  body.tabIndex = 0;
  body.setAttribute('aria-label', 'The event as JSON');
  body.setAttribute('role', 'region');
  details.append(head, body);
  details.addEventListener('toggle', () => {
    if (details.open) body.textContent = texts.map(pretty).join('\n');
  });
  return details;
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** What an event says, in a few words beside its type. */
function digest(event) {
  if (!event) return '';
  const candidates = [
    event.error?.message,
    event.transcript,
    event.item?.content?.[0]?.text,
    typeof event.session?.model === 'string' ? `model ${event.session.model}` : null,
    Number.isFinite(event.audio_start_ms) ? `at ${event.audio_start_ms} ms` : null,
    Number.isFinite(event.audio_end_ms) ? `at ${event.audio_end_ms} ms` : null,
  ];
  const words = candidates.find((words) => typeof words === 'string' && words !== '') ?? '';
  return words.length > 120 ? `${words.slice(0, 119)}…` : words;
}

/** Lets a long type break after its dots and underscores. */
function breakable(element) {
  const pieces = element.textContent.split(/(?<=[._])(?=.)/);
  element.replaceChildren(...pieces.flatMap((piece, index) => (index === 0 ? [piece] : [document.createElement('wbr'), piece])));
  return element;
}

function part(className, text, decorative = false) {
  const element = document.createElement('span');
  element.className = className;
  element.textContent = text;
  if (decorative) element.setAttribute('aria-hidden', 'true');
  return element;
}
