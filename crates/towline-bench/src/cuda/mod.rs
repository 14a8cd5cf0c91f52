//! `towline bench cuda`: what CUDA's driver interface costs natively and through Towline, in turns.
//!
//! [`legs`] knows which driver each leg sees and gives them their turns; [`leg`] is the child that measures; [`sections`] says what
//! is measured; [`bars`] holds it against what the project promises.

mod bars;
mod device;
mod leg;
mod legs;
mod sections;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

use self::bars::{Basis, Between};
pub use self::leg::LegOptions;
pub(crate) use self::leg::run as run_leg;
use self::leg::{Description, Task};
use self::legs::{LegKind, Legs};
use self::sections::Run;
use crate::machine::{self, Machine};
use crate::peer::{Peer, Streams};
use crate::report::{Report, SCHEMA};
use crate::server::{Over, Server, ServerSpec};

/// Bytes of a TCP round trip.
const PING_BYTES: usize = 64;

/// `towline bench cuda`.
#[derive(Args, Debug)]
#[command(
    after_help = "Runs for some minutes (--quick: about one). The machine should have nothing else to do. Without --server it \
                        starts a server of its own and talks to it over loopback, or with --over shm through shared memory."
)]
pub struct Options {
    /// Server to measure instead of one started here; its first device is used
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// What goes between the legs and the server that is started here
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Over::Tcp, conflicts_with = "server")]
    over: Over,
    /// Driver to measure: auto is libcuda.so.1 as this system finds it, null a device in host memory; or a path
    #[arg(long, value_name = "auto|null|PATH", default_value = "auto")]
    cuda: String,
    /// Number of the device to measure
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// Payload connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=32))]
    streams: u16,
    /// Legs to measure
    #[arg(long, value_name = "LEG", value_delimiter = ',', value_enum, default_values_t = LegKind::value_variants().to_vec())]
    legs: Vec<LegKind>,
    /// Sections to measure
    #[arg(long, value_name = "SECTION", value_delimiter = ',', value_enum, default_values_t = Section::value_variants().to_vec())]
    only: Vec<Section>,
    /// Fewer repetitions, sizes and clients
    #[arg(long)]
    quick: bool,
    /// Stop measuring after so many seconds, and report what there is by then
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End with status 1 when a promise is not kept
    #[arg(long)]
    check: bool,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Section {
    /// Start of a process, with a new image and with a known one
    Start,
    /// Launches: bursts, sustained, and waited for one by one
    Launch,
    /// Copies of 4 bytes that wait
    Small,
    /// Memory taken and given back
    Memory,
    /// Replays of a captured graph
    Graph,
    /// Bandwidth by message size, direction and kind of host memory
    Bandwidth,
    /// 1 to 16 clients on one device
    Clients,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let started = machine::now_utc();
    let scratch = tempfile::tempdir().context("no place for temporary files")?;
    let mut server = None;
    let (address, between) = match &options.server {
        Some(address) => (address.clone(), between(address)),
        None if options.legs.contains(&LegKind::Remote) => {
            let spec = ServerSpec {
                program: crate::child::this_program()?,
                cuda: Some(options.cuda.clone()),
                device: None,
                payload_lanes: usize::from(options.streams),
                over: options.over,
                ..ServerSpec::default()
            };
            let started = server.insert(Server::start(&spec, scratch.path())?);
            (started.address.clone(), between(&started.address))
        }
        None => (String::new(), Between::Other),
    };
    let driver = match options.cuda.as_str() {
        "auto" => "libcuda.so.1",
        named => named,
    };
    let limit = options.seconds.map(Duration::from_secs);
    let mut legs = Legs::new(
        driver.into(),
        address,
        server.iter().map(Server::pid).collect(),
        (
            options.device,
            if server.is_some() { options.device } else { 0 },
        ),
        options.legs.clone(),
        limit.map(|limit| start + limit),
    );
    let descriptions = describe(&mut legs).inspect_err(|_| {
        for words in server.iter_mut().filter_map(Server::last_words) {
            eprintln!("towline bench: {words}");
        }
    })?;
    let all = || descriptions.values();
    let mut run = Run {
        quick: options.quick,
        // As many messages on the device as legs.
        most_bytes: all().map(|found| found.free_bytes / 4).min().unwrap_or(0),
        basis: Basis {
            gpu: all().any(|found| found.facts.gpu),
            between,
            round_trip_us: round_trip_us(&mut legs),
        },
        salt: salt(),
        figures: Vec::new(),
        legs,
    };
    measure(&mut run, &options.only);
    run.legs.rest();
    for words in server.iter_mut().filter_map(Server::last_words) {
        run.legs.note(words);
    }
    if let Some(us) = run.basis.round_trip_us {
        run.legs.note(format!(
            "a round trip of {PING_BYTES} bytes over plain TCP on this machine takes {us:.1} us"
        ));
    }
    let report = Report {
        schema: SCHEMA,
        kind: "cuda".into(),
        started,
        seconds: start.elapsed().as_secs_f64(),
        quick: options.quick,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::here(),
        servers: options.server.iter().cloned().collect(),
        link: None,
        devices: descriptions
            .into_iter()
            .map(|(leg, found)| (leg.name().to_owned(), found.facts))
            .collect(),
        figures: run.figures,
        notes: run.legs.notes,
    };
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, text + "\n")
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    run.legs.progress.clear();
    print!("{}", report.render());
    println!("{:.0} s", report.seconds);
    let (kept, made) = report.bars();
    Ok(ExitCode::from(u8::from(options.check && kept < made)))
}

fn measure(run: &mut Run, only: &[Section]) {
    for section in Section::value_variants() {
        if !only.contains(section) || run.legs.is_over() {
            continue;
        }
        run.legs.progress.tell(format!("{section:?}"));
        match section {
            Section::Start => run.start(),
            Section::Launch => run.launches(),
            Section::Small => run.small(),
            Section::Memory => run.memory(),
            Section::Graph => run.graph(),
            Section::Bandwidth => run.bandwidth(),
            Section::Clients => run.clients(),
        }
    }
}

/// What every leg says its device is. A leg without one is noted and does not take part.
fn describe(legs: &mut Legs) -> anyhow::Result<BTreeMap<LegKind, Description>> {
    let mut found = BTreeMap::new();
    for leg in legs.wanted.clone() {
        match legs.perform(leg, Task::Describe) {
            Ok((reading, _)) => {
                let description = reading
                    .device
                    .context("a leg did not describe its device")?;
                found.insert(leg, description);
            }
            Err(error) => {
                legs.note(format!("{}: {error:#}", leg.name()));
                legs.wanted.retain(|other| *other != leg);
            }
        }
    }
    if found.is_empty() {
        bail!("no leg has a device: {}", legs.notes.join("; "));
    }
    Ok(found)
}

/// Median of round trips over plain TCP between two processes here, which limits follow from.
fn round_trip_us(legs: &mut Legs) -> Option<f64> {
    let measured = || -> anyhow::Result<Vec<f64>> {
        let peer = Peer::start()?;
        let mut streams = Streams::connect(peer.address, 1)?;
        (0..1_000)
            .map(|_| streams.round_trip_us(PING_BYTES))
            .collect()
    };
    match measured() {
        Ok(times) => crate::stats::median(&times),
        Err(error) => {
            legs.note(format!("plain TCP: {error:#}"));
            None
        }
    }
}

/// What a server's address says about the way to it.
fn between(address: &str) -> Between {
    let host = address.trim_start_matches("tcp://");
    if address == "local" || address.starts_with("shm:") {
        Between::Shared
    } else if ["127.0.0.1:", "localhost:", "[::1]:"]
        .iter()
        .any(|loopback| host.starts_with(loopback))
    {
        Between::Loopback
    } else {
        Between::Other
    }
}

/// Something that no earlier run had.
fn salt() -> u64 {
    let mut bytes = [0; 8];
    // Without random numbers the time will do.
    if getrandom::fill(&mut bytes).is_err() {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        return now.map_or(1, |now| now.as_nanos() as u64);
    }
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_depend_on_the_way_to_the_server() {
        assert_eq!(between("127.0.0.1:7140"), Between::Loopback);
        assert_eq!(between("tcp://localhost:7140"), Between::Loopback);
        assert_eq!(between("local"), Between::Shared);
        assert_eq!(between("gpu1:7140"), Between::Other);
    }
}
