//! `matrix.json`: who sent how much to whom.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::collective::{self, Call, Part};
use crate::pairs::{Pair, Pairs};
use crate::raw::{Communicators, Counts, Group};
use crate::seconds;

/// The communication matrix of a program.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// Size of `MPI_COMM_WORLD`.
    pub ranks: u32,
    /// Whether every rank reached `MPI_Finalize`.
    pub complete: bool,
    /// Ranks without a file.
    pub missing: Vec<u32>,
    /// Ranks that did not reach `MPI_Finalize`.
    pub unfinished: Vec<u32>,
    /// By rank; none for one that is missing.
    pub compute_seconds: Vec<Option<f64>>,
    /// By rank; none for one that is missing.
    pub hosts: Vec<Option<String>>,
    /// Sends.
    pub point_to_point: Vec<Pair>,
    /// Puts, gets and accumulates.
    pub one_sided: Vec<Pair>,
    /// Collectives as messages.
    pub collective: Vec<Pair>,
    /// Collectives as they were called.
    pub communicators: Vec<Communicator>,
}

/// A communicator with what was called on it.
#[derive(Clone, Debug, Serialize)]
pub struct Communicator {
    /// Its place in the list.
    pub id: u32,
    /// Of those that have one by the standard.
    pub name: Option<&'static str>,
    /// In the order of their ranks in it.
    pub ranks: Vec<u32>,
    /// Of the other group, where there are two.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_ranks: Option<Vec<u32>>,
    /// By call and root.
    pub collectives: Vec<CollectiveTotal>,
}

/// One kind of collective on one communicator.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct CollectiveTotal {
    /// As MPI names it, without `MPI_` and in small letters.
    pub call: &'static str,
    /// In `MPI_COMM_WORLD`.
    pub root: Option<u32>,
    /// How many times.
    pub calls: u64,
    /// What all ranks contributed.
    pub bytes: u64,
}

/// By rank: how often it took part, and what it contributed.
type Contributions = BTreeMap<u32, (u64, u64)>;
/// By communicator, call and root.
type Totals = BTreeMap<(usize, Call, Option<u32>), Contributions>;

pub(crate) fn build(
    ranks: u32,
    counts: &BTreeMap<u32, Counts>,
    communicators: &Communicators,
) -> Matrix {
    let (mut point_to_point, mut one_sided, mut collective) =
        (Pairs::default(), Pairs::default(), Pairs::default());
    let mut totals = Totals::new();
    for counts in counts.values() {
        for (peer, pair) in (0..).zip(&counts.pairs) {
            point_to_point.add(counts.rank, peer, pair.sent);
            one_sided.add(counts.rank, peer, pair.put);
            one_sided.add(peer, counts.rank, pair.got);
            collective.add(counts.rank, peer, pair.direct);
        }
        for counted in &counts.collectives {
            if let Some(index) = communicators.index_of(counts.rank, counted.communicator) {
                totals
                    .entry((index, counted.call, counted.root))
                    .or_default()
                    .insert(counts.rank, (counted.calls, counted.bytes));
            }
        }
    }
    for ((index, call, root), contributions) in &totals {
        if let Some(group) = communicators.groups.get(*index) {
            spread(&mut collective, group, *call, *root, contributions);
        }
    }
    let missing: Vec<u32> = (0..ranks)
        .filter(|rank| !counts.contains_key(rank))
        .collect();
    let unfinished: Vec<u32> = counts
        .values()
        .filter(|counts| !counts.finished)
        .map(|counts| counts.rank)
        .collect();
    Matrix {
        ranks,
        complete: missing.is_empty() && unfinished.is_empty(),
        missing,
        unfinished,
        compute_seconds: (0..ranks)
            .map(|rank| counts.get(&rank).map(|counts| seconds(counts.compute_ns)))
            .collect(),
        hosts: (0..ranks)
            .map(|rank| counts.get(&rank).map(|counts| counts.host.clone()))
            .collect(),
        point_to_point: point_to_point.into_list(),
        one_sided: one_sided.into_list(),
        collective: collective.into_list(),
        communicators: describe(communicators, &totals, ranks),
    }
}

/// Communicators on which something was called, and MPI_COMM_WORLD. MPI_COMM_WORLD is first.
fn describe(communicators: &Communicators, totals: &Totals, ranks: u32) -> Vec<Communicator> {
    let world: Vec<u32> = (0..ranks).collect();
    let mut described: Vec<Communicator> = Vec::new();
    for (index, group) in communicators.groups.iter().enumerate() {
        let collectives: Vec<CollectiveTotal> = totals
            .range((index, Call::Barrier, None)..)
            .take_while(|((at, ..), _)| *at == index)
            .map(|((_, call, root), contributions)| CollectiveTotal {
                call: call.name(),
                root: *root,
                calls: contributions
                    .values()
                    .map(|(calls, _)| *calls)
                    .max()
                    .unwrap_or(0),
                bytes: contributions
                    .values()
                    .fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes)),
            })
            .collect();
        let is_world = group.ordinal == 0 && group.remote.is_none() && group.ranks == world;
        if collectives.is_empty() && !is_world {
            continue;
        }
        let communicator = Communicator {
            id: 0,
            name: is_world.then_some("MPI_COMM_WORLD"),
            ranks: group.ranks.clone(),
            remote_ranks: group.remote.clone(),
            collectives,
        };
        described.insert(if is_world { 0 } else { described.len() }, communicator);
    }
    for (id, communicator) in (0..).zip(&mut described) {
        communicator.id = id;
    }
    described
}

/// Adds the messages of collectives that do not say themselves what goes to whom.
fn spread(
    pairs: &mut Pairs,
    group: &Group,
    call: Call,
    root: Option<u32>,
    contributions: &Contributions,
) {
    let members = &group.ranks;
    if call.is_direct() || group.remote.is_some() {
        return;
    }
    let size = members.len();
    let calls = contributions
        .values()
        .map(|(calls, _)| *calls)
        .max()
        .unwrap_or(0);
    let contributed = |member: usize| {
        members
            .get(member)
            .and_then(|rank| contributions.get(rank))
            .map_or(0, |(_, bytes)| *bytes)
    };
    let root = root
        .and_then(|root| members.iter().position(|&member| member == root))
        .unwrap_or(0);
    // All contribute the same, but one who died early less.
    let whole = match call {
        Call::Bcast => contributed(root),
        _ => (0..size).map(contributed).max().unwrap_or(0),
    };
    let share = |of: usize| match call {
        Call::ReduceScatter | Call::ReduceScatterBlock => whole / size.max(1) as u64,
        _ => contributed(of),
    };
    for step in collective::steps(call, size, root) {
        let bytes = match step.part {
            Part::Nothing => 0,
            Part::Whole => whole,
            Part::Of(member) => share(member),
        };
        if let (Some(&from), Some(&to)) = (members.get(step.from), members.get(step.to)) {
            pairs.add(from, to, (calls, bytes));
        }
    }
}
