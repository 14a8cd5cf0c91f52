//! NPB LU class C: 162^3 points, 250 steps, columns of the grid on a two-dimensional grid of ranks: two wavefronts of small
//! messages and one exchange of faces in each step.

use super::{Assumed, Op, Program, Quantity, build};

const EDGE: u32 = 162;
const STEPS: u64 = 250;
const EDGE_F: f64 = EDGE as f64;
/// As NPB counts the whole.
const OPS: f64 = STEPS as f64
    * (1984.77 * EDGE_F * EDGE_F * EDGE_F - 10923.3 * EDGE_F * EDGE_F + 27770.9 * EDGE_F
        - 144_010.0);

pub(super) fn program(ranks: u32, assumed: Assumed) -> Program {
    let (speed, bytes) = (assumed.of(Quantity::LuSpeed), assumed.of(Quantity::LuBytes));
    let log = ranks.ilog2();
    let width = 1 << log.div_ceil(2);
    let height = ranks / width;
    let step = OPS / STEPS as f64 / f64::from(ranks);
    let planes = EDGE - 2;
    build("lu", ranks, STEPS, speed, speed * bytes, |me, ops| {
        let (x, y) = (me % width, me / width);
        let (nx, ny) = (
            u64::from(EDGE.div_ceil(width)),
            u64::from(EDGE.div_ceil(height)),
        );
        let west = (x > 0).then(|| me - 1);
        let east = (x + 1 < width).then(|| me + 1);
        let north = (y > 0).then(|| me - width);
        let south = (y + 1 < height).then(|| me + width);
        let plane = step * 0.35 / f64::from(planes);
        for (from, to) in [
            ([north, west], [south, east]),
            ([south, east], [north, west]),
        ] {
            for _ in 0..planes {
                // Five values of each point of an edge.
                for (peer, points) in from.into_iter().zip([nx, ny]) {
                    ops.extend(peer.map(|from| Op::Recv {
                        from,
                        tag: 1,
                        bytes: points * 40,
                    }));
                }
                ops.push(Op::Compute { ops: plane });
                for (peer, points) in to.into_iter().zip([nx, ny]) {
                    ops.extend(peer.map(|to| Op::Send {
                        to,
                        tag: 1,
                        bytes: points * 40,
                    }));
                }
            }
        }
        // Two layers of five values of each point of a face.
        let face = |points: u64| points * u64::from(EDGE) * 80;
        let faces = [
            (north, face(nx)),
            (south, face(nx)),
            (west, face(ny)),
            (east, face(ny)),
        ];
        for (peer, bytes) in faces {
            ops.extend(peer.map(|from| Op::Irecv {
                from,
                tag: 2,
                bytes,
            }));
        }
        for (peer, bytes) in faces {
            ops.extend(peer.map(|to| Op::Isend { to, tag: 2, bytes }));
        }
        ops.push(Op::WaitAll);
        ops.push(Op::Compute { ops: step * 0.3 });
    })
}
