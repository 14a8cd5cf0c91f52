//! NPB FT class C: 512 x 512 x 512 complex numbers, 20 steps, slabs: an alltoall of everything in each.

use super::{Op, Program, build};
use crate::program::collective::Call;

const POINTS: f64 = 512.0 * 512.0 * 512.0;
const STEPS: u64 = 20;
/// What NPB counts for the whole.
const OPS: f64 = 394.0e9;
const SPEED: f64 = 0.75e9;
/// Some twenty passes over 16 bytes a point and step, a third of them with strides that waste most of a cache line.
const BYTES_PER_OP: f64 = 6.7;

pub(super) fn program(ranks: u32) -> Program {
    let share = OPS / STEPS as f64 / f64::from(ranks);
    let block = (POINTS * 16.0 / f64::from(ranks) / f64::from(ranks)) as u64;
    build("ft", ranks, STEPS, SPEED, SPEED * BYTES_PER_OP, |_, ops| {
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
