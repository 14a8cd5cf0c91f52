//! Who sends how much to whom, over a whole run: what placements are scored by.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::program::{GpuUse, MAX_RANKS, Op, Program, REFERENCE_SPEED};
use crate::{Error, Result};

/// Pairs of a file: of 8192 ranks each with each.
const MAX_PAIRS: usize = 1 << 26;

/// Traffic between ranks, and what each computes.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// The program's name.
    pub name: String,
    /// Of each rank, sorted by peer: what it sends, point to point and collectives together.
    pub sent: Vec<Vec<Traffic>>,
    /// Of each rank: operations on a core that does `rated_speed` of them, 0: as the cluster's cores.
    pub ops: Vec<f64>,
    /// Operations per second of the core that `ops` count for.
    pub rated_speed: f64,
    /// What a rank draws from memory while it computes, in bytes per second; 0: nothing is known.
    pub memory_demand: f64,
    /// Of each rank: its use of a GPU.
    pub gpu: Vec<GpuUse>,
}

/// What a rank sends to a peer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traffic {
    /// The rank that receives.
    pub peer: u32,
    /// Bytes sent to it.
    pub bytes: f64,
    /// Messages sent to it.
    pub messages: f64,
}

#[derive(Deserialize)]
struct File {
    format: String,
    version: u32,
    ranks: usize,
    complete: bool,
    #[serde(default)]
    missing: Vec<u32>,
    #[serde(default)]
    unfinished: Vec<u32>,
    #[serde(default)]
    compute_seconds: Vec<Option<f64>>,
    #[serde(default)]
    point_to_point: Vec<(u32, u32, u64, u64)>,
    #[serde(default)]
    one_sided: Vec<(u32, u32, u64, u64)>,
    #[serde(default)]
    collective: Vec<(u32, u32, u64, u64)>,
}

impl Matrix {
    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.sent.len()
    }

    /// Ranks of which nothing is known.
    pub fn silent(ranks: usize) -> Result<Self> {
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(Error::Size(format!(
                "{ranks} tasks; 1 to {MAX_RANKS} are possible"
            )));
        }
        Ok(Self {
            name: "a program of which nothing is known".to_owned(),
            sent: vec![Vec::new(); ranks],
            ops: vec![0.0; ranks],
            rated_speed: 0.0,
            memory_demand: 0.0,
            gpu: vec![GpuUse::default(); ranks],
        })
    }

    /// Between two ranks, sent and received, of all.
    pub fn bytes(&self) -> f64 {
        self.sent
            .iter()
            .flatten()
            .map(|traffic| traffic.bytes)
            .sum::<f64>()
            .abs()
    }

    /// What a program sends over its whole run.
    pub fn of(program: &Program) -> Self {
        let ranks = program.ranks();
        let sent = (0..ranks).map(|rank| {
            let mut to: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
            let parts = [
                (&program.start[rank], 1.0),
                (&program.body[rank], program.iterations as f64),
            ];
            for (ops, times) in parts {
                for op in program.flat(ops, rank as u32) {
                    let message = match op {
                        Op::Send { to, bytes, .. } | Op::Isend { to, bytes, .. } => {
                            Some((to, bytes))
                        }
                        Op::Exchange { to, .. } => to,
                        _ => None,
                    };
                    if let Some((peer, bytes)) = message.filter(|(peer, _)| *peer as usize != rank)
                    {
                        let sum = to.entry(peer).or_default();
                        sum.0 += bytes as f64 * times;
                        sum.1 += times;
                    }
                }
            }
            traffic(to)
        });
        Self {
            name: program.name.clone(),
            sent: sent.collect(),
            ops: (0..ranks).map(|rank| program.ops(rank)).collect(),
            rated_speed: program.rated_speed,
            memory_demand: program.memory_demand,
            gpu: (0..ranks).map(|rank| program.gpu(rank)).collect(),
        }
    }

    /// Reads the `matrix.json` that `towline trace` wrote, or the one in its folder.
    ///
    /// The matrix of a program that died is used as far as it goes: the caller says so by [`Self::from_file`]'s second answer,
    /// a sentence.
    pub fn from_file(path: &Path) -> Result<(Self, Option<String>)> {
        let path = match path.is_dir() {
            true => path.join("matrix.json"),
            false => path.to_owned(),
        };
        let what = path.display().to_string();
        Self::from_json(&crate::read_text(&path)?, &what)
    }

    /// Reads what `towline trace` wrote; the text is a remark, where the traced program did not end in order.
    pub fn from_json(text: &str, what: &str) -> Result<(Self, Option<String>)> {
        let fail = |reason: String| Error::Cluster {
            what: what.to_owned(),
            reason,
        };
        let file: File =
            serde_json::from_str(text).map_err(|error| fail(format!("not a matrix: {error}")))?;
        if (file.format.as_str(), file.version) != ("towline-matrix", 1) {
            return Err(fail(format!(
                "format `{}` version {} is not `towline-matrix` version 1",
                file.format.chars().take(40).collect::<String>(),
                file.version
            )));
        }
        if file.ranks == 0 || file.ranks > MAX_RANKS {
            return Err(fail(format!(
                "{} ranks; 1 to {MAX_RANKS} are possible",
                file.ranks
            )));
        }
        let mut sent = vec![BTreeMap::new(); file.ranks];
        let pairs = [&file.point_to_point, &file.one_sided, &file.collective];
        if pairs.iter().map(|pairs| pairs.len()).sum::<usize>() > MAX_PAIRS {
            return Err(fail(format!("more than {MAX_PAIRS} pairs")));
        }
        for &(from, to, messages, bytes) in pairs.into_iter().flatten() {
            if to as usize >= file.ranks || from as usize >= file.ranks {
                return Err(fail(format!(
                    "a pair of ranks {from} and {to} of {}",
                    file.ranks
                )));
            }
            if from != to {
                let sum: &mut (f64, f64) = sent[from as usize].entry(to).or_default();
                sum.0 += bytes as f64;
                sum.1 += messages as f64;
            }
        }
        let seconds = |rank: usize| {
            file.compute_seconds
                .get(rank)
                .copied()
                .flatten()
                .unwrap_or(0.0)
        };
        let sane = |value: f64| {
            if value.is_finite() && value >= 0.0 {
                value
            } else {
                0.0
            }
        };
        let matrix = Self {
            name: what.to_owned(),
            sent: sent.into_iter().map(traffic).collect(),
            // Seconds of the traced machine: a core of the cluster counts as fast unless the caller knows better.
            ops: (0..file.ranks).map(|rank| sane(seconds(rank))).collect(),
            rated_speed: 1.0,
            memory_demand: 0.0,
            gpu: vec![GpuUse::default(); file.ranks],
        };
        let remark = (!file.complete).then(|| {
            format!(
                "the traced program did not end as it should (ranks without a file: {:?}, ranks that did not finish: {:?}); \
                 what it did until then is what is placed",
                file.missing, file.unfinished
            )
        });
        Ok((matrix, remark))
    }

    /// Seconds that a rank computes alone on a core of this speed.
    pub fn compute_s(&self, rank: usize, core_speed: f64) -> f64 {
        self.ops[rank] / crate::program::speed(self.rated_speed, core_speed)
    }

    /// What a rank draws from memory on a core of this speed, in bytes per second.
    pub fn demand(&self, core_speed: f64) -> f64 {
        self.memory_demand * core_speed / REFERENCE_SPEED
    }
}

fn traffic(to: BTreeMap<u32, (f64, f64)>) -> Vec<Traffic> {
    let entry = |(peer, (bytes, messages))| Traffic {
        peer,
        bytes,
        messages,
    };
    to.into_iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::declared::{Kernel, scrambled_halo};

    #[test]
    fn a_halo_sends_to_four_neighbours() {
        let matrix = Matrix::of(&scrambled_halo(6, 4, 1000));
        assert!(matrix.sent.iter().all(|sent| sent.len() == 4));
        assert_eq!(matrix.bytes(), 24.0 * 4.0 * 1000.0);
    }

    #[test]
    fn an_alltoall_sends_to_all() {
        let matrix = Matrix::of(&Kernel::Ft.program(16).unwrap());
        assert!(matrix.sent.iter().all(|sent| sent.len() == 15));
    }

    #[test]
    fn matrices_of_traces_are_read() {
        let text = r#"{"format":"towline-matrix","version":1,"ranks":2,"complete":false,"missing":[1],
            "compute_seconds":[2.5,null],"point_to_point":[[0,1,3,300]],"collective":[[0,1,1,8],[1,1,1,1]],"new":0}"#;
        let (matrix, remark) = Matrix::from_json(text, "m").unwrap();
        assert_eq!(
            matrix.sent[0],
            [Traffic {
                peer: 1,
                bytes: 308.0,
                messages: 4.0
            }]
        );
        assert!(matrix.sent[1].is_empty());
        assert_eq!(matrix.compute_s(0, 1e9), 2.5);
        assert!(remark.unwrap().contains("[1]"));
    }

    #[test]
    fn hostile_matrices_are_refused() {
        let good = r#"{"format":"towline-matrix","version":1,"ranks":2,"complete":true,"point_to_point":[[0,1,1,1]]}"#;
        assert!(Matrix::from_json(good, "m").is_ok());
        for (from, to) in [
            ("\"ranks\":2", "\"ranks\":0"),
            ("\"ranks\":2", "\"ranks\":99999999"),
            ("[0,1,1,1]", "[0,2,1,1]"),
            ("[0,1,1,1]", "[0,1,1,-1]"),
            ("version\":1", "version\":2"),
            ("towline-matrix", "other"),
            ("}", ""),
        ] {
            assert!(
                Matrix::from_json(&good.replace(from, to), "m").is_err(),
                "{from} as {to}"
            );
        }
    }
}
