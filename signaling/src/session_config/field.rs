//! Checks of one value of a configuration, which name the value by its path when they fail.

use serde_json::Value;

/// A field that cannot be used: its path, such as `session.audio.output.speed`, and what it has to be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{path} {problem}")]
pub struct FieldError {
    /// Where.
    pub path: String,
    /// What is wrong, as the rest of a sentence that begins with the path.
    pub problem: String,
}

/// Nothing, or the field at fault.
pub(super) type Checked = Result<(), FieldError>;

/// The whole number that a value is, written with or without `.0`: JSON does not tell the two apart.
///
/// Nothing above 2^53 - 1: not every such number is a double, and who reads numbers as doubles would read another one (RFC 8259 section 6).
#[must_use]
pub fn whole(value: &Value) -> Option<u64> {
    const EXACT_MAX: u64 = (1 << 53) - 1;
    let number = value.as_u64().or_else(|| {
        let number = value.as_f64()?;
        let exact = (0.0..=EXACT_MAX as f64).contains(&number) && number.fract() == 0.0;
        exact.then_some(number as u64)
    });
    number.filter(|number| *number <= EXACT_MAX)
}

/// A value and where it stands.
pub(super) struct Field<'a> {
    path: String,
    pub(super) value: &'a Value,
}

impl<'a> Field<'a> {
    pub(super) fn new(path: impl Into<String>, value: &'a Value) -> Self {
        Self {
            path: path.into(),
            value,
        }
    }

    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Result<T, FieldError> {
        Err(FieldError {
            path: self.path.clone(),
            problem: problem.into(),
        })
    }

    /// Checks a member, if there is one.
    pub(super) fn opt(&self, name: &str, check: impl Fn(&Field<'a>) -> Checked) -> Checked {
        self.value.get(name).map_or(Ok(()), |value| {
            check(&Field::new(format!("{}.{name}", self.path), value))
        })
    }

    /// Checks a member that has to be there.
    pub(super) fn need(&self, name: &str, check: impl Fn(&Field<'a>) -> Checked) -> Checked {
        if self.value.get(name).is_none() {
            return Err(FieldError {
                path: format!("{}.{name}", self.path),
                problem: "is missing".to_owned(),
            });
        }
        self.opt(name, check)
    }

    pub(super) fn nullable(&self, check: impl Fn(&Self) -> Checked) -> Checked {
        if self.value.is_null() {
            Ok(())
        } else {
            check(self)
        }
    }

    pub(super) fn object(&self) -> Checked {
        match self.value {
            Value::Object(_) => Ok(()),
            _ => self.fail("has to be an object"),
        }
    }

    pub(super) fn text_or_object(&self) -> Checked {
        match self.value {
            Value::Object(_) | Value::String(_) => Ok(()),
            _ => self.fail("has to be a string or an object"),
        }
    }

    pub(super) fn text(&self, min: usize, max: usize) -> Checked {
        match self.value {
            Value::String(text) if (min..=max).contains(&text.chars().count()) => Ok(()),
            Value::String(_) => self.fail(format!("has to have {min} to {max} characters")),
            _ => self.fail("has to be a string"),
        }
    }

    pub(super) fn one_of(&self, words: &[&str]) -> Checked {
        match self.value {
            Value::String(text) if words.contains(&text.as_str()) => Ok(()),
            _ => self.fail(format!("has to be one of {}", words.join(", "))),
        }
    }

    pub(super) fn number(&self, min: f64, max: f64) -> Checked {
        match self.value.as_f64() {
            Some(number) if (min..=max).contains(&number) => Ok(()),
            _ => self.fail(format!("has to be a number from {min} to {max}")),
        }
    }

    pub(super) fn whole(&self, min: u64, max: u64) -> Checked {
        match whole(self.value) {
            Some(number) if (min..=max).contains(&number) => Ok(()),
            _ if min == max => self.fail(format!("has to be {min}")),
            _ => self.fail(format!("has to be a whole number from {min} to {max}")),
        }
    }

    pub(super) fn token_count(&self) -> Checked {
        match self.value {
            Value::String(text) if text == "inf" => Ok(()),
            value if whole(value).is_some_and(|n| n > 0) => Ok(()),
            _ => self.fail("has to be a whole number from 1 on, or \"inf\""),
        }
    }

    pub(super) fn each(
        &self,
        min: usize,
        max: usize,
        check: impl Fn(&Field<'a>) -> Checked,
    ) -> Checked {
        let Value::Array(items) = self.value else {
            return self.fail("has to be an array");
        };
        if !(min..=max).contains(&items.len()) {
            return self.fail(format!("has to hold {min} to {max} items"));
        }
        items.iter().enumerate().try_for_each(|(index, item)| {
            check(&Field::new(format!("{}[{index}]", self.path), item))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_whole_number_may_be_written_as_a_double() {
        assert_eq!(whole(&json!(60)), Some(60));
        assert_eq!(whole(&json!(60.0)), Some(60));
        for other in [
            json!(60.5),
            json!(-1),
            json!(1e300),
            json!("60"),
            json!(null),
        ] {
            assert_eq!(whole(&other), None, "{other}");
        }
    }
}
