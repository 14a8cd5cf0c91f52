//! Himeno, size XL: 1024 x 512 x 512 points of single precision, Jacobi's method, boxes on a three-dimensional grid of ranks.

use super::grid::{cut, neighbour};
use super::{Assumed, Op, Program, Quantity, build};
use crate::program::collective::Call;

const POINTS: [u32; 3] = [1024, 512, 512];
/// What the original counts for a point.
const OPS_PER_POINT: f64 = 34.0;
/// Enough to see a steady state; the original runs for about a minute.
const STEPS: u64 = 200;

/// `compiled`: whose speed it has.
pub(super) fn program(ranks: u32, name: &str, compiled: Quantity, assumed: Assumed) -> Program {
    let speed = assumed.of(compiled);
    let parts = cut(ranks, POINTS);
    let points: f64 = POINTS.iter().map(|&edge| f64::from(edge - 2)).product();
    let edges = [0, 1, 2].map(|axis: usize| u64::from(POINTS[axis].div_ceil(parts[axis])));
    build(
        name,
        ranks,
        STEPS,
        speed,
        speed * assumed.of(Quantity::HimenoBytes),
        |me, ops| {
            ops.push(Op::Compute {
                ops: points * OPS_PER_POINT / f64::from(ranks),
            });
            for axis in 0..3 {
                let bytes = 4 * edges.iter().product::<u64>() / edges[axis];
                let peers = [true, false].map(|forward| neighbour(me, parts, axis, forward, false));
                for from in peers.into_iter().flatten() {
                    ops.push(Op::Irecv {
                        from,
                        tag: axis as u32,
                        bytes,
                    });
                }
                for to in peers.into_iter().flatten() {
                    ops.push(Op::Isend {
                        to,
                        tag: axis as u32,
                        bytes,
                    });
                }
                ops.push(Op::WaitAll);
            }
            ops.push(Op::Collective {
                call: Call::Allreduce { bytes: 4 },
                communicator: 0,
            });
        },
    )
}
