"""Spoken sound to send, and how much of it is in what came back."""

import shutil
import subprocess
import wave
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: Samples per second of everything here: what WebRTC's Opus runs at.
RATE = 48_000
Samples = NDArray[np.float32]

#: What callers say who talk on and on: longer than most tests listen.
TEXT = (
    "Good morning. This is a call through the first hop, and I am listening for my own voice. "
    "One, two, three, four, five, six, seven, eight, nine, ten. "
    "The quick brown fox jumps over the lazy dog, and the relay must not drop a single word of it."
)

#: One breath without a pause: a voice detector hears one turn.
SENTENCE = "Seven silver swans swam silently seaward while we were waiting at the harbour wall"


def speak(text: str, path: Path) -> Path:
    """Makes a WAV of spoken text, 48 kHz mono, with espeak-ng and sox."""
    for program in ("espeak-ng", "sox"):
        if shutil.which(program) is None:
            raise RuntimeError(f"{program} is not installed (scripts/test installs it)")
    raw = path.with_suffix(".raw.wav")
    subprocess.run(["espeak-ng", "-s", "150", "-w", raw, text], check=True)
    subprocess.run(["sox", raw, "-r", str(RATE), "-c", "1", "-b", "16", path, "norm", "-3"], check=True)
    return path


def resampled(samples: Samples, rate: int, path: Path) -> Path:
    """Writes samples as a WAV of another rate."""
    original = path.with_suffix(".original.wav")
    save(original, samples)
    subprocess.run(["sox", original, "-r", str(rate), path], check=True)
    return path


def load(path: Path) -> Samples:
    """The samples of a WAV that `speak` made, between -1 and 1."""
    with wave.open(str(path)) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE, 1, 2), path
        return np.frombuffer(file.readframes(file.getnframes()), dtype="<i2").astype(np.float32) / 32768


def save(path: Path, samples: Samples) -> None:
    """Writes samples as a WAV, to be listened to after a failure."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes((np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes())


def telephone(samples: Samples) -> Samples:
    """What a telephone passes of a recording: 300 to 3,400 Hz."""
    spectrum = np.fft.rfft(samples.astype(np.float64))
    frequencies = np.fft.rfftfreq(len(samples), 1 / RATE)
    spectrum[(frequencies < 300) | (frequencies > 3_400)] = 0
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


def correlation(sent: Samples, received: Samples) -> tuple[float, float]:
    """How alike two recordings are at their best alignment, and the delay of the second in seconds.

    The coefficient is the normalised cross-correlation: 1 for the same sound at any volume, near 0 for unrelated
    ones. `sent` is the template; it is looked for in `received`, and the energy of `received` is taken over the same
    stretch, so that silence around it costs nothing. The delay is negative when `received` starts inside `sent`.
    """
    if not len(sent) or not len(received):
        return 0.0, 0.0
    size = 1 << (len(sent) + len(received) - 1).bit_length()
    template = np.fft.rfft(sent.astype(np.float64), size)
    product = np.fft.irfft(np.fft.rfft(received.astype(np.float64), size) * template.conj(), size)
    energy = np.concatenate([[0.0], np.cumsum(received.astype(np.float64) ** 2)])
    lags = np.arange(-len(sent) + 1, len(received))
    starts = np.clip(lags, 0, len(received))
    ends = np.clip(lags + len(sent), 0, len(received))
    scale = np.sqrt(np.maximum(energy[ends] - energy[starts], 0) * float(np.sum(sent.astype(np.float64) ** 2)))
    # A sliver of overlap can match by chance: half of the template's length at least, or all that there is.
    scale[ends - starts < min(len(sent), len(received)) // 2] = np.inf
    scale[scale <= 1e-9] = np.inf
    coefficients = product[lags % size] / scale
    best = int(np.argmax(coefficients))
    return float(coefficients[best]), lags[best] / RATE


def likeness(sent: Samples, received: Samples, window: float = 1.0) -> list[float]:
    """The correlation of each loud `window` of what was sent with what was received, in order.

    Piece by piece, because a receiver may stretch or shrink a pause, and a shift of a few milliseconds in the middle
    ruins the correlation of the whole although every word is there. Of unrelated speech, one window in ten is above
    0.3 and none above 0.5.
    """
    length = int(window * RATE)
    pieces = [sent[start : start + length] for start in range(0, len(sent) - length + 1, length)]
    loudness = float(np.sqrt(np.mean(sent**2))) if len(sent) else 0.0
    return [correlation(piece, received)[0] for piece in pieces if float(np.sqrt(np.mean(piece**2))) > 0.3 * loudness]
