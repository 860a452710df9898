// Waiting for a condition, with a deadline.

/** How often a condition is asked, in milliseconds. */
const PERIOD = 50;

/**
 * Asks `condition` until it gives something true, and returns that.
 *
 * @param {string} what is waited for, in words, for the error
 * @param {() => unknown} condition may be asynchronous
 * @param {number} seconds at most
 * @param {() => unknown} [explain] what the error says besides
 */
export async function until(what, condition, seconds, explain = () => '') {
  const deadline = performance.now() + 1000 * seconds;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (performance.now() > deadline) throw new Error(`not within ${seconds} s: ${what} ${await explain()}`);
    await new Promise((resolve) => setTimeout(resolve, PERIOD));
  }
}
