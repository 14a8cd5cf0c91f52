//! `towline bench opencl`: the tables and figures of the VOCL paper in one run, native and through Towline in turns.
//!
//! [`legs`] knows which OpenCL each leg sees and gives them their turns; [`leg`] is the child that measures; [`sections`],
//! [`workloads`] and [`scaling`] say what is measured; [`bars`] holds it against what the project promises.

mod bars;
mod device;
mod leg;
mod legs;
mod scaling;
mod sections;
mod workloads;

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};

pub use self::leg::LegOptions;
pub(crate) use self::leg::run as run_leg;
use self::leg::{Description, Task};
use self::legs::{LegKind, Legs};
use self::sections::{Effort, OPENCL, Run};
use crate::library::Folders;
use crate::machine::{self, Machine};
use crate::peer::Peer;
use crate::proxy::{Link, Proxy};
use crate::report::{Report, SCHEMA};
use crate::server::{Over, Server, ServerSpec};

/// `towline bench opencl`.
#[derive(Args, Debug)]
#[command(
    after_help = "Runs for some minutes (--quick: about one). The machine should have nothing else to do. Without --server it \
                        starts servers of its own and talks to them over loopback."
)]
pub struct Options {
    /// Servers to measure instead of ones started here; their first device is used
    #[arg(long = "server", value_name = "ADDR", value_delimiter = ',')]
    servers: Vec<String>,
    /// Address of a `towline bench peer` beside those servers, for plain TCP
    #[arg(long, value_name = "ADDR", requires = "servers")]
    peer: Option<String>,
    /// What goes between the legs and servers that are started here
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Over::Tcp, conflicts_with_all = ["servers", "link"])]
    over: Over,
    /// Put a link of this speed and one-way delay between, as in 1G,100us
    #[arg(long, value_name = "RATE,DELAY", conflicts_with = "servers")]
    link: Option<Link>,
    /// Vendor library to measure [default: what /etc/OpenCL/vendors names]
    #[arg(long, value_name = "PATH")]
    icd: Vec<PathBuf>,
    /// Number of the device to measure
    #[arg(long, value_name = "N", default_value_t = 0)]
    device: usize,
    /// Payload connections, and plain TCP streams beside them
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=32))]
    streams: u16,
    /// Legs to measure
    #[arg(long, value_name = "LEG", value_delimiter = ',', value_enum, default_values_t = LegKind::value_variants().to_vec())]
    legs: Vec<LegKind>,
    /// Sections to measure
    #[arg(long, value_name = "SECTION", value_delimiter = ',', value_enum, default_values_t = Section::value_variants().to_vec())]
    only: Vec<Section>,
    /// Fewer repetitions, sizes and sections
    #[arg(long)]
    quick: bool,
    /// Stop measuring after so many seconds, and report what there is by then
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Folder of the workloads [default: build/workloads]
    #[arg(long, value_name = "DIR")]
    workloads: Option<PathBuf>,
    /// Most server processes for the speed-up over devices [default: GPUs, or cores up to 8]
    #[arg(long, value_name = "N")]
    devices: Option<usize>,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// End with status 1 when a promise is not kept
    #[arg(long)]
    check: bool,
    /// The `towline` program that serves [default: this one]
    #[arg(long, value_name = "PATH", hide = true)]
    towline: Option<PathBuf>,
}

/// A part of the run.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
enum Section {
    /// Cost per API function (Table 3), start of a client
    Calls,
    /// Launches, with and without cached arguments (Tables 1 and 2)
    Launch,
    /// Small transfers that wait
    Small,
    /// Bandwidth by message size (Figure 8)
    Bandwidth,
    /// Arithmetic and memory inside kernels
    Compute,
    /// CPU use of a session at rest
    Idle,
    /// The four application kernels (Figures 9 to 11)
    Workloads,
    /// Speed-up over devices (Figures 12 and 13)
    Scaling,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let start = Instant::now();
    let started = machine::now_utc();
    let folders = Folders::prepare(&options.icd)?;
    let mut surroundings = Surroundings::prepare(options, &folders)?;
    let mut legs = Legs::new(
        &folders,
        &options.legs,
        surroundings.servers.clone(),
        surroundings.server.iter().map(Server::pid).collect(),
        (options.device, surroundings.served_device),
        options
            .seconds
            .map(|seconds| start + Duration::from_secs(seconds)),
    );
    if options.legs.contains(&LegKind::Tcp) {
        match surroundings.peer_address {
            Some(address) => {
                // The peer moves into the leg, so it ends with it.
                let peer = surroundings.peer.take();
                legs.connect_tcp(peer, address, usize::from(options.streams))?;
            }
            None => legs.note("no plain TCP: give --peer to measure it beside --server".into()),
        }
    }
    let mut own_servers: Vec<Server> = surroundings.server.take().into_iter().collect();
    let (devices, sizing) = describe(&mut legs).inspect_err(|_| {
        for words in own_servers.iter_mut().filter_map(Server::last_words) {
            eprintln!("towline bench: {words}");
        }
    })?;
    let mut run = Run {
        effort: Effort {
            quick: options.quick,
            repetitions: if options.quick { 7 } else { 9 },
            window_bytes: window_bytes(options.link),
        },
        basis: bars::Basis {
            gpu: sizing.facts.gpu,
            loopback: options.servers.is_empty() && options.link.is_none(),
            ..bars::Basis::default()
        },
        max_allocation: sizing.max_allocation,
        compute_units: sizing.compute_units,
        double: sizing.facts.double,
        figures: Vec::new(),
        legs,
    };
    measure(&mut run, options, &folders)?;
    run.legs.rest();
    for words in own_servers.iter_mut().filter_map(Server::last_words) {
        run.legs.note(words);
    }
    let report = Report {
        schema: SCHEMA,
        kind: "opencl".into(),
        started,
        seconds: start.elapsed().as_secs_f64(),
        quick: options.quick,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::here(),
        servers: options.servers.clone(),
        link: options.link,
        devices,
        figures: run.figures,
        notes: run.legs.notes.clone(),
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

/// Most bytes of a window: beyond all caches, but no more than a link moves in a quarter of a second.
fn window_bytes(link: Option<Link>) -> usize {
    const UNSHAPED: usize = 256 << 20;
    let moved = link.map_or(UNSHAPED, |link| (link.bits_per_s / 8.0 / 4.0) as usize);
    // The largest power of two within.
    1 << moved.clamp(1 << 20, UNSHAPED).ilog2()
}

fn measure(run: &mut Run<'_>, options: &Options, folders: &Folders) -> anyhow::Result<()> {
    run.network();
    let workloads = workloads::find(options.workloads.as_deref());
    for section in Section::value_variants() {
        if !options.only.contains(section) {
            continue;
        }
        run.legs.progress.tell(format!("{section:?}"));
        match (section, &workloads) {
            (Section::Calls, _) => run.calls(),
            (Section::Launch, _) => run.launches(),
            (Section::Small, _) => run.small(),
            (Section::Bandwidth, _) => run.bandwidth(),
            (Section::Compute, _) => run.compute(),
            (Section::Idle, _) => run.idle(),
            (Section::Workloads | Section::Scaling, None) => run.legs.note(
                "the workloads are not built: run `make -C workloads/opencl` or name their folder with --workloads".into(),
            ),
            (Section::Workloads, Some(folder)) => run.workloads(folder),
            // Through a shaped link or with servers elsewhere, this machine's devices say nothing.
            (Section::Scaling, Some(_)) if !options.servers.is_empty() || options.link.is_some() => {}
            (Section::Scaling, Some(_)) if options.quick => {}
            (Section::Scaling, Some(workloads)) => {
                if let Err(error) = scale(run, options, folders, workloads) {
                    run.legs.note(format!("speed-up over devices: {error:#}"));
                }
            }
        }
    }
    Ok(())
}

fn scale(
    run: &mut Run<'_>,
    options: &Options,
    folders: &Folders,
    workloads: &std::path::Path,
) -> anyhow::Result<()> {
    if run.legs.wanted(&[LegKind::Remote]).is_empty() {
        return Ok(());
    }
    let machine = Machine::here();
    let available = if run.basis.gpu {
        machine.gpus.len()
    } else {
        machine.cores.min(8)
    };
    let most = options.devices.unwrap_or(available);
    if most < 2 {
        run.legs
            .note("one device only: no speed-up over devices measured".into());
        return Ok(());
    }
    let spec = server_spec(options, folders)?;
    let mut servers = scaling::start_servers(&spec, run.basis.gpu, most, folders.scratch())?;
    run.scaling(workloads, &servers);
    for words in servers.iter_mut().filter_map(Server::last_words) {
        run.legs.note(words);
    }
    Ok(())
}

fn server_spec(options: &Options, folders: &Folders) -> anyhow::Result<ServerSpec> {
    let program = match &options.towline {
        Some(program) => program.clone(),
        None => crate::child::this_program()?,
    };
    Ok(ServerSpec {
        program,
        icd: folders.native(),
        payload_lanes: usize::from(options.streams),
        over: options.over,
        ..ServerSpec::default()
    })
}

/// What every leg says its device is; and the one that sizes follow from.
fn describe(
    legs: &mut Legs<'_>,
) -> anyhow::Result<(BTreeMap<String, crate::report::Device>, Description)> {
    let mut devices = BTreeMap::new();
    let mut sizing = None;
    for leg in legs.wanted(&OPENCL) {
        match legs.perform(leg, &Task::Describe) {
            Ok((reading, _)) => {
                let description = reading
                    .device
                    .context("a leg did not describe its device")?;
                devices.insert(leg.name().to_owned(), description.facts.clone());
                sizing.get_or_insert(description);
            }
            Err(error) => legs.note(format!("{}: {error:#}", leg.name())),
        }
    }
    let Some(sizing) = sizing else {
        bail!("no leg has a device: {}", legs.notes.join("; "));
    };
    Ok((devices, sizing))
}

/// Server, TCP peer and link of a run.
struct Surroundings {
    server: Option<Server>,
    peer: Option<Peer>,
    /// For clients, separated by commas.
    servers: String,
    /// Number of the device there.
    served_device: usize,
    peer_address: Option<SocketAddr>,
}

impl Surroundings {
    fn prepare(options: &Options, folders: &Folders) -> anyhow::Result<Self> {
        if !options.servers.is_empty() {
            return Ok(Self {
                server: None,
                peer: None,
                servers: options.servers.join(","),
                served_device: 0,
                peer_address: options.peer.as_deref().map(resolve).transpose()?,
            });
        }
        let peer = Peer::start()?;
        let mut peer_address = peer.address;
        let remote =
            |leg: &LegKind| !matches!(leg, LegKind::Native | LegKind::Local | LegKind::Tcp);
        let mut server = None;
        let mut servers = String::new();
        if options.legs.iter().any(remote) && folders.towline.is_some() {
            let spec = ServerSpec {
                device: Some(options.device),
                ..server_spec(options, folders)?
            };
            let started = Server::start(&spec, folders.scratch())?;
            servers.clone_from(&started.address);
            server = Some(started);
        }
        if let Some(link) = options.link {
            // Server and peer are reached through one link, as if they were one machine.
            let proxy = Proxy::start(link)?;
            let any = SocketAddr::from(([127, 0, 0, 1], 0));
            peer_address = proxy.forward(any, peer_address)?;
            if !servers.is_empty() {
                let near = proxy.forward(any, resolve(&servers)?)?;
                servers = format!("tcp://{near}");
            }
        }
        Ok(Self {
            server,
            peer: Some(peer),
            servers,
            served_device: 0,
            peer_address: Some(peer_address),
        })
    }
}

/// The first address of HOST:PORT or tcp://HOST:PORT.
fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let host = address.trim_start_matches("tcp://");
    let mut found = host
        .to_socket_addrs()
        .with_context(|| format!("could not find {address}"))?;
    found
        .next()
        .with_context(|| format!("{address} has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_fit_the_link() {
        let window = |link: &str| window_bytes(Some(link.parse().unwrap()));
        assert_eq!(window_bytes(None), 256 << 20);
        assert_eq!(window("400M,200us"), 8 << 20);
        assert_eq!(window("10G,50us"), 256 << 20);
        assert_eq!(window("1M,50us"), 1 << 20);
    }

    #[test]
    fn addresses_may_name_their_scheme() {
        let expected: SocketAddr = "127.0.0.1:7140".parse().unwrap();
        assert_eq!(resolve("tcp://127.0.0.1:7140").unwrap(), expected);
        assert_eq!(resolve("127.0.0.1:7140").unwrap(), expected);
        assert!(resolve("nowhere").is_err());
    }
}
