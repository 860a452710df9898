// What a person is told: one entry for each state, each way in which a call fails, and each way in which it ends.
//
// `title` is a few words, `text` one or two sentences, `hints` what to try: text, or { text, href }. `place` is the server's host and port.

/** While nothing has gone wrong. */
export function stateWords(state, { demo, echo, muted, place }) {
  switch (state) {
    case 'idle':
      return {
        chip: 'Ready',
        title: demo ? 'Let the machine speak' : 'Say something',
        text: demo
          ? 'A recording speaks in place of your microphone, and you hear what comes back.'
          : 'Press start, allow the microphone, and speak. You hear what answers, and see how it got here.',
      };
    case 'asking':
      return demo
        ? { chip: 'Preparing', title: 'Loading the recording', text: 'It takes the place of a microphone.' }
        : {
            chip: 'Microphone',
            title: 'Allow the microphone',
            text: 'Your browser is asking. Nothing leaves this page before you agree.',
          };
    case 'requesting':
      return { chip: 'Connecting', title: 'Calling …', text: `Asking ${place} for a call.` };
    case 'connecting':
      return { chip: 'Connecting', title: 'Finding the way …', text: 'The server agreed. Now packets look for a path over UDP.' };
    case 'slow':
      return {
        chip: 'Connecting',
        title: 'Still looking …',
        text: 'The server agreed, but no packet has come back yet. A firewall that blocks UDP looks like this.',
      };
    case 'open':
      return {
        chip: 'In call',
        title: muted ? 'You are muted' : demo ? 'The machine is speaking' : 'You are on. Speak!',
        text: muted
          ? 'Nobody hears you until you unmute.'
          : echo
            ? `This is an echo: what is said comes back a moment later.${demo ? '' : ' Headphones keep it from going round.'}`
            : 'You can talk over the answer: it stops and listens.',
      };
    case 'waiting':
      return {
        chip: 'In call',
        title: 'Connecting to the model server …',
        text: muted
          ? 'Nobody hears you until you unmute.'
          : 'The call is through, and what answers it is not there yet. The last seconds of what you say are kept for it.',
      };
    case 'silent':
      return {
        chip: 'In call',
        title: 'The line is silent …',
        text: 'No sound has come through for some seconds. The call goes on by itself as soon as it does.',
      };
    case 'interrupted':
      return { chip: 'In call', title: 'Interrupted', text: 'What was waiting to be played has been dropped.' };
    case 'recovering':
      return {
        chip: 'Reconnecting',
        title: 'The line is silent …',
        text: 'No packets come through at the moment. The call goes on by itself as soon as they do.',
      };
    default:
      throw new Error(`no words for the state ${state}`);
  }
}

/** How a call ended that had connected, or that was given up here. */
export const ENDINGS = {
  'hung-up': { title: 'You hung up', text: 'The call is over on both sides.' },
  cancelled: { title: 'Cancelled', text: 'There was no call yet.' },
  'server-ended': { title: 'The server ended the call', text: 'It closed the connection properly: someone hung up at the other end, or it is shutting down.' },
  'session-expired': { title: 'Time is up', text: 'The session reached its longest duration, so the server ended it. You can start a new one.' },
  'model-ended': { title: 'The model ended the call', text: 'Its server closed the session without an error.' },
  'connection-lost': {
    title: 'Connection lost',
    text: 'No packets came through for too long, so the call is over. Did the network change, or the server stop?',
    bad: true,
  },
};

/** Why a call did not come about. `said` is what the server or the browser said, if anything. */
export function failureWords(code, { place, said }) {
  const words = FAILURES[code] ?? FAILURES['server-failed'];
  const text = words.text.replaceAll('{place}', place);
  return { title: words.title, text, hints: words.hints ?? [], said: words.quiet ? null : said };
}

const FAILURES = {
  'microphone-refused': {
    title: 'The microphone is blocked',
    text: 'Your browser or your system does not let this page listen.',
    hints: [
      'Press the microphone or settings sign beside the address, and allow it.',
      'If the browser itself may not listen, allow it in the privacy settings of your system.',
    ],
    quiet: true,
  },
  'microphone-missing': {
    title: 'No microphone found',
    text: 'This device has no microphone that the browser can see.',
    hints: ['Plug one in or switch it on, then try again.', { text: 'Or let a synthetic voice speak.', href: '/?demo' }],
    quiet: true,
  },
  'microphone-busy': {
    title: 'The microphone does not start',
    text: 'It is there, but the system does not hand it out. Often another program holds it.',
    hints: ['Close other programs that use it, then try again.'],
  },
  'microphone-insecure': {
    title: 'The microphone needs a secure page',
    text: 'Browsers offer the microphone only over HTTPS, or on localhost.',
    hints: ['Open this page over https://, or on the machine itself as http://localhost.'],
  },
  'microphone-failed': {
    title: 'The microphone does not work here',
    text: 'The browser gives no access to a microphone.',
    hints: ['Try another browser.'],
  },
  'recording-failed': {
    title: 'The recording does not play',
    text: 'The file named after ?demo= could not be loaded or decoded. It must lie on this server.',
    hints: [{ text: 'Let a synthetic voice speak.', href: '/?demo' }],
  },
  'no-webrtc': {
    title: 'This browser has no WebRTC',
    text: 'It is switched off or not built in, so calls cannot be made from here.',
    hints: ['Try a current Chrome, Edge, Firefox or Safari.'],
  },
  'server-unreachable': {
    title: 'The server does not answer',
    text: 'No connection to {place}. It may be stopped, or the network is down.',
    hints: ['Check that the server runs and that you are online, then try again.'],
  },
  'server-slow': {
    title: 'The server takes too long',
    text: '{place} took the request and did not answer within 15 seconds.',
    hints: ['Try again in a moment. If it stays so, look at the server’s log.'],
  },
  'key-missing': {
    title: 'An API key is needed',
    text: 'The server takes calls only from those who have a key.',
    hints: ['Enter it below, then start.'],
  },
  'key-refused': {
    title: 'The key was refused',
    text: 'The server does not accept this API key.',
    hints: ['Correct it below. It is kept in this tab only.'],
  },
  'server-full': {
    title: 'All lines are busy',
    text: 'The server has no room for another call at the moment.',
    hints: ['Try again shortly.'],
    quiet: true,
  },
  'server-failed': {
    title: 'The server could not make the call',
    text: 'It answered with an error of its own.',
    hints: ['Try again. If it stays so, look at the server’s log.'],
  },
  'offer-refused': {
    title: 'The server refused the call',
    text: 'It does not accept what this browser offers.',
    hints: ['Try another browser, and tell us what the server said.'],
  },
  'no-such-service': {
    title: 'No calls are taken here',
    text: '{place} answers, but not as a voice server does.',
    hints: ['Check the address. A proxy in between may have answered.'],
  },
  'answer-unusable': {
    title: 'The answer makes no sense',
    text: 'The server agreed to the call, but the browser cannot use its answer.',
    hints: ['Try another browser, and tell us what this one said.'],
  },
  'model-unreachable': {
    title: 'The model server cannot be reached',
    text: 'The call was through, but {place} found no model server to answer it.',
    hints: [
      'Try again in a moment.',
      'Running it yourself? Check that the model server runs, and that FIRSTHOP_BACKEND_URL leads there. The transceiver’s log says more.',
    ],
  },
  'model-refused': {
    title: 'The model server wants another key',
    text: 'The call was through, but the model server behind {place} does not accept the key that it is shown, or is shown none. That is not the key of this page.',
    hints: ['Running it yourself? Give the model server’s key in FIRSTHOP_BACKEND_KEY, or name its file in FIRSTHOP_BACKEND_KEY_FILE, and start again.'],
  },
  'model-failed': {
    title: 'The model server failed',
    text: 'The call was through, but the model server behind {place} did not carry it on.',
    hints: ['Try again. If it stays so, look at the logs of the transceiver and of the model server.'],
  },
  'no-network': {
    title: 'This computer has no network',
    text: 'The server agreed to the call, but the browser found no network to speak over. Browsers do not call over the loopback interface alone.',
    hints: [
      'Join a network, then try again. It need not lead to the internet.',
      'On a network already? Then a setting or an extension forbids this browser to use WebRTC over UDP.',
      'Running it yourself? scripts/run --demo makes a call without a browser, over loopback alone.',
    ],
  },
  'never-connected': {
    title: 'No path for the voice',
    text: 'The server agreed to the call, but no packet came through. Most often a firewall or VPN blocks UDP, or the server advertises an address that you cannot reach.',
    hints: ['Try another network, for example a phone’s.', 'Running it yourself? Check the advertised address and that its UDP port (3478 unless set otherwise) is open.'],
  },
  'never-secured': {
    title: 'The connection could not be secured',
    text: 'Packets came through, but the two sides did not agree on keys.',
    hints: ['Try again. If it stays so, something on the way drops large packets.'],
  },
};
