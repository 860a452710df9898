//! Axes: where a value lies, and which values are written.

use super::super::figures::number;

/// How an axis is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Scale {
    /// From nothing on, in equal steps.
    Linear,
    /// In decades.
    Logarithmic,
}

/// What an axis is for.
pub(in super::super) struct Axis {
    /// What it counts, and in what.
    pub(in super::super) title: String,
    /// How it is divided.
    pub(in super::super) scale: Scale,
    /// The values that are written; the axis finds some itself when there are none.
    pub(in super::super) ticks: Vec<(f64, String)>,
}

impl Axis {
    pub(in super::super) fn new(title: &str, scale: Scale) -> Self {
        Self {
            title: title.to_owned(),
            scale,
            ticks: Vec::new(),
        }
    }

    /// With one place for each name, from 0 on.
    pub(in super::super) fn named<const N: usize>(title: &str, names: [&str; N]) -> Self {
        let ticks = names.iter().enumerate();
        Self {
            ticks: ticks
                .map(|(at, name)| (at as f64, (*name).to_owned()))
                .collect(),
            ..Self::new(title, Scale::Linear)
        }
    }

    /// Lays it out for these values, from one coordinate to another. What has no place on it (a logarithm of nothing) is left out.
    pub(super) fn over(&self, values: impl Iterator<Item = f64>, from: f64, to: f64) -> Laid {
        let scale = self.scale;
        let values: Vec<f64> = values.filter(|value| scale.has(*value)).collect();
        let most = values.iter().copied().fold(f64::MIN, f64::max);
        let least = values.iter().copied().fold(f64::MAX, f64::min);
        let (low, high) = match scale {
            _ if values.is_empty() => (1.0, 10.0),
            Scale::Linear if self.ticks.is_empty() => (0.0, ceiling(most)),
            Scale::Linear => (
                0.0,
                self.ticks.last().map_or(most, |(last, _)| last.max(most)),
            ),
            Scale::Logarithmic => (
                10_f64.powf(least.log10().floor()),
                10_f64.powf((most.log10() - 1e-9).ceil()),
            ),
        };
        let ticks = if self.ticks.is_empty() {
            ticks(scale, low, high)
        } else {
            self.ticks.clone()
        };
        Laid {
            scale,
            low,
            high: if high > low { high } else { low + 1.0 },
            from,
            to,
            ticks,
        }
    }
}

impl Scale {
    fn has(self, value: f64) -> bool {
        value.is_finite() && (self == Self::Linear || value > 0.0)
    }
}

/// An axis in its place.
pub(super) struct Laid {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    /// What is written, at which values.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Laid {
    /// Where a value lies; nothing when it has no place.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let share = match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        let place = self.from + (self.to - self.from) * share.clamp(0.0, 1.0);
        (self.scale.has(value) && place.is_finite()).then_some(place)
    }
}

/// The next larger number that is easy to divide.
fn ceiling(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let step = step(most);
    (most / step).ceil() * step
}

/// A step of which four or so make the value.
fn step(most: f64) -> f64 {
    let rough = most / 4.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0];
    decade
        * nice
            .into_iter()
            .find(|nice| nice * decade >= rough * 0.999)
            .unwrap_or(10.0)
}

fn ticks(scale: Scale, low: f64, high: f64) -> Vec<(f64, String)> {
    let mut ticks = Vec::new();
    match scale {
        Scale::Linear => {
            let step = step(high);
            let steps = (high / step).round() as u32;
            ticks.extend((0..=steps.min(12)).map(|at| f64::from(at) * step));
        }
        Scale::Logarithmic => {
            let decades = (high / low).log10().round() as u32;
            ticks.extend((0..=decades.min(15)).map(|at| low * 10_f64.powi(at as i32)));
        }
    }
    ticks.into_iter().map(|tick| (tick, short(tick))).collect()
}

/// As short as a round number can be.
fn short(value: f64) -> String {
    let text = number(value);
    match text.split_once('.') {
        Some(_) => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_nothing_and_ends_above_the_most() {
        let axis = Axis::new("ms", Scale::Linear).over([3.0, 87.0].into_iter(), 100.0, 0.0);
        let written: Vec<&str> = axis.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(written, ["0", "25", "50", "75", "100"]);
        assert_eq!(axis.at(0.0), Some(100.0));
        assert_eq!(axis.at(100.0), Some(0.0));
        assert_eq!(axis.at(f64::NAN), None);
    }

    #[test]
    fn a_logarithmic_axis_has_decades_and_no_place_for_nothing() {
        let axis = Axis::new("flows", Scale::Logarithmic).over([10.0, 1e6].into_iter(), 0.0, 50.0);
        assert_eq!(axis.ticks.len(), 6);
        assert_eq!(axis.at(1_000.0), Some(20.0));
        assert_eq!(axis.at(0.0), None);
        let axis = Axis::new("ms", Scale::Logarithmic).over([0.02, 5.0].into_iter(), 0.0, 50.0);
        let written: Vec<&str> = axis.ticks.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(written, ["0.01", "0.1", "1", "10"]);
    }

    #[test]
    fn an_axis_of_no_values_or_of_one_is_an_axis() {
        for values in [&[][..], &[0.0], &[7.0]] {
            for scale in [Scale::Linear, Scale::Logarithmic] {
                let axis = Axis::new("x", scale).over(values.iter().copied(), 0.0, 50.0);
                assert!(axis.ticks.len() >= 2, "{values:?} {scale:?}");
                assert!(axis.at(7.0).is_some());
            }
        }
    }
}
