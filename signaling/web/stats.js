// What a call's statistics say, in the terms of the page: pure, from one RTCStatsReport and the counters of the one before.

/**
 * Reads a report.
 *
 * @param {Map} report of RTCPeerConnection.getStats()
 * @param {object|null} before the `counters` of the reading before, or null
 * @returns {{sample: object, path: object|null, lost: {lost: number, sent: number}|null, codec: string|null, counters: object}}
 *
 * `sample`, each null while unknown: `roundTrip`, `jitterDown`, `jitterUp`, `buffer` in milliseconds; `lossDown`, `lossUp` in per cent
 * since the reading before; `rateDown`, `rateUp` in kbit/s of audio payload. Down is towards this page.
 */
export function read(report, before) {
  const all = [...report.values()];
  const audio = (type) => all.find((s) => s.type === type && (s.kind ?? s.mediaType) === 'audio');
  const inbound = audio('inbound-rtp');
  const outbound = audio('outbound-rtp');
  const remote = audio('remote-inbound-rtp');
  const pair = selectedPair(report, all);
  const counters = {
    at: inbound?.timestamp ?? outbound?.timestamp ?? 0,
    received: inbound?.packetsReceived ?? 0,
    lost: inbound?.packetsLost ?? 0,
    bytesDown: inbound?.bytesReceived ?? 0,
    bytesUp: outbound?.bytesSent ?? 0,
    delay: inbound?.jitterBufferDelay ?? 0,
    emitted: inbound?.jitterBufferEmittedCount ?? 0,
  };
  const since = (name) => (before ? counters[name] - before[name] : null);
  const seconds = before ? (counters.at - before.at) / 1000 : 0;
  const rate = (bytes) => (seconds > 0 ? Math.max(0, (since(bytes) * 8) / 1000 / seconds) : null);
  return {
    sample: {
      roundTrip: milliseconds(pair?.currentRoundTripTime ?? remote?.roundTripTime),
      jitterDown: inbound?.packetsReceived ? milliseconds(inbound.jitter) : null,
      jitterUp: milliseconds(remote?.jitter),
      lossDown: inbound ? lossShare(since('lost'), since('received')) : null,
      lossUp: remote?.fractionLost === undefined ? null : 100 * remote.fractionLost,
      buffer: since('emitted') > 0 ? milliseconds(since('delay') / since('emitted')) : null,
      rateDown: inbound ? rate('bytesDown') : null,
      rateUp: outbound ? rate('bytesUp') : null,
    },
    path: pair ? pathOf(report, pair) : null,
    lost: inbound ? { lost: Math.max(0, counters.lost), sent: counters.lost + counters.received } : null,
    codec: codecOf(report.get((inbound ?? outbound)?.codecId)),
    counters,
  };
}

/** How long no packet of audio may come that should, before the line is silent, in milliseconds. */
const SILENT = 2_000;

/** Whether nothing is heard although something should be, by how many packets of audio have come so far: pure, times are passed in. */
export class Silence {
  #received = 0;
  #since = null;

  /** `expected`: whether the other side sends without pause at the moment. What is silent since nobody speaks is no silent line. */
  take(received, expected, now) {
    if (received === 0 || received !== this.#received || !expected) this.#since = null;
    this.#received = received;
    if (received === 0 || !expected) return false;
    this.#since ??= now;
    return now - this.#since >= SILENT;
  }
}

function milliseconds(seconds) {
  return Number.isFinite(seconds) ? 1000 * seconds : null;
}

/** A late packet counts as lost first and is taken back then, so the difference may be negative. */
function lossShare(lost, received) {
  const expected = lost + received;
  return lost === null || expected <= 0 ? null : Math.min(100, Math.max(0, (100 * lost) / expected));
}

function selectedPair(report, all) {
  const transport = all.find((s) => s.type === 'transport' && s.selectedCandidatePairId);
  const named = transport && report.get(transport.selectedCandidatePairId);
  // Firefox marks the pair itself.
  return named ?? all.find((s) => s.type === 'candidate-pair' && s.selected) ?? null;
}

function pathOf(report, pair) {
  const local = report.get(pair.localCandidateId);
  const remote = report.get(pair.remoteCandidateId);
  return {
    protocol: (remote?.protocol ?? local?.protocol ?? 'udp').toUpperCase(),
    local: endOf(local),
    remote: endOf(remote),
  };
}

function endOf(candidate) {
  if (!candidate) return { address: null, type: null };
  // Browsers hide a local address while the page has no permission that shows it.
  const ip = candidate.address ?? candidate.ip;
  const host = ip?.includes(':') ? `[${ip}]` : ip;
  return { address: host ? `${host}:${candidate.port}` : null, type: candidate.candidateType ?? null };
}

function codecOf(codec) {
  if (!codec?.mimeType) return null;
  const name = codec.mimeType.replace(/^audio\//i, '');
  return `${name === 'opus' ? 'Opus' : name}, ${codec.clockRate / 1000} kHz`;
}
