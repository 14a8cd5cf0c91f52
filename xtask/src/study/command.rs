//! `cargo xtask study`: goes on with a table of the study's points, and prints the page about it.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use towline_place::program::declared::Kernel;
use towline_place::simulate::Simulator;

use super::{HEADING, NETWORKS, Row, assumptions, page, points, sensitivity};

#[derive(Args, Clone, Debug)]
pub(crate) struct Options {
    /// Table to write; points that it has are not run again
    #[arg(long, value_name = "FILE")]
    table: PathBuf,
    /// Also over Gigabit Ethernet, which the study did not compare
    #[arg(long)]
    networks: bool,
    /// Also estimate everything with each assumed value 30 % lower and higher: which findings hang on it
    #[arg(long)]
    vary: bool,
    /// Leave out what has more tasks
    #[arg(long, value_name = "TASKS")]
    most: Option<usize>,
    /// Only these programs, separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Only these numbers of tasks, separated by commas
    #[arg(long, value_name = "TASKS", value_delimiter = ',')]
    sizes: Vec<usize>,
    /// The program towline-sim; else TOWLINE_SIM, else in PATH
    #[arg(long, value_name = "FILE")]
    simulator: Option<PathBuf>,
    /// Seconds after which a simulation is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
}

/// Plays what the table lacks, and prints what came out of all of it.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let limit = Duration::from_secs(options.limit);
    let simulator = Simulator::find(options.simulator.as_deref(), limit)?;
    let cannot = || format!("cannot write {}", options.table.display());
    let (done, whole) = read_table(&options.table)?;
    let is_new = !options.table.exists();
    let mut table = File::options()
        .append(true)
        .create(true)
        .open(&options.table)
        .with_context(cannot)?;
    if is_new {
        table.write_all(HEADING.as_bytes()).with_context(cannot)?;
    } else if !whole {
        table.write_all(b"\n").with_context(cannot)?;
    }
    let networks = if options.networks {
        &NETWORKS[..]
    } else {
        &NETWORKS[..1]
    };
    for name in &options.only {
        Kernel::named(name)?;
    }
    let mut points = points(networks);
    points.retain(|point| {
        options.most.is_none_or(|most| point.tasks <= most)
            && (options.sizes.is_empty() || options.sizes.contains(&point.tasks))
            && (options.only.is_empty()
                || options.only.iter().any(|name| name == point.kernel.name()))
    });
    let mut rows = Vec::new();
    for (index, point) in points.iter().enumerate() {
        let row = match done.iter().find(|row| row.is_of(point)) {
            Some(row) => row.clone(),
            None => {
                let row = super::run_point(&simulator, *point)?;
                table
                    .write_all(row.line().as_bytes())
                    .with_context(cannot)?;
                eprint!("[{}/{}] {}", index + 1, points.len(), row.line());
                row
            }
        };
        rows.push(row);
    }
    let mut text = page(&rows) + "\n" + &assumptions();
    if options.vary {
        let varied = sensitivity::variations().into_iter().map(super::estimate);
        text = text + "\n" + &sensitivity::page(&varied.collect::<Result<Vec<_>, _>>()?);
    }
    std::io::stdout()
        .write_all(text.as_bytes())
        .context("cannot write to the standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// The rows of an earlier run, as far as it came, and whether its last line is whole. A failed point and a half-written line are
/// done again.
fn read_table(path: &Path) -> Result<(Vec<Row>, bool)> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).context(format!("cannot read {}", path.display())),
    };
    if !text.is_empty() && !text.starts_with(HEADING) {
        bail!(
            "{} is no table of this study, or of an earlier version: name a new file",
            path.display()
        );
    }
    let rows = text.lines().skip(1).filter_map(Row::parse).collect();
    Ok((rows, text.is_empty() || text.ends_with('\n')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_was_cut_is_read_as_far_as_it_came() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("study.tsv");
        assert!(read_table(&path).unwrap().0.is_empty());
        let line = "study-qdr\tft\t16\trr:1\t\t33.5\t\t33.4\t\n";
        std::fs::write(&path, format!("{HEADING}{line}study-qdr\tft\t16")).unwrap();
        let (rows, whole) = read_table(&path).unwrap();
        assert_eq!((rows.len(), whole), (1, false));
        std::fs::write(&path, "network\tprogram\n").unwrap();
        let error = read_table(&path).unwrap_err().to_string();
        assert!(error.contains("name a new file"), "{error}");
    }
}
