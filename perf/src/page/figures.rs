//! Figures as people read them: no more digits than they are worth, and on one line with their unit.

/// A number with three digits or so; thousands apart.
pub(super) fn number(value: f64) -> String {
    finely::number(value, 0)
}

/// A whole number, thousands apart.
pub(crate) fn grouped(value: f64) -> String {
    finely::grouped(value, 0)
}

/// A share in percent.
pub(super) fn percent(share: f64) -> String {
    finely::percent(share, 0)
}

/// A time that is given in milliseconds.
pub(super) fn millis(millis: f64) -> String {
    finely::millis(millis, 0)
}

/// The same with some digits more, for the few figures that need them.
pub(super) mod finely {
    pub(in super::super) fn number(value: f64, more: usize) -> String {
        let size = value.abs();
        if !value.is_finite() {
            return "–".to_owned();
        }
        if size >= 99.95 {
            return grouped(value, more);
        }
        let decimals = more
            + match size {
                _ if size == 0.0 => 0,
                _ if size >= 9.995 => 1,
                _ if size >= 0.0995 => 2,
                // Two digits that count.
                _ => (1.0 - size.log10().floor()).clamp(0.0, 12.0) as usize,
            };
        let text = format!("{value:.decimals$}").replace('-', "−");
        match text.split_once('.') {
            Some((whole, digits)) if digits.bytes().all(|digit| digit == b'0') => whole.to_owned(),
            _ => text,
        }
    }

    /// With so many decimals.
    pub(in super::super) fn grouped(value: f64, decimals: usize) -> String {
        let text = format!("{:.decimals$}", value.abs());
        let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
        let mut grouped = String::new();
        for (at, digit) in whole.chars().enumerate() {
            if at > 0 && (whole.len() - at).is_multiple_of(3) {
                grouped.push(',');
            }
            grouped.push(digit);
        }
        grouped.push_str(rest);
        if value < 0.0 && text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)) {
            grouped.insert(0, '−');
        }
        grouped
    }

    pub(in super::super) fn percent(share: f64, more: usize) -> String {
        format!("{}\u{a0}%", number(100.0 * share, more))
    }

    pub(in super::super) fn millis(millis: f64, more: usize) -> String {
        if millis.abs() >= 0.1 {
            format!("{}\u{a0}ms", number(millis, more))
        } else {
            format!("{}\u{a0}µs", number(1e3 * millis, more))
        }
    }
}

/// How much a figure changed.
pub(super) fn change(from: f64, to: f64) -> Option<String> {
    let change = (to / from - 1.0) * 100.0;
    let sign = if change < 0.0 { '−' } else { '+' };
    (change.is_finite()).then(|| format!("{sign}{:.0}\u{a0}%", change.abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_the_digits_that_count() {
        for (value, text) in [
            (0.0, "0"),
            (0.000_934, "0.00093"),
            (0.472_48, "0.47"),
            (2.0, "2"),
            (2.03, "2.03"),
            (9.999, "10"),
            (43.61, "43.6"),
            (347.2, "347"),
            (99.97, "100"),
            (12_707.3, "12,707"),
            (900e6, "900,000,000"),
            (-5.5, "−5.50"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
        assert_eq!(percent(0.002), "0.20\u{a0}%");
        assert_eq!(millis(0.05), "50\u{a0}µs");
        assert_eq!(change(2.0, 1.5).as_deref(), Some("−25\u{a0}%"));
        assert_eq!(change(0.0, 1.5), None);
    }
}
