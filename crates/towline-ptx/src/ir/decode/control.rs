//! Branches, calls and barriers.

use super::{Decoded, Decoder};
use crate::ir::Error;
use crate::ir::fit::Fit;
use crate::ir::op::{Barrier, Call, Callee, Logic, Op, Source, Space};
use crate::ir::scope::plain_name;
use crate::ptx::Type;
use crate::ptx::ast::Expression;

/// The number of the cluster's barrier, behind those of the block.
const CLUSTER_BARRIER: u64 = 16;

impl<'a> Decoder<'a, '_, '_, '_> {
    pub(super) fn bra(&mut self) -> Decoded {
        self.modifiers.flag("uni");
        let [target] = self.operands()?;
        Ok(Op::Branch {
            target: self.builder.label(target)?,
        })
    }

    pub(super) fn brx(&mut self) -> Decoded {
        self.modifiers.flag("idx");
        self.modifiers.flag("uni");
        let [index, table] = self.operands()?;
        Ok(Op::BranchIndexed {
            index: self.builder.source(index, Type::U32)?,
            targets: self.builder.table(table)?,
        })
    }

    /// `call (results), function, (arguments), prototype`, of which only the function must be there.
    pub(super) fn call(&mut self) -> Decoded {
        self.modifiers.flag("uni");
        let (returns, rest) = match self.operands {
            [Expression::List(returns), rest @ ..] => (returns.as_slice(), rest),
            rest => (&[][..], rest),
        };
        let [callee, rest @ ..] = rest else {
            return self.refuse("`call` needs a function");
        };
        let arguments = match rest {
            [Expression::List(arguments), ..] => arguments.as_slice(),
            _ => &[],
        };
        let function = plain_name(callee).and_then(|name| self.builder.function_of(name));
        let callee = match function {
            Some(function) => {
                self.builder.code.calls.push(function);
                Callee::Function(function)
            }
            None => {
                self.builder.code.calls_indirectly = true;
                Callee::Address(self.builder.source(callee, Type::U64)?)
            }
        };
        let arguments: Result<Vec<_>, _> = arguments
            .iter()
            .map(|argument| self.builder.argument(argument))
            .collect();
        let returns: Result<Vec<_>, _> = returns
            .iter()
            .map(|place| self.builder.argument(place))
            .collect();
        Ok(Op::Call(Box::new(Call {
            callee,
            arguments: arguments?,
            returns: returns?,
        })))
    }

    /// `bar` and `barrier`, of a block or a warp.
    pub(super) fn barrier(&mut self) -> Decoded {
        if self.modifiers.flag("warp") {
            self.modifiers.flag("sync");
            let [mask] = self.operands()?;
            return Ok(Op::Together {
                mask: self.builder.count(mask)?,
                what: Box::new(crate::ir::op::Together::Wait),
            });
        }
        self.modifiers.flag("cta");
        self.modifiers.flag("aligned");
        if self.modifiers.flag("cluster") {
            return self.cluster_barrier();
        }
        if self.modifiers.flag("red") {
            return self.reducing_barrier();
        }
        let kind = self
            .modifiers
            .one_of(&[("sync", Barrier::Sync), ("arrive", Barrier::Arrive)]);
        let Some(kind) = kind else {
            return self.refuse("a barrier needs `.sync`, `.arrive` or `.red`");
        };
        let (id, threads) = match self.operands {
            [id] if kind == Barrier::Sync => (id, None),
            [id, threads] => (id, Some(threads)),
            _ => return self.refuse("a barrier needs its number, and perhaps a number of threads"),
        };
        Ok(Op::Barrier {
            kind,
            id: self.barrier_number(id)?,
            threads: match threads {
                None => None,
                Some(threads) => Some(self.barrier_threads(threads)?),
            },
        })
    }

    /// `barrier.cluster`: of clusters of one block.
    fn cluster_barrier(&mut self) -> Decoded {
        let kind = self.modifiers.one_of(&[
            ("arrive", Barrier::ClusterArrive),
            ("wait", Barrier::ClusterWait),
        ]);
        let Some(kind) = kind else {
            return self.refuse("`barrier.cluster` needs `.arrive` or `.wait`");
        };
        self.modifiers
            .skip(|name| matches!(name, "acquire" | "relaxed" | "release"));
        let [] = self.operands()?;
        Ok(Op::Barrier {
            kind,
            id: self.builder.bits(CLUSTER_BARRIER),
            threads: None,
        })
    }

    /// A block has 16 barriers.
    fn barrier_number(&mut self, id: &Expression<'a>) -> Result<Source, Error> {
        let id = self.builder.count(id)?;
        match self.builder.known(id) {
            Some(16..) => self.refuse("barriers have numbers from 0 to 15"),
            _ => Ok(id),
        }
    }

    /// Whole warps come to a barrier.
    fn barrier_threads(&mut self, threads: &Expression<'a>) -> Result<Source, Error> {
        let threads = self.builder.count(threads)?;
        match self.builder.known(threads) {
            Some(count) if count % 32 != 0 => {
                self.refuse("a barrier is for a multiple of 32 threads")
            }
            _ => Ok(threads),
        }
    }

    fn reducing_barrier(&mut self) -> Decoded {
        let counts = self.modifiers.flag("popc");
        let op = self
            .modifiers
            .one_of(&[("and", Logic::And), ("or", Logic::Or)]);
        if counts {
            self.modifiers.flag("u32");
        } else {
            self.modifiers.flag("pred");
        }
        let (d, id, threads, flag) = match self.operands {
            [d, id, flag] => (d, id, None, flag),
            [d, id, threads, flag] => (d, id, Some(threads), flag),
            _ => return self.refuse("`bar.red` needs a destination, a barrier and a predicate"),
        };
        let a = self.builder.flag(flag)?;
        let kind = match op {
            _ if counts => Barrier::Count {
                d: self.builder.fitting_reg(d, Type::U32, Fit::Count)?,
                a,
            },
            Some(op) => Barrier::Reduce {
                op,
                d: self.builder.pred(d)?,
                a,
            },
            None => return self.refuse("`bar.red` needs `.popc`, `.and` or `.or`"),
        };
        Ok(Op::Barrier {
            kind,
            id: self.barrier_number(id)?,
            threads: match threads {
                None => None,
                Some(threads) => Some(self.barrier_threads(threads)?),
            },
        })
    }

    pub(super) fn nanosleep(&mut self) -> Decoded {
        self.modifiers.flag("u32");
        let [a] = self.operands()?;
        Ok(Op::Nanosleep {
            a: self.builder.count(a)?,
        })
    }

    /// What may be left out, though it must be right.
    pub(super) fn hint(&mut self, opcode: &str) -> Decoded {
        self.modifiers.skip(|_| true);
        match (opcode, self.operands) {
            ("prefetch" | "prefetchu", [address]) => {
                self.builder.address(address, Space::Generic)?;
            }
            ("discard" | "applypriority", [address, bytes]) => {
                self.builder.address(address, Space::Generic)?;
                let bytes = self.builder.source(bytes, Type::U32)?;
                if self.builder.known(bytes) != Some(128) {
                    return self.refuse(format!("`{opcode}` is for 128 bytes"));
                }
            }
            ("pmevent" | "setmaxnreg", [number]) => {
                let number = self.builder.source(number, Type::U32)?;
                if self.builder.known(number).is_none() {
                    return self.refuse(format!("`{opcode}` needs a number"));
                }
            }
            ("griddepcontrol", []) => {}
            _ => return self.refuse(format!("`{opcode}` has other operands")),
        }
        Ok(Op::Nop)
    }
}
