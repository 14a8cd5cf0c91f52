//! Threads that ask servers, one for each, so that a server which hangs holds no other one up.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use anyhow::Context;
use towline_client::access::Access;
use towline_transport::Address;
use towline_wire::control::{Answer, Question, SHOWN_NAME, ServerIdentity, Status, printable};
use towline_wire::cuda;
use towline_wire::nvml::{
    self, DeviceGetMemoryInfo, DeviceGetMemoryInfoReply, DeviceGetUtilizationRates,
    DeviceGetUtilizationRatesReply, DeviceHandle, NVML_SUCCESS, Request,
};
use towline_wire::opencl::{CL_DEVICE_GLOBAL_MEM_SIZE, CL_DEVICE_NAME};
use towline_wire::snapshot::Snapshot;

use crate::ask::Server;

/// Devices of one server that are asked for figures: their questions fit one message.
const MOST_DEVICES: usize = 32;

/// News from a thread that asks a server.
pub(super) enum News {
    /// The server of this number has answered, or why not.
    Told(usize, Result<Box<Told>, String>),
    /// A session of the server of this number is gone, or why not.
    Killed(usize, u64, Result<(), String>),
    /// A session of the server of this number is at this address now, or why not.
    Moved(usize, u64, Result<String, String>),
}

/// The answer of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) identity: ServerIdentity,
    pub(super) status: Status,
    pub(super) devices: Vec<Device>,
}

/// A device, with figures as far as NVML has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Device {
    pub(super) name: String,
    /// In percent.
    pub(super) utilisation: Option<u32>,
    pub(super) used_bytes: Option<u64>,
    pub(super) total_bytes: Option<u64>,
}

/// Body of a server's thread: asks in each interval, and at once after a nudge, until nobody listens.
pub(super) fn watch(
    number: usize,
    address: &Address,
    access: &Access,
    interval: Duration,
    nudges: &Receiver<()>,
    news: &Sender<News>,
) {
    let mut line = None;
    loop {
        // A server may have closed a connection that it heard nothing of for long.
        let kept = line.take().and_then(|mut kept: Line| {
            let told = kept.ask().ok()?;
            Some((kept, told))
        });
        let asked = match kept {
            Some(answer) => Ok(answer),
            None => Line::open(address, access).and_then(|mut opened| {
                let told = opened.ask()?;
                Ok((opened, told))
            }),
        };
        let told = asked.map(|(answering, told)| {
            line = Some(answering);
            Box::new(told)
        });
        let told = told.map_err(|error| format!("{error:#}"));
        let heard = news.send(News::Told(number, told));
        let nudged = nudges.recv_timeout(interval);
        if heard.is_err() || nudged == Err(RecvTimeoutError::Disconnected) {
            return;
        }
    }
}

/// Ends a session in a thread of its own, which tells how that went.
pub(super) fn kill(
    number: usize,
    address: Address,
    access: Arc<Access>,
    session: u64,
    news: Sender<News>,
) {
    std::thread::spawn(move || {
        let killed = Server::connect(&address, &access).and_then(|mut server| server.kill(session));
        let killed = killed.map_err(|error| format!("{error:#}"));
        // Nobody listens where the screen has been left.
        let _ = news.send(News::Killed(number, session, killed));
    });
}

/// Has a session move to the server at an address, from a thread of its own, which tells how that went.
pub(super) fn migrate(
    number: usize,
    address: Address,
    access: Arc<Access>,
    session: u64,
    to: String,
    news: Sender<News>,
) {
    std::thread::spawn(move || {
        let moving = || {
            let target: Address = to.parse()?;
            Server::connect(&address, &access)?.migrate(session, &target)
        };
        let moved: anyhow::Result<()> = moving();
        let moved = moved.map(|()| to).map_err(|error| format!("{error:#}"));
        // Nobody listens where the screen has been left.
        let _ = news.send(News::Moved(number, session, moved));
    });
}

/// Connections to a server, and what it has told of its devices.
struct Line {
    server: Server,
    /// Of the devices that NVML knows, which come first among `devices`.
    monitor: Option<Server>,
    devices: Vec<Device>,
}

impl Line {
    fn open(address: &Address, access: &Access) -> anyhow::Result<Self> {
        let mut server = Server::connect(address, access)?;
        let unreadable = "its list of devices cannot be read";
        let mut listed = Vec::new();
        let mut monitor = None;
        if let Ok(snapshot) = server.cuda_devices()? {
            let snapshot = cuda::snapshot::Snapshot::decode(&snapshot).context(unreadable)?;
            listed.extend(snapshot.devices.iter().map(|device| Device {
                name: shown(&String::from_utf8_lossy(&device.name)),
                total_bytes: Some(device.total_bytes),
                ..Device::default()
            }));
            // Devices in software have no NVML, and a refusal would stand in the server's log.
            monitor = snapshot
                .genuine
                .then(|| Server::connect_for_nvml(address, access));
        }
        let snapshot = Snapshot::decode(&server.snapshot).context(unreadable)?;
        listed.extend(snapshot.devices.iter().map(|device| Device {
            name: shown(&device.answers.text(CL_DEVICE_NAME).unwrap_or_default()),
            total_bytes: device.answers.number(CL_DEVICE_GLOBAL_MEM_SIZE),
            ..Device::default()
        }));
        let mut line = Self {
            server,
            monitor: monitor.and_then(Result::ok),
            devices: Vec::new(),
        };
        if let Some(monitor) = &line.monitor {
            let snapshot = nvml::snapshot::Snapshot::decode(&monitor.snapshot);
            let snapshot = snapshot.context(unreadable)?;
            let devices = snapshot.devices.iter().take(MOST_DEVICES);
            line.devices.extend(devices.map(|device| Device {
                name: shown(&String::from_utf8_lossy(&device.name)),
                ..Device::default()
            }));
        }
        // A GPU may be there for NVML, CUDA and OpenCL.
        let known: BTreeSet<_> = line
            .devices
            .iter()
            .map(|device| device.name.clone())
            .collect();
        line.devices.extend(
            listed
                .into_iter()
                .filter(|device| !known.contains(&device.name)),
        );
        Ok(line)
    }

    fn ask(&mut self) -> anyhow::Result<Told> {
        let status = self.server.status()?;
        if let Some(monitor) = &mut self.monitor {
            let snapshot = nvml::snapshot::Snapshot::decode(&monitor.snapshot)?;
            // By number: a tenant need not have the first devices of the server.
            let devices = snapshot.devices.iter().take(MOST_DEVICES);
            let devices = devices.map(|device| DeviceHandle::of(0, device.number));
            let questions = devices.flat_map(|device| {
                [
                    question(&DeviceGetUtilizationRates { device }),
                    question(&DeviceGetMemoryInfo { device }),
                ]
            });
            let questions = questions.collect();
            match monitor.nvml(questions) {
                Ok(answers) => {
                    let (pairs, _) = answers.as_chunks();
                    for (device, [rates, memory]) in self.devices.iter_mut().zip(pairs) {
                        device.take_figures(rates, memory);
                    }
                }
                Err(error) => {
                    log::info!("no figures of devices: {error:#}");
                    self.monitor = None;
                }
            }
        }
        Ok(Told {
            identity: self.server.identity.clone(),
            status,
            devices: self.devices.clone(),
        })
    }
}

impl Device {
    fn take_figures(&mut self, rates: &Answer, memory: &Answer) {
        let rates = reply::<DeviceGetUtilizationRatesReply>(rates);
        let rates = rates.and_then(|reply| reply.utilization);
        self.utilisation = rates.map(|rates| rates.gpu);
        let memory = reply::<DeviceGetMemoryInfoReply>(memory).and_then(|reply| reply.memory);
        self.used_bytes = memory.map(|memory| memory.used);
        self.total_bytes = memory.map(|memory| memory.total);
    }
}

fn question<'a, Q: Request<'a>>(request: &Q) -> Question {
    let mut body = Vec::new();
    request.encode(&mut body);
    Question { call: Q::ID, body }
}

fn reply<'a, R: nvml::Message<'a>>(answer: &'a Answer) -> Option<R> {
    (answer.status == NVML_SUCCESS)
        .then(|| R::decode(&answer.body).ok())
        .flatten()
}

fn shown(name: &str) -> String {
    printable(name.trim(), SHOWN_NAME)
}
