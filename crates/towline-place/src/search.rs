//! Placements made for a program: ranks that talk much come together, as far as memory allows.
//!
//! Each start (every fixed policy's placement, a greedy growth within the shape of each, and Scotch's if it is there) is improved
//! by swaps and moves until none helps or the work is used up. Work is counted, not timed, so the result is always the same.
//! Moves do not know GPUs: the full score decides afterwards between each start, its improvement and all others.

use std::collections::{BTreeSet, HashSet};

use crate::choose::Wishes;
use crate::score::{Loads, Score, Sockets, score_with_gpus};
use crate::{Cluster, Matrix, Placement, Policy, Result, Slot, policy, scotch};

/// Visits of edges that all improvements together may cost: some seconds.
const WORK: u64 = 60_000_000;

/// Starts of one shape that differ in where growth begins.
const SEEDS: usize = 6;

/// The best placement found for a program; an error if none has GPUs for all ranks that use one.
pub fn search(
    cluster: &Cluster,
    matrix: &Matrix,
    sockets: &Sockets,
    wishes: &Wishes,
) -> Result<Placement> {
    let (tasks, threads) = (matrix.ranks(), wishes.threads);
    policy::check_room(cluster, tasks, threads)?;
    let mut policies = Policy::usual(cluster);
    for &policy in &wishes.policies {
        if !policies.contains(&policy) {
            policies.push(policy);
        }
    }
    let mut shapes: Vec<Placement> = Vec::new();
    let mut repeated: Vec<Vec<Slot>> = Vec::new();
    let mut seen = HashSet::new();
    for policy in policies {
        let placement = policy.place(cluster, tasks, threads)?;
        let mut shape: Vec<Slot> = placement.slots.clone();
        shape.sort_unstable();
        // Policies that fill the same cores with other ranks are one shape, but each its own start.
        if seen.insert(shape) || tasks <= 256 {
            shapes.push(placement);
        } else {
            repeated.push(placement.slots);
        }
    }
    let mut starts: Vec<Vec<Slot>> = shapes
        .iter()
        .map(|placement| placement.slots.clone())
        .collect();
    let degree = matrix.sent.iter().map(Vec::len).sum::<usize>().max(1);
    let dense = degree > 64 * tasks;
    let mut grown = HashSet::new();
    for placement in &shapes {
        let mut shape = placement.slots.clone();
        shape.sort_unstable();
        if !grown.insert(shape.clone()) || dense {
            continue;
        }
        starts.extend(
            (0..SEEDS.min(tasks)).map(|seed| grow(cluster, matrix, &shape, seed * tasks / SEEDS)),
        );
        // Scotch knows no memory: it gets the shape, and the improvement does the rest.
        starts.extend(scotch::map(cluster, matrix, &shape).unwrap_or_default());
    }
    let all: Vec<Slot> = all_slots(cluster, threads);
    let share = WORK / starts.len() as u64;
    let mut best: Option<(Score, Placement)> = None;
    let mut failure = None;
    // Repeated shapes are not worth the work of an improvement, and are compared as they are.
    let repeated = repeated.into_iter().map(|start| (start, 0));
    let starts = starts.into_iter().map(|start| (start, share));
    for (start, work) in starts.chain(repeated) {
        let mut loads = Loads::new(cluster, matrix, sockets, &start);
        improve(&mut loads, &all, work);
        let mut found: Option<(Score, Placement)> = None;
        for slots in [loads.slots, start] {
            // Summed up anew: what moves left behind in the last digits must not decide.
            let placement = Placement::new("mapped", slots, cluster)?;
            match score_with_gpus(cluster, matrix, sockets, &placement, wishes.pool) {
                Ok((score, _)) => {
                    if found
                        .as_ref()
                        .is_none_or(|(best, _)| score.total_s < best.total_s)
                    {
                        found = Some((score, placement));
                    }
                }
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        let Some((score, placement)) = found else {
            continue;
        };
        let better = best.as_ref().is_none_or(|(best, _)| {
            score.total_s < best.total_s * (1.0 - 1e-9)
                || (score.total_s <= best.total_s * (1.0 + 1e-9)
                    && score.cross_bytes < best.cross_bytes)
        });
        if better {
            best = Some((score, placement));
        }
    }
    best.map(|(_, placement)| placement)
        .ok_or_else(|| failure.expect("each start has a score or a failure"))
}

fn all_slots(cluster: &Cluster, threads: bool) -> Vec<Slot> {
    let mut slots = Vec::new();
    for (index, node) in (0..).zip(&cluster.nodes) {
        for thread in 0..if threads { node.threads } else { 1 } {
            let cores = 0..node.cores();
            slots.extend(cores.map(|core| Slot {
                node: index,
                core,
                thread,
            }));
        }
    }
    slots
}

/// Gives the slots of a shape to ranks, socket after socket: next comes always the rank with most traffic to those on the socket,
/// then on the node.
fn grow(cluster: &Cluster, matrix: &Matrix, shape: &[Slot], seed: usize) -> Vec<Slot> {
    let ranks = matrix.ranks();
    let mut traffic: Vec<Vec<(usize, f64)>> = vec![Vec::new(); ranks];
    for (rank, sent) in matrix.sent.iter().enumerate() {
        for to in sent {
            // A message has a price beside that of its bytes.
            let weight =
                to.bytes + to.messages * cluster.network.latency_s * cluster.network.bandwidth;
            traffic[rank].push((to.peer as usize, weight));
            traffic[to.peer as usize].push((rank, weight));
        }
    }
    let mut slots = vec![None; ranks];
    let mut free: BTreeSet<usize> = (0..ranks).collect();
    let (mut to_socket, mut to_node, mut to_placed) =
        (vec![0.0; ranks], vec![0.0; ranks], vec![0.0; ranks]);
    let mut last: Option<Slot> = None;
    for &slot in shape {
        let socket = |slot: Slot| {
            cluster.nodes[slot.node as usize]
                .socket_of(slot.core)
                .map(|(socket, _)| socket)
        };
        if last.is_none_or(|last| last.node != slot.node) {
            to_node.fill(0.0);
            to_socket.fill(0.0);
        } else if last.is_some_and(|last| socket(last) != socket(slot)) {
            to_socket.fill(0.0);
        }
        let key = |rank: usize| (to_socket[rank], to_node[rank], to_placed[rank]);
        let chosen = match last {
            None => seed % ranks,
            Some(_) => {
                let mut best = *free.first().expect("there are as many slots as ranks");
                for &rank in &free {
                    if key(rank) > key(best) {
                        best = rank;
                    }
                }
                best
            }
        };
        free.remove(&chosen);
        slots[chosen] = Some(slot);
        for &(peer, weight) in &traffic[chosen] {
            to_socket[peer] += weight;
            to_node[peer] += weight;
            to_placed[peer] += weight;
        }
        last = Some(slot);
    }
    slots
        .into_iter()
        .map(|slot| slot.expect("each rank was chosen once"))
        .collect()
}

/// Swaps pairs and moves ranks to free slots while that lowers the objective and work is left.
fn improve(loads: &mut Loads<'_>, all: &[Slot], work: u64) {
    let ranks = loads.slots.len();
    let mut left = work;
    let mut current = loads.objective();
    let scan = (all.len() / 2).max(32) as u64;
    loop {
        let before = current;
        for a in 0..ranks {
            for b in a + 1..ranks {
                // Ranks of one socket that change places change nothing.
                if loads.is_one_socket(loads.slots[a], loads.slots[b]) {
                    continue;
                }
                let cost = 4 * (loads.edges[a].len() + loads.edges[b].len()) as u64 + scan;
                let Some(rest) = left.checked_sub(cost) else {
                    return;
                };
                left = rest;
                loads.swap(a, b);
                let next = loads.objective();
                match next < current * (1.0 - 1e-9) {
                    true => current = next,
                    false => loads.swap(a, b),
                }
            }
        }
        let taken: HashSet<Slot> = loads.slots.iter().copied().collect();
        // One free core of a socket is like another: the first stands for all.
        let mut free: Vec<Slot> = Vec::new();
        for &slot in all {
            let alike =
                |other: &Slot| other.thread == slot.thread && loads.is_one_socket(*other, slot);
            if !taken.contains(&slot) && !free.iter().any(alike) {
                free.push(slot);
            }
        }
        for rank in 0..ranks {
            for target in &mut free {
                let cost = 4 * loads.edges[rank].len() as u64 + scan;
                let Some(rest) = left.checked_sub(cost) else {
                    return;
                };
                left = rest;
                let from = loads.slots[rank];
                loads.shift(rank, *target);
                let next = loads.objective();
                match next < current * (1.0 - 1e-9) {
                    true => {
                        current = next;
                        *target = from;
                    }
                    false => loads.shift(rank, from),
                }
            }
        }
        if current >= before * (1.0 - 1e-9) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{preset, sample};
    use crate::gpus::Pool;
    use crate::program::declared::{Kernel, scrambled_halo};
    use crate::score::score;

    #[test]
    fn a_scrambled_halo_finds_its_blocks_again() {
        let (cluster, matrix) = (sample(4, 1, 6), Matrix::of(&scrambled_halo(6, 4, 100_000)));
        let placement = search(&cluster, &matrix, &Sockets::default(), &Wishes::default()).unwrap();
        let score = score(&cluster, &matrix, &Sockets::default(), &placement).unwrap();
        // Four blocks of 2 x 3: 20 of 48 edges are cut, and no cut is smaller.
        assert!(
            (score.cross_share() - 20.0 / 48.0).abs() < 1e-9,
            "{}",
            score.cross_share()
        );
    }

    #[test]
    fn no_fixed_policy_is_better() {
        let cluster = preset::cluster("study-qdr").unwrap();
        let sockets = Sockets::default();
        let more = [("cg", Kernel::Cg, 64), ("himeno", Kernel::Himeno, 96)];
        let all = Kernel::ALL
            .iter()
            .map(|(name, kernel)| (*name, *kernel, 16));
        for (name, kernel, tasks) in all.chain(more) {
            let matrix = Matrix::of(&kernel.program(tasks).unwrap());
            let total = |placement: &Placement| {
                score(&cluster, &matrix, &sockets, placement)
                    .unwrap()
                    .total_s
            };
            let mapped = total(&search(&cluster, &matrix, &sockets, &Wishes::default()).unwrap());
            for policy in Policy::usual(&cluster) {
                let fixed = total(&policy.place(&cluster, tasks, false).unwrap());
                assert!(
                    mapped <= fixed * (1.0 + 1e-9),
                    "{name} {policy}: {mapped} and {fixed}"
                );
            }
        }
    }

    #[test]
    fn no_fixed_policy_is_better_with_gpus() {
        // A slow network draws ranks together, and one GPU in each node spreads them.
        let mut cluster = sample(8, 2, 8);
        cluster.network.bandwidth = 0.03e9;
        cluster.nodes.iter_mut().for_each(|node| node.gpus = 1);
        let sockets = Sockets::default();
        let matrix = Matrix::of(&Kernel::StmvGpu.program(16).unwrap());
        let total = |placement: &Placement| {
            let scored = score_with_gpus(&cluster, &matrix, &sockets, placement, Pool::Any);
            scored.unwrap().0.total_s
        };
        let mapped = total(&search(&cluster, &matrix, &sockets, &Wishes::default()).unwrap());
        for policy in Policy::usual(&cluster) {
            let fixed = total(&policy.place(&cluster, 16, false).unwrap());
            assert!(
                mapped <= fixed * (1.0 + 1e-9),
                "{policy}: {mapped} and {fixed}"
            );
        }
    }

    #[test]
    fn no_fixed_policy_is_better_of_many_ranks() {
        // Every policy fills all cores: one shape, of which only the first placement is improved.
        let cluster = preset::cluster("study-qdr").unwrap();
        let sockets = Sockets::default();
        let matrix = Matrix::of(&Kernel::Stmv.program(384).unwrap());
        let wishes = Wishes {
            policies: vec![Policy::Plane(3)],
            ..Wishes::default()
        };
        let total = |placement: &Placement| {
            let scored = score(&cluster, &matrix, &sockets, placement);
            scored.unwrap().total_s
        };
        let mapped = total(&search(&cluster, &matrix, &sockets, &wishes).unwrap());
        for policy in Policy::usual(&cluster).into_iter().chain(wishes.policies) {
            let fixed = total(&policy.place(&cluster, 384, false).unwrap());
            assert!(
                mapped <= fixed * (1.0 + 1e-9),
                "{policy}: {mapped} and {fixed}"
            );
        }
    }

    #[test]
    fn the_result_is_the_same_every_time() {
        let (cluster, matrix) = (
            sample(3, 2, 4),
            Matrix::of(&Kernel::Cg.program(16).unwrap()),
        );
        let once = search(&cluster, &matrix, &Sockets::default(), &Wishes::default()).unwrap();
        assert_eq!(
            once,
            search(&cluster, &matrix, &Sockets::default(), &Wishes::default()).unwrap()
        );
    }

    #[test]
    fn too_few_cores_are_an_error() {
        let matrix = Matrix::of(&scrambled_halo(6, 4, 8));
        assert!(
            search(
                &sample(2, 1, 6),
                &matrix,
                &Sockets::default(),
                &Wishes::default()
            )
            .is_err()
        );
    }
}
