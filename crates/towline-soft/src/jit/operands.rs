//! What instructions read and write, and how much of a register each counts on.

use towline_ptx::ir::Space;
use towline_ptx::ir::op::{
    Address, Argument, Atomic, Barrier, Binary, Flag, Op, Pred, Reg, Source, Special, Ternary,
    Together, Unary,
};
use towline_ptx::ptx::Type;

/// What a written register holds, of the 64 bits that the interpreter keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Written {
    /// An integer of at most 32 bits, with zeros above.
    Narrow,
    /// The same, with its sign above.
    Signed,
    /// A number of 32 bits, with zeros above.
    F32,
    F64,
    Wide,
    /// As wide as what is read [`Read::AsWritten`].
    AsRead,
    /// The same of 32 bits, with ones above.
    Inverted,
}

/// What a read counts on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Read {
    /// The lower 32 bits at most.
    Narrow,
    F32,
    F64,
    Wide,
    /// What is written decides.
    AsWritten,
}

/// An operand.
#[derive(Debug)]
pub(super) enum Operand<'o> {
    Reads(&'o mut Source, Read),
    ReadsFlag(&'o mut Flag),
    Writes(&'o mut Reg, Written),
    WritesFlag(&'o mut Pred),
}

fn read(ty: Type) -> Read {
    match ty {
        Type::F32 => Read::F32,
        Type::F64 => Read::F64,
        ty if ty.bits() <= 32 => Read::Narrow,
        _ => Read::Wide,
    }
}

/// What arithmetic on a type leaves.
fn written(ty: Type) -> Written {
    match ty {
        Type::F32 => Written::F32,
        Type::F64 => Written::F64,
        ty if ty.bits() <= 32 => Written::Narrow,
        _ => Written::Wide,
    }
}

/// What a load or a conversion leaves.
fn extended(ty: Type) -> Written {
    match ty {
        Type::S8 | Type::S16 | Type::S32 => Written::Signed,
        ty => written(ty),
    }
}

fn address(address: &mut Address, space: Space, visit: &mut impl FnMut(Operand<'_>)) {
    let read = match space {
        Space::Local | Space::Param | Space::Shared => Read::Narrow,
        Space::Const | Space::Generic | Space::Global => Read::Wide,
    };
    visit(Operand::Reads(&mut address.base, read));
}

fn argument(argument: &mut Argument, writes: bool, visit: &mut impl FnMut(Operand<'_>)) {
    match argument {
        Argument::Value(Source::Reg(reg), _) if writes => {
            visit(Operand::Writes(reg, Written::Wide));
        }
        Argument::Flag(Flag::Pred(pred)) if writes => visit(Operand::WritesFlag(pred)),
        Argument::Value(source, _) if !writes => visit(Operand::Reads(source, Read::Wide)),
        Argument::Flag(flag) if !writes => visit(Operand::ReadsFlag(flag)),
        Argument::Memory { .. } | Argument::Value(..) | Argument::Flag(_) => {}
    }
}

/// Visits the operands of an instruction, those that it reads first.
pub(super) fn operands(op: &mut Op, visit: &mut impl FnMut(Operand<'_>)) {
    use Operand::{Reads, ReadsFlag, Writes, WritesFlag};
    match op {
        Op::ActiveMask { d } => visit(Writes(d, Written::Narrow)),
        Op::Atomic {
            space,
            ty,
            d,
            address: at,
            a,
            b,
            ..
        } => {
            address(at, *space, visit);
            visit(Reads(a, read(*ty)));
            if let Some(b) = b {
                visit(Reads(b, read(*ty)));
            }
            if let Some(d) = d {
                visit(Writes(d, written(*ty)));
            }
        }
        Op::Barrier { kind, id, threads } => {
            visit(Reads(id, Read::Narrow));
            if let Some(threads) = threads {
                visit(Reads(threads, Read::Wide));
            }
            match kind {
                Barrier::Arrive | Barrier::ClusterArrive | Barrier::ClusterWait | Barrier::Sync => {
                }
                Barrier::Reduce { d, a, .. } => {
                    visit(ReadsFlag(a));
                    visit(WritesFlag(d));
                }
                Barrier::Count { d, a } => {
                    visit(ReadsFlag(a));
                    visit(Writes(d, Written::Narrow));
                }
            }
        }
        Op::Binary {
            op, ty, d, a, b, ..
        } => {
            let (first, second, out) = match op {
                Binary::And | Binary::Or | Binary::Xor => {
                    (Read::AsWritten, Read::AsWritten, Written::AsRead)
                }
                Binary::Shl | Binary::Shr => (read(*ty), Read::Narrow, written(*ty)),
                Binary::MulWide if ty.bits() == 32 => (Read::Narrow, Read::Narrow, Written::Wide),
                Binary::CopySign if *ty == Type::F32 => {
                    (Read::Narrow, Read::Narrow, Written::Narrow)
                }
                _ => (read(*ty), read(*ty), written(*ty)),
            };
            visit(Reads(a, first));
            visit(Reads(b, second));
            visit(Writes(d, out));
        }
        Op::BitInsert { ty, d, a, b, c, e } => {
            visit(Reads(a, read(*ty)));
            visit(Reads(b, read(*ty)));
            visit(Reads(c, Read::Narrow));
            visit(Reads(e, Read::Narrow));
            visit(Writes(d, extended(*ty)));
        }
        Op::Branch { .. } | Op::Exit | Op::Fence { .. } | Op::Nop | Op::Return => {}
        Op::Trap { .. } => {}
        Op::BranchIndexed { index, .. } => visit(Reads(index, Read::Narrow)),
        Op::Call(call) => {
            for one in &mut call.arguments {
                argument(one, false, visit);
            }
            for one in &mut call.returns {
                argument(one, true, visit);
            }
        }
        Op::Carry {
            ty,
            reads,
            writes,
            carry,
            d,
            a,
            b,
            c,
            ..
        } => {
            if *reads {
                let mut flag = Flag::Pred(*carry);
                visit(ReadsFlag(&mut flag));
            }
            visit(Reads(a, read(*ty)));
            visit(Reads(b, read(*ty)));
            if let Some(c) = c {
                visit(Reads(c, read(*ty)));
            }
            visit(Writes(d, written(*ty)));
            if *writes {
                visit(WritesFlag(carry));
            }
        }
        Op::Classify { ty, d, a, .. } => {
            visit(Reads(a, read(*ty)));
            visit(WritesFlag(d));
        }
        Op::Convert { to, from, d, a, .. } => {
            visit(Reads(a, read(*from)));
            visit(Writes(d, extended(*to)));
        }
        Op::ConvertPair { from, d, a, b, .. } => {
            visit(Reads(a, read(*from)));
            visit(Reads(b, read(*from)));
            visit(Writes(d, Written::Narrow));
        }
        Op::Generic { d, a, .. } => {
            visit(Reads(a, Read::Wide));
            visit(Writes(d, Written::Wide));
        }
        Op::InSpace { d, a, .. } => {
            visit(Reads(a, Read::Wide));
            visit(WritesFlag(d));
        }
        Op::LocalAddress { d, .. } => visit(Writes(d, Written::Narrow)),
        Op::Load {
            space,
            ty,
            d,
            address: at,
            ..
        } => {
            address(at, *space, visit);
            visit(Writes(d, extended(*ty)));
        }
        Op::LoadVector {
            space,
            ty,
            d,
            address: at,
            ..
        } => {
            address(at, *space, visit);
            for d in d.iter_mut().flatten() {
                visit(Writes(d, extended(*ty)));
            }
        }
        Op::Mov { d, a } => {
            visit(Reads(a, Read::AsWritten));
            visit(Writes(d, Written::AsRead));
        }
        Op::Nanosleep { a } => visit(Reads(a, Read::Narrow)),
        Op::Pack { bits, d, parts } => {
            let part = if *bits > 32 { Read::Wide } else { Read::Narrow };
            let all = usize::from(*bits) * parts.len();
            for one in parts.iter_mut() {
                visit(Reads(one, part));
            }
            visit(Writes(
                d,
                if all > 32 {
                    Written::Wide
                } else {
                    Written::Narrow
                },
            ));
        }
        Op::PredLogic { d, a, b, .. } => {
            visit(ReadsFlag(a));
            visit(ReadsFlag(b));
            visit(WritesFlag(d));
        }
        Op::PredMov { d, a } => {
            visit(ReadsFlag(a));
            visit(WritesFlag(d));
        }
        Op::Select { d, a, b, p } => {
            visit(ReadsFlag(p));
            visit(Reads(a, Read::AsWritten));
            visit(Reads(b, Read::AsWritten));
            visit(Writes(d, Written::AsRead));
        }
        Op::SelectSign {
            c_float,
            d,
            a,
            b,
            c,
            ..
        } => {
            visit(Reads(a, Read::AsWritten));
            visit(Reads(b, Read::AsWritten));
            visit(Reads(c, if *c_float { Read::F32 } else { Read::Narrow }));
            visit(Writes(d, Written::AsRead));
        }
        Op::Set {
            combine,
            to,
            ty,
            d,
            a,
            b,
            ..
        } => {
            if let Some((_, flag)) = combine {
                visit(ReadsFlag(flag));
            }
            visit(Reads(a, read(*ty)));
            visit(Reads(b, read(*ty)));
            visit(Writes(d, written(*to)));
        }
        Op::SetPredicate {
            combine,
            ty,
            p,
            q,
            a,
            b,
            ..
        } => {
            if let Some((_, flag)) = combine {
                visit(ReadsFlag(flag));
            }
            visit(Reads(a, read(*ty)));
            visit(Reads(b, read(*ty)));
            for one in [p, q].into_iter().flatten() {
                visit(WritesFlag(one));
            }
        }
        Op::Special { d, which } => visit(Writes(
            d,
            match which {
                Special::Clock64
                | Special::GlobalTimer
                | Special::GlobalTimerHi
                | Special::ClockHi
                | Special::GridId
                | Special::Nsmid => Written::Wide,
                _ => Written::Narrow,
            },
        )),
        Op::Store {
            space,
            ty,
            address: at,
            a,
            ..
        } => {
            address(at, *space, visit);
            visit(Reads(a, read(*ty)));
        }
        Op::StoreVector {
            space,
            ty,
            address: at,
            a,
            ..
        } => {
            address(at, *space, visit);
            for one in a.iter_mut() {
                visit(Reads(one, read(*ty)));
            }
        }
        Op::Ternary {
            op, ty, d, a, b, c, ..
        } => {
            let (inputs, out) = match op {
                Ternary::Bfe => ([read(*ty), Read::Narrow, Read::Narrow], written(*ty)),
                Ternary::MadWide if ty.bits() == 32 => {
                    ([Read::Narrow, Read::Narrow, Read::Wide], Written::Wide)
                }
                Ternary::Dp2a { .. } | Ternary::Dp4a { .. } => ([Read::Narrow; 3], Written::Narrow),
                _ => ([read(*ty); 3], written(*ty)),
            };
            for (one, read) in [a, b, c].into_iter().zip(inputs) {
                visit(Reads(one, read));
            }
            visit(Writes(d, out));
        }
        Op::Together { mask, what } => {
            visit(Reads(mask, Read::Narrow));
            together(what, visit);
        }
        Op::Unary { op, ty, d, a, .. } => {
            let (input, out) = match op {
                Unary::Not if ty.bits() <= 32 => (Read::AsWritten, Written::Inverted),
                Unary::Not => (Read::Wide, Written::Wide),
                Unary::Popc | Unary::Clz | Unary::Bfind | Unary::BfindShift => {
                    (read(*ty), Written::Narrow)
                }
                _ => (read(*ty), written(*ty)),
            };
            visit(Reads(a, input));
            visit(Writes(d, out));
        }
        Op::Texture(access) => {
            let width = |bits| if bits > 32 { Read::Wide } else { Read::Narrow };
            visit(Reads(&mut access.handle, Read::Wide));
            if let Some(sampler) = &mut access.sampler {
                visit(Reads(sampler, Read::Wide));
            }
            let (coordinates, rest) = (access.op.coordinates(), width(access.op.input_bits()));
            for (place, input) in access.inputs.iter_mut().enumerate() {
                let read = if place < coordinates {
                    Read::Narrow
                } else {
                    rest
                };
                visit(Reads(input, read));
            }
            let out = match access.op.result_bits() {
                64 => Written::Wide,
                _ => Written::Narrow,
            };
            for d in access.d.iter_mut().flatten() {
                visit(Writes(d, out));
            }
            if let Some(p) = &mut access.p {
                visit(WritesFlag(p));
            }
        }
        Op::Unpack { bits, d, a } => {
            let all = usize::from(*bits) * d.len();
            visit(Reads(a, if all > 32 { Read::Wide } else { Read::Narrow }));
            for one in d.iter_mut().flatten() {
                visit(Writes(
                    one,
                    if *bits > 32 {
                        Written::Wide
                    } else {
                        Written::Narrow
                    },
                ));
            }
        }
    }
}

fn together(what: &mut Together, visit: &mut impl FnMut(Operand<'_>)) {
    use Operand::{Reads, ReadsFlag, Writes, WritesFlag};
    let (d, p) = match what {
        Together::Elect { d, p } => (d.as_mut(), p.as_mut()),
        Together::Match { bits, d, p, a, .. } => {
            visit(Reads(a, if *bits > 32 { Read::Wide } else { Read::Narrow }));
            (Some(d), p.as_mut())
        }
        Together::Reduce { d, a, .. } => {
            visit(Reads(a, Read::Narrow));
            (Some(d), None)
        }
        Together::Shuffle { d, p, a, b, c, .. } => {
            for one in [a, b, c] {
                visit(Reads(one, Read::Narrow));
            }
            (d.as_mut(), p.as_mut())
        }
        Together::Vote { d, p, a, .. } => {
            visit(ReadsFlag(a));
            (d.as_mut(), p.as_mut())
        }
        // Operands and results lie in memory.
        Together::Matrix { .. } | Together::Wait => (None, None),
    };
    if let Some(d) = d {
        visit(Writes(d, Written::Narrow));
    }
    if let Some(p) = p {
        visit(WritesFlag(p));
    }
}

/// Whether an atomic operation is one that hosts have for integers.
pub(super) fn is_simple(op: Atomic, ty: Type) -> bool {
    !ty.is_float()
        && matches!(ty.bits(), 32 | 64)
        && !matches!(op, Atomic::Inc | Atomic::Dec | Atomic::Mbarrier(_))
}
