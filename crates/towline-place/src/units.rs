//! Quantities with units, as people write them: `3.2 GB/s`, `1.3 us`, `40 Gbit/s`.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, Deserializer, Visitor};

/// What a quantity measures.
pub trait Unit {
    /// Its name in errors.
    const NAME: &'static str;
    /// An example for errors.
    const EXAMPLE: &'static str;
    /// Suffixes, and what one of them is in the base unit.
    const SUFFIXES: &'static [(&'static str, f64)];
}

macro_rules! unit {
    ($kind:ident, $name:literal, $example:literal, $($suffix:literal = $factor:expr),+ $(,)?) => {
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[doc = concat!("Unit of a ", $name, ".")]
        pub enum $kind {}
        impl Unit for $kind {
            const NAME: &'static str = $name;
            const EXAMPLE: &'static str = $example;
            const SUFFIXES: &'static [(&'static str, f64)] = &[$(($suffix, $factor)),+];
        }
    };
}

unit!(
    PerSecond,
    "a bandwidth",
    "3.2 GB/s",
    "B/s" = 1.0,
    "kB/s" = 1e3,
    "MB/s" = 1e6,
    "GB/s" = 1e9,
    "TB/s" = 1e12,
    "KiB/s" = 1024.0,
    "MiB/s" = 1048576.0,
    "GiB/s" = 1073741824.0,
    "Mbit/s" = 1e6 / 8.0,
    "Gbit/s" = 1e9 / 8.0
);
unit!(
    Bytes,
    "a size",
    "12 KiB",
    "B" = 1.0,
    "kB" = 1e3,
    "MB" = 1e6,
    "GB" = 1e9,
    "KiB" = 1024.0,
    "MiB" = 1048576.0,
    "GiB" = 1073741824.0
);
unit!(
    Time,
    "a time",
    "1.3 us",
    "s" = 1.0,
    "ms" = 1e-3,
    "us" = 1e-6,
    "ns" = 1e-9
);
unit!(
    Speed,
    "a speed",
    "1.2 Gflop/s",
    "flop/s" = 1.0,
    "Mflop/s" = 1e6,
    "Gflop/s" = 1e9,
    "Tflop/s" = 1e12
);
unit!(
    Power,
    "a power",
    "120 W",
    "W" = 1.0,
    "mW" = 1e-3,
    "kW" = 1e3
);

/// A number of some unit; not negative and finite.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantity<U>(pub f64, PhantomData<U>);

impl<U> Quantity<U> {
    /// A quantity in its base unit.
    pub const fn new(value: f64) -> Self {
        Self(value, PhantomData)
    }
}

/// Reads a number and its unit; what is wrong otherwise.
pub fn parse<U: Unit>(text: &str) -> Result<f64, String> {
    let wrong = || format!("`{text}` is not {}, as in `{}`", U::NAME, U::EXAMPLE);
    let text = text.trim();
    let split = text
        .find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E'))
        .ok_or_else(wrong)?;
    let (number, suffix) = text.split_at_checked(split).ok_or_else(wrong)?;
    let number: f64 = number.trim().parse().map_err(|_| wrong())?;
    let factor = U::SUFFIXES
        .iter()
        .find(|(name, _)| *name == suffix.trim())
        .map(|(_, factor)| *factor)
        .ok_or_else(wrong)?;
    let value = number * factor;
    match value.is_finite() && value >= 0.0 {
        true => Ok(value),
        false => Err(wrong()),
    }
}

impl<'de, U: Unit> de::Deserialize<'de> for Quantity<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text<U>(PhantomData<U>);
        impl<U: Unit> Visitor<'_> for Text<U> {
            type Value = Quantity<U>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{} with its unit, as in \"{}\"", U::NAME, U::EXAMPLE)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                parse::<U>(text).map(Quantity::new).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Text(PhantomData))
    }
}

/// Bytes for people.
pub fn bytes(value: f64) -> String {
    scaled(value, "B")
}

/// Bytes per second for people.
pub fn rate(value: f64) -> String {
    scaled(value, "B/s")
}

fn scaled(value: f64, unit: &str) -> String {
    let (factor, prefix) = match value {
        v if v >= 1e12 => (1e12, "T"),
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e3 => (1e3, "k"),
        _ => (1.0, ""),
    };
    format!("{:.3} {prefix}{unit}", value / factor)
}

/// Seconds for people.
pub fn seconds(value: f64) -> String {
    let (factor, unit) = match value {
        v if v >= 1.0 || v == 0.0 => (1.0, "s"),
        v if v >= 1e-3 => (1e-3, "ms"),
        _ => (1e-6, "us"),
    };
    format!("{:.3} {unit}", value / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_their_number() {
        assert_eq!(parse::<PerSecond>("3.2 GB/s"), Ok(3.2e9));
        assert_eq!(parse::<PerSecond>("40Gbit/s"), Ok(5e9));
        assert_eq!(parse::<Time>("2e3 ms"), Ok(2.0));
    }

    #[test]
    fn numbers_without_unit_and_negative_ones_are_refused() {
        for text in ["3.2", "3.2 GB", "-1 GB/s", "fast", "", "1e999 GB/s", "GB/s"] {
            assert!(parse::<PerSecond>(text).is_err(), "{text}");
        }
    }
}
