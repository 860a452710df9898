//! Quantities as people write them on a command line: `0.2%`, `900e6`, `10G`, `3min`.

use std::fmt::{self, Display};

use serde::{Serialize, Serializer};

/// A quantity, and how it was written.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantity {
    /// How much: a share of 1, a number, or seconds.
    pub value: f64,
    text: String,
}

impl Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

fn read(text: &str, factors: &[(&str, f64)]) -> Option<Quantity> {
    let spelled = |(unit, factor): &(&str, f64)| {
        let number: f64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        let value = number * factor;
        (value.is_finite() && value >= 0.0).then_some(value)
    };
    Some(Quantity {
        value: factors.iter().find_map(spelled)?,
        text: text.to_owned(),
    })
}

/// A share: a percentage, or a number from 0 to 1.
///
/// # Errors
/// It is neither.
pub fn share(text: &str) -> Result<Quantity, String> {
    read(text, &[("%", 0.01), ("", 1.0)])
        .filter(|share| share.value <= 1.0)
        .ok_or_else(|| {
            "a share is a percentage or a number from 0 to 1: write 0.2% or 0.002".to_owned()
        })
}

/// A share that leaves something over.
///
/// # Errors
/// It is none, or all.
pub fn less_than_all(text: &str) -> Result<Quantity, String> {
    share(text)?.bounded(
        |share| share < 1.0,
        "nothing would be left: write less than 100%",
    )
}

/// A number of any size, also with k, M or G for a thousand, a million or a milliard of them.
///
/// # Errors
/// It is none, or below nothing.
pub fn number(text: &str) -> Result<Quantity, String> {
    read(text, &[("k", 1e3), ("M", 1e6), ("G", 1e9), ("", 1.0)])
        .ok_or_else(|| "this is a number from 0 on: write 900e6, 900M or 900000000".to_owned())
}

/// The same, and at least one.
///
/// # Errors
/// It is none, or below one.
pub fn at_least_one(text: &str) -> Result<Quantity, String> {
    number(text)?.bounded(|number| number >= 1.0, "this is a number from 1 on")
}

/// A whole number, nothing included.
///
/// # Errors
/// It is none, or has a fraction.
pub fn whole(text: &str) -> Result<Quantity, String> {
    number(text)?.bounded(
        |number| number.fract() == 0.0,
        "this is a whole number: write 0, 1 or 2",
    )
}

/// A length of time, in seconds when it has no unit.
///
/// # Errors
/// It is none, or has no length.
pub fn time(text: &str) -> Result<Quantity, String> {
    let units = [
        ("µs", 1e-6),
        ("us", 1e-6),
        ("ms", 1e-3),
        ("min", 60.0),
        ("h", 3_600.0),
        ("s", 1.0),
        ("", 1.0),
    ];
    read(text, &units)
        .ok_or_else(|| "this is a length of time: write 180s, 3min or 0.5ms".to_owned())
}

/// The same, and longer than nothing.
///
/// # Errors
/// It is none, or has no length.
pub fn some_time(text: &str) -> Result<Quantity, String> {
    time(text)?.bounded(
        |time| time > 0.0,
        "this is a time longer than nothing: write 180s or 3min",
    )
}

impl Quantity {
    fn bounded(self, good: impl Fn(f64) -> bool, says: &str) -> Result<Self, String> {
        if good(self.value) {
            Ok(self)
        } else {
            Err(says.to_owned())
        }
    }
}

/// A region, and its share of all calls.
#[derive(Clone, PartialEq, Debug)]
pub struct Region {
    /// Its name.
    pub name: String,
    /// Its share.
    pub share: f64,
}

/// All regions. Their shares add up to 1.
#[derive(Clone, PartialEq, Debug)]
pub struct Regions {
    /// The regions.
    pub list: Vec<Region>,
    text: String,
}

impl Display for Regions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Regions {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

/// Names with shares: `eu=30%,us=50%,asia=20%`.
///
/// # Errors
/// One has no name or no share, a name comes twice, or the shares do not add up to 100 %.
pub fn regions(text: &str) -> Result<Regions, String> {
    let mut list: Vec<Region> = Vec::new();
    for one in text.split(',') {
        let (name, of) = one
            .split_once('=')
            .map(|(name, of)| (name.trim(), of.trim()))
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                format!("{one:?} is no region: write NAME=SHARE, as in eu=30%,us=50%,asia=20%")
            })?;
        if list.iter().any(|known| known.name == name) {
            return Err(format!("{name} comes twice: give each region one share"));
        }
        let share = share(of).map_err(|error| format!("{name}: {error}"))?.value;
        list.push(Region {
            name: name.to_owned(),
            share,
        });
    }
    let sum: f64 = list.iter().map(|region| region.share).sum();
    // 33.3% three times is meant to be all of them.
    if (sum - 1.0).abs() > 0.002 {
        return Err(format!(
            "the shares add up to {:.1} %: make them 100 %",
            100.0 * sum
        ));
    }
    Ok(Regions {
        list,
        text: text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        for (read, value) in [
            (share("0.2%"), 0.002),
            (share("0.25"), 0.25),
            (share("100 %"), 1.0),
            (number("900e6"), 900e6),
            (number("10G"), 1e10),
            (number("1.5k"), 1_500.0),
            (time("180"), 180.0),
            (time("3min"), 180.0),
            (time("0.3ms"), 0.000_3),
            (time("2h"), 7_200.0),
            (at_least_one("1"), 1.0),
        ] {
            let read = read.expect("a quantity");
            assert!(
                (read.value - value).abs() <= 1e-12 * value.max(1.0),
                "{read:?}"
            );
        }
        assert_eq!(share("0.2%").expect("a share").to_string(), "0.2%");
    }

    #[test]
    fn what_is_none_is_refused_with_an_example() {
        for (text, read) in [
            ("2", share as fn(&str) -> Result<Quantity, String>),
            ("-1%", share),
            ("101%", share),
            ("many", number),
            ("NaN", number),
            ("inf", number),
            ("-3", number),
            ("0.5", at_least_one),
            ("3 weeks", time),
            ("0s", some_time),
            ("100%", less_than_all),
            ("1.5", whole),
        ] {
            let error = read(text).expect_err(text);
            assert!(
                error.contains("write ") || error.contains("from 1 on"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn regions_share_all_calls() {
        let three = regions("eu=33.3%, us=33.3%, asia=33.3%").expect("three");
        assert_eq!(three.list[1].name, "us");
        for (text, says) in [
            ("eu", "write NAME=SHARE"),
            ("=5%", "write NAME=SHARE"),
            ("eu=50%,eu=50%", "comes twice"),
            ("eu=50%,us=40%", "add up to 90.0 %"),
            ("eu=most", "eu: a share is"),
        ] {
            let error = regions(text).expect_err(text);
            assert!(error.contains(says), "{error}");
        }
    }
}
