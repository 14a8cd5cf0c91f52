//! Scotch's mapping program, where it is installed: one more start for the search.
//!
//! Its licence (CeCILL-C) and its many builds are reasons to call the program and not to link the library. Debian calls it
//! `scotch_gmap`, others `gmap`, which is also the name of an unrelated program: only one that says it is Scotch's is used.

use std::fmt::Write;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use crate::{Cluster, Matrix, Slot, child};

/// Graphs of this size take it less than a second.
const LIMIT: Duration = Duration::from_secs(30);

/// What weights are scaled to: sums of them must fit in 32 bits.
const WEIGHTS: f64 = 1e8;

/// The program's name, if it is there.
pub fn program() -> Option<&'static str> {
    static FOUND: OnceLock<Option<&'static str>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        ["scotch_gmap", "gmap"].into_iter().find(|name| {
            let ended = child::run(Command::new(name).arg("-V"), Vec::new(), LIMIT);
            ended.is_ok_and(|ended| (ended.output + &ended.errors).contains("gmap/gpart, version"))
        })
    })
}

/// Ranks on the slots of a shape as Scotch maps them. None without Scotch, or where it has no words for the shape: it maps onto
/// nodes and sockets that all hold the same number of ranks.
pub(crate) fn map(cluster: &Cluster, matrix: &Matrix, shape: &[Slot]) -> Option<Vec<Vec<Slot>>> {
    let program = program()?;
    let target = target(cluster, shape)?;
    let folder = tempfile::tempdir().ok()?;
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("graph"), graph(matrix)).ok()?;
    std::fs::write(path("target"), target).ok()?;
    let mut command = Command::new(program);
    command.args([path("graph"), path("target"), path("map")]);
    let ended = child::run(&mut command, Vec::new(), LIMIT).ok()?;
    if !ended.status.success() {
        return None;
    }
    let map = std::fs::read_to_string(path("map")).ok()?;
    read(&map, shape).map(|slots| vec![slots])
}

/// The leaves of a tree of nodes, sockets and cores, with what a hop costs on each level.
fn target(cluster: &Cluster, shape: &[Slot]) -> Option<String> {
    let mut sizes: Vec<(u32, Vec<(u32, u32)>)> = Vec::new();
    for slot in shape {
        let (socket, _) = cluster
            .nodes
            .get(slot.node as usize)?
            .socket_of(slot.core)?;
        if sizes.last().is_none_or(|(node, _)| *node != slot.node) {
            sizes.push((slot.node, Vec::new()));
        }
        let (_, sockets) = sizes.last_mut()?;
        match sockets.last_mut() {
            Some((last, ranks)) if *last == socket => *ranks += 1,
            _ => sockets.push((socket, 1)),
        }
    }
    let counts =
        |sockets: &[(u32, u32)]| sockets.iter().map(|(_, ranks)| *ranks).collect::<Vec<_>>();
    let first = counts(&sizes.first()?.1);
    let even = sizes.iter().all(|(_, sockets)| counts(sockets) == first)
        && first.iter().all(|ranks| *ranks == first[0]);
    let hop = |rate: f64| ((1e11 / rate).round() as u32).max(1);
    let levels = [
        (sizes.len() as u32, hop(cluster.network.bandwidth)),
        (first.len() as u32, hop(cluster.memory.socket_link)),
        (first[0], 1),
    ];
    // A level without branches is an error to Scotch.
    let levels: Vec<String> = levels
        .iter()
        .filter(|(size, _)| *size > 1)
        .map(|(size, hop)| format!(" {size} {hop}"))
        .collect();
    (even && !levels.is_empty()).then(|| format!("tleaf {}{}\n", levels.len(), levels.concat()))
}

/// Scotch's text of a graph with weights on its edges.
fn graph(matrix: &Matrix) -> String {
    let mut weights: Vec<std::collections::BTreeMap<u32, f64>> =
        vec![Default::default(); matrix.ranks()];
    for (rank, sent) in (0..).zip(&matrix.sent) {
        for to in sent {
            *weights[rank as usize].entry(to.peer).or_default() += to.bytes;
            *weights[to.peer as usize].entry(rank).or_default() += to.bytes;
        }
    }
    let scale = WEIGHTS
        / weights
            .iter()
            .flat_map(|to| to.values())
            .sum::<f64>()
            .max(1.0);
    let arcs: usize = weights.iter().map(|to| to.len()).sum();
    let mut text = format!("0\n{} {arcs}\n0 010\n", weights.len());
    for to in &weights {
        let _ = write!(text, "{}", to.len());
        for (peer, weight) in to {
            let _ = write!(text, " {} {peer}", ((weight * scale).round() as u64).max(1));
        }
        text.push('\n');
    }
    text
}

/// The slots that a mapping file gives to ranks; none if it is not one to one.
fn read(map: &str, shape: &[Slot]) -> Option<Vec<Slot>> {
    let mut slots = vec![None; shape.len()];
    let mut taken = vec![false; shape.len()];
    for line in map.lines().skip(1) {
        let (rank, leaf) = line.trim().split_once(char::is_whitespace)?;
        let (rank, leaf): (usize, usize) = (rank.parse().ok()?, leaf.trim().parse().ok()?);
        if std::mem::replace(taken.get_mut(leaf)?, true) {
            return None;
        }
        *slots.get_mut(rank)? = shape.get(leaf).copied();
    }
    slots.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Policy;
    use crate::cluster::sample;
    use crate::program::declared::scrambled_halo;
    use crate::score::{Sockets, score};

    #[test]
    fn scotch_where_it_is_maps_the_halo_onto_its_blocks() {
        let (cluster, matrix) = (sample(4, 1, 6), Matrix::of(&scrambled_halo(6, 4, 1000)));
        let mut shape = Policy::Block.place(&cluster, 24, false).unwrap().slots;
        shape.sort_unstable();
        let Some(slots) = map(&cluster, &matrix, &shape) else {
            assert!(program().is_none(), "Scotch is there and gave no mapping");
            return;
        };
        let placement = crate::Placement::new("scotch", slots[0].clone(), &cluster).unwrap();
        let score = score(&cluster, &matrix, &Sockets::default(), &placement).unwrap();
        assert!(score.cross_share() < 0.5, "{}", score.cross_share());
    }

    #[test]
    fn mappings_that_are_not_one_to_one_are_not_used() {
        let shape = Policy::Block
            .place(&sample(1, 1, 2), 2, false)
            .unwrap()
            .slots;
        assert!(read("2\n0\t1\n1\t0\n", &shape).is_some());
        for map in [
            "2\n0\t1\n1\t1\n",
            "2\n0\t1\n",
            "2\n0\t7\n1\t0\n",
            "2\nx",
            "",
        ] {
            assert!(read(map, &shape).is_none(), "{map:?}");
        }
    }

    #[test]
    fn uneven_shapes_have_no_target() {
        let cluster = sample(2, 1, 4);
        let shape = |tasks| Policy::Block.place(&cluster, tasks, false).unwrap().slots;
        assert!(
            target(&cluster, &shape(8))
                .unwrap()
                .starts_with("tleaf 2 2 ")
        );
        assert!(target(&cluster, &shape(5)).is_none());
    }
}
