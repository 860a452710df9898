// Whether what answers a call is there.

/**
 * What an event says of that: true when it comes of what answers, false when that has gone, null when it says nothing of it.
 *
 * Errors, and what becomes of sound, are told by the server itself, also while there is no model behind it. But sound that begins is a
 * model's: of one that sends sound alone nothing else is heard.
 */
export function answers(event) {
  if (event?.error?.code === 'backend_disconnected') return false;
  if (typeof event?.type !== 'string' || event.type === 'error') return null;
  if (event.type === 'output_audio_buffer.started') return true;
  return event.type.startsWith('output_audio_buffer.') ? null : true;
}
