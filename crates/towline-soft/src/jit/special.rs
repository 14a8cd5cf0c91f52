//! Special registers: of the launch, of the block and of the thread.

use cranelift_codegen::ir::{InstBuilder, MemFlags, types};
use towline_ptx::ir::op::{Reg, Special};

use super::HELPER_COST;
use super::emit::{Emitter, Kind};
use super::head::{Uniform, offset};

impl Emitter<'_, '_> {
    pub(super) fn special(&mut self, d: Reg, which: Special) {
        let axis = |all: [Uniform; 3], which: u8| all[usize::from(which.min(2))];
        let uniform = match which {
            Special::Ntid(which) => axis(
                [Uniform::ThreadsX, Uniform::ThreadsY, Uniform::ThreadsZ],
                which,
            ),
            Special::Ctaid(which @ 0..3) => {
                axis([Uniform::BlockX, Uniform::BlockY, Uniform::BlockZ], which)
            }
            Special::Nctaid(which) => axis([Uniform::GridX, Uniform::GridY, Uniform::GridZ], which),
            Special::WarpId => Uniform::Warp,
            Special::Nwarpid => Uniform::Warps,
            Special::Nsmid => Uniform::HostThreads,
            Special::GridId => Uniform::Grid,
            Special::DynamicSharedBytes => Uniform::DynamicShared,
            Special::TotalSharedBytes => Uniform::TotalShared,
            Special::Envreg(1) => Uniform::WorkspaceHigh,
            Special::Envreg(2) => Uniform::WorkspaceLow,
            other => return self.special_of_lane(d, other),
        };
        let value = self.uniform(uniform);
        self.set(d, value, Kind::I64);
    }

    fn special_of_lane(&mut self, d: Reg, which: Special) {
        let lane = self.b.ins().ireduce(types::I32, self.lane);
        let one = self.b.ins().iconst(types::I32, 1);
        let bit = self.b.ins().ishl(one, lane);
        let value = match which {
            Special::Tid(which) => {
                let threads = self.constant_load(types::I64, offset!(threads));
                let by = self.b.ins().ishl_imm(self.lane, 3);
                let at = self.b.ins().iadd(threads, by);
                let flags = MemFlags::trusted().with_readonly().with_can_move();
                let offset = i32::from(which.min(2)) * 2;
                self.b.ins().uload16(types::I32, flags, at, offset)
            }
            Special::LaneId => lane,
            Special::WarpSize => self.b.ins().iconst(types::I32, 32),
            Special::One => one,
            Special::LaneMaskEq => bit,
            Special::LaneMaskLt => self.b.ins().iadd_imm(bit, -1),
            Special::LaneMaskGe => self.b.ins().ineg(bit),
            Special::LaneMaskLe => {
                let less = self.b.ins().iadd_imm(bit, -1);
                self.b.ins().bor(less, bit)
            }
            Special::LaneMaskGt => {
                let negative = self.b.ins().ineg(bit);
                self.b.ins().bxor(negative, bit)
            }
            Special::Clock
            | Special::ClockHi
            | Special::Clock64
            | Special::GlobalTimer
            | Special::GlobalTimerHi
            | Special::GlobalTimerLo => {
                self.spend(HELPER_COST);
                let at = self.b.ins().iconst(types::I64, i64::from(self.at));
                let call = self.b.ins().call(self.helpers.special, &[self.head, at]);
                let value = self.b.inst_results(call)[0];
                return self.set(d, value, Kind::I64);
            }
            _ => self.b.ins().iconst(types::I32, 0),
        };
        self.set(d, value, Kind::I32);
    }
}
