//! Instructions for video: on bytes and halves of words, several at once, with a second operation.

use super::{Decoded, Decoder};
use crate::ir::Error;
use crate::ir::op::{Op, Ternary, Video, VideoInput, VideoOp, VideoThen};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

const WORDS: &[Type] = &[Type::U32, Type::S32];

/// What stands behind the dot of a name, which there must be, and the name alone.
fn parted<'a>(expression: &Expression<'a>) -> (Expression<'a>, Option<&'a str>) {
    match expression {
        Expression::Name { name, component } => {
            let alone = Expression::Name {
                name,
                component: None,
            };
            (alone, *component)
        }
        other => (other.clone(), None),
    }
}

impl<'a> Decoder<'a, '_, '_, '_> {
    /// `None` where the opcode is none of these.
    pub(super) fn video(&mut self, opcode: &str) -> Option<Decoded> {
        let name = opcode.trim_end_matches(['2', '4']);
        let op = match name {
            "vabsdiff" => VideoOp::AbsDiff,
            "vadd" => VideoOp::Add,
            "vavrg" => VideoOp::Avrg,
            "vmax" => VideoOp::Max,
            "vmin" => VideoOp::Min,
            "vsub" => VideoOp::Sub,
            _ => return None,
        };
        match &opcode[name.len()..] {
            "" if op == VideoOp::Avrg => None,
            "" => Some(self.single(op)),
            "2" => Some(self.several(op, 2)),
            "4" => Some(self.several(op, 4)),
            _ => None,
        }
    }

    fn types(&mut self) -> Result<[bool; 3], Error> {
        let [d, a, b] = [self.ty_of(WORDS)?, self.ty_of(WORDS)?, self.ty_of(WORDS)?];
        Ok([d, a, b].map(Type::is_signed))
    }

    /// A part of a word: how many bits, and which.
    fn part_of(&self, name: Option<&str>) -> Result<(u8, u8), Error> {
        Ok(match name {
            None => (32, 0),
            Some("b0") => (8, 0),
            Some("b1") => (8, 1),
            Some("b2") => (8, 2),
            Some("b3") => (8, 3),
            Some("h0") => (16, 0),
            Some("h1") => (16, 1),
            Some(other) => return self.refuse(format!("`.{other}` is no part of a word")),
        })
    }

    /// One result.
    fn single(&mut self, op: VideoOp) -> Decoded {
        let saturate = self.modifiers.flag("sat");
        let second = self.modifiers.one_of(&[
            ("add", VideoThen::Add { mask: 1 }),
            ("min", VideoThen::Min),
            ("max", VideoThen::Max),
        ]);
        let [signed, a_signed, b_signed] = self.types()?;
        let [d, a, b, rest @ ..] = self.operands else {
            return self.refuse("a register and two values must stand here");
        };
        let ((d, to), (a, from_a), (b, from_b)) = (parted(d), parted(a), parted(b));
        let input = |signed, (bits, part): (u8, u8)| VideoInput {
            signed,
            bits,
            parts: part.into(),
        };
        let inputs = [
            input(a_signed, self.part_of(from_a)?),
            input(b_signed, self.part_of(from_b)?),
        ];
        let (bits, place) = self.part_of(to)?;
        let then = match (second, rest) {
            (None, []) if to.is_none() => VideoThen::Merge { bits: 32, mask: 1 },
            (None, [_]) if to.is_some() => VideoThen::Merge {
                bits,
                mask: 1 << place,
            },
            (Some(second), [_]) if to.is_none() => second,
            _ => {
                return self.refuse(
                    "a third value must stand here for a second operation or a part of the result, \
                     and not for both",
                );
            }
        };
        self.emitted(
            Video {
                op,
                results: 1,
                signed,
                inputs,
                saturate,
                then,
            },
            [&d, &a, &b],
            rest.first(),
        )
    }

    /// Parts by name, such as `h32` or `b7610`: the last letter names the lowest.
    fn parts_of(&self, name: Option<&str>, results: u8, usual: u16) -> Result<u16, Error> {
        let Some(name) = name else {
            return Ok(usual);
        };
        let letter = if results == 2 { 'h' } else { 'b' };
        let digits = name.strip_prefix(letter).unwrap_or_default();
        let numbers: Option<Vec<u16>> = digits
            .chars()
            .map(|digit| digit.to_digit(10).map(|digit| digit as u16))
            .collect();
        match numbers {
            Some(numbers)
                if numbers.len() == usize::from(results)
                    && numbers.iter().all(|one| *one < u16::from(2 * results)) =>
            {
                Ok(numbers.iter().fold(0, |parts, one| parts << 4 | one))
            }
            _ => self.refuse(format!("`.{name}` does not say which parts of words")),
        }
    }

    /// Places of results by name, such as `h10` or `b20`.
    fn places_of(&self, name: Option<&str>, results: u8) -> Result<u8, Error> {
        let Some(name) = name else {
            return Ok((1 << results) - 1);
        };
        let letter = if results == 2 { 'h' } else { 'b' };
        let digits = name.strip_prefix(letter).unwrap_or_default();
        let bits: Option<Vec<u8>> = digits
            .chars()
            .map(|digit| {
                let place = digit.to_digit(10).filter(|one| *one < results.into())?;
                Some(1 << place)
            })
            .collect();
        match bits {
            Some(bits) if !bits.is_empty() => Ok(bits.into_iter().fold(0, |mask, bit| mask | bit)),
            _ => self.refuse(format!("`.{name}` does not say which parts of the result")),
        }
    }

    /// Two or four results.
    fn several(&mut self, op: VideoOp, results: u8) -> Decoded {
        let saturate = self.modifiers.flag("sat");
        let adds = self.modifiers.flag("add");
        let [signed, a_signed, b_signed] = self.types()?;
        let [d, a, b, c] = self.operands()?;
        let ((d, to), (a, from_a), (b, from_b)) = (parted(d), parted(a), parted(b));
        let bits = 32 / results;
        let usual = if results == 2 {
            [0x10, 0x32]
        } else {
            [0x3210, 0x7654]
        };
        let input = |signed, parts| VideoInput {
            signed,
            bits,
            parts,
        };
        let inputs = [
            input(a_signed, self.parts_of(from_a, results, usual[0])?),
            input(b_signed, self.parts_of(from_b, results, usual[1])?),
        ];
        let mask = self.places_of(to, results)?;
        let then = match adds {
            true => VideoThen::Add { mask },
            false => VideoThen::Merge { bits, mask },
        };
        self.emitted(
            Video {
                op,
                results,
                signed,
                inputs,
                saturate,
                then,
            },
            [&d, &a, &b],
            Some(c),
        )
    }

    fn emitted(
        &mut self,
        video: Video,
        [d, a, b]: [&Expression<'a>; 3],
        c: Option<&Expression<'a>>,
    ) -> Decoded {
        Ok(Op::Ternary {
            op: Ternary::Video(video),
            ty: Type::U32,
            mode: Default::default(),
            d: self.builder.reg(d, Type::U32)?,
            a: self.builder.source(a, Type::U32)?,
            b: self.builder.source(b, Type::U32)?,
            c: match c {
                Some(c) => self.builder.source(c, Type::U32)?,
                None => self.builder.bits(0),
            },
        })
    }
}
