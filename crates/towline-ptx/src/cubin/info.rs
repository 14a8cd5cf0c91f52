//! Attributes: what sections `.nv.info` and `.nv.info.<kernel>` are made of.
//!
//! An attribute is a byte that says how its value is stored (`EIFMT_*`), a byte that says what it is (`EIATTR_*`), and 16 bits: the
//! value, or the length of the value behind them. Names and numbers are those that `cuobjdump -elf` prints.

use crate::Error;
use crate::bytes::{slice, u8_at, u16_at, u32_at};

/// `EIFMT_NVAL`, `_BVAL`, `_HVAL`, `_SVAL`: no value, 8 bits, 16 bits, a string of bytes.
const NO_VALUE: u8 = 1;
const BYTE: u8 = 2;
const HALF: u8 = 3;
const STRING: u8 = 4;

/// A parameter of a kernel: `EIATTR_KPARAM_INFO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameter {
    /// Which one, from 0.
    pub ordinal: u16,
    /// Where it lies among the parameters.
    pub offset: u32,
    /// How long it is.
    pub len: u32,
}

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Attribute<'a> {
    /// `EIATTR_NUM_BARRIERS`.
    Barriers(u32),
    /// `EIATTR_CTA_PER_CLUSTER`.
    Cluster([u32; 3]),
    /// `EIATTR_CRS_STACK_SIZE`: stack for calls and branches; `None` where it is unknown.
    CallStackBytes(Option<u32>),
    /// `EIATTR_FRAME_SIZE`.
    FrameBytes(u32),
    /// `EIATTR_MAX_THREADS`.
    MaxThreads([u32; 3]),
    /// `EIATTR_KPARAM_INFO` or `EIATTR_KPARAM_INFO_V2`.
    Parameter(Parameter),
    /// `EIATTR_CBANK_PARAM_SIZE`.
    ParameterBytes(u32),
    /// `EIATTR_PARAM_CBANK`: where in constant bank 0 the parameters start.
    ParametersAt(u32),
    /// `EIATTR_REGCOUNT`.
    Registers(u32),
    /// `EIATTR_MAXREG_COUNT`.
    RegisterLimit(u32),
    /// `EIATTR_REQNTID`.
    RequiredThreads([u32; 3]),
    /// `EIATTR_MIN_STACK_SIZE`: `None` where recursion makes it unknown.
    StackBytes(Option<u32>),
    /// An attribute of a function, given by the number of its symbol: what `.nv.info` is made of.
    OfSymbol {
        /// Number of the symbol.
        symbol: u32,
        /// Which attribute.
        id: u8,
        /// Its value.
        value: u32,
    },
    /// Any other.
    Other {
        /// Which attribute.
        id: u8,
        /// Its value, where it is stored behind the attribute.
        value: &'a [u8],
    },
}

impl<'a> Attribute<'a> {
    /// The symbol that this is an attribute of, and the attribute.
    pub fn of_symbol(self) -> Option<(u32, Attribute<'a>)> {
        let Attribute::OfSymbol { symbol, id, value } = self else {
            return None;
        };
        let known = (value != u32::MAX).then_some(value);
        let attribute = match id {
            0x11 => Attribute::FrameBytes(value),
            0x12 => Attribute::StackBytes(known),
            0x2f => Attribute::Registers(value),
            _ => return None,
        };
        Some((symbol, attribute))
    }
}

/// The attributes of a section. Ends after the first that is broken.
pub fn attributes(section: &[u8]) -> impl Iterator<Item = Result<Attribute<'_>, Error>> {
    raw(section).map(|attribute| interpret(attribute?))
}

/// Whether the code is for exactly one architecture: `EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET` of a section `.nv.compat`.
pub(super) fn is_accelerator_target(section: &[u8]) -> bool {
    raw(section)
        .map_while(Result::ok)
        .any(|attribute| attribute.id == 0x09 && attribute.half == 1)
}

struct Raw<'a> {
    id: u8,
    half: u16,
    value: &'a [u8],
}

fn raw(section: &[u8]) -> impl Iterator<Item = Result<Raw<'_>, Error>> {
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        if at >= section.len() {
            return None;
        }
        let next = one(section, at);
        at = match &next {
            Ok(attribute) => at + 4 + attribute.value.len(),
            Err(_) => section.len(),
        };
        Some(next)
    })
}

fn one(section: &[u8], at: usize) -> Result<Raw<'_>, Error> {
    let what = "attribute";
    let format = u8_at(section, at, what)?;
    let id = u8_at(section, at + 1, what)?;
    let half = u16_at(section, at + 2, what)?;
    let value = match format {
        NO_VALUE | BYTE | HALF => &[],
        STRING => slice(section, at as u64 + 4, half.into(), what)?,
        other => {
            return Err(Error::BadValue {
                what: "format of an attribute",
                value: other.into(),
            });
        }
    };
    // A byte leaves the upper half as it was.
    let half = if format == BYTE { half & 0xff } else { half };
    Ok(Raw { id, half, value })
}

fn interpret(attribute: Raw<'_>) -> Result<Attribute<'_>, Error> {
    let Raw { id, half, value } = attribute;
    let what = "value of an attribute";
    let half = u32::from(half);
    let triple = || -> Result<[u32; 3], Error> {
        Ok([
            u32_at(value, 0, what)?,
            u32_at(value, 4, what)?,
            u32_at(value, 8, what)?,
        ])
    };
    Ok(match id {
        0x05 => Attribute::MaxThreads(triple()?),
        // Symbol of the bank's section, then where in it, then how many bytes.
        0x0a => Attribute::ParametersAt(u16_at(value, 4, what)?.into()),
        0x10 => Attribute::RequiredThreads(triple()?),
        0x11 | 0x12 | 0x2f => Attribute::OfSymbol {
            symbol: u32_at(value, 0, what)?,
            id,
            value: u32_at(value, 4, what)?,
        },
        // Words: index, ordinal and offset; alignment, space and bank in the low 18 bits of the third, the length above.
        0x17 => Attribute::Parameter(Parameter {
            ordinal: u16_at(value, 4, what)?,
            offset: u16_at(value, 6, what)?.into(),
            len: u32_at(value, 8, what)? >> 18,
        }),
        0x19 => Attribute::ParameterBytes(half),
        0x1b => Attribute::RegisterLimit(half),
        0x1e => {
            let bytes = u32_at(value, 0, what)?;
            Attribute::CallStackBytes((bytes != u32::MAX).then_some(bytes))
        }
        0x3d => Attribute::Cluster(triple()?),
        // As 0x17, with 16 bits for the length: for kernels with more than 4 KiB of parameters.
        0x45 => Attribute::Parameter(Parameter {
            ordinal: u16_at(value, 4, what)?,
            offset: u16_at(value, 6, what)?.into(),
            len: u16_at(value, 8, what)?.into(),
        }),
        0x4c => Attribute::Barriers(half),
        _ => Attribute::Other { id, value },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_a_parameter_are_read() {
        let section = [
            // Ordinal 1 at 8, 8 bytes.
            [4, 0x17, 12, 0, 0, 0, 0, 0, 1, 0, 8, 0, 0, 0xf0, 0x21, 0],
            // Ordinal 2 at 0x2ee4, 20000 bytes.
            [
                4, 0x45, 12, 0, 0, 0, 0, 0, 2, 0, 0xe4, 0x2e, 0x20, 0x4e, 0, 0,
            ],
        ]
        .concat();
        let read: Result<Vec<_>, _> = attributes(&section).collect();
        let parameter = |ordinal, offset, len| {
            Attribute::Parameter(Parameter {
                ordinal,
                offset,
                len,
            })
        };
        assert_eq!(
            read,
            Ok(vec![parameter(1, 8, 8), parameter(2, 0x2ee4, 20_000)])
        );
    }

    #[test]
    fn a_stack_that_recursion_makes_unknown_is_unknown() {
        let section = [4, 0x12, 8, 0, 9, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        let mut read = attributes(&section);
        let attribute = read.next().expect("one").expect("whole");
        assert_eq!(
            attribute.of_symbol(),
            Some((9, Attribute::StackBytes(None)))
        );
    }

    #[test]
    fn an_attribute_that_is_cut_ends_the_list() {
        let section = [3, 0x19, 16, 0, 4, 0x1c, 8, 0, 1, 2];
        let mut read = attributes(&section);
        assert_eq!(read.next(), Some(Ok(Attribute::ParameterBytes(16))));
        assert!(matches!(read.next(), Some(Err(Error::Truncated { .. }))));
        assert_eq!(read.next(), None);
    }

    #[test]
    fn a_format_that_is_not_known_is_an_error() {
        let mut read = attributes(&[9, 0x19, 16, 0]);
        assert!(matches!(
            read.next(),
            Some(Err(Error::BadValue { value: 9, .. }))
        ));
    }
}
