import assert from 'node:assert/strict';
import { test } from 'node:test';
import { read, Silence } from '../stats.js';

const report = (...stats) => new Map(stats.map((s) => [s.id, s]));

const inbound = (more) => ({ id: 'in', type: 'inbound-rtp', kind: 'audio', timestamp: 1000, packetsReceived: 50, packetsLost: 0, bytesReceived: 4000, jitter: 0.004, ...more });

test('an empty report knows nothing', () => {
  const { sample, path, codec, lost } = read(report(), null);
  assert.deepEqual([...new Set(Object.values(sample))], [null]);
  assert.deepEqual([path, codec, lost], [null, null, null]);
});

test('times become milliseconds, and the pair of the transport is the one in use', () => {
  const { sample, path } = read(
    report(
      inbound(),
      { id: 'other', type: 'candidate-pair', state: 'succeeded', currentRoundTripTime: 9 },
      { id: 'pair', type: 'candidate-pair', currentRoundTripTime: 0.012, localCandidateId: 'l', remoteCandidateId: 'r' },
      { id: 'l', type: 'local-candidate', address: '192.0.2.7', port: 40000, candidateType: 'prflx', protocol: 'udp' },
      { id: 'r', type: 'remote-candidate', address: '2001:db8::1', port: 3478, candidateType: 'host', protocol: 'udp' },
      { id: 't', type: 'transport', selectedCandidatePairId: 'pair' },
    ),
    null,
  );
  assert.equal(sample.roundTrip, 12);
  assert.equal(sample.jitterDown, 4);
  assert.deepEqual(path, {
    protocol: 'UDP',
    local: { address: '192.0.2.7:40000', type: 'prflx' },
    remote: { address: '[2001:db8::1]:3478', type: 'host' },
  });
});

test('without a transport the pair that says it is selected is taken, and RTCP gives the round trip', () => {
  const { sample, path } = read(
    report(
      { id: 'pair', type: 'candidate-pair', selected: true, localCandidateId: 'l', remoteCandidateId: 'r' },
      { id: 'l', type: 'local-candidate', port: 9, candidateType: 'host' },
      { id: 'remote', type: 'remote-inbound-rtp', kind: 'audio', roundTripTime: 0.02, jitter: 0.001, fractionLost: 0.25 },
    ),
    null,
  );
  assert.equal(sample.roundTrip, 20);
  assert.equal(sample.lossUp, 25);
  assert.equal(path.local.address, null);
  assert.deepEqual(path.remote, { address: null, type: null });
});

test('loss and rate count from the reading before', () => {
  const before = read(report(inbound()), null);
  assert.equal(before.sample.lossDown, null);
  const after = read(report(inbound({ timestamp: 2000, packetsReceived: 95, packetsLost: 5, bytesReceived: 8000 })), before.counters);
  assert.equal(after.sample.lossDown, 10);
  assert.equal(after.sample.rateDown, 32);
  assert.deepEqual(after.lost, { lost: 5, sent: 100 });
});

test('a late packet that takes a loss back makes no negative loss', () => {
  const before = read(report(inbound({ packetsLost: 3 })), null);
  const after = read(report(inbound({ timestamp: 2000, packetsReceived: 100, packetsLost: 1 })), before.counters);
  assert.equal(after.sample.lossDown, 0);
});

test('the codec is named as people write it', () => {
  const codec = { id: 'c', type: 'codec', mimeType: 'audio/opus', clockRate: 48000 };
  assert.equal(read(report(inbound({ codecId: 'c' }), codec), null).codec, 'Opus, 48 kHz');
  assert.equal(read(report(inbound({ codecId: 'c' }), { ...codec, mimeType: 'audio/PCMU', clockRate: 8000 }), null).codec, 'PCMU, 8 kHz');
});

test('a line is silent when for two seconds nothing comes that should, and no longer once something does', () => {
  const silence = new Silence();
  const take = (received, at, expected = true) => silence.take(received, expected, 1_000 * at);
  assert.deepEqual([take(0, 0), take(0, 5)], [false, false], 'nothing has come yet');
  assert.deepEqual([take(50, 6), take(50, 7), take(50, 8), take(50, 11)], [false, false, true, true]);
  assert.equal(take(51, 12), false);
  // Who has nothing to say sends nothing.
  assert.deepEqual([take(51, 13, false), take(51, 30, false)], [false, false]);
  assert.deepEqual([take(51, 31), take(51, 32), take(51, 33)], [false, false, true]);
  assert.equal(take(51, 34, false), false);
});
