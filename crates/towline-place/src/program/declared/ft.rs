//! NPB FT class C: 512 x 512 x 512 complex numbers, 20 steps, slabs: an alltoall of everything in each.

use super::{Assumed, Op, Program, Quantity, build};
use crate::program::collective::Call;

const POINTS: f64 = 512.0 * 512.0 * 512.0;
const STEPS: u64 = 20;

/// As NPB counts the whole.
fn ops() -> f64 {
    let log = POINTS.ln();
    POINTS * (14.8157 + 7.19641 * log + (5.23518 + 7.21113 * log) * STEPS as f64)
}

pub(super) fn program(ranks: u32, assumed: Assumed) -> Program {
    let (speed, bytes) = (assumed.of(Quantity::FtSpeed), assumed.of(Quantity::FtBytes));
    let share = ops() / STEPS as f64 / f64::from(ranks);
    let block = (POINTS * 16.0 / f64::from(ranks) / f64::from(ranks)) as u64;
    build("ft", ranks, STEPS, speed, speed * bytes, |_, ops| {
        let all = |call| Op::Collective {
            call,
            communicator: 0,
        };
        // Evolution and two of three dimensions, then the third and the checksum.
        ops.push(Op::Compute { ops: share * 0.7 });
        ops.push(all(Call::Alltoall { bytes: block }));
        ops.push(Op::Compute { ops: share * 0.3 });
        ops.push(all(Call::Reduce { bytes: 16, root: 0 }));
    })
}
