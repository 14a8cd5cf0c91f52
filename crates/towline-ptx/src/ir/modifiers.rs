//! The modifiers of an instruction: in any order, each used once, and none left over.

use super::Error;
use super::op::{Mode, Order, Rounding, Space};
use crate::ptx::ast::Instruction;
use crate::ptx::{Position, Type};

/// The modifiers of an instruction that no part of its meaning has been found for yet.
pub(super) struct Modifiers<'a> {
    opcode: &'a str,
    names: Vec<&'a str>,
    at: Position,
}

impl<'a> Modifiers<'a> {
    pub(super) fn new(instruction: &Instruction<'a>) -> Self {
        Self {
            opcode: instruction.opcode,
            names: instruction.modifiers.clone(),
            at: instruction.at.0,
        }
    }

    pub(super) fn refuse<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error {
            at: self.at,
            message: message.into(),
        })
    }

    /// Whether this modifier is there; it is used up.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.one_of(&[(name, ())]).is_some()
    }

    /// Whether this modifier is there, without using it up.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    /// The first modifier of a table, and what it means.
    pub(super) fn one_of<T: Copy>(&mut self, table: &[(&str, T)]) -> Option<T> {
        let found = self.names.iter().enumerate().find_map(|(index, name)| {
            let (_, meaning) = table.iter().find(|(known, _)| known == name)?;
            Some((index, *meaning))
        });
        let (index, meaning) = found?;
        self.names.remove(index);
        Some(meaning)
    }

    /// The first modifier that means something to a function, and what.
    pub(super) fn found<T>(&mut self, meaning: impl Fn(&str) -> Option<T>) -> Option<T> {
        let mut names = self.names.iter().enumerate();
        let (index, found) = names.find_map(|(index, name)| Some((index, meaning(name)?)))?;
        self.names.remove(index);
        Some(found)
    }

    /// Uses up modifiers that change nothing here: hints for caches.
    pub(super) fn skip(&mut self, is_hint: impl Fn(&str) -> bool) {
        self.names.retain(|name| !is_hint(name));
    }

    /// The next type; instructions name the result's first.
    pub(super) fn ty(&mut self) -> Result<Type, Error> {
        match self.maybe_ty() {
            Some(ty) => Ok(ty),
            None => self.refuse(format!("`{}` lacks a type", self.opcode)),
        }
    }

    pub(super) fn maybe_ty(&mut self) -> Option<Type> {
        let index = self
            .names
            .iter()
            .position(|name| Type::from_name(name).is_some())?;
        Type::from_name(self.names.remove(index))
    }

    /// Rounding, flushing, saturation.
    pub(super) fn mode(&mut self) -> Mode {
        let rounding = self.one_of(&[
            ("rn", (Rounding::Nearest, false)),
            ("rna", (Rounding::NearestAway, false)),
            ("rz", (Rounding::Zero, false)),
            ("rm", (Rounding::Down, false)),
            ("rp", (Rounding::Up, false)),
            ("rni", (Rounding::Nearest, true)),
            ("rzi", (Rounding::Zero, true)),
            ("rmi", (Rounding::Down, true)),
            ("rpi", (Rounding::Up, true)),
        ]);
        let (rounding, integral) = rounding.unwrap_or_default();
        Mode {
            rounding,
            integral,
            flush: self.flag("ftz"),
            saturate: self.flag("sat"),
            nan: self.flag("NaN"),
            xor_sign: self.flag("xorsign"),
            relu: self.flag("relu"),
            magnitude: self.flag("abs"),
        }
    }

    /// The state space; generic where none is named.
    pub(super) fn space(&mut self) -> Space {
        self.one_of(&[
            ("const", Space::Const),
            ("global", Space::Global),
            ("local", Space::Local),
            ("param", Space::Param),
            ("param::entry", Space::Param),
            ("param::func", Space::Param),
            ("shared", Space::Shared),
            ("shared::cta", Space::Shared),
            ("shared::cluster", Space::Shared),
        ])
        .unwrap_or(Space::Generic)
    }

    /// How an access is ordered, and whether it may be a poll.
    pub(super) fn order(&mut self) -> (Order, bool) {
        let found = self.one_of(&[
            ("weak", (Order::Weak, false)),
            ("volatile", (Order::Relaxed, true)),
            ("relaxed", (Order::Relaxed, true)),
            ("mmio", (Order::Relaxed, true)),
            ("acquire", (Order::Acquire, true)),
            ("release", (Order::Release, true)),
            ("acq_rel", (Order::AcquireRelease, true)),
        ]);
        self.one_of(&[("cta", ()), ("cluster", ()), ("gpu", ()), ("sys", ())]);
        // `.mmio.relaxed` is two words.
        self.flag("relaxed");
        found.unwrap_or_default()
    }

    /// Refuses what is left.
    pub(super) fn finish(self) -> Result<(), Error> {
        match self.names.first() {
            None => Ok(()),
            Some(name) => self.refuse(format!("`{}` with `.{name}` is not supported", self.opcode)),
        }
    }
}
