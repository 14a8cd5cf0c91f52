//! Barriers that lie in shared memory (`mbarrier`), and addresses in clusters, which have one block here.

use super::{Decoded, Decoder};
use crate::ir::Error;
use crate::ir::fit::Fit;
use crate::ir::op::{
    Address, Arrival, Atomic, Binary, Compare, Mode, Op, Order, Reg, Source, Space,
};
use crate::ptx::Type;
use crate::ptx::ast::Expression;

/// One more than a barrier in memory may be for.
const MOST_THREADS: u64 = 1 << Arrival::COUNT_BITS;

impl<'a> Decoder<'a, '_, '_, '_> {
    pub(super) fn mbarrier(&mut self) -> Decoded {
        let what = self.modifiers.one_of(&[
            ("arrive", "arrive"),
            ("arrive_drop", "arrive_drop"),
            ("complete_tx", "complete_tx"),
            ("init", "init"),
            ("inval", "inval"),
            ("pending_count", "pending_count"),
            ("test_wait", "test_wait"),
            ("try_wait", "try_wait"),
        ]);
        let expects = self.modifiers.flag("expect_tx");
        self.modifiers.order();
        let space = self.modifiers.space();
        self.ty_of(&[Type::B64])?;
        match (what, self.operands) {
            (None, [address, bytes]) if expects => {
                self.change(Arrival::Expect, space, None, address, Some(bytes))
            }
            (Some("complete_tx"), [address, bytes]) => {
                self.change(Arrival::Complete, space, None, address, Some(bytes))
            }
            (Some("init"), [address, count]) => {
                let op = self.change(Arrival::Init, space, None, address, Some(count))?;
                let Op::Atomic { a, .. } = op else {
                    return Ok(op);
                };
                match self.builder.known(a) {
                    Some(0 | MOST_THREADS..) => {
                        self.refuse("a barrier is for 1 to 1048575 threads")
                    }
                    _ => Ok(op),
                }
            }
            // Memory may hold anything then; it must be there.
            (Some("inval"), [address]) => Ok(Op::Store {
                space,
                ty: Type::B64,
                order: Order::Weak,
                address: self.builder.address(address, space)?,
                a: self.builder.bits(0),
            }),
            (Some("arrive" | "arrive_drop"), [state, address, count @ ..]) if count.len() < 2 => {
                let op = match what {
                    Some("arrive") => Arrival::Arrive,
                    _ => Arrival::ArriveDrop,
                };
                let state = self.builder.maybe_reg(state, Type::B64, Fit::Same)?;
                let mut count = count.first();
                if expects {
                    let Some(bytes) = count.take() else {
                        return self.refuse("`.expect_tx` needs a number of bytes");
                    };
                    let expect = self.change(Arrival::Expect, space, None, address, Some(bytes))?;
                    self.part(expect)?;
                } else if self.modifiers.flag("noComplete") && count.is_none() {
                    return self.refuse("`.noComplete` needs a number of threads");
                }
                self.change(op, space, state, address, count)
            }
            (Some("test_wait" | "try_wait"), [complete, address, state]) => {
                self.wait(space, complete, address, state)
            }
            (Some("try_wait"), [complete, address, state, hint]) => {
                self.builder.count(hint)?;
                self.wait(space, complete, address, state)
            }
            (Some("pending_count"), [count, state]) => self.pending_count(count, state),
            _ => self.refuse("`mbarrier` has other operands"),
        }
    }

    /// A change of a barrier, by a number or by one.
    fn change(
        &mut self,
        op: Arrival,
        space: Space,
        d: Option<Reg>,
        address: &Expression<'a>,
        number: Option<&Expression<'a>>,
    ) -> Decoded {
        let address = self.builder.address(address, space)?;
        let a = match number {
            Some(number) => self.builder.count(number)?,
            None => self.builder.bits(1),
        };
        Ok(changed(op, space, d, address, a))
    }

    fn computed(&mut self, op: Binary, a: Source, b: Source) -> Result<Source, Error> {
        let d = self.builder.scratch();
        self.before(Op::Binary {
            op,
            ty: Type::U64,
            mode: Mode::default(),
            d,
            a,
            b,
        })?;
        Ok(Source::Reg(d))
    }

    /// Whether a phase is over: the one that a state is of, or of two phases the last one of a parity.
    fn wait(
        &mut self,
        space: Space,
        complete: &Expression<'a>,
        address: &Expression<'a>,
        state: &Expression<'a>,
    ) -> Decoded {
        let parity = self.modifiers.flag("parity");
        let p = self.builder.pred(complete)?;
        let address = self.builder.address(address, space)?;
        let state = match parity {
            true => self.builder.count(state)?,
            false => self.builder.fitting_source(state, Type::U64, Fit::Count)?,
        };
        if parity && self.builder.known(state).is_some_and(|parity| parity > 1) {
            return self.refuse("a parity is 0 or 1");
        }
        let zero = self.builder.bits(0);
        let now = self.builder.scratch();
        // It tells others apart from those that poll that it changes nothing.
        self.part(Op::Atomic {
            op: Atomic::Or,
            space,
            ty: Type::B64,
            d: Some(now),
            address,
            a: zero,
            b: None,
        })?;
        let shift = self.builder.bits(Arrival::PHASE_SHIFT.into());
        let phase = match parity {
            true => {
                let phase = self.computed(Binary::Shr, Source::Reg(now), shift)?;
                let differs = self.computed(Binary::Xor, phase, state)?;
                let one = self.builder.bits(1);
                self.computed(Binary::And, differs, one)?
            }
            false => {
                let differs = self.computed(Binary::Xor, Source::Reg(now), state)?;
                self.computed(Binary::Shr, differs, shift)?
            }
        };
        Ok(Op::SetPredicate {
            compare: Compare::Ne,
            combine: None,
            ty: Type::U64,
            flush: false,
            p: Some(p),
            q: None,
            a: phase,
            b: zero,
        })
    }

    fn pending_count(&mut self, count: &Expression<'a>, state: &Expression<'a>) -> Decoded {
        let d = self.builder.fitting_reg(count, Type::U32, Fit::Count)?;
        let state = self.builder.source(state, Type::B64)?;
        let shift = self.builder.bits(Arrival::COUNT_BITS.into());
        let a = self.computed(Binary::Shr, state, shift)?;
        Ok(Op::Binary {
            op: Binary::And,
            ty: Type::U64,
            mode: Mode::default(),
            d,
            a,
            b: self.builder.bits((1 << Arrival::COUNT_BITS) - 1),
        })
    }

    /// `cp.async.mbarrier.arrive`: copies are over already.
    pub(super) fn copies_arrive(&mut self) -> Decoded {
        let known = self.modifiers.flag("mbarrier") && self.modifiers.flag("arrive");
        if !known {
            return self.refuse("of `cp.async.mbarrier` only `.arrive` is supported");
        }
        let counted = self.modifiers.flag("noinc");
        let near = self
            .modifiers
            .one_of(&[("shared", ()), ("shared::cta", ())]);
        let space = near.map_or(Space::Generic, |()| Space::Shared);
        self.ty_of(&[Type::B64])?;
        let [address] = self.operands()?;
        let address = self.builder.address(address, space)?;
        let one = self.builder.bits(1);
        if counted {
            return Ok(changed(Arrival::Arrive, space, None, address, one));
        }
        // One more is expected, and comes.
        Ok(Op::Load {
            space,
            ty: Type::B64,
            order: Order::Weak,
            polls: false,
            d: self.builder.scratch(),
            address,
        })
    }

    /// `mapa`: an address in another block of the cluster.
    pub(super) fn mapa(&mut self) -> Decoded {
        self.modifiers.flag("shared::cluster");
        let ty = self.ty_of(&[Type::U32, Type::U64, Type::S32, Type::S64])?;
        let [d, a, block] = self.operands()?;
        if self
            .builder
            .space_of(a)
            .is_some_and(|own| own != Space::Shared)
        {
            return self.refuse(format!("`{a}` does not lie in shared memory"));
        }
        let a = self.builder.source(a, ty)?;
        self.builder.reads_addresses = false;
        self.builder.count(block)?;
        Ok(Op::Mov {
            d: self.builder.reg(d, ty)?,
            a,
        })
    }

    /// `getctarank`: the block that an address lies in.
    pub(super) fn getctarank(&mut self) -> Decoded {
        self.modifiers.flag("shared::cluster");
        let ty = self.ty_of(&[Type::U32, Type::U64, Type::S32, Type::S64])?;
        let [d, a] = self.operands()?;
        self.builder.source(a, ty)?;
        Ok(Op::Mov {
            d: self.builder.fitting_reg(d, Type::U32, Fit::Count)?,
            a: self.builder.bits(0),
        })
    }
}

fn changed(op: Arrival, space: Space, d: Option<Reg>, address: Address, a: Source) -> Op {
    Op::Atomic {
        op: Atomic::Mbarrier(op),
        space,
        ty: Type::B64,
        d,
        address,
        a,
        b: None,
    }
}
