//! NPB IS class C: 2^27 keys, ten rankings, each with an alltoallv of all keys.

use std::sync::Arc;

use super::{Assumed, Op, Program, Quantity, build};
use crate::program::collective::Call;

const KEYS: u64 = 1 << 27;
const STEPS: u64 = 10;
const BUCKETS: u64 = 1024;
/// Keys ranked, which is what NPB counts.
const OPS: f64 = (KEYS * STEPS) as f64;

pub(super) fn program(ranks: u32, assumed: Assumed) -> Program {
    let (speed, bytes) = (assumed.of(Quantity::IsSpeed), assumed.of(Quantity::IsBytes));
    let share = OPS / STEPS as f64 / f64::from(ranks);
    let block = KEYS * 4 / u64::from(ranks) / u64::from(ranks);
    let sizes: Arc<[u64]> = vec![block; ranks as usize].into();
    build("is", ranks, STEPS, speed, speed * bytes, |_, ops| {
        let all = |call| Op::Collective {
            call,
            communicator: 0,
        };
        ops.push(Op::Compute { ops: share * 0.6 });
        ops.push(all(Call::Allreduce {
            bytes: (BUCKETS + 5) * 4,
        }));
        ops.push(all(Call::Alltoall { bytes: 4 }));
        ops.push(all(Call::Alltoallv {
            send: sizes.clone(),
            receive: sizes.clone(),
        }));
        ops.push(Op::Compute { ops: share * 0.4 });
    })
}
