//! `towline bench net`: latency and bandwidth of each pair of this machine and a server, as the papers' iperf gives them.
//!
//! A server answers no plain TCP measurements, so that strangers have less to talk to. Plain figures therefore come from a peer:
//! one that runs beside the server (`towline bench peer`, given by --peer), or one that is started here for a server on loopback.
//! Against a server alone, the time to connect and the round trip of a control message are measured.

use std::io::IoSlice;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use towline_client::access::Access;
use towline_client::dial::knock;
use towline_progress::Progress;
use towline_transport::{Address, ConnectOptions, Connection, Registry};
use towline_wire::control::{Message, MessageBuffer, Purpose, Token};

use crate::cpu::{self, CpuSeconds};
use crate::machine::{self, Machine};
use crate::peer::{Direction, Memory, Peer, Streams};
use crate::report::{Figure, Leg, Report, SCHEMA};
use crate::stats::Summary;

/// How long a server may take for an answer.
const LIMIT: Duration = Duration::from_secs(10);
/// Counts of streams, as in the tables of the project.
const STREAMS: [usize; 4] = [1, 2, 4, 8];
/// Repetitions of every figure.
const REPETITIONS: usize = 7;
/// Round trips in one repetition.
const PINGS: usize = 200;

/// `towline bench net`.
#[derive(Args, Debug)]
pub struct Options {
    /// Servers, separated by commas: HOST:PORT, or local
    #[arg(
        long = "server",
        value_name = "ADDR",
        value_delimiter = ',',
        required = true,
        env = "TOWLINE_SERVERS"
    )]
    servers: Vec<Address>,
    /// A `towline bench peer` beside each server, in the same order
    #[arg(long = "peer", value_name = "ADDR", value_delimiter = ',')]
    peers: Vec<String>,
    /// File with the secret that the servers share
    #[arg(long, value_name = "FILE", env = "TOWLINE_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Bytes of one bandwidth measurement
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = clap::value_parser!(u64).range(1 << 20..=16 << 30))]
    bytes: u64,
    /// Also write the results as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if !options.peers.is_empty() && options.peers.len() != options.servers.len() {
        bail!(
            "{} peers for {} servers: give one for each",
            options.peers.len(),
            options.servers.len()
        );
    }
    let token = options
        .token_file
        .as_deref()
        .map(|file| {
            let bytes = std::fs::read(file)
                .with_context(|| format!("could not use the token file {}", file.display()))?;
            Token::from_bytes(&bytes)
                .with_context(|| format!("could not use the token file {}", file.display()))
        })
        .transpose()?;
    let (start, started) = (Instant::now(), machine::now_utc());
    let progress = Progress::new(true);
    let mut notes = Vec::new();
    let mut figures = Vec::new();
    for (index, server) in options.servers.iter().enumerate() {
        let section = format!("{server} from here");
        let mut pair = Pair {
            id: format!("net.{index}"),
            section,
            figures: &mut figures,
            progress: &progress,
        };
        let access = Access::from_environment(server, token.clone())?;
        pair.session(server, &access)?;
        let here = match server.scheme() {
            "tcp" => tcp_address(server)?.ip().is_loopback(),
            // Beside shared memory stands what loopback gives.
            _ => server.scheme() == "shm",
        };
        let (_process, peer) = match options.peers.get(index) {
            Some(peer) => (None, Some(resolve(peer)?)),
            None if here => {
                let peer = Peer::start()?;
                let address = peer.address;
                (Some(peer), Some(address))
            }
            None => (None, None),
        };
        match peer {
            Some(peer) => pair.plain(peer, options.bytes)?,
            None => notes.push(format!(
                "{server}: no plain bandwidth; start `towline bench peer --listen 0.0.0.0:7141` there and give it as --peer"
            )),
        }
    }
    let report = Report {
        schema: SCHEMA,
        kind: "net".into(),
        started,
        seconds: start.elapsed().as_secs_f64(),
        quick: false,
        version: env!("CARGO_PKG_VERSION").into(),
        machine: Machine::here(),
        servers: options.servers.iter().map(Address::to_string).collect(),
        link: None,
        devices: std::collections::BTreeMap::new(),
        figures,
        notes,
    };
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(file, text + "\n")
            .with_context(|| format!("could not write {}", file.display()))?;
    }
    progress.clear();
    print!("{}", report.render());
    Ok(ExitCode::SUCCESS)
}

fn resolve(address: &str) -> anyhow::Result<SocketAddr> {
    let found = address
        .to_socket_addrs()
        .with_context(|| format!("could not find {address}"))?
        .next();
    found.with_context(|| format!("{address} has no address"))
}

fn tcp_address(server: &Address) -> anyhow::Result<SocketAddr> {
    let text = server.to_string();
    let host = text
        .strip_prefix("tcp://")
        .with_context(|| format!("{server} is not reached by TCP"))?;
    resolve(host)
}

/// This machine and one server.
struct Pair<'a> {
    id: String,
    section: String,
    figures: &'a mut Vec<Figure>,
    progress: &'a Progress,
}

impl Pair<'_> {
    /// Measures something several times, after once to warm up.
    fn figure(
        &mut self,
        id: &str,
        title: &str,
        unit: &str,
        mut once: impl FnMut() -> anyhow::Result<f64>,
    ) -> anyhow::Result<()> {
        self.progress.tell(format!("{}: {title}", self.section));
        once()?;
        let (wall, client, machine) = (Instant::now(), cpu::of_self(), cpu::of_machine());
        let values = (0..REPETITIONS)
            .map(|_| once())
            .collect::<anyhow::Result<Vec<f64>>>()?;
        let leg = Leg {
            summary: Summary::of(&values).context("nothing measured")?,
            cpu: CpuSeconds {
                wall_s: wall.elapsed().as_secs_f64(),
                client_s: cpu::of_self() - client,
                server_s: None,
                system_s: cpu::of_machine() - machine,
            },
            compute_share: None,
        };
        self.figures.push(Figure {
            id: format!("{}.{id}", self.id),
            section: self.section.clone(),
            title: title.into(),
            paper: None,
            unit: unit.into(),
            legs: [("tcp".to_owned(), leg)].into(),
            ratios: Default::default(),
            bars: Vec::new(),
        });
        Ok(())
    }

    /// What a server itself answers.
    fn session(&mut self, server: &Address, access: &Access) -> anyhow::Result<()> {
        let options = ConnectOptions {
            timeout: LIMIT,
            ..ConnectOptions::control()
        };
        self.figure("connect", "connection made", "us", || {
            let start = Instant::now();
            Registry::global()
                .connect(server, &options)
                .with_context(|| format!("could not reach {server}"))?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        })?;
        self.figure("handshake", "handshake with device list", "us", || {
            let start = Instant::now();
            Control::connect(server, access)?;
            Ok(start.elapsed().as_secs_f64() * 1e6)
        })?;
        let mut control = Control::connect(server, access)?;
        self.figure("control", "round trip of a status request", "us", || {
            median_us(|| control.status())
        })
    }

    /// Plain TCP.
    fn plain(&mut self, peer: SocketAddr, bytes: u64) -> anyhow::Result<()> {
        let mut one = Streams::connect(peer, 1)?;
        self.figure("round_trip", "round trip of 64 B, plain TCP", "us", || {
            let times = (0..PINGS)
                .map(|_| one.round_trip_us(64))
                .collect::<anyhow::Result<Vec<f64>>>()?;
            crate::stats::median(&times).context("nothing measured")
        })?;
        for direction in Direction::ALL {
            for count in STREAMS {
                let mut streams = Streams::connect(peer, count)?;
                let (id, title) = (
                    format!("{}.{count}", direction.name()),
                    format!("{}, {count} plain TCP streams", direction.name()),
                );
                self.figure(&id, &title, "GB/s", || {
                    let seconds = streams.transfer_s(direction, Memory::Cached, bytes)?;
                    Ok(bytes as f64 / seconds * 1e-9)
                })?;
            }
        }
        Ok(())
    }
}

fn median_us(mut once: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<f64> {
    let mut times = Vec::with_capacity(PINGS);
    for _ in 0..PINGS {
        let start = Instant::now();
        once()?;
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    crate::stats::median(&times).context("nothing measured")
}

/// A control connection that asks without taking a worker.
struct Control {
    connection: std::sync::Arc<dyn Connection>,
    buffer: MessageBuffer,
}

impl Control {
    fn connect(address: &Address, access: &Access) -> anyhow::Result<Self> {
        let opened = knock(address, access, Purpose::Query)?;
        Ok(Self {
            connection: opened.connection,
            buffer: opened.buffer,
        })
    }

    fn status(&mut self) -> anyhow::Result<()> {
        self.send(&Message::StatusRequest.encode())?;
        match Message::decode(&self.frame()?)? {
            Message::Status(_) => Ok(()),
            other => bail!(
                "the server answered with {} instead of its status",
                other.name()
            ),
        }
    }

    fn send(&self, frame: &[u8]) -> anyhow::Result<()> {
        Ok(self.connection.send(&[IoSlice::new(frame)])?)
    }

    fn frame(&mut self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.buffer.next_frame()? {
                return Ok(frame);
            }
            if !self.connection.wait_readable(Some(LIMIT))? {
                bail!("the server did not answer within {} s", LIMIT.as_secs());
            }
            match self.connection.recv(&mut bytes)? {
                0 => bail!("the server closed the connection; its log says why"),
                count => self.buffer.push(&bytes[..count]),
            }
        }
    }
}
