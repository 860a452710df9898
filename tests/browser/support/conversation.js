// Conversations with a model server by OpenAI's SDK, in whatever browser: a tool is called, the user interrupts, again and again, by voice
// and by the SDK's own call, and it goes on. What a person would hear of it is judged by the packets that the browser receives.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { ModelServer } from './model-server.js';
import { interruption, missing, runs } from './packets.js';
import { recordIn } from './page.js';
import { MODULES, sdkPage } from './sdk.js';
import { serve } from './site.js';
import { likeness, median, RATE, samplesFrom } from './sound.js';
import { stage } from './stage.js';
import { until } from './until.js';

/** A client that has been gone for longer would have been lost: more than twice a consent's life (RFC 7675: 30 seconds). */
const HELD_SECONDS = 72;

/** How long after the model's event the last packet of what it interrupts may come, in milliseconds; so too after the client was told of it, and after
 * its own call. */
const LATEST = 60;

/** By how much the model may be told another time than was sent, in milliseconds. */
const INEXACT = 40;

/** How often the SDK's own call interrupts: one is to be seen at least. */
const BY_CALL = 2;

/** As in chromium.test.js. */
const ALIKE = 0.6;

const AGENT = `{
  name: 'Guide',
  instructions: 'Be brief.',
  tools: [
    tool({
      name: 'weather',
      description: 'Tells the weather.',
      parameters: { type: 'object', properties: {}, required: [], additionalProperties: false },
      strict: true,
      execute: async () => 'sunny',
    }),
  ],
}`;
const TELL_OF_TOOLS = "session.on('agent_tool_end', (_context, _agent, { name }, result) => console.log('tool', name, result));";

/**
 * The test, and the stage for it.
 *
 * @param {(spoken: {file: string}) => Promise<object>} launch starts the browser
 * @param {(browser: object, spoken: object) => Promise<object>} open opens a page whose microphone says its sentence over and over, with
 *   watchPeers and watchPackets in it
 */
export function conversation(launch, open) {
  const here = stage(launch, (folder) => ModelServer.start(folder));

  test("OpenAI's Agents SDK runs a tool call, is interrupted and goes on, for more than 70 seconds", async (t) => {
    const model = here.behind;
    const { site, page, said, errors, count, account } = await place(here, open, AGENT, TELL_OF_TOOLS);
    const began = Date.now();

    await until('the tool has run', () => said.includes('tool weather sunny'), 40, account);
    await until('the answer begins', () => count('output_audio_buffer.started') >= 1, 40, account);
    const [{ event: result }] = model.events('in', 'conversation.item.create');
    assert.equal(result.item.output, 'sunny');

    // The microphone says its sentence over and over: each round interrupts the answer to the one before.
    await until('an interruption', () => count('output_audio_buffer.cleared') >= 1, 30, account);
    await until('it goes on', () => count('output_audio_buffer.started') >= 2, 30, account);
    const heard = samplesFrom(await page.evaluate(recordIn, 12));
    // It ends while the user speaks: nothing is said meanwhile, for seconds.
    const cut = () => count('output_audio_buffer.cleared');
    const held = () => Date.now() - began > 1000 * HELD_SECONDS && cut() >= 5 && cut() === count('output_audio_buffer.started');
    await until(`the call has lasted ${HELD_SECONDS} s`, held, 2 * HELD_SECONDS, account);
    const { packets, told } = await page.evaluate(() => ({ packets: globalThis.packets, told: globalThis.told }));
    const turns = await page.evaluate(() => globalThis.turns.filter((turn) => turn.startsWith('connection')));
    assert.deepEqual(turns, ['connection connecting', 'connection connected']);
    assert(!said.includes('response.output_audio.delta'), 'audio goes by the track');
    await page.evaluate(() => globalThis.hangUp());
    await here.stack.empty();
    assert.deepEqual(errors, []);
    await site.close();

    // Every packet came, and each answer in one go; and it is the answer that is heard.
    assert.equal(missing(packets), 0);
    const answers = runs(packets);
    assert(answers.length === cut(), `${answers.length} runs of packets for ${cut()} answers`);
    const alike = likeness(model.answer.subarray(0, 2 * RATE), heard);
    t.diagnostic(`likeness of the answer's seconds to what is heard: ${alike.map((one) => one.toFixed(2))}`);
    assert(Math.max(...alike) > ALIKE && Math.min(...alike) > ALIKE / 2);

    judge(t, model, answers, told);
  });

  test("the SDK's own interrupt ends what is played, and the model is told how much was sent; then it goes on", async (t) => {
    const model = here.behind;
    const since = model.lines;
    const { site, page, errors, count, account } = await place(here, open, "{ name: 'Guide', instructions: 'Be brief.' }");
    const calledAt = [];
    for (let nth = 1; nth <= BY_CALL; nth += 1) {
      await until('an answer begins', () => count('output_audio_buffer.started') >= nth, 40, account);
      // Whoever says nothing more cannot be what interrupts.
      await page.evaluate(() => globalThis.mute(true));
      const played = await page.evaluate(() => globalThis.packets.length);
      const more = () => page.evaluate((before) => globalThis.packets.length > before + 25, played);
      await until('some of it is played', more, 20, account);
      const call = () => {
        const at = performance.timeOrigin + performance.now();
        globalThis.interrupt();
        return at;
      };
      calledAt.push(await page.evaluate(call));
      await until('it is cut', () => count('output_audio_buffer.cleared') >= nth, 20, account);
      await until('the model says that it has heard', () => count('conversation.item.truncated') >= nth, 20, account);
      await page.evaluate(() => globalThis.mute(false));
    }
    await until('it goes on', () => count('output_audio_buffer.started') > BY_CALL, 40, account);
    const packets = await page.evaluate(() => globalThis.packets);
    await page.evaluate(() => globalThis.hangUp());
    await here.stack.empty();
    assert.deepEqual(errors, []);
    await site.close();

    const answers = runs(packets).slice(0, BY_CALL);
    const truncated = model.events('in', 'conversation.item.truncate', since);
    assert.equal(truncated.length, BY_CALL);
    assert.equal(new Set(truncated.map(({ event }) => event.item_id)).size, BY_CALL, 'each item is cut once');
    const whole = (1000 * model.answer.length) / RATE;
    const found = [];
    for (const [n, answer] of answers.entries()) {
      const toldMs = truncated[n].event.audio_end_ms;
      assert(toldMs > 0 && toldMs < whole, `${toldMs} of ${whole} ms: it is cut in its middle`);
      const one = interruption(answer, { event: calledAt[n], told: calledAt[n] });
      if (one) found.push({ ...one, told: toldMs });
    }
    t.diagnostic(`what was sent, what the model was told, how long after the call the last packet came: ${JSON.stringify(found)}`);
    assert(found.length > 0, 'an interruption is to be seen');
    // A browser that the machine keeps waiting calls later than it says, and receives later.
    assert(found.some((one) => one.received <= LATEST), 'the last packet is received too late');
    assert(found.every((one) => Math.abs(one.told - one.sent) <= INEXACT), 'the model is told another time than was sent');
  });

  test('a connection to the model that breaks in the middle of an answer does not keep the SDK from the next one', async () => {
    const model = here.behind;
    const since = model.lines;
    const also = `
      globalThis.tell = (event) => transport.sendEvent(event);
      globalThis.write = (text) => session.sendMessage(text);`;
    const { site, page, errors, count, account } = await place(here, open, "{ name: 'Guide', instructions: 'Be brief.' }", also);
    // What is said meanwhile would be answered, too.
    await until('an answer begins', () => count('output_audio_buffer.started') === 1, 40, account);
    await page.evaluate(() => globalThis.mute(true));
    await page.evaluate(() => globalThis.interrupt());
    await until('it is cut', () => count('output_audio_buffer.cleared') === 1, 20, account);
    const done = count('response.done');
    await page.evaluate(() => {
      globalThis.tell({ type: 'test.disconnect', at: 'response.created' });
      globalThis.write('Are you there?');
    });
    await until('the answer that had begun ends', () => count('response.done') > done, 20, account);
    await until('there is another connection', () => count('session.created') === 2, 20, account);
    assert.equal(count('output_audio_buffer.started'), 1, 'nothing of it was heard');
    await page.evaluate(() => globalThis.write('And now?'));
    await until('the next one is heard', () => count('output_audio_buffer.started') === 2, 20, account);
    await page.evaluate(() => globalThis.hangUp());
    await here.stack.empty();
    await site.close();
    assert.equal(errors.length, 1, account());
    assert.match(errors[0], /"backend_disconnected","event_id":null/);
    // The model has been asked twice; its other answers are to what was spoken.
    assert.equal(model.events('in', 'response.create', since).length, 2);
  });
}

/** Places a call by a page of the SDK's with this agent, and waits until it is live. What the page says, each type of event too, is `said`. */
async function place(here, open, agent, more) {
  const site = await serve(await sdkPage(agent, more), MODULES);
  const page = await open(here.browser, here.spoken);
  const [said, errors] = [[], []];
  page.on('console', (message) => (message.type() === 'error' ? errors : said).push(message.text()));
  page.on('pageerror', (error) => errors.push(`not caught: ${error.message}`));
  const account = () => JSON.stringify({ said, errors });
  const count = (type) => said.filter((one) => one === type).length;
  await page.goto(site.url);
  await until('the call is live', async () => count('session.created') > 0 && (await connected(page)), 40, account);
  return { site, page, said, errors, count, account };
}

/** Whether the page's call has connected. */
function connected(page) {
  return page.evaluate(() => globalThis.turns.includes('connection connected'));
}

/** Each answer was interrupted: at once, by the model's clock and by the client's, and the model knows how much of it was sent. */
function judge(t, model, answers, told) {
  const truncated = model.events('in', 'conversation.item.truncate');
  assert.equal(new Set(truncated.map(({ event }) => event.item_id)).size, answers.length, 'each item is cut once');
  assert.equal(truncated.length, answers.length);
  const spoke = model.events('out', 'input_audio_buffer.speech_started');
  const found = [];
  for (const [n, answer] of answers.entries()) {
    const cause = spoke.findLast(({ wall }) => wall <= truncated[n].wall);
    const heard = told.find(({ id }) => id === cause.event.event_id);
    assert(heard, 'the client is told of what interrupts');
    const one = interruption(answer, { event: 1000 * cause.wall, told: heard.at });
    if (one) found.push({ ...one, told: truncated[n].event.audio_end_ms });
  }
  const list = (pick) => found.map((one) => pick(one).toFixed(0)).join(' ');
  t.diagnostic(`milliseconds from the model's event to the last packet of what it interrupts, as the client has both: ${list((one) => one.received)}`);
  t.diagnostic(`the same from where the event left, by the packet's place among those that were sent: ${list((one) => one.paced)}`);
  t.diagnostic(`milliseconds that the model was told of too much: ${list((one) => one.told - one.sent)}`);
  // A machine so busy that the silence itself was left out hides an interruption.
  assert(found.length >= answers.length / 2, `${found.length} of ${answers.length} interruptions are to be seen`);
  // Packets are noted by a worker of the browser's and events by its page, and a busy machine may keep either waiting for once.
  assert(median(found.map((one) => one.received)) <= LATEST, 'the last packet is received too late');
  assert(found.every((one) => one.paced <= LATEST), 'the last packet is sent too late');
  assert(found.every((one) => Math.abs(one.told - one.sent) <= INEXACT), 'the model is told another time than was sent');
}
