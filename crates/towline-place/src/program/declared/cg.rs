//! NPB CG class C: 150,000 unknowns, 75 x 25 steps, a two-dimensional grid of ranks.

use super::{Assumed, Op, Program, Quantity, build};

const UNKNOWNS: u64 = 150_000;
const INNER: u32 = 25;
const OUTER: u64 = 75;
/// Of a vector that goes into the sum of outer products which the matrix is.
const NONZEROS: u64 = 15;
/// As NPB counts the whole.
const OPS: f64 =
    (2 * OUTER
        * UNKNOWNS
        * (3 + NONZEROS * (NONZEROS + 1) + 25 * (5 + NONZEROS * (NONZEROS + 1)) + 3)) as f64;

pub(super) fn program(ranks: u32, assumed: Assumed) -> Program {
    let (speed, bytes) = (assumed.of(Quantity::CgSpeed), assumed.of(Quantity::CgBytes));
    let log = ranks.ilog2();
    let columns = 1 << log.div_ceil(2);
    let rows = 1 << (log / 2);
    let segment = UNKNOWNS.div_ceil(u64::from(columns)) * 8;
    // 25 products and one for the residual.
    let product = OPS / OUTER as f64 / f64::from(INNER + 1) / f64::from(ranks);
    build("cg", ranks, OUTER, speed, speed * bytes, |me, ops| {
        let partners = partners(me, columns);
        let transposed = match rows == columns {
            true => me % rows * rows + me / rows,
            false => 2 * (me / 2 % rows * rows + me / 2 / rows) + me % 2,
        };
        let sum = |ops: &mut Vec<Op>| partners.iter().for_each(|&peer| exchange(ops, peer, 8));
        for step in 0..=INNER {
            ops.push(Op::Compute { ops: product });
            partners
                .iter()
                .for_each(|&peer| exchange(ops, peer, segment));
            if columns > 1 && transposed != me {
                exchange(ops, transposed, segment);
            }
            sum(ops);
            if step < INNER {
                sum(ops);
            }
        }
    })
}

/// With whom a rank sums over its row of the grid, step by step.
fn partners(me: u32, columns: u32) -> Vec<u32> {
    let (row, column) = (me / columns, me % columns);
    let mut factor = columns;
    let mut partners = Vec::new();
    while factor > 1 {
        partners.push(row * columns + (column + factor / 2) % factor + column / factor * factor);
        factor /= 2;
    }
    partners
}

fn exchange(ops: &mut Vec<Op>, peer: u32, bytes: u64) {
    ops.push(Op::Irecv {
        from: peer,
        tag: 1,
        bytes,
    });
    ops.push(Op::Send {
        to: peer,
        tag: 1,
        bytes,
    });
    ops.push(Op::WaitAll);
}
