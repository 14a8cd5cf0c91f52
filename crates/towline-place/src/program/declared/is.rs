//! NPB IS class C: 2^27 keys, ten rankings, each with an alltoallv of all keys.

use std::sync::Arc;

use super::{Op, Program, build};
use crate::program::collective::Call;

const KEYS: u64 = 1 << 27;
const STEPS: u64 = 10;
const BUCKETS: u64 = 1024;
/// Keys ranked, which is what NPB counts.
const OPS: f64 = (KEYS * STEPS) as f64;
const SPEED: f64 = 0.04e9;
/// A key is read and written twice, and counted at random places.
const BYTES_PER_OP: f64 = 60.0;

pub(super) fn program(ranks: u32) -> Program {
    let share = OPS / STEPS as f64 / f64::from(ranks);
    let block = KEYS * 4 / u64::from(ranks) / u64::from(ranks);
    let sizes: Arc<[u64]> = vec![block; ranks as usize].into();
    build("is", ranks, STEPS, SPEED, SPEED * BYTES_PER_OP, |_, ops| {
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
