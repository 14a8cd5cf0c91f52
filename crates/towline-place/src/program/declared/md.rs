//! Molecular dynamics in the manner of NAMD: boxes of atoms with their neighbours' positions and forces, and every fourth step a
//! long-range part, whose charges go to a grid that is transformed by FFTs over slabs.

use super::grid::{cut, neighbour};
use super::{Assumed, Op, Program, Quantity, build};
use crate::program::collective::Call;

/// Steps of a run; a body is four, the last with the long-range part.
const STEPS: u64 = 500;
const CYCLE: u64 = 4;
/// Costs are seconds of a core; what an operation is, is free to choose.
const SPEED: f64 = 1.2e9;
/// Boxes of atoms fit in caches.
const BYTES_PER_OP: f64 = 0.4;
/// Width of a box that holds as many atoms as water does, in angstrom, and what a rank needs of its neighbours.
const ANGSTROM_PER_ATOM: f64 = 10.0;
const CUTOFF: f64 = 12.0;

pub(super) fn program(ranks: u32, name: &str, atoms: u32, gpu: bool, assumed: Assumed) -> Program {
    let ops = |quantity| assumed.of(quantity) * SPEED;
    let (pairs, other, long) = (
        ops(Quantity::MdPairs),
        ops(Quantity::MdOther),
        ops(Quantity::MdLong),
    );
    let kernel_s = assumed.of(Quantity::MdGpu);
    let edge = (f64::from(atoms) * ANGSTROM_PER_ATOM).cbrt();
    let parts = cut(ranks, [1000, 1000, 1000]);
    let mine = f64::from(atoms) / f64::from(ranks);
    let widths = parts.map(|parts| edge / f64::from(parts));
    build(
        name,
        ranks,
        STEPS / CYCLE,
        SPEED,
        SPEED * BYTES_PER_OP,
        |me, ops| {
            for step in 0..CYCLE {
                halo(me, parts, widths, mine, ops);
                match gpu {
                    true => ops.push(Op::Gpu {
                        up: (mine * 16.0) as u64,
                        seconds: mine * kernel_s,
                        down: (mine * 16.0) as u64,
                        calls: 12,
                    }),
                    false => ops.push(Op::Compute { ops: mine * pairs }),
                }
                ops.push(Op::Compute { ops: mine * other });
                // Forces go back the way that positions came.
                halo(me, parts, widths, mine, ops);
                if step + 1 == CYCLE {
                    long_range(ranks, edge, mine * long, ops);
                }
            }
        },
    )
}

/// Positions within the cutoff of each face; corners travel with the faces, axis after axis.
fn halo(me: u32, parts: [u32; 3], widths: [f64; 3], mine: f64, ops: &mut Vec<Op>) {
    for (axis, width) in widths.into_iter().enumerate() {
        let bytes = (mine * (CUTOFF / width).min(1.0) * 24.0) as u64;
        for (tag, forward) in [(0, true), (1, false)] {
            let from = neighbour(me, parts, axis, !forward, true);
            ops.extend(from.map(|from| Op::Irecv { from, tag, bytes }));
        }
        for (tag, forward) in [(0, true), (1, false)] {
            let to = neighbour(me, parts, axis, forward, true);
            ops.extend(to.map(|to| Op::Isend { to, tag, bytes }));
        }
        ops.push(Op::WaitAll);
    }
}

/// Two transposes of a grid of a point an angstrom, in single-precision complex numbers.
fn long_range(ranks: u32, edge: f64, work: f64, ops: &mut Vec<Op>) {
    let block = (edge.powi(3) * 8.0 / f64::from(ranks) / f64::from(ranks)) as u64;
    for _ in 0..2 {
        ops.push(Op::Compute { ops: work / 2.0 });
        ops.push(Op::Collective {
            call: Call::Alltoall { bytes: block },
            communicator: 0,
        });
    }
}
