//! What each instruction means.
//!
//! An opcode picks a function of one of the modules here; that takes the modifiers it knows, in any order, and the operands. What is left
//! over is refused by name.

mod arithmetic;
mod bits;
mod compare;
mod control;
mod convert;
mod copies;
mod forms;
mod matrix;
mod mbarrier;
mod memory;
mod textures;
mod video;
mod warp;

use super::Error;
use super::function::Builder;
use super::modifiers::Modifiers;
use super::op::{Binary, Flag, Mode, Op, Source};
use crate::ptx::Type;
use crate::ptx::ast::{Expression, Instruction};

/// An instruction being decoded.
struct Decoder<'a, 'i, 'b, 'l> {
    builder: &'b mut Builder<'a, 'l>,
    modifiers: Modifiers<'a>,
    /// Threads for which it holds carry the instruction out.
    guard: Option<Flag>,
    operands: &'i [Expression<'a>],
}

type Decoded = Result<Op, Error>;

/// Decodes an instruction, and appends it.
pub(super) fn instruction<'a>(
    builder: &mut Builder<'a, '_>,
    instruction: &Instruction<'a>,
) -> Result<(), Error> {
    let guard = match &instruction.guard {
        None => None,
        Some(guard) => {
            let name = Expression::Name {
                name: guard.predicate,
                component: None,
            };
            let predicate = builder.pred(&name)?;
            Some(match guard.negated {
                true => Flag::Not(predicate),
                false => Flag::Pred(predicate),
            })
        }
    };
    let mut decoder = Decoder {
        builder,
        modifiers: Modifiers::new(instruction),
        guard,
        operands: &instruction.operands,
    };
    decoder.builder.reads_special = instruction.opcode == "mov";
    decoder.builder.reads_addresses =
        matches!(instruction.opcode, "call" | "cvta" | "mapa" | "mov");
    let op = decoder.decode(instruction.opcode)?;
    decoder.modifiers.finish()?;
    let guard = decoder.guard;
    if forms::go_together(instruction.opcode, &instruction.modifiers) == Some(false) {
        let name = [&[instruction.opcode], &instruction.modifiers[..]].concat();
        return builder.refuse(format!("there is no `{}`", name.join(".")));
    }
    builder.emit(guard, op)
}

impl<'a, 'i> Decoder<'a, 'i, '_, '_> {
    fn decode(&mut self, opcode: &str) -> Decoded {
        if let Some(decoded) = self.arithmetic(opcode) {
            return decoded;
        }
        if let Some(decoded) = self.bits(opcode) {
            return decoded;
        }
        if let Some(decoded) = self.video(opcode) {
            return decoded;
        }
        match opcode {
            "activemask" | "elect" | "match" | "redux" | "shfl" | "vote" => self.warp(opcode),
            "atom" => self.atom(false),
            "bar" | "barrier" => self.barrier(),
            "bra" => self.bra(),
            "brkpt" => self.alone(Op::Trap { breakpoint: true }),
            "brx" => self.brx(),
            "call" => self.call(),
            "cp" => self.cp(),
            "createpolicy" => self.policy(),
            "cvt" => self.cvt(),
            "cvta" => self.cvta(),
            "exit" => self.alone(Op::Exit),
            "fence" | "membar" => self.fence(opcode),
            "getctarank" => self.getctarank(),
            "isspacep" => self.isspacep(),
            "ld" | "ldu" => self.ld(),
            "ldmatrix" | "mma" | "movmatrix" | "stmatrix" | "wmma" => self.matrix(opcode),
            "mapa" => self.mapa(),
            "mbarrier" => self.mbarrier(),
            "mov" => self.mov(),
            "nanosleep" => self.nanosleep(),
            "prefetch" | "prefetchu" | "discard" | "applypriority" | "pmevent"
            | "griddepcontrol" | "setmaxnreg" => self.hint(opcode),
            "red" => self.atom(true),
            "ret" => {
                self.modifiers.flag("uni");
                self.alone(Op::Return)
            }
            "selp" => self.selp(),
            "set" => self.set(),
            "setp" => self.setp(),
            "slct" => self.slct(),
            "st" => self.st(),
            "suld" => self.suld(),
            "suq" | "txq" => self.texture_query(),
            "sured" => self.sured(),
            "sust" => self.sust(),
            "tex" => self.tex(),
            "tld4" => self.tld4(),
            "testp" => self.testp(),
            "trap" => self.alone(Op::Trap { breakpoint: false }),
            _ => self.refuse(format!("the instruction `{opcode}` is not supported")),
        }
    }

    /// An instruction without operands.
    fn alone(&self, op: Op) -> Decoded {
        let [] = self.operands()?;
        Ok(op)
    }

    /// What comes before the instruction proper and goes for all threads: it writes to registers without a name only.
    fn before(&mut self, op: Op) -> Result<(), Error> {
        self.builder.emit(None, op)
    }

    /// A part of the instruction, before its last one.
    fn part(&mut self, op: Op) -> Result<(), Error> {
        self.builder.emit(self.guard, op)
    }

    /// Keeps the guard apart from predicates that the instruction's own parts write.
    fn keep_guard(&mut self) -> Result<(), Error> {
        if let Some(a) = self.guard {
            let d = self.builder.scratch_flag();
            self.before(Op::PredMov { d, a })?;
            self.guard = Some(Flag::Pred(d));
        }
        Ok(())
    }

    /// The upper half of 32 bits.
    fn upper_half(&mut self, a: Source) -> Result<Source, Error> {
        let d = self.builder.scratch();
        let b = self.builder.bits(16);
        self.before(Op::Binary {
            op: Binary::Shr,
            ty: Type::U32,
            mode: Mode::default(),
            d,
            a,
            b,
        })?;
        Ok(Source::Reg(d))
    }

    fn refuse<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        self.builder.refuse(message)
    }

    /// The operands, which must be so many.
    fn operands<const N: usize>(&self) -> Result<&'i [Expression<'a>; N], Error> {
        match self.operands.try_into() {
            Ok(operands) => Ok(operands),
            Err(_) => self.refuse(format!(
                "{} operands where {N} must stand",
                self.operands.len()
            )),
        }
    }
}
