//! Reads speech from a WAV file: 16 bits, any rate, one channel or more, which become one.

use std::path::{Path, PathBuf};

use hound::{SampleFormat, WavReader};
use rubato::audioadapter_buffers::owned::InterleavedOwned;
use rubato::{Async, FixedAsync, Resampler as _, SincInterpolationParameters, WindowFunction};

/// The longest file: what is said is encoded before the first call, and held in memory.
const LONGEST_SECONDS: u32 = 300;

/// The shortest: a mark needs room.
const SHORTEST_MS: u64 = 500;

/// Rates that are speech, in samples per second.
const RATES: std::ops::RangeInclusive<u32> = 8_000..=192_000;

/// A file that cannot be said.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {why}", path = path.display())]
pub struct WavError {
    path: PathBuf,
    why: String,
}

/// Speech as samples.
#[derive(Clone, PartialEq, Debug)]
pub struct Speech {
    /// Samples per second.
    pub rate: u32,
    /// 16 bits each.
    pub samples: Vec<i16>,
}

impl Speech {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no WAV of 16-bit PCM, or too short or too long.
    pub fn read(path: &Path) -> Result<Self, WavError> {
        Self::try_read(path).map_err(|why| WavError {
            path: path.to_owned(),
            why,
        })
    }

    fn try_read(path: &Path) -> Result<Self, String> {
        let mut file = WavReader::open(path).map_err(|error| error.to_string())?;
        let spec = file.spec();
        if (spec.sample_format, spec.bits_per_sample) != (SampleFormat::Int, 16) {
            return Err(format!(
                "it has {} bits a sample; give one of 16-bit PCM (ffmpeg -i IN -c:a pcm_s16le OUT.wav)",
                spec.bits_per_sample
            ));
        }
        if !RATES.contains(&spec.sample_rate) || spec.channels == 0 {
            return Err(format!(
                "it has {} channels at {} Hz; give 8,000 to 192,000 Hz",
                spec.channels, spec.sample_rate
            ));
        }
        let frames = file.duration();
        let ms = u64::from(frames) * 1_000 / u64::from(spec.sample_rate);
        if ms < SHORTEST_MS || frames / spec.sample_rate >= LONGEST_SECONDS {
            return Err(format!(
                "it is {:.1} s long; give {:.1} s to {LONGEST_SECONDS} s",
                ms as f64 / 1e3,
                SHORTEST_MS as f64 / 1e3
            ));
        }
        let samples: Result<Vec<i16>, _> = file.samples::<i16>().collect();
        let samples = samples.map_err(|error| error.to_string())?;
        let channels = usize::from(spec.channels);
        let mono = samples.chunks_exact(channels).map(|at_once| {
            let sum: i32 = at_once.iter().map(|sample| i32::from(*sample)).sum();
            (sum / i32::from(spec.channels)) as i16
        });
        Ok(Self {
            rate: spec.sample_rate,
            samples: mono.collect(),
        })
    }

    /// The same at another rate.
    #[must_use]
    pub fn at(&self, rate: u32) -> Self {
        if rate == self.rate {
            return self.clone();
        }
        let ratio = f64::from(rate) / f64::from(self.rate);
        let parameters = SincInterpolationParameters::new(64, WindowFunction::BlackmanHarris2);
        let resampler =
            Async::<f32>::new_sinc(ratio, 1.0, &parameters, 1_024, 1, FixedAsync::Input);
        let samples: Vec<f32> = self.samples.iter().map(|s| f32::from(*s)).collect();
        let length = samples.len();
        // One channel, a ratio of two positive numbers, and as many samples as it says: nothing that can be refused.
        let refused = "the resampler takes one channel of any length";
        let input = InterleavedOwned::new_from(samples, 1, length)
            .unwrap_or_else(|_| unreachable!("{refused}"));
        let resampled = resampler
            .ok()
            .and_then(|mut resampler| resampler.process_all(&input, length, None).ok())
            .unwrap_or_else(|| unreachable!("{refused}"));
        let samples = resampled.take_data();
        let range = f32::from(i16::MIN)..=f32::from(i16::MAX);
        Self {
            rate,
            samples: samples
                .into_iter()
                .map(|sample| sample.clamp(*range.start(), *range.end()) as i16)
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::f32::consts::TAU;

    use hound::{WavSpec, WavWriter};

    use super::*;

    /// Writes a tone of 440 Hz in both of two channels, or in one, and removes the file at the end.
    struct File(PathBuf);

    impl File {
        fn write(name: &str, rate: u32, channels: u16, bits: u16, seconds: f32) -> Self {
            let name = format!("firsthop-wav-{}-{name}.wav", std::process::id());
            let path = std::env::temp_dir().join(name);
            let spec = WavSpec {
                channels,
                sample_rate: rate,
                bits_per_sample: bits,
                sample_format: SampleFormat::Int,
            };
            let mut file = WavWriter::create(&path, spec).expect("a file");
            for n in 0..(rate as f32 * seconds) as u32 {
                let sample = 10_000.0 * (TAU * 440.0 * n as f32 / rate as f32).sin();
                for _ in 0..channels {
                    file.write_sample(sample as i16 >> (16 - bits))
                        .expect("written");
                }
            }
            file.finalize().expect("written");
            Self(path)
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    /// How often it crosses zero upwards, in a second.
    fn pitch(speech: &Speech) -> f32 {
        let crossings = speech.samples.windows(2).filter(|w| w[0] < 0 && w[1] >= 0);
        crossings.count() as f32 * speech.rate as f32 / speech.samples.len() as f32
    }

    #[test]
    fn a_file_of_any_rate_is_said_at_that_of_the_codec() {
        for (name, rate, channels) in [
            ("cd", 44_100, 2),
            ("narrow", 8_000, 1),
            ("wide", 48_000, 1),
            ("server", 24_000, 2),
        ] {
            let file = File::write(name, rate, channels, 16, 1.0);
            let speech = Speech::read(&file.0).expect("read");
            assert_eq!((speech.rate, speech.samples.len()), (rate, rate as usize));
            for wanted in [8_000, 48_000] {
                let said = speech.at(wanted);
                assert_eq!(said.rate, wanted);
                assert!(said.samples.len().abs_diff(wanted as usize) <= 1, "{name}");
                assert!(
                    (pitch(&said) - 440.0).abs() < 5.0,
                    "{name} {}",
                    pitch(&said)
                );
                let loudest = said.samples.iter().map(|s| s.unsigned_abs()).max();
                let loudest = loudest.expect("samples");
                assert!((9_500..10_600).contains(&loudest), "{name} {loudest}");
            }
        }
    }

    #[test]
    fn what_cannot_be_said_is_refused_in_words() {
        let bytes = File::write("bytes", 8_000, 1, 8, 1.0);
        let short = File::write("short", 8_000, 1, 16, 0.1);
        for (path, expected) in [
            (bytes.0.clone(), "16-bit PCM"),
            (short.0.clone(), "0.1 s long"),
            (PathBuf::from("/nowhere.wav"), "No such file"),
            (PathBuf::from("/proc/self/cmdline"), "/proc/self/cmdline: "),
        ] {
            let refused = Speech::read(&path).expect_err("refused").to_string();
            assert!(refused.contains(expected), "{refused}");
        }
    }
}
