//! Collectives: their numbers in the raw files, their names, and what messages they amount to.

/// Every collective that is recorded, in the order of their numbers in the raw files.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) enum Call {
    Barrier,
    Bcast,
    Reduce,
    Allreduce,
    Gather,
    Gatherv,
    Scatter,
    Scatterv,
    Allgather,
    Allgatherv,
    Alltoall,
    Alltoallv,
    Alltoallw,
    ReduceScatter,
    ReduceScatterBlock,
    Scan,
    Exscan,
    NeighborAllgather,
    NeighborAllgatherv,
    NeighborAlltoall,
    NeighborAlltoallv,
    NeighborAlltoallw,
}

const CALLS: [(Call, &str); 22] = [
    (Call::Barrier, "barrier"),
    (Call::Bcast, "bcast"),
    (Call::Reduce, "reduce"),
    (Call::Allreduce, "allreduce"),
    (Call::Gather, "gather"),
    (Call::Gatherv, "gatherv"),
    (Call::Scatter, "scatter"),
    (Call::Scatterv, "scatterv"),
    (Call::Allgather, "allgather"),
    (Call::Allgatherv, "allgatherv"),
    (Call::Alltoall, "alltoall"),
    (Call::Alltoallv, "alltoallv"),
    (Call::Alltoallw, "alltoallw"),
    (Call::ReduceScatter, "reduce_scatter"),
    (Call::ReduceScatterBlock, "reduce_scatter_block"),
    (Call::Scan, "scan"),
    (Call::Exscan, "exscan"),
    (Call::NeighborAllgather, "neighbor_allgather"),
    (Call::NeighborAllgatherv, "neighbor_allgatherv"),
    (Call::NeighborAlltoall, "neighbor_alltoall"),
    (Call::NeighborAlltoallv, "neighbor_alltoallv"),
    (Call::NeighborAlltoallw, "neighbor_alltoallw"),
];

impl Call {
    pub(crate) fn from_number(number: u64) -> Option<Self> {
        let (call, _) = CALLS.get(usize::try_from(number).ok()?)?;
        Some(*call)
    }

    pub(crate) fn name(self) -> &'static str {
        CALLS
            .iter()
            .find(|(call, _)| *call == self)
            .map_or("", |(_, name)| name)
    }

    /// Whether the call says itself what goes to whom.
    pub(crate) fn is_direct(self) -> bool {
        !matches!(
            self,
            Self::Barrier
                | Self::Bcast
                | Self::Reduce
                | Self::Allreduce
                | Self::Allgather
                | Self::Allgatherv
                | Self::ReduceScatter
                | Self::ReduceScatterBlock
                | Self::Scan
                | Self::Exscan
        )
    }
}

/// One message of a collective among `size` members, by their numbers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Step {
    /// A member's messages of one round need only what it received in earlier ones.
    pub(crate) round: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) part: Part,
}

/// How much a message of a collective has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Nothing,
    /// All that there is.
    Whole,
    /// What this member contributed, or is to have.
    Of(usize),
}

/// The messages of a collective that has no direct ones, round after round. docs/placement.md names the algorithms.
pub(crate) fn steps(call: Call, size: usize, root: usize) -> Vec<Step> {
    match call {
        Call::Barrier => dissemination(size),
        Call::Bcast => tree(size, root),
        Call::Reduce => {
            let mut steps = tree(size, root);
            let last = steps.last().map_or(0, |step| step.round);
            steps.reverse();
            for step in &mut steps {
                (step.from, step.to) = (step.to, step.from);
                step.round = last - step.round;
            }
            steps
        }
        Call::Allreduce => recursive_doubling(size),
        Call::Allgather | Call::Allgatherv => ring(size),
        Call::ReduceScatter | Call::ReduceScatterBlock => pairwise(size),
        Call::Scan | Call::Exscan => (1..size)
            .map(|to| Step {
                round: to,
                from: to - 1,
                to,
                part: Part::Whole,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Round k: everyone to the member 2^k further.
fn dissemination(size: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut round, mut distance) = (0, 1);
    while distance < size {
        steps.extend((0..size).map(|from| Step {
            round,
            from,
            to: (from + distance) % size,
            part: Part::Nothing,
        }));
        (round, distance) = (round + 1, distance * 2);
    }
    steps
}

/// A binomial tree: who has it sends to the member half as far away each round.
fn tree(size: usize, root: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut round, mut distance) = (0, size.next_power_of_two() / 2);
    while distance > 0 {
        for place in (0..size).step_by(2 * distance) {
            if place + distance < size {
                steps.push(Step {
                    round,
                    from: (place + root) % size,
                    to: (place + distance + root) % size,
                    part: Part::Whole,
                });
            }
        }
        (round, distance) = (round + 1, distance / 2);
    }
    steps
}

/// Partners at distance 1, 2, 4, ... Members over a power of two send to a neighbour before, and get the result after.
fn recursive_doubling(size: usize) -> Vec<Step> {
    if size == 0 {
        return Vec::new();
    }
    let power = 1 << size.ilog2();
    let rest = size - power;
    let whole = |round, from, to| Step {
        round,
        from,
        to,
        part: Part::Whole,
    };
    let mut steps: Vec<Step> = (0..rest)
        .map(|pair| whole(0, 2 * pair, 2 * pair + 1))
        .collect();
    let member = |place: usize| {
        if place < rest {
            2 * place + 1
        } else {
            place + rest
        }
    };
    let (mut round, mut distance) = (1, 1);
    while distance < power {
        steps.extend((0..power).map(|place| whole(round, member(place), member(place ^ distance))));
        (round, distance) = (round + 1, distance * 2);
    }
    steps.extend((0..rest).map(|pair| whole(round, 2 * pair + 1, 2 * pair)));
    steps
}

/// Everything but its own passes each member on the way around.
fn ring(size: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..size.saturating_sub(1) {
        steps.extend((0..size).map(|from| Step {
            round,
            from,
            to: (from + 1) % size,
            part: Part::Of((from + size - round) % size),
        }));
    }
    steps
}

fn pairwise(size: usize) -> Vec<Step> {
    let mut steps = Vec::new();
    for distance in 1..size {
        steps.extend((0..size).map(|from| Step {
            round: distance,
            from,
            to: (from + distance) % size,
            part: Part::Of((from + distance) % size),
        }));
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// What each member knows after all rounds, when a message carries all that its sender knew before its round.
    fn known_after(steps: &[Step], size: usize) -> Vec<HashSet<usize>> {
        let mut known: Vec<HashSet<usize>> =
            (0..size).map(|member| HashSet::from([member])).collect();
        for round in steps.chunk_by(|left, right| left.round == right.round) {
            let before = known.clone();
            for step in round {
                known[step.to].extend(&before[step.from]);
            }
        }
        known
    }

    #[test]
    fn numbers_are_places_in_the_table() {
        for (number, (call, name)) in CALLS.into_iter().enumerate() {
            assert_eq!(Call::from_number(number as u64), Some(call));
            assert_eq!(call.name(), name);
        }
        assert_eq!(Call::from_number(CALLS.len() as u64), None);
    }

    #[test]
    fn everyone_hears_of_everyone_in_what_all_take_part() {
        for call in [
            Call::Barrier,
            Call::Allreduce,
            Call::Allgather,
            Call::ReduceScatter,
        ] {
            for size in 1..20 {
                let known = known_after(&steps(call, size, 0), size);
                assert!(
                    known.iter().all(|known| known.len() == size),
                    "{call:?} {size}"
                );
            }
        }
    }

    #[test]
    fn a_tree_reaches_each_once_and_its_reverse_gathers_all() {
        for size in 1..20 {
            for root in 0..size {
                let out = steps(Call::Bcast, size, root);
                assert_eq!(out.len(), size - 1);
                assert!(
                    known_after(&out, size)
                        .iter()
                        .all(|known| known.contains(&root))
                );
                let back = steps(Call::Reduce, size, root);
                assert_eq!(known_after(&back, size)[root].len(), size);
            }
        }
    }

    #[test]
    fn a_ring_passes_on_only_what_has_arrived() {
        let size = 7;
        let mut has: Vec<HashSet<usize>> =
            (0..size).map(|member| HashSet::from([member])).collect();
        let steps = ring(size);
        for round in steps.chunk_by(|left, right| left.round == right.round) {
            let before = has.clone();
            for step in round {
                let Part::Of(owner) = step.part else {
                    panic!("{step:?}")
                };
                assert!(before[step.from].contains(&owner), "{step:?}");
                has[step.to].insert(owner);
            }
        }
        assert!(has.iter().all(|has| has.len() == size));
    }
}
