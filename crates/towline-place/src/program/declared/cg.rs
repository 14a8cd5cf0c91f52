//! NPB CG class C: 150,000 unknowns, 75 x 25 steps, a two-dimensional grid of ranks.

use super::{Op, Program, build};

const UNKNOWNS: u64 = 150_000;
const INNER: u32 = 25;
const OUTER: u64 = 75;
/// What NPB counts for the whole.
const OPS: f64 = 143.3e9;
const SPEED: f64 = 0.42e9;
/// A value and its column for two operations are 6; the gathered vector's cache lines are the rest.
const BYTES_PER_OP: f64 = 15.0;

pub(super) fn program(ranks: u32) -> Program {
    let log = ranks.ilog2();
    let columns = 1 << log.div_ceil(2);
    let rows = 1 << (log / 2);
    let segment = UNKNOWNS.div_ceil(u64::from(columns)) * 8;
    // 25 products and one for the residual.
    let product = OPS / OUTER as f64 / f64::from(INNER + 1) / f64::from(ranks);
    build(
        "cg",
        ranks,
        OUTER,
        SPEED,
        SPEED * BYTES_PER_OP,
        |me, ops| {
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
        },
    )
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
