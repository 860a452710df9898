// The page: joins the call, the views and the controls.
//
// `document.body.dataset.state` is always one of idle, asking, requesting, connecting, open, recovering, ended, failed; with the last
// two, `dataset.end` says why (the codes of call.js and source.js).

import { answers } from './answering.js';
import { Call } from './call.js';
import { Compose } from './compose.js';
import { EventLog } from './log.js';
import { Network } from './network.js';
import { Setup } from './setup.js';
import { microphone, recording, SourceError, tone } from './source.js';
import { Voice } from './voice.js';
import { ENDINGS, failureWords, stateWords } from './words.js';

const $ = (id) => document.getElementById(id);

/** How long packets may take before the person is told that something may be wrong, in milliseconds. */
const SLOW = 5_000;

/** How long "Interrupted" stays. */
const INTERRUPTED = 2_500;

const KEY_PLACE = 'firsthop.key';
const LOCAL = /^(localhost|.+\.localhost|127(\.\d+){3}|\[::1\])$/.test(location.hostname);
const DEMO = new URLSearchParams(location.search).get('demo');

/** What the primary button does in each state, and what is written on it. */
const ACTIONS = {
  idle: 'start',
  asking: 'cancel',
  requesting: 'cancel',
  connecting: 'cancel',
  open: 'hangup',
  recovering: 'hangup',
  ended: 'start',
  failed: 'start',
};
const LABELS = { start: 'Start', cancel: 'Cancel', hangup: 'Hang up', ended: 'Start again', failed: 'Try again' };

const PHASE_NOTES = {
  request: 'Answer received',
  ice: 'Path found',
  dtls: 'Connection secured',
  channel: 'Channel open',
  audio: 'First audio',
};

let state = 'idle';
let call = null;
let source = null;
let context = null;
let openSince = 0;
let clock = 0;
let slow = 0;
let calm = 0;
let echo = false;
/** Whether what answers has said something yet. Until then the call is open, and nobody listens at its other end. */
let answered = false;
/** Whether the answer is being played, as the events say. */
let playing = false;
/** Whether nothing comes of what should be heard. */
let silent = false;
let attempt = 0;
/** Event ids of our own cancels: that there was nothing to cancel is no news. */
const cancels = new Set();

const log = new EventLog($('log-box'), $('log'), $('log-empty'));
const setup = new Setup($('steps'), $('setup-total'));
const network = new Network($('network'), { expects: speaks, onSilence: hush });
const compose = new Compose($('compose'), sendEvent);
const voice = new Voice({
  canvas: $('ribbon'),
  you: { meter: $('meter-you'), level: $('level-you') },
  answer: { meter: $('meter-answer'), level: $('level-answer') },
  onSilence: (silent) => notice(silent && !muted() && DEMO === null ? 'Your microphone gives no sound. Is it muted, or is another one selected?' : ''),
});

begin();

function begin() {
  $('key').value = remembered() ?? (LOCAL ? 'dev' : '');
  $('server').textContent = location.host;
  $('source').textContent = DEMO === null ? 'Microphone' : DEMO === '' ? 'Voice-like tone' : DEMO;
  $('other-source').textContent = DEMO === null ? 'Use a synthetic voice' : 'Use the microphone';
  $('other-source').href = DEMO === null ? '/?demo' : '/';
  $('settings').open = $('key').value === '';
  summarize();
  compose.enable(false);
  show('idle');

  $('form').addEventListener('submit', (event) => event.preventDefault());
  $('primary').addEventListener('click', (event) => {
    event.preventDefault();
    // The second click of a double click must not undo the first.
    if (event.detail > 1) return;
    if ($('primary').dataset.action === 'start') void start();
    else hangUp();
  });
  $('mute').addEventListener('click', () => mute(!muted()));
  $('interrupt').addEventListener('click', interrupt);
  $('key').addEventListener('input', () => {
    $('key').removeAttribute('aria-invalid');
    remember($('key').value);
    summarize();
  });
  $('reveal').addEventListener('click', () => {
    const shown = $('reveal').getAttribute('aria-pressed') === 'true';
    $('reveal').setAttribute('aria-pressed', String(!shown));
    $('reveal').textContent = shown ? 'Show' : 'Hide';
    $('key').type = shown ? 'password' : 'text';
  });
  $('clear').addEventListener('click', () => log.clear());
  $('copy').addEventListener('click', copy);
  addEventListener('pagehide', () => call?.hangUp());
}

async function start() {
  const key = $('key').value.trim();
  log.clear();
  notice('');
  if (key === '') return fail('key-missing');
  if (!globalThis.RTCPeerConnection) return fail('no-webrtc');
  attempt += 1;
  const mine = attempt;
  show('asking');
  let voiceSource;
  try {
    // Made within the click, or browsers keep it silent.
    context ??= new AudioContext();
    void context.resume();
    voiceSource = await openSource();
  } catch (error) {
    if (mine === attempt) fail(error instanceof SourceError ? error.code : 'microphone-failed', error.message);
    return;
  }
  if (mine !== attempt) {
    // Given up while the browser was asking.
    voiceSource.stop();
    return;
  }
  source = voiceSource;
  $('source').textContent = source.label;
  // Unplugged, or taken back by the browser.
  source.stream.getAudioTracks()[0].addEventListener('ended', () => {
    if (source === voiceSource) notice('The microphone is gone. You still hear the other side.');
  });
  await makeCall(key);
}

function openSource() {
  if (DEMO === null) return microphone();
  return DEMO === '' ? tone(context) : recording(context, DEMO);
}

async function makeCall(key) {
  const mine = (call = new Call({ url: '/v1/realtime/calls', key, stream: source.stream }));
  echo = false;
  answered = playing = silent = false;
  compose.echo(false);
  cancels.clear();
  log.restart();
  setup.follow(mine);
  network.follow(mine);
  voice.start(context, source.stream);
  mine.addEventListener('state', ({ detail }) => followState(mine, detail));
  mine.addEventListener('phase', ({ detail }) => {
    log.note(PHASE_NOTES[detail.name]);
    // Before the server has agreed there is nothing to see there.
    $('network').hidden = false;
    $('events').hidden = false;
  });
  mine.addEventListener('track', ({ detail }) => {
    $('remote').srcObject = detail.stream;
    void $('remote').play().catch(playLater);
    voice.hear(context, detail.stream);
  });
  mine.addEventListener('channel', () => enableEvents(true));
  mine.addEventListener('sent', ({ detail }) => log.add('out', detail.event, detail.text));
  mine.addEventListener('message', ({ detail }) => receive(detail));
  await mine.start();
}

/** Some browsers play sound only after a gesture on the page. */
function playLater(error) {
  // The call ended meanwhile: nothing to play.
  if (error.name !== 'NotAllowedError') return;
  notice('The browser holds the sound back. Press anywhere on the page to hear it.');
  const play = () => $('remote').play().then(() => notice(''), () => {});
  addEventListener('pointerdown', play, { once: true });
}

function followState(mine, { state: next, end }) {
  if (mine !== call) return;
  clearTimeout(slow);
  if (next === 'ended') return finish(end);
  if (next === 'connecting') slow = setTimeout(() => call === mine && show('connecting', 'slow'), SLOW);
  if (next === 'open' && openSince === 0) {
    openSince = performance.now();
    clock = setInterval(tick, 500);
    tick();
  }
  if (next === 'recovering') log.note('No packets come through', 'bad');
  else if (state === 'recovering') log.note('Packets come through again');
  if (next === 'open') showOpen();
  else show(next);
}

/** Shows an open call: one in which something should be heard and is not, one that is answered, or one that waits for that. */
function showOpen() {
  if (silent) show('open', 'silent');
  else show('open', answered ? 'open' : 'waiting');
}

/** Whether the other side sends without pause: an echo as long as there is something to say, a model while its answer is played. */
function speaks() {
  return playing || (echo && source?.stream.getAudioTracks()[0].readyState === 'live');
}

function hush(now) {
  silent = now;
  log.note(now ? 'Nothing is heard any more' : 'Something is heard again', now ? 'bad' : 'plain');
  if (state === 'open') showOpen();
}

function receive({ event, text }) {
  if (event?.type === 'error' && cancels.has(event.error?.event_id)) {
    log.add('in', event, text, 'plain');
    return;
  }
  log.add('in', event, text);
  const before = answered;
  answered = answers(event) ?? answered;
  if (answered !== before && state === 'open') showOpen();
  switch (event?.type) {
    case 'session.created':
      echo = event.session?.model === 'echo';
      compose.echo(echo);
      $('answer-name').textContent = echo ? 'Echo' : 'Answer';
      if (state === 'open') showOpen();
      break;
    case 'output_audio_buffer.started':
      playing = true;
      break;
    case 'output_audio_buffer.stopped':
      playing = false;
      break;
    case 'output_audio_buffer.cleared':
      playing = false;
      voice.mark();
      if (state === 'open') show('open', 'interrupted');
      clearTimeout(calm);
      calm = setTimeout(() => state === 'open' && showOpen(), INTERRUPTED);
      break;
    default:
  }
}

function interrupt() {
  // An echo has no response that could be cancelled, and would say so.
  const sent = call?.interrupt({ responses: !echo }) ?? [];
  for (const { event_id: id } of sent) cancels.add(id);
}

function sendEvent(event) {
  const sent = call?.send(event) ?? null;
  // A message alone makes a model think, not speak. An echo does neither: it is offered none.
  if (sent?.type === 'conversation.item.create' && sent.item?.content?.[0]?.type === 'input_text' && !echo) {
    call.send({ type: 'response.create' });
  }
  return sent !== null;
}

function hangUp() {
  attempt += 1;
  if (call && state !== 'asking') call.hangUp();
  else finish({ code: 'cancelled', failed: false });
}

function finish(end) {
  clearTimeout(slow);
  clearTimeout(calm);
  clearInterval(clock);
  enableEvents(false);
  voice.stop();
  source?.stop();
  source = null;
  $('remote').srcObject = null;
  mute(false);
  notice('');
  const lasted = openSince === 0 ? '' : ` It lasted ${duration(performance.now() - openSince)}.`;
  openSince = 0;
  if (end.failed) return fail(end.code, end.message);
  const words = ENDINGS[end.code];
  document.body.dataset.end = end.code;
  log.note(words.title, words.bad ? 'bad' : 'plain');
  present('ended', { chip: 'Ended', title: words.title, text: words.text + lasted });
}

function fail(code, said = null) {
  const words = failureWords(code, { place: location.host, said });
  document.body.dataset.end = code;
  log.note(words.title, 'bad');
  voice.clear();
  present('failed', { chip: 'Not connected', ...words });
  if (code === 'key-refused' || code === 'key-missing') {
    $('settings').open = true;
    $('key').setAttribute('aria-invalid', 'true');
    $('key').focus();
    $('key').select();
  }
}

/** Shows a state in which nothing has gone wrong; `variant` may choose other words for it. */
function show(next, variant = next) {
  delete document.body.dataset.end;
  present(next, stateWords(variant, { demo: DEMO !== null, echo, muted: muted(), place: location.host }));
}

function present(next, { chip, title, text, hints = [], said = null }) {
  const failed = next === 'failed';
  const changed = next !== state || $('title').textContent !== title;
  state = next;
  document.body.dataset.state = next;
  $('chip-text').textContent = chip;
  $('title').textContent = title;
  $('lead').textContent = failed ? '' : text;
  document.title = next === 'idle' ? 'Firsthop' : `${title} – Firsthop`;
  // A failure is announced as an alert, anything else when the reader pauses.
  $('alert').replaceChildren(...(failed ? failure(text, hints, said) : []));
  if (changed) $('announce').textContent = failed || next === 'idle' ? '' : `${title}. ${text}`;
  const action = ACTIONS[next];
  $('primary').dataset.action = action;
  $('primary').textContent = LABELS[next] ?? LABELS[action];
  const inCall = next === 'open' || next === 'recovering';
  if (!inCall && $('in-call').contains(document.activeElement)) $('primary').focus();
  $('in-call').hidden = !inCall;
  $('clock').hidden = !inCall;
  if (action !== 'start' && $('settings').contains(document.activeElement)) $('primary').focus();
  $('settings').hidden = action !== 'start';
}

function failure(text, hints, said) {
  const parts = [element('p', text)];
  if (said) {
    const quote = element('p', '');
    quote.className = 'said';
    quote.append(element('span', 'The exact words: '), element('q', said));
    parts.push(quote);
  }
  if (hints.length > 0) {
    const list = element('ul', '');
    list.append(...hints.map(hintItem));
    parts.push(list);
  }
  return parts;
}

/** A hint is text, or a link. */
function hintItem(hint) {
  if (typeof hint === 'string') return element('li', hint);
  const item = element('li', '');
  const link = element('a', hint.text);
  link.href = hint.href;
  item.append(link);
  return item;
}

function enableEvents(open) {
  const inside = $('compose').contains(document.activeElement);
  compose.enable(open);
  $('interrupt').disabled = !open;
  if (!open && inside) $('primary').focus();
}

function muted() {
  return $('mute').getAttribute('aria-pressed') === 'true';
}

function mute(on) {
  $('mute').setAttribute('aria-pressed', String(on));
  $('mute').textContent = on ? 'Unmute' : 'Mute';
  source?.stream.getAudioTracks().forEach((track) => (track.enabled = !on));
  voice.forgiveSilence();
  if (state === 'open') showOpen();
}

function tick() {
  $('clock-text').textContent = duration(performance.now() - openSince);
}

function duration(time) {
  const seconds = Math.floor(time / 1000);
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}

function notice(words) {
  if ($('notice').textContent !== words) $('notice').textContent = words;
}

function summarize() {
  const key = $('key').value.trim();
  $('settings-sum').textContent = key === '' ? 'key missing' : key === 'dev' ? 'key “dev”' : 'key set';
}

async function copy() {
  try {
    await navigator.clipboard.writeText(log.text());
    $('copy').textContent = 'Copied';
  } catch {
    $('copy').textContent = 'Not allowed';
  }
  setTimeout(() => ($('copy').textContent = 'Copy'), 1_500);
}

function remembered() {
  try {
    return sessionStorage.getItem(KEY_PLACE);
  } catch {
    return null;
  }
}

function remember(key) {
  try {
    sessionStorage.setItem(KEY_PLACE, key);
  } catch {
    // A browser that stores nothing asks again: no more is lost.
  }
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}
