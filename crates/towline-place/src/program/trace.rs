//! Programs from traces: the folder that `towline trace` writes, or SimGrid's time-independent format of any other origin.
//!
//! The format has a line per action, `RANK ACTION ARGUMENTS`; `replay.txt` names one file per rank.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::collective::{Call, TAG};
use super::{MAX_RANKS, Op, Program};
use crate::{Error, Result};

/// Actions of all ranks together: about 3 GB of memory. Longer traces are cut by who makes them, or declared with a body.
const MAX_ACTIONS: usize = 60_000_000;

/// The longest line: an alltoallv of as many ranks as there may be.
const MAX_LINE_BYTES: usize = 4 << 20;

/// What a trace's `trace.json` says about its replay.
#[derive(Deserialize)]
struct About {
    replay: Replay,
}

#[derive(Deserialize)]
struct Replay {
    usable: bool,
    #[serde(default)]
    reasons: Vec<String>,
    flops_per_second: f64,
}

impl Program {
    /// Reads a trace: its folder, or the file that names those of the ranks.
    pub fn from_trace(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let (list, rated_speed) = match path.is_dir() {
            true => (path.join("replay.txt"), speed(path)?),
            false => (path.to_owned(), 0.0),
        };
        let text = crate::read_text(&list)?;
        let files: Vec<&str> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        if files.is_empty() || files.len() > MAX_RANKS {
            return Err(Error::Size(format!(
                "{} names {} ranks; 1 to {MAX_RANKS} are possible",
                list.display(),
                files.len()
            )));
        }
        let folder = list.parent().unwrap_or(Path::new("."));
        let mut budget = MAX_ACTIONS;
        let mut start = Vec::with_capacity(files.len());
        for (rank, file) in files.iter().enumerate() {
            start.push(read_rank(
                &folder.join(file),
                rank,
                files.len(),
                &mut budget,
            )?);
        }
        let mut program = Self {
            name,
            body: vec![Vec::new(); start.len()],
            start,
            iterations: 0,
            memory_demand: 0.0,
            rated_speed,
            communicators: Vec::new(),
        };
        program.fit()?;
        Ok(program)
    }
}

/// Operations per second that the amounts of a trace count with.
fn speed(folder: &Path) -> Result<f64> {
    let path = folder.join("trace.json");
    if !path.exists() {
        return Ok(0.0);
    }
    let text = crate::read_text(&path)?;
    let fail = |reason: String| Error::Cluster {
        what: path.display().to_string(),
        reason,
    };
    let about: About = serde_json::from_str(&text).map_err(|error| fail(error.to_string()))?;
    if !about.replay.usable {
        return Err(fail(format!(
            "the trace cannot be replayed: {}",
            about.replay.reasons.join("; ")
        )));
    }
    match about.replay.flops_per_second {
        speed if speed.is_finite() && speed > 0.0 => Ok(speed),
        speed => Err(fail(format!("flops_per_second is {speed}"))),
    }
}

fn read_rank(path: &Path, rank: usize, ranks: usize, budget: &mut usize) -> Result<Vec<Op>> {
    let cannot = |source| Error::File {
        action: "read",
        path: path.to_owned(),
        source,
    };
    let mut reader = BufReader::new(File::open(path).map_err(cannot)?);
    let (mut ops, mut line, mut number, mut ended) = (Vec::new(), String::new(), 0, false);
    loop {
        line.clear();
        let mut limited = std::io::Read::take(&mut reader, MAX_LINE_BYTES as u64);
        if limited.read_line(&mut line).map_err(cannot)? == 0 {
            break;
        }
        number += 1;
        let fail = |reason: String| Error::Program {
            what: path.display().to_string(),
            line: number,
            reason,
        };
        if !line.ends_with('\n') {
            return Err(fail("the file is cut in the middle of a line".to_owned()));
        }
        let text = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = text.split_whitespace().collect();
        let Some((first, words)) = words.split_first() else {
            continue;
        };
        if first.parse() != Ok(rank) {
            return Err(fail(format!(
                "`{first}` is not rank {rank}, whose file this is"
            )));
        }
        *budget = budget
            .checked_sub(1)
            .ok_or_else(|| fail(format!("more than {MAX_ACTIONS} actions in all")))?;
        ended |= words.first() == Some(&"finalize");
        ops.extend(action(words, rank as u32, ranks as u32).map_err(fail)?);
    }
    match ended || ops.is_empty() {
        true => Ok(ops),
        false => Err(Error::Program {
            what: path.display().to_string(),
            line: number,
            reason: "the trace ends without `finalize`: the rank died, or the file is cut"
                .to_owned(),
        }),
    }
}

fn action(words: &[&str], rank: u32, ranks: u32) -> Result<Option<Op>, String> {
    let (name, arguments) = words.split_first().ok_or("a rank without an action")?;
    let read = Arguments {
        name,
        arguments,
        ranks,
    };
    let collective = |call| {
        Ok(Some(Op::Collective {
            call,
            communicator: 0,
        }))
    };
    let op = match *name {
        "init" | "finalize" | "comm_size" | "comm_split" | "comm_dup" | "location" => {
            return Ok(None);
        }
        "test" | "testall" | "testany" => return Ok(None),
        "compute" => Op::Compute {
            ops: read.amount(0)?,
        },
        "send" | "isend" => {
            let (to, tag, bytes) = (read.rank(0)?, read.tag(1)?, read.bytes(2, 3)?);
            match *name {
                "send" => Op::Send { to, tag, bytes },
                _ => Op::Isend { to, tag, bytes },
            }
        }
        "recv" | "irecv" => {
            let (from, tag, bytes) = (read.rank(0)?, read.tag(1)?, read.bytes(2, 3)?);
            match *name {
                "recv" => Op::Recv { from, tag, bytes },
                _ => Op::Irecv { from, tag, bytes },
            }
        }
        "wait" => {
            let (from, to, tag) = (read.rank(0)?, read.rank(1)?, read.tag(2)?);
            match (from == rank, to == rank) {
                (_, true) => Op::Wait {
                    peer: from,
                    tag,
                    sent: false,
                },
                (true, false) => Op::Wait {
                    peer: to,
                    tag,
                    sent: true,
                },
                (false, false) => return Err("a wait for a request of other ranks".to_owned()),
            }
        }
        "waitall" | "waitAll" => Op::WaitAll,
        "barrier" => return collective(Call::Barrier),
        "bcast" => {
            return collective(Call::Bcast {
                bytes: read.bytes(0, 2)?,
                root: read.root(1)?,
            });
        }
        "reduce" => {
            return collective(Call::Reduce {
                bytes: read.bytes(0, 3)?,
                root: read.root(2)?,
            });
        }
        "allreduce" => {
            return collective(Call::Allreduce {
                bytes: read.bytes(0, 2)?,
            });
        }
        "alltoall" | "allToAll" => {
            return collective(Call::Alltoall {
                bytes: read.bytes(0, 2)?,
            });
        }
        "alltoallv" | "allToAllV" => {
            let n = ranks as usize;
            return collective(Call::Alltoallv {
                send: read.sizes(1, 2 * n + 2)?,
                receive: read.sizes(n + 2, 2 * n + 3)?,
            });
        }
        "allgather" | "allGather" => {
            return collective(Call::Allgather {
                bytes: read.bytes(0, 2)?,
            });
        }
        "allgatherv" | "allGatherV" => {
            // The ring passes blocks of different sizes; their mean keeps the sum.
            let sizes = read.sizes(1, ranks as usize + 1)?;
            let sum: u64 = sizes.iter().fold(0, |sum, size| sum.saturating_add(*size));
            return collective(Call::Allgather {
                bytes: sum / u64::from(ranks),
            });
        }
        "gather" => {
            return collective(Call::Gather {
                bytes: read.bytes(0, 3)?,
                root: read.root(2)?,
            });
        }
        "scatter" => {
            return collective(Call::Scatter {
                bytes: read.bytes(0, 3)?,
                root: read.root(2)?,
            });
        }
        "reducescatter" | "reduceScatter" => {
            let sizes = read.sizes(0, ranks as usize + 1)?;
            let sum: u64 = sizes.iter().fold(0, |sum, size| sum.saturating_add(*size));
            return collective(Call::ReduceScatter {
                bytes: sum / u64::from(ranks),
            });
        }
        "scan" | "exscan" => {
            return collective(Call::Scan {
                bytes: read.bytes(0, 2)?,
            });
        }
        other => return Err(format!("the action `{other}` is not known")),
    };
    Ok(Some(op))
}

struct Arguments<'a> {
    name: &'a str,
    arguments: &'a [&'a str],
    ranks: u32,
}

impl Arguments<'_> {
    fn word(&self, index: usize) -> Result<&str, String> {
        let word = self.arguments.get(index).copied();
        word.ok_or_else(|| format!("`{}` lacks its argument {}", self.name, index + 1))
    }

    fn amount(&self, index: usize) -> Result<f64, String> {
        let word = self.word(index)?;
        match word.parse::<f64>() {
            Ok(value) if value.is_finite() && (0.0..=1e18).contains(&value) => Ok(value),
            _ => Err(format!("`{word}` is no amount of `{}`", self.name)),
        }
    }

    /// A count of elements; the size of one is that of the datatype, if the line has one.
    fn bytes(&self, index: usize, datatype: usize) -> Result<u64, String> {
        Ok(self.amount(index)? as u64 * self.element_bytes(datatype)?)
    }

    fn element_bytes(&self, index: usize) -> Result<u64, String> {
        // SimGrid's numbers of datatypes; bytes where there is none.
        match self.arguments.get(index).copied() {
            None | Some("2" | "6") => Ok(1),
            Some("0" | "4") => Ok(8),
            Some("1" | "5") => Ok(4),
            Some("3") => Ok(2),
            Some(other) => Err(format!(
                "datatype `{other}` of `{}` is not known",
                self.name
            )),
        }
    }

    fn rank(&self, index: usize) -> Result<u32, String> {
        let word = self.word(index)?;
        match word.parse::<u32>() {
            Ok(rank) if rank < self.ranks => Ok(rank),
            _ => Err(format!(
                "`{word}` of `{}` is no rank of {}",
                self.name, self.ranks
            )),
        }
    }

    fn root(&self, index: usize) -> Result<u32, String> {
        match self.arguments.get(index) {
            None => Ok(0),
            Some(_) => self.rank(index),
        }
    }

    fn tag(&self, index: usize) -> Result<u32, String> {
        let word = self.word(index)?;
        match word.parse::<u32>() {
            Ok(tag) if tag < TAG => Ok(tag),
            _ => Err(format!(
                "`{word}` of `{}` is no tag that was used",
                self.name
            )),
        }
    }

    fn sizes(&self, first: usize, datatype: usize) -> Result<Arc<[u64]>, String> {
        let element = self.element_bytes(datatype)?;
        (first..first + self.ranks as usize)
            .map(|index| Ok(self.amount(index)? as u64 * element))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(ranks: &[&str]) -> Result<Program> {
        let folder = tempfile::tempdir().unwrap();
        let mut list = String::new();
        for (rank, text) in ranks.iter().enumerate() {
            std::fs::write(folder.path().join(format!("r{rank}")), text).unwrap();
            list += &format!("r{rank}\n");
        }
        let path = folder.path().join("replay.txt");
        std::fs::write(&path, list).unwrap();
        Program::from_trace(&path)
    }

    #[test]
    fn receives_get_the_size_that_was_sent() {
        let program = trace(&[
            "0 init\n0 compute 5e6\n0 isend 1 7 100\n0 wait 0 1 7\n0 allreduce 2 0 0\n0 finalize\n",
            "1 init\n1 recv 0 7 4096\n1 allreduce 2 0 0\n1 finalize\n",
        ])
        .unwrap();
        assert_eq!(
            program.start[1][0],
            Op::Recv {
                from: 0,
                tag: 7,
                bytes: 100
            }
        );
        assert_eq!(program.ops(0), 5e6);
        let sixteen = Call::Allreduce { bytes: 16 };
        assert_eq!(
            program.start[0][3],
            Op::Collective {
                call: sixteen,
                communicator: 0
            }
        );
    }

    #[test]
    fn messages_to_oneself_have_two_ends_to_wait_for() {
        let text = "0 init\n0 irecv 0 3 8\n0 isend 0 3 8\n0 wait 0 0 3\n0 wait 0 0 3\n0 finalize\n";
        let program = trace(&[text]).unwrap();
        let waits: Vec<&Op> = program.start[0]
            .iter()
            .filter(|op| matches!(op, Op::Wait { .. }))
            .collect();
        let wait = |sent| Op::Wait {
            peer: 0,
            tag: 3,
            sent,
        };
        assert_eq!(waits, [&wait(false), &wait(true)]);
    }

    #[test]
    fn wrong_traces_say_where_and_why() {
        let reason = |ranks: &[&str]| trace(ranks).unwrap_err().to_string();
        assert!(reason(&["0 send 0 1"]).contains("line 1: the file is cut"));
        assert!(reason(&["0 compute 1\n"]).contains("without `finalize`"));
        assert!(reason(&["0 compute nan\n"]).contains("no amount"));
        assert!(reason(&["0 send 9 0 1\n"]).contains("no rank of 1"));
        assert!(reason(&["1 init\n"]).contains("not rank 0"));
        assert!(reason(&["0 dance\n"]).contains("`dance`"));
        assert!(reason(&["0 recv 0 -1 5\n"]).contains("no tag"));
        let end = "0 finalize\n";
        assert!(reason(&[&format!("0 recv 0 1 5\n{end}")]).contains("than are sent"));
        assert!(reason(&[&format!("0 send 0 1 5\n{end}")]).contains("never received"));
        assert!(reason(&[&format!("0 wait 0 0 5\n{end}")]).contains("has not made"));
        assert!(reason(&[&format!("0 barrier\n{end}"), "1 finalize\n"]).contains("collective 1"));
        assert!(Program::from_trace(Path::new("/nonexistent")).is_err());
    }
}
