//! A torus of ranks whose numbers were shuffled: what communication-aware mapping is tested with.

use super::grid::neighbour;
use super::{Op, Program, build};

/// `width` x `height` ranks that exchange `bytes` with their four neighbours; neighbours have unrelated numbers.
pub fn scrambled_halo(width: u32, height: u32, bytes: u64) -> Program {
    let ranks = width * height;
    let mut number: Vec<u32> = (0..ranks).collect();
    // A fixed shuffle: Fisher-Yates on a 32-bit linear congruential sequence.
    let mut state = 722_u32;
    for index in (1..ranks).rev() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        number.swap(index as usize, ((state >> 16) % (index + 1)) as usize);
    }
    let mut place = vec![0; ranks as usize];
    for (at, &rank) in (0..).zip(&number) {
        place[rank as usize] = at;
    }
    build("halo", ranks, 1, 0.0, 0.0, |me, ops| {
        let steps = [(1, true), (1, false), (2, true), (2, false)];
        let at = place[me as usize];
        // Both directions of an axis may lead to one neighbour: tags tell them apart.
        for (tag, (axis, forward)) in (0..).zip(steps) {
            let from = neighbour(at, [1, height, width], axis, !forward, true);
            ops.extend(from.map(|from| Op::Irecv {
                from: number[from as usize],
                tag,
                bytes,
            }));
        }
        for (tag, (axis, forward)) in (0..).zip(steps) {
            let to = neighbour(at, [1, height, width], axis, forward, true);
            ops.extend(to.map(|to| Op::Isend {
                to: number[to as usize],
                tag,
                bytes,
            }));
        }
        ops.push(Op::WaitAll);
    })
}
