//! `towline place`: where the tasks of a program should go, and the files that put them there.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use towline_progress::Progress;

use super::{Choice, Description, Work};
use crate::choose::{self, Candidate};
use crate::gpus;
use crate::{Error, Matrix, Result, launcher, picture, scotch, units};

/// Options of `towline place`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The cluster.
    #[command(flatten)]
    pub description: Description,
    /// Only these nodes of the cluster: node[00-03],node07
    #[arg(long, value_name = "LIST")]
    pub nodes: Option<String>,
    /// The program.
    #[command(flatten)]
    pub work: Work,
    /// The placements to try.
    #[command(flatten)]
    pub choice: Choice,
    /// Write launchers' files, placement.json and placement.svg into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    pub json: bool,
}

/// What `--json` prints and `placement.json` holds.
#[derive(Serialize)]
struct Report {
    format: &'static str,
    version: u32,
    cluster: String,
    program: String,
    explanation: String,
    scotch: Option<&'static str>,
    candidates: Vec<Row>,
    /// Node, core and hardware thread of each rank under the best.
    ranks: Vec<(String, u32, u32)>,
    gpus: Vec<Option<String>>,
}

#[derive(Serialize)]
struct Row {
    policy: String,
    seconds: f64,
    compute_seconds: f64,
    link_seconds: f64,
    latency_seconds: f64,
    gpu_seconds: f64,
    cross_share: f64,
    socket_ranks: u32,
    slowdown: f64,
}

/// `towline place`.
pub fn run(options: &Options) -> Result<ExitCode> {
    let cluster = options.description.read(options.nodes.as_deref())?;
    let (matrix, remark) = options.work.matrix()?;
    if let Some(remark) = remark {
        eprintln!("towline: {remark}");
    }
    let progress = Progress::new(!options.json);
    let candidates = options.choice.candidates(&cluster, &matrix, &progress)?;
    progress.clear();
    let Some(best) = candidates.first() else {
        return Err(Error::Size("no policy was asked for".to_owned()));
    };
    let explanation = choose::explain(&cluster, &matrix, &candidates);
    let names = |slot: gpus::GpuSlot| {
        let machine = match slot.home {
            gpus::Home::Node(node) => &cluster.nodes[node].name,
            gpus::Home::Server(server) => &cluster.gpu_servers[server].name,
        };
        format!("{machine}:{}", slot.index)
    };
    let report = Report {
        format: "towline-placement",
        version: 1,
        cluster: cluster.name.clone(),
        program: matrix.name.clone(),
        explanation: explanation.clone(),
        scotch: scotch::program(),
        candidates: candidates.iter().map(row).collect(),
        ranks: best
            .placement
            .slots
            .iter()
            .map(|slot| {
                (
                    cluster.nodes[slot.node as usize].name.clone(),
                    slot.core,
                    slot.thread,
                )
            })
            .collect(),
        gpus: match &best.gpus {
            Some(assignment) => assignment.gpus.iter().map(|slot| slot.map(names)).collect(),
            None => Vec::new(),
        },
    };
    let json = json(&report);
    if let Some(folder) = &options.out {
        let mut files = launcher::files(&cluster, &best.placement, best.gpus.as_ref());
        let caption = format!(
            "{} on {}: {}",
            matrix.name, cluster.name, best.placement.name
        );
        let svg = picture::draw(&cluster, &best.placement, best.gpus.as_ref(), &caption);
        files.files.push(("placement.svg", svg));
        files.files.push(("placement.json", json.clone()));
        files
            .files
            .push(("placement.txt", best.placement.table(&cluster)));
        files.write(folder)?;
        for missing in &files.missing {
            eprintln!("towline: not written: {missing}");
        }
    }
    let text = match options.json {
        true => json,
        false => table(&candidates, &matrix) + "\n" + &explanation,
    };
    print(&text)
}

pub(super) fn print_json(report: &impl Serialize) -> Result<ExitCode> {
    print(&json(report))
}

fn json(report: &impl Serialize) -> String {
    serde_json::to_string_pretty(report).expect("a report has only text and numbers") + "\n"
}

pub(super) fn print(text: &str) -> Result<ExitCode> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written
        .map(|()| ExitCode::SUCCESS)
        .map_err(|source| Error::File {
            action: "write",
            path: PathBuf::from("the standard output"),
            source,
        })
}

fn row(candidate: &Candidate) -> Row {
    let score = &candidate.score;
    Row {
        policy: candidate.placement.name.clone(),
        seconds: score.total_s,
        compute_seconds: score.compute_s,
        link_seconds: score.link_s,
        latency_seconds: score.latency_s,
        gpu_seconds: score.gpu_s,
        cross_share: score.cross_share(),
        socket_ranks: score.socket_ranks,
        slowdown: score.slowdown,
    }
}

fn table(candidates: &[Candidate], matrix: &Matrix) -> String {
    let mut text = format!("{}, {} ranks\n\n", matrix.name, matrix.ranks());
    text += &format!(
        "{:<10} {:>12} {:>12} {:>12} {:>12} {:>12} {:>8} {:>10}\n",
        "PLACEMENT", "ESTIMATE", "COMPUTE", "LINKS", "LATENCY", "GPU", "CROSSING", "PER SOCKET"
    );
    for candidate in candidates {
        let score = &candidate.score;
        text += &format!(
            "{:<10} {:>12} {:>12} {:>12} {:>12} {:>12} {:>6.1} % {:>10}\n",
            candidate.placement.name,
            units::seconds(score.total_s),
            units::seconds(score.compute_s),
            units::seconds(score.link_s),
            units::seconds(score.latency_s),
            units::seconds(score.gpu_s),
            100.0 * score.cross_share(),
            score.socket_ranks
        );
    }
    text
}
