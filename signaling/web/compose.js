// Writing to the data channel: a message in text, or any event as JSON.

export class Compose {
  #root;
  #send;

  /**
   * @param {HTMLElement} root holds the two forms
   * @param {(event: object) => boolean} send puts an event on the channel; false when it could not
   */
  constructor(root, send) {
    this.#root = root;
    this.#send = send;
    const at = (id) => root.querySelector(id);
    const text = at('#say-text');
    at('#say').addEventListener('submit', (submitted) => {
      submitted.preventDefault();
      const words = text.value.trim();
      if (words === '') return text.focus();
      if (this.#send(message(words))) text.value = '';
    });
    const json = at('#raw-text');
    at('#raw').addEventListener('submit', (submitted) => {
      submitted.preventDefault();
      const { event, error } = parse(json.value);
      this.#complain(error ?? '');
      if (error) return json.focus();
      this.#send(event);
    });
    json.addEventListener('input', () => this.#complain(''));
  }

  /** Whether the channel is open. */
  enable(open) {
    for (const control of this.#root.querySelectorAll('input, textarea, button')) control.disabled = !open;
  }

  /** Whether the other side only repeats what it hears: then it is offered no text. */
  echo(is) {
    this.#root.querySelector('#say').hidden = is;
    this.#root.querySelector('#say-not').hidden = !is;
  }

  #complain(words) {
    this.#root.querySelector('#raw-error').textContent = words;
    const json = this.#root.querySelector('#raw-text');
    if (words) json.setAttribute('aria-invalid', 'true');
    else json.removeAttribute('aria-invalid');
  }
}

/** The event that adds a user's message in text to the conversation. */
export function message(text) {
  return {
    type: 'conversation.item.create',
    item: { type: 'message', role: 'user', content: [{ type: 'input_text', text }] },
  };
}

/** An event from its JSON: { event } or { error } in words. */
export function parse(text) {
  let event;
  try {
    event = JSON.parse(text);
  } catch (error) {
    return { error: `This is not JSON: ${error.message}.` };
  }
  if (event === null || typeof event !== 'object' || Array.isArray(event)) return { error: 'An event is a JSON object: { … }.' };
  if (typeof event.type !== 'string') return { error: 'An event needs a "type".' };
  return { event };
}
