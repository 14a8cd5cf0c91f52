//! The engine of the workers: it echoes, and does what its orders say.

use super::*;

pub(super) struct EchoEngine;

pub(super) fn open_engine(kind: &str) -> Result<Box<dyn Engine>, EngineError> {
    match kind {
        "cuda" | "cuda-look" => cuda::open(&CudaOptions {
            driver: cuda::CudaDriver::Null,
            ..CudaOptions::default()
        }),
        "broken" => Err("no OpenCL platform was found".into()),
        "slow" => {
            std::thread::sleep(Duration::from_secs(100));
            Ok(Box::new(EchoEngine))
        }
        // Gets ready when the test has put a byte for it into this pipe.
        gated if gated.starts_with("gated-") => {
            let pipe = std::fs::File::open(gated.trim_start_matches("gated-"))?;
            std::io::Read::read_exact(&mut &pipe, &mut [0])?;
            Ok(Box::new(EchoEngine))
        }
        // Writes rubbish into the channel to the supervisor, as an engine that was taken over could.
        "hostile" | "hostile-memory" => {
            let channel = std::fs::read_dir("/proc/self/fd")?
                .flatten()
                .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
                .find(|number| *number == 3);
            let number = channel.ok_or("no channel")?;
            let socket = rustix::process::pidfd_open(
                rustix::process::getpid(),
                rustix::process::PidfdFlags::empty(),
            )
            .and_then(|this| {
                rustix::process::pidfd_getfd(
                    this,
                    number,
                    rustix::process::PidfdGetfdFlags::empty(),
                )
            })?;
            let rubbish: &[u8] = match kind {
                "hostile" => b"{\"Ready\":",
                _ => b"{\"ReturnMemory\":{\"bytes\":1}}",
            };
            rustix::net::send(&socket, rubbish, rustix::net::SendFlags::empty())?;
            std::thread::sleep(Duration::from_secs(100));
            Ok(Box::new(EchoEngine))
        }
        _ => Ok(Box::new(EchoEngine)),
    }
}

impl Engine for EchoEngine {
    fn snapshot(&self) -> Vec<u8> {
        // Longer than one message of the channel.
        (0..100_000u32).map(|n| n as u8).collect()
    }

    /// Each lane carries orders of 8 bytes.
    fn run(self: Box<Self>, session: Session) -> Result<(), EngineError> {
        use std::sync::atomic::Ordering::Relaxed;
        let (failed, failure) = std::sync::mpsc::channel();
        let peers: Arc<Mutex<Vec<Arc<dyn Connection>>>> = Arc::default();
        let pongs = Arc::new(AtomicU64::new(0));
        while let Some(lane) = session.lanes.next() {
            let (counters, failed) = (Arc::clone(&session.counters), failed.clone());
            if let LaneKind::Peer { .. } = lane.kind {
                let mut peers = peers.lock().expect("no thread panics");
                peers.push(Arc::clone(&lane.connection));
            }
            let (peers, pongs) = (Arc::clone(&peers), Arc::clone(&pongs));
            let broker = Arc::clone(&session.broker);
            std::thread::spawn(move || {
                let mut order = [0; 8];
                while recv_exact(&*lane.connection, &mut order).is_ok() {
                    counters.calls.fetch_add(1, Relaxed);
                    counters.received_bytes.fetch_add(8, Relaxed);
                    match &order {
                        b"crash---" => std::process::abort(),
                        b"kill----" => {
                            let this = rustix::process::getpid();
                            let _ =
                                rustix::process::kill_process(this, rustix::process::Signal::KILL);
                        }
                        b"hang----" => loop {
                            std::thread::sleep(Duration::from_secs(100));
                        },
                        b"fail----" => {
                            let _ = failed.send(());
                        }
                        // Over the peer lane, and back.
                        b"peer----" => {
                            for peer in peers.lock().expect("no thread panics").iter() {
                                let _ = peer.send(&[IoSlice::new(b"ping----")]);
                            }
                        }
                        b"ping----" => {
                            let _ = lane.connection.send(&[IoSlice::new(b"pong----")]);
                        }
                        b"pong----" => {
                            pongs.fetch_add(1, Relaxed);
                        }
                        b"pongs---" => {
                            let count = pongs.load(Relaxed).to_le_bytes();
                            let _ = lane.connection.send(&[IoSlice::new(&count)]);
                        }
                        b"hold-up-" => {
                            // The one of both that closes the socket last waits: the reader, which has much to read before.
                            for _ in 0..4 {
                                let broker = Arc::clone(&broker);
                                let token = towline_worker::Token([0; 32]);
                                std::thread::spawn(move || {
                                    loop {
                                        broker.withdraw(token);
                                    }
                                });
                            }
                            std::thread::sleep(Duration::from_millis(200));
                            hold_reader_up(&*broker);
                            // Nothing but a kill ends it.
                            let this = rustix::process::getpid();
                            let _ =
                                rustix::process::kill_process(this, rustix::process::Signal::STOP);
                        }
                        b"offers--" => {
                            let count = offer_descriptors(&*broker).to_le_bytes();
                            let _ = lane.connection.send(&[IoSlice::new(&count)]);
                        }
                        b"room-own" | b"room-any" | b"room-big" => {
                            let lacking = 4096 + u64::from(&order == b"room-big");
                            let made = u64::from(broker.make_room(lacking, &order == b"room-own"));
                            let _ = lane.connection.send(&[IoSlice::new(&made.to_le_bytes())]);
                        }
                        b"alloc---" => counters.device_memory_bytes.store(4096, Relaxed),
                        b"jail----" => {
                            let report = jail_report();
                            let _ = lane.connection.send(&[IoSlice::new(report.as_bytes())]);
                        }
                        _ => {
                            let _ = lane.connection.send(&[IoSlice::new(&order)]);
                        }
                    }
                }
            });
            if failure.recv_timeout(Duration::from_millis(50)).is_ok() {
                return Err("the device is lost".into());
            }
        }
        Ok(())
    }
}

/// Sends a connection whose other end does not read, so that closing it waits.
fn hold_reader_up(broker: &dyn towline_worker::Broker) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let place = listener.local_addr().expect("it has one");
    let socket = std::net::TcpStream::connect(place).expect("it listens");
    socket.set_nonblocking(true).expect("it can");
    while std::io::Write::write(&mut &socket, &[0; 1 << 16]).is_ok() {}
    let linger = Some(Duration::from_secs(600));
    rustix::net::sockopt::set_socket_linger(&socket, linger).expect("it can");
    broker.keep_image(&[0; 32], socket.into());
    // Its other end is this process's as long as that lives.
    std::mem::forget(listener);
}

/// Offers descriptors until that is refused; how many were taken.
fn offer_descriptors(broker: &dyn towline_worker::Broker) -> u64 {
    (0..)
        .find(|_| {
            let offer = towline_worker::Offer {
                kind: 0,
                bytes: Vec::new(),
                descriptor: Some(
                    std::fs::File::open("/dev/null")
                        .expect("it is there")
                        .into(),
                ),
            };
            broker.offer(offer).is_none()
        })
        .expect("there is a limit")
}

/// What a jailed process can do, one `name=value` per line, padded to a fixed length.
fn jail_report() -> String {
    let home = std::env::var("HOME").unwrap_or_default();
    let writable = |path: &str| match std::fs::write(path, "x") {
        Ok(()) => "yes".to_owned(),
        Err(error) => format!("{:?}", error.kind()),
    };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or("?")
            .split_whitespace()
            .next()
            .unwrap_or("?")
            .to_owned()
    };
    let interfaces = std::fs::read_to_string("/proc/self/net/dev")
        .unwrap_or_default()
        .lines()
        .count()
        .saturating_sub(2);
    let linked = std::process::Command::new("/bin/true")
        .status()
        .is_ok_and(|status| status.success());
    let socket = std::net::TcpListener::bind("127.0.0.1:0")
        .map_or_else(|error| format!("{:?}", error.kind()), |_| "yes".into());
    let probes: Vec<String> = std::env::var("TEST_PROBES")
        .unwrap_or_default()
        .split(':')
        .map(|path| {
            std::fs::read_to_string(path).unwrap_or_else(|error| format!("{:?}", error.kind()))
        })
        .collect();
    let names = |folder: &str, wanted: fn(&str) -> bool| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| wanted(name)).collect();
        names.sort();
        names.join(" ")
    };
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most_processes = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max processes"))
        .and_then(|line| line.split_whitespace().next())
        .unwrap_or("?");
    let report = format!(
        "most_processes={most_processes}\nprocesses={}\ndevices={}\nservices={}\nprobes={}\nhome_entries={}\nuid={}\nno_new_privs={}\nseccomp={}\ncapabilities={}\nhome={}\nhome_writable={}\netc_writable={}\ntmp_entries={}\ninterfaces={interfaces}\nruns_programs={linked}\ntcp_socket={socket}\n",
        names("/proc", |name| name.parse::<u32>().is_ok()),
        names("/dev", |name| !name.starts_with("nvidia")
            && name != "dri"
            && name != "kfd"),
        names("/run", |_| true),
        probes.join(","),
        std::fs::read_dir("/home").map_or(-1, |entries| entries.count() as i64),
        field("Uid:"),
        field("NoNewPrivs:"),
        field("Seccomp:"),
        field("CapEff:"),
        home,
        writable(&format!("{home}/probe")),
        writable("/etc/towline-probe"),
        std::fs::read_dir("/tmp").map_or(-1, |entries| entries.count() as i64),
    );
    format!("{report:<1024}")
}
