//! One server: from its name to the speed of its devices.

use std::net::{TcpStream, ToSocketAddrs};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use towline_client::access::Access;
use towline_client::config::Settings;
use towline_client::cuda::{Bandwidth, Session};
use towline_transport::{Address, Registry};
use towline_wire::control::{SUPPORTED_VERSIONS, Status};
use towline_wire::cuda::{self, snapshot};
use towline_wire::snapshot::Snapshot;

use super::pytorch::PyTorch;
use super::{Finding, State};
use crate::ask::Server;
use crate::probe::places_in_use;
use crate::servers;
use crate::table;

/// The time that a host has to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// The time that something else has to greet: servers of Towline never speak first.
const GREETING: Duration = Duration::from_millis(300);
/// The time that a server has to answer. One that is loaded answers, or says each second that it is alive.
const ANSWER_LIMIT: Duration = Duration::from_secs(4);
const PINGS: usize = 20;
/// Enough to be past the start of a connection, and little enough for a slow one.
const COPY_BYTES: usize = 32 << 20;
const COPY_LIMIT: Duration = Duration::from_secs(60);

/// Looks until something is in the way.
pub(super) fn look(
    address: &Address,
    settings: &Settings,
    pytorch: Option<&PyTorch>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(why) = way(address, &mut findings) {
        findings.push(why);
        return findings;
    }
    let access = match servers::access(settings) {
        Ok(access) => access,
        // The machine's own section tells of it.
        Err(_) => return findings,
    };
    let (connect_to, connect_as) = (address.clone(), access.clone());
    let connected = within(ANSWER_LIMIT, move || {
        Server::connect(&connect_to, &connect_as)
    });
    let mut server = match connected {
        Some(Ok(server)) => server,
        Some(Err(error)) => {
            findings.push(refused(&format!("{error:#}")));
            return findings;
        }
        None => {
            let text = format!(
                "it took the connection and has said nothing for {} s",
                ANSWER_LIMIT.as_secs()
            );
            let remedy = "it is stopped or overloaded, or no Towline server: look there with `towline status` and at the port";
            findings.push(Finding::new("protocol", State::Error, text).but(remedy));
            return findings;
        }
    };
    findings.push(version(&server.identity.software, &server.identity.name));
    findings.push(protection(address, &access));
    findings.extend(devices(&mut server, pytorch));
    let mut times = Vec::with_capacity(PINGS);
    let mut status = None;
    for _ in 0..PINGS {
        let start = Instant::now();
        match server.status() {
            Ok(answer) => status = Some(answer),
            Err(error) => {
                findings.push(Finding::new(
                    "round trip",
                    State::Error,
                    format!("{error:#}"),
                ));
                return findings;
            }
        }
        times.push(start.elapsed());
    }
    times.sort();
    findings.push(round_trip(times[PINGS / 2]));
    findings.extend(status.as_ref().and_then(sessions));
    if let Ok(Ok(_)) = server.cuda_devices() {
        findings.extend(copies(address, &access, &mut server));
    } else {
        findings.push(Finding::new(
            "bandwidth",
            State::Note,
            "not measured: that takes a CUDA device",
        ));
    }
    findings
}

/// An error on the way in; it tells its remedy behind a semicolon.
fn refused(error: &str) -> Finding {
    match error.split_once("; ") {
        Some((text, remedy)) => Finding::new("session", State::Error, text).but(remedy),
        None => Finding::new("session", State::Error, error),
    }
}

/// Does something that may hang, for so long.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::channel();
    // A thread that hangs ends with this process.
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(limit).ok()
}

/// Name and port of a tcp address; the finding that ends the look.
fn way(address: &Address, findings: &mut Vec<Finding>) -> Option<Finding> {
    let reached_by_tcp = |_: &(&str, u16)| address.scheme() == "tcp";
    let Some((host, port)) = address.host_port().filter(reached_by_tcp) else {
        return match Registry::global().get(address.scheme()) {
            Ok(_) => None,
            Err(error) => Some(Finding::new("transport", State::Error, error.to_string())),
        };
    };
    let place = (host.to_owned(), port);
    let resolved = within(CONNECT_LIMIT, move || {
        place.to_socket_addrs().map(Vec::from_iter)
    });
    let found = match resolved {
        Some(Ok(found)) if !found.is_empty() => found,
        _ => {
            let finding = Finding::new("name", State::Error, format!("`{host}` has no address"));
            return Some(
                finding.but("check the spelling, /etc/hosts and DNS, or write the IP address"),
            );
        }
    };
    let mut ips: Vec<String> = found.iter().map(|place| place.ip().to_string()).collect();
    ips.dedup();
    if ips != [host] {
        findings.push(Finding::ok("name", format!("{host} is {}", ips.join(", "))));
    }
    let mut refusal = None;
    for place in found {
        let start = Instant::now();
        match TcpStream::connect_timeout(&place, CONNECT_LIMIT) {
            Ok(stream) => {
                let took = start.elapsed();
                if let Some(greeting) = greeting(&stream) {
                    let text = format!("port {port} is no Towline server: it says `{greeting}`");
                    return Some(
                        Finding::new("port", State::Error, text)
                            .but("name the port that `towline serve` listens on: HOST:PORT"),
                    );
                }
                findings.push(Finding::ok(
                    "port",
                    format!("{port} is open, connected in {}", ms(took)),
                ));
                return None;
            }
            Err(error) => refusal = Some(error.kind()),
        }
    }
    let why = refusal.map_or_else(String::new, |kind| kind.to_string());
    let finding = Finding::new(
        "port",
        State::Error,
        format!("{port} does not answer: {why}"),
    );
    let remedy = match why.contains("refused") {
        true => {
            format!("start `towline serve --listen 0.0.0.0:{port} --token-file FILE` on {host}")
        }
        false => format!("check that {host} is up and that no firewall closes port {port}"),
    };
    Some(finding.but(remedy))
}

/// Findings from what a server says unasked.
fn greeting(stream: &TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(GREETING)).ok()?;
    let mut bytes = [0; 60];
    let count = stream.peek(&mut bytes).ok().filter(|count| *count > 0)?;
    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
    Some(text.lines().next().unwrap_or_default().to_owned())
}

fn version(software: &str, name: &str) -> Finding {
    let ours = concat!("towline ", env!("CARGO_PKG_VERSION"));
    let text = format!("{software} on {name}, protocol {}", SUPPORTED_VERSIONS.max);
    match software == ours {
        true => Finding::ok("protocol", text),
        false => Finding::new("protocol", State::Note, format!("{text}; this is {ours}")),
    }
}

fn protection(address: &Address, access: &Access) -> Finding {
    let crosses = Registry::global()
        .get(address.scheme())
        .is_ok_and(|transport| transport.capabilities().over_network && !address.is_loopback());
    match (
        crosses,
        access.no_encryption,
        &access.token,
        &access.authority,
    ) {
        (false, ..) => Finding::ok(
            "protection",
            "this machine's own: nothing crosses a network",
        ),
        (true, true, ..) => Finding::new(
            "protection",
            State::Warning,
            "not encrypted: the network reads and changes every byte",
        )
        .but("leave out --no-encryption on both sides"),
        (true, false, None, _) => Finding::new(
            "protection",
            State::Warning,
            "encrypted, but any client is let in: the server asks for no token",
        )
        .but("start it with --token-file, and run `towline login`"),
        (true, false, Some(_), Some(_)) => Finding::ok(
            "protection",
            "encrypted; certificate signed by the authority; token accepted",
        ),
        (true, false, Some(_), None) => Finding::ok(
            "protection",
            "encrypted; the server's key is the known one, or is kept now; token accepted",
        ),
    }
}

fn devices(server: &mut Server, pytorch: Option<&PyTorch>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let opencl = Snapshot::decode(&server.snapshot).map_or(0, |snapshot| snapshot.devices.len());
    let cuda = match server.cuda_devices() {
        Ok(Ok(bytes)) => match snapshot::Snapshot::decode(&bytes) {
            Ok(snapshot) if snapshot.devices.is_empty() => {
                Err("its driver has no device".to_owned())
            }
            Ok(snapshot) => Ok(snapshot),
            Err(_) => Err("its list of devices cannot be read".to_owned()),
        },
        Ok(Err(reason)) => Err(reason),
        Err(error) => Err(format!("{error:#}")),
    };
    match cuda {
        Ok(snapshot) => {
            findings.extend(cuda_findings(&snapshot));
            findings.extend(pytorch.and_then(|pytorch| pytorch.fits(&snapshot)));
        }
        Err(why) => {
            let state = if opencl == 0 {
                State::Error
            } else {
                State::Note
            };
            let finding = Finding::new("CUDA", state, format!("no device: {why}"));
            findings.push(finding.but(
                "install NVIDIA's driver there, or start it with `towline serve --cuda soft`",
            ));
        }
    }
    findings.push(match opencl {
        0 => Finding::new("OpenCL", State::Note, "no device")
            .but("check there with `clinfo`, where OpenCL programs are to run"),
        count => Finding::ok(
            "OpenCL",
            format!(
                "{count} device{}: `towline devices` lists them",
                if count == 1 { "" } else { "s" }
            ),
        ),
    });
    findings
}

fn cuda_findings(snapshot: &snapshot::Snapshot) -> Vec<Finding> {
    let mut findings = Vec::new();
    for device in &snapshot.devices {
        let number = |attribute| device.attribute(attribute).unwrap_or(0);
        let (major, minor) = (
            number(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
            number(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
        );
        let name = String::from_utf8_lossy(&device.name);
        let memory = table::bytes(device.total_bytes);
        let runs = match (snapshot.genuine, minor) {
            (false, _) => format!("runs PTX up to compute_{major}{minor}"),
            (true, 0) => format!("runs code for sm_{major}0, and PTX up to compute_{major}0"),
            (true, _) => format!(
                "runs code for sm_{major}0 to sm_{major}{minor}, and PTX up to compute_{major}{minor}"
            ),
        };
        findings.push(Finding::ok(
            "CUDA",
            format!("{name}, {memory}, compute capability {major}.{minor}: {runs}"),
        ));
    }
    let driver = snapshot.driver_version;
    let (major, minor) = (driver / 1000, driver % 1000 / 10);
    findings.push(Finding::ok(
        "driver",
        format!("CUDA {major}.{minor}: for programs and PyTorch builds of CUDA {major}.x, and of older ones"),
    ));
    if !snapshot.genuine {
        findings.push(
            Finding::new("driver", State::Note, "not NVIDIA's: programs with PTX run, those of nvcc with its runtime library do not start")
                .but("build with `towline nvcc`, and run with `towline run --cudart`"),
        );
    }
    findings
}

/// The cost of a round trip to programs.
fn round_trip(time: Duration) -> Finding {
    let seconds = time.as_secs_f64();
    let thousand = ms(time * 1000);
    let text = format!(
        "{}: a program that waits for its device 1,000 times spends {thousand} on the way",
        ms(time)
    );
    match seconds {
        ..0.001 => Finding::ok("round trip", text),
        ..0.010 => Finding::new(
            "round trip",
            State::Note,
            format!("{text}; training that seldom waits is not hurt"),
        ),
        _ => Finding::new("round trip", State::Warning, text)
            .but("choose a nearer server, and programs that launch much and wait seldom"),
    }
}

/// The meaning of a bandwidth for programs.
fn bandwidth(measured: &Bandwidth) -> Finding {
    let rate = |time: Duration| measured.bytes as f64 / time.as_secs_f64().max(1e-9);
    let (to, from) = (rate(measured.to_device), rate(measured.from_device));
    let slower = to.min(from);
    let text = format!(
        "{}/s to the device, {}/s back: a model of 10 GB takes {} to load",
        table::bytes(to as u64),
        table::bytes(from as u64),
        ms(Duration::from_secs_f64(10e9 / to.max(1.0))),
    );
    match slower {
        0.0..50e6 => Finding::new("bandwidth", State::Warning, text)
            .but("keep data on the device, and copy little"),
        50e6..500e6 => Finding::new("bandwidth", State::Note, text),
        _ => Finding::ok("bandwidth", text),
    }
}

/// Sessions of the server, where that is worth a word.
fn sessions(status: &Status) -> Option<Finding> {
    let used = places_in_use(status);
    if status.draining {
        let finding = Finding::new(
            "sessions",
            State::Error,
            "it shuts down and begins no session",
        );
        return Some(finding.but("use another server, or wait until it has restarted"));
    }
    let text = format!("{used} of {} in use", status.max_sessions);
    Some(match used < status.max_sessions {
        true => Finding::ok("sessions", text),
        false => Finding::new("sessions", State::Error, text)
            .but("wait for one to end, or start the server with a higher --max-sessions"),
    })
}

/// A session of its own: whether one begins, how fast it copies and what limits it has.
fn copies(address: &Address, access: &Access, server: &mut Server) -> Vec<Finding> {
    let (address, access) = (address.clone(), access.clone());
    let start = Instant::now();
    let session = match within(COPY_LIMIT, move || Session::connect_as(&address, &access)) {
        Some(Ok(session)) => session,
        Some(Err(error)) => return vec![Finding::new("session", State::Error, error.to_string())],
        None => {
            return vec![Finding::new(
                "session",
                State::Error,
                format!("none within {} s", COPY_LIMIT.as_secs()),
            )];
        }
    };
    let mut findings = vec![Finding::ok(
        "session",
        format!("began in {}", ms(start.elapsed())),
    )];
    let limits = server.status().ok();
    let own = rustix::process::getpid().as_raw_nonzero().get() as u32;
    let limits = limits.and_then(|status| {
        let mine = status
            .sessions
            .into_iter()
            .find(|session| session.client_pid == own)?;
        Some((mine.device_memory_limit, mine.limits))
    });
    if let Some((memory, limits)) = limits {
        let named = towline_wire::control::LIMITS.iter().zip(limits);
        let set = named.filter(|(name, limit)| limit.value != 0 && **name == "kernel_time_ms");
        let mut words: Vec<String> = set
            .map(|(_, limit)| format!("kernels of {}", ms(Duration::from_millis(limit.value))))
            .collect();
        if memory != 0 {
            words.insert(0, format!("{} of device memory", table::bytes(memory)));
        }
        if !words.is_empty() {
            findings.push(Finding::ok(
                "limits",
                format!("at most {}", words.join(", ")),
            ));
        }
    }
    findings.push(
        match within(COPY_LIMIT, move || session.measure_bandwidth(COPY_BYTES)) {
            Some(Ok(measured)) => bandwidth(&measured),
            Some(Err(status)) => Finding::new(
                "bandwidth",
                State::Warning,
                format!("not measured: the driver answers {status}"),
            ),
            None => Finding::new(
                "bandwidth",
                State::Warning,
                format!(
                    "{} took more than {} s",
                    table::bytes(COPY_BYTES as u64),
                    COPY_LIMIT.as_secs()
                ),
            ),
        },
    );
    findings
}

fn ms(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1e3;
    match ms {
        ..1.0 => format!("{:.0} us", ms * 1e3),
        ..100.0 => format!("{ms:.1} ms"),
        ..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::TcpListener;

    use super::*;

    fn ended_by(address: &str) -> Finding {
        way(&address.parse().unwrap(), &mut Vec::new()).expect("something is in the way")
    }

    #[test]
    fn other_servers_greeting_is_told_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let speaking = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
            stream
        });
        let finding = ended_by(&address);
        assert!(
            finding
                .text
                .ends_with("is no Towline server: it says `SSH-2.0-OpenSSH_9.2`"),
            "{}",
            finding.text
        );
        drop(speaking.join());
    }

    #[test]
    fn closed_port_and_unknown_name_have_remedies() {
        let address = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .to_string();
        let closed = ended_by(&address);
        assert!(closed.text.contains("does not answer"), "{}", closed.text);
        assert!(closed.remedy.unwrap().contains("towline serve --listen"));
        let unknown = ended_by("gpu9.invalid");
        assert_eq!(unknown.text, "`gpu9.invalid` has no address");
    }

    #[test]
    fn remedies_of_errors_stand_on_their_own() {
        let finding = refused("no connection: its certificate ended; have it renewed");
        assert_eq!(finding.text, "no connection: its certificate ended");
        assert_eq!(finding.remedy.as_deref(), Some("have it renewed"));
        assert_eq!(refused("it hung up").remedy, None);
    }

    #[test]
    fn figures_are_judged_by_what_programs_feel() {
        let state = |us| round_trip(Duration::from_micros(us)).state;
        assert_eq!(
            [state(100), state(2_000), state(30_000)],
            [State::Ok, State::Note, State::Warning]
        );
        let copied = |ms| {
            let time = Duration::from_millis(ms);
            bandwidth(&Bandwidth {
                bytes: 100_000_000,
                to_device: time,
                from_device: time,
            })
        };
        assert_eq!(
            [copied(10), copied(1_000), copied(10_000)].map(|finding| finding.state),
            [State::Ok, State::Note, State::Warning]
        );
        assert!(
            copied(1_000)
                .text
                .contains("a model of 10 GB takes 100.0 s to load"),
            "{}",
            copied(1_000).text
        );
    }

    #[test]
    fn device_runs_code_of_its_own_architecture() {
        let told = |genuine, minor| {
            let device = snapshot::Device {
                attributes: vec![
                    (cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 8),
                    (cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, minor),
                ],
                ..snapshot::Device::default()
            };
            let snapshot = snapshot::Snapshot {
                driver_version: 12_080,
                genuine,
                devices: vec![device],
            };
            cuda_findings(&snapshot).swap_remove(0).text
        };
        assert!(told(true, 0).ends_with(": runs code for sm_80, and PTX up to compute_80"));
        assert!(
            told(true, 9).ends_with(": runs code for sm_80 to sm_89, and PTX up to compute_89")
        );
        assert!(told(false, 6).ends_with(": runs PTX up to compute_86"));
    }

    #[test]
    fn full_or_draining_server_is_an_error() {
        let status = |used: usize, draining| Status {
            max_sessions: 2,
            draining,
            sessions: vec![Default::default(); used],
            ..Status::default()
        };
        let state = |status: &Status| sessions(status).unwrap().state;
        assert_eq!(state(&status(1, false)), State::Ok);
        assert_eq!(state(&status(2, false)), State::Error);
        assert_eq!(state(&status(0, true)), State::Error);
    }
}
