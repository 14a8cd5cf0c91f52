//! `towline calibrate`: what a socket of this machine is worth to n copies of a program.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use towline_progress::Progress;

use super::place::{print, print_json};
use crate::calibrate::{self, Curve, MAX_COPIES};
use crate::{Error, Result, units};

/// Options of `towline calibrate`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Most copies at once; the cores of a socket by default
    #[arg(long, value_name = "N")]
    copies: Option<usize>,
    /// How often each count is measured; the least time is kept
    #[arg(long, value_name = "N", default_value_t = 3)]
    repeat: usize,
    /// Seconds after which a copy is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// Write the curve as a table, too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
    /// Be one copy of what is measured when no program is given
    #[arg(long, hide = true)]
    triad: bool,
    /// The program, run on one core; without it, a triad over arrays larger than caches
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// What a copy of the triad goes through: about a second.
const TURNS: u32 = 40;

/// `towline calibrate`.
pub fn run(options: &Options) -> Result<ExitCode> {
    if options.triad {
        std::hint::black_box(calibrate::triad(TURNS));
        return Ok(ExitCode::SUCCESS);
    }
    let mut cores = calibrate::socket_cores()?;
    match options.copies {
        Some(copies) if copies == 0 || copies > cores.len().min(MAX_COPIES) => {
            return Err(Error::Size(format!(
                "{copies} copies: the socket has {} cores, and each copy needs one of its own",
                cores.len()
            )));
        }
        Some(copies) => cores.truncate(copies),
        None => cores.truncate(MAX_COPIES),
    }
    let limit = Duration::from_secs(options.limit);
    let progress = Progress::new(!options.json);
    progress.tell(format!(
        "measuring 1 to {} copies, each {} times",
        cores.len(),
        options.repeat
    ));
    let curve = calibrate::measure(&options.command, &cores, options.repeat, limit)?;
    if let Some(path) = &options.out {
        std::fs::write(path, table(&curve)).map_err(|source| Error::File {
            action: "write",
            path: path.clone(),
            source,
        })?;
    }
    progress.clear();
    match options.json {
        true => print_json(&Report::of(&curve)),
        false => print(&(table(&curve) + "\n" + &verdict(&curve))),
    }
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    /// With 1, 2, ... copies: seconds of the slowest.
    seconds: &'a [f64],
    /// Cores' worth of work that as many copies got.
    cores_worth: &'a [f64],
    /// The value for `--saturation`; null where the socket is not saturated.
    saturation: Option<f64>,
    /// Root of the mean square of the fit's relative errors.
    error: f64,
}

impl<'a> Report<'a> {
    fn of(curve: &'a Curve) -> Self {
        Self {
            seconds: &curve.seconds,
            cores_worth: &curve.capacity,
            saturation: (!curve.is_open()).then_some(curve.saturation),
            error: curve.error,
        }
    }
}

fn table(curve: &Curve) -> String {
    let mut text = String::from("copies\tseconds\tcores_worth\tfitted\n");
    for ((n, seconds), capacity) in (1..).zip(&curve.seconds).zip(&curve.capacity) {
        let fitted = f64::from(n).min(curve.saturation);
        text += &format!("{n}\t{seconds:.4}\t{capacity:.3}\t{fitted:.3}\n");
    }
    text
}

fn verdict(curve: &Curve) -> String {
    let most = curve.capacity.len();
    let mut text = format!(
        "With all {most} copies each takes {} instead of {}.\n",
        units::seconds(curve.seconds.last().copied().unwrap_or_default()),
        units::seconds(curve.seconds.first().copied().unwrap_or_default())
    );
    text += &match curve.is_open() {
        true => format!("The socket is not saturated by {most} copies: nothing to declare.\n"),
        false => format!(
            "The socket is worth {:.2} cores: use --saturation {0:.2} (the fit is off by {1:.1} %).\n",
            curve.saturation,
            100.0 * curve.error
        ),
    };
    text
}
