//! `towline slurm account`: what jobs used of standing servers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;

use super::Used;
use crate::cli::SlurmAccountOptions;
use crate::table::{self, Table};

/// One job, as `--json` prints it.
#[derive(Serialize)]
struct Account<'a> {
    job: u64,
    cluster: &'a str,
    #[serde(flatten)]
    used: &'a Used,
}

pub(super) fn run(options: &SlurmAccountOptions) -> anyhow::Result<ExitCode> {
    let mut jobs = BTreeMap::new();
    let mut status = ExitCode::SUCCESS;
    for file in &options.logs {
        let action = || format!("could not read {}", file.display());
        let mut log = BufReader::new(File::open(file).with_context(action)?);
        if is_compressed(log.fill_buf().with_context(action)?) {
            eprintln!("towline: {} is compressed; it is left out", file.display());
            status = ExitCode::FAILURE;
            continue;
        }
        add(log, &mut jobs).with_context(action)?;
    }
    jobs.retain(|(_, job), _| options.job.is_none_or(|wanted| wanted == *job));
    let accounts = jobs.iter().map(|((cluster, job), used)| Account {
        job: *job,
        cluster,
        used,
    });
    if options.json {
        let accounts: Vec<_> = accounts.collect();
        say!("{}", serde_json::to_string_pretty(&accounts)?);
        return Ok(status);
    }
    let mut table = Table::new([
        ">JOB",
        "CLUSTER",
        ">SESSIONS",
        ">BUSY",
        ">PEAK MEMORY",
        ">RECEIVED",
        ">SENT",
    ]);
    for Account { job, cluster, used } in accounts {
        table.add(vec![
            job.to_string(),
            cluster.to_owned(),
            used.sessions.to_string(),
            table::duration((used.device_seconds * 1000.0) as u64),
            table::bytes(used.device_memory_peak),
            table::bytes(used.received_bytes),
            table::bytes(used.sent_bytes),
        ]);
    }
    let text = table.render_within(table::terminal_columns(), &[]);
    say!("{}", text.trim_end());
    Ok(status)
}

/// Whether a file that begins so is one of gzip, Zstandard or xz.
fn is_compressed(begin: &[u8]) -> bool {
    let marks: [&[u8]; 3] = [b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xfd7zXZ"];
    marks.iter().any(|mark| begin.starts_with(mark))
}

/// Adds what the sessions of jobs used that have ended, by cluster and job. A requeued job has its number once more.
fn add(log: impl BufRead, jobs: &mut BTreeMap<(String, u64), Used>) -> std::io::Result<()> {
    let of = |line: &[u8]| {
        let event: serde_json::Value = serde_json::from_slice(line).ok()?;
        let used = Used::of_event(&event)?;
        let lease = event["tenant"].as_str()?.strip_prefix("slurm-")?;
        let (cluster, run) = lease.rsplit_once('-')?;
        let job = run.split_once('.').map_or(run, |(job, _)| job);
        Some(((cluster.to_owned(), job.parse().ok()?), used))
    };
    // A line that was damaged need not be text.
    for line in log.split(b'\n') {
        if let Some((key, used)) = of(&line?) {
            jobs.entry(key).or_default().add(&used);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_added_by_job() {
        let ended = |tenant: &str| {
            format!(
                "{{\"event\":\"session_ended\",\"tenant\":\"{tenant}\",\"device_seconds\":1.5,\"device_memory_peak\":7,\"received_bytes\":1,\"sent_bytes\":2}}\n"
            )
        };
        let log = [
            ended("slurm-my-lab-7"),
            "rubbish\n".to_owned(),
            // The same job, once more.
            ended("slurm-my-lab-7.1"),
            ended("slurm-my-lab-8"),
            ended("anna"),
            ended("slurm-x"),
        ];
        let mut jobs = BTreeMap::new();
        let log = [b"\xff\n", log.concat().as_bytes()].concat();
        add(&log[..], &mut jobs).unwrap();
        assert!(is_compressed(b"\x1f\x8b\x08") && !is_compressed(&log));
        let found: Vec<_> = jobs
            .iter()
            .map(|((cluster, job), used)| (cluster.as_str(), *job, used.sessions, used.sent_bytes))
            .collect();
        assert_eq!(found, [("my-lab", 7, 2, 4), ("my-lab", 8, 1, 2)]);
    }
}
