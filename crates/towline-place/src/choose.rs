//! Ranks candidates by their score and says why the best is the best.

use crate::gpus::{Assignment, Pool};
use crate::score::{Score, Sockets, score_with_gpus};
use crate::{Cluster, Error, Matrix, Placement, Policy, Result, search, units};

/// A placement and what it is worth.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The ranks' places.
    pub placement: Placement,
    /// For programs that use GPUs.
    pub gpus: Option<Assignment>,
    /// Its estimated cost.
    pub score: Score,
}

/// What to try.
#[derive(Clone, Debug, Default)]
pub struct Wishes {
    /// The policies to try.
    pub policies: Vec<Policy>,
    /// Search for a placement by what the program communicates, too.
    pub mapped: bool,
    /// More ranks than cores may go on further hardware threads.
    pub threads: bool,
    /// Where virtual GPUs may be.
    pub pool: Pool,
}

/// The candidates that are possible, and those that are not.
#[derive(Debug)]
pub struct Candidates {
    /// Best first; of equals the one that is simpler to say.
    pub ranked: Vec<Candidate>,
    /// Names of placements that are impossible, with the reason.
    pub left_out: Vec<(String, Error)>,
}

/// Ranks all candidates; an error only if every one is impossible.
pub fn candidates(
    cluster: &Cluster,
    matrix: &Matrix,
    sockets: &Sockets,
    wishes: &Wishes,
) -> Result<Candidates> {
    let ranks = matrix.ranks();
    let policies = wishes.policies.iter().map(|policy| {
        let placement = policy.place(cluster, ranks, wishes.threads);
        (policy.to_string(), placement)
    });
    let mapped = wishes.mapped.then(|| {
        let placement = search::search(cluster, matrix, sockets, wishes);
        ("mapped".to_owned(), placement)
    });
    let mut ranked = Vec::new();
    let mut left_out = Vec::new();
    for (name, placement) in policies.chain(mapped) {
        let candidate = placement.and_then(|placement| {
            let (score, gpus) = score_with_gpus(cluster, matrix, sockets, &placement, wishes.pool)?;
            Ok(Candidate {
                placement,
                gpus,
                score,
            })
        });
        match candidate {
            Ok(candidate) => ranked.push(candidate),
            Err(error) => left_out.push((name, error)),
        }
    }
    if ranked.is_empty() && !left_out.is_empty() {
        return Err(left_out.swap_remove(0).1);
    }
    ranked.sort_by(|a, b| a.score.total_s.total_cmp(&b.score.total_s));
    Ok(Candidates { ranked, left_out })
}

/// Why the first of the candidates is the first, in a few lines.
pub fn explain(cluster: &Cluster, matrix: &Matrix, candidates: &[Candidate]) -> String {
    let Some((best, others)) = candidates.split_first() else {
        return String::new();
    };
    let used = best.placement.by_node(cluster).len();
    let mut text = format!(
        "{}: {} ranks on {used} of {} nodes of {}.\n",
        best.placement.name,
        matrix.ranks(),
        cluster.nodes.len(),
        cluster.name
    );
    let score = &best.score;
    let parts = [
        (score.compute_s, "what its busiest socket computes"),
        (score.link_s, "what its busiest link carries"),
        (score.latency_s, "the latencies of its messages"),
        (score.gpu_s, "what its busiest GPU or GPU server does"),
    ];
    let (largest, what) = parts
        .into_iter()
        .fold((0.0, "nothing"), |a, b| if b.0 > a.0 { b } else { a });
    if score.total_s == 0.0 {
        return text
            + "Nothing is known of the program: give --trace or --program to choose by it.\n";
    }
    text += &format!(
        "Most of its estimate of {} is {what} ({}).\n",
        units::seconds(score.total_s),
        units::seconds(largest)
    );
    text += &format!(
        "{:.1} % of {} cross nodes",
        100.0 * score.cross_share(),
        units::bytes(score.all_bytes)
    );
    if let Some((link, bytes)) = &score.busiest_link {
        text += &format!("; the busiest link is {link} with {}", units::bytes(*bytes));
    }
    text += &format!(
        ".\nUp to {} ranks share a socket, and compute {:.2} times slower than alone.\n",
        score.socket_ranks, score.slowdown
    );
    let next = others
        .iter()
        .find(|other| other.score.total_s > score.total_s * (1.0 + 1e-6));
    match next {
        Some(next) => {
            text += &format!(
                "The next, {}, is estimated {:.1} % slower: {}.\n",
                next.placement.name,
                100.0 * (next.score.total_s / score.total_s - 1.0),
                difference(score, &next.score)
            );
        }
        None if !others.is_empty() => text += "All others are estimated the same.\n",
        None => {}
    }
    if matrix.ops.iter().all(|ops| *ops == 0.0) {
        text += "Nothing is known of what the ranks compute: only messages count.\n";
    } else if score.slowdown == 1.0 && matrix.memory_demand == 0.0 {
        text += "Nothing is known of what the ranks draw from memory: give --saturation (see `towline calibrate`).\n";
    }
    text
}

/// The part in which the other is worst.
fn difference(best: &Score, other: &Score) -> String {
    let parts = [
        (other.compute_s - best.compute_s, "its busiest socket takes"),
        (other.link_s - best.link_s, "its busiest link takes"),
        (other.latency_s - best.latency_s, "its latencies take"),
        (
            other.gpu_s - best.gpu_s,
            "its busiest GPU or GPU server takes",
        ),
    ];
    let (more, what) = parts
        .into_iter()
        .fold((f64::MIN, ""), |a, b| if b.0 > a.0 { b } else { a });
    format!("{what} {} more", units::seconds(more))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::sample;
    use crate::program::declared::{Kernel, scrambled_halo};

    #[test]
    fn the_best_comes_first_and_says_why() {
        let (cluster, matrix) = (sample(4, 1, 6), Matrix::of(&scrambled_halo(6, 4, 100_000)));
        let wishes = Wishes {
            policies: Policy::usual(&cluster),
            mapped: true,
            threads: false,
            pool: Pool::Any,
        };
        let candidates = candidates(&cluster, &matrix, &Sockets::default(), &wishes).unwrap();
        assert_eq!(candidates.ranked[0].placement.name, "mapped");
        let text = explain(&cluster, &matrix, &candidates.ranked);
        assert!(
            text.contains("41.7 %") && text.contains("The next"),
            "{text}"
        );
    }

    #[test]
    fn candidates_without_gpus_are_left_out() {
        // Two nodes of two cores have GPUs: only placements on those are possible.
        let mut cluster = sample(4, 1, 2);
        cluster.nodes[0].gpus = 1;
        cluster.nodes[1].gpus = 1;
        let matrix = Matrix::of(&Kernel::StmvGpu.program(4).unwrap());
        let mut wishes = Wishes {
            policies: Policy::usual(&cluster),
            mapped: true,
            threads: false,
            pool: Pool::Local,
        };
        let found = candidates(&cluster, &matrix, &Sockets::default(), &wishes).unwrap();
        let named = |name| {
            let mut ranked = found.ranked.iter();
            ranked.any(|candidate| candidate.placement.name == name)
        };
        assert!(named("block") && named("mapped") && !named("rr:1"));
        let reason = found.left_out.iter().find(|(name, _)| name == "rr:1");
        let (_, error) = reason.unwrap();
        assert!(error.to_string().contains("needs a GPU"), "{error}");

        (wishes.policies, wishes.mapped) = (vec![Policy::RoundRobin(1)], false);
        assert!(candidates(&cluster, &matrix, &Sockets::default(), &wishes).is_err());
    }
}
