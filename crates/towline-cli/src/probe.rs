//! A look at servers before `towline run` starts a program: whether any answers, and what it offers.
//!
//! All servers are asked at once. Without a terminal the first that has a device is enough, unless it offers collectives; with one the others
//! have a moment more, for the line that lists devices. So they have where collectives are offered, for all must offer them.

use std::collections::BTreeMap;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use towline_client::access::Access;
use towline_client::dial::DialError;
use towline_transport::{Address, TransportError};
use towline_wire::control::{HandshakeError, RejectCode, Status};
use towline_wire::cuda;
use towline_wire::opencl::CL_DEVICE_NAME;
use towline_wire::snapshot::Snapshot;

use crate::ask::Server;
use crate::servers::{Chosen, short};

/// The time that the others have once one server has answered.
const GRACE: Duration = Duration::from_secs(2);
/// Attempts at a server that has too many connections at once, and the pause between them.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(200);
/// The longest time that a session waits for a place on a full server.
const PLACE_LIMIT: Duration = Duration::from_secs(5);

/// The servers' offer.
pub(crate) struct Offer {
    /// The line for a terminal.
    pub(crate) line: String,
    /// All have collectives for sessions of a job.
    pub(crate) collectives: bool,
}

/// The answer of one server: names of its devices with the API that offers them, and whether it has collectives; or why there are none.
#[derive(Debug)]
enum Answer {
    Devices(Vec<(String, &'static str)>, bool),
    /// It answered, and has no device.
    Nothing(String),
    /// It has devices, perhaps, and begins no session.
    NoPlace(String),
    /// It did not answer, or did not let this client in.
    Failed(String),
}

/// Asks the servers. Gives what they offer, or why no server has a device.
pub(crate) fn ask(chosen: &Chosen, access: &Access, all: bool) -> Result<Offer, String> {
    let access = access.clone();
    let answers = gather(&chosen.servers, all, move |address| {
        answer(address, &access, all)
    });
    let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
    match answers.iter().any(|(_, answer)| has_device(answer)) {
        true => Ok(Offer {
            line: line(&answers, visible.as_deref()),
            collectives: have_collectives(&answers),
        }),
        false => Err(refusal(&answers, &chosen.origin)),
    }
}

fn has_device(answer: &Option<Answer>) -> bool {
    matches!(answer, Some(Answer::Devices(..)))
}

/// Whether all servers have collectives, but for those that have no device. One that has not answered counts as one that has none, whatever the
/// reason: all ranks of a job are to come to the same.
fn have_collectives(answers: &[(Address, Option<Answer>)]) -> bool {
    let offers = |answer: &Option<Answer>| matches!(answer, Some(Answer::Devices(_, true)));
    let lacks =
        |answer: &Option<Answer>| !offers(answer) && !matches!(answer, Some(Answer::Nothing(_)));
    let lacking = answers.iter().find(|(_, answer)| lacks(answer));
    if let Some((server, _)) = lacking
        && answers.iter().any(|(_, answer)| offers(answer))
    {
        log::warn!(
            "the program uses its own NCCL: {} offers no collectives, or has not answered, and other servers offer them",
            short(server)
        );
    }
    lacking.is_none()
}

/// The answers in the order of the servers; none for a server that is still to answer when it is no longer waited for.
fn gather(
    servers: &[Address],
    all: bool,
    answer: impl Fn(&Address) -> Answer + Clone + Send + 'static,
) -> Vec<(Address, Option<Answer>)> {
    let (sender, receiver) = mpsc::channel();
    let mut answers: Vec<_> = servers
        .iter()
        .map(|server| (server.clone(), None))
        .collect();
    for (index, server) in servers.iter().cloned().enumerate() {
        let (sender, answer) = (sender.clone(), answer.clone());
        // A thread that is late ends with this process, or when the program takes its place.
        std::thread::spawn(move || sender.send((index, answer(&server))));
    }
    drop(sender);
    let mut deadline = None;
    loop {
        let received = match deadline {
            None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(deadline) => receiver.recv_timeout(Instant::saturating_duration_since(
                &deadline,
                Instant::now(),
            )),
        };
        let Ok((index, answer)) = received else {
            return answers;
        };
        let answer = Some(answer);
        if let Some(Answer::Devices(_, collectives)) = answer {
            let patience = match all || collectives {
                true => GRACE,
                false => Duration::ZERO,
            };
            deadline = deadline.or(Some(Instant::now() + patience));
        }
        answers[index].1 = answer;
    }
}

fn answer(address: &Address, access: &Access, all: bool) -> Answer {
    let mut attempt = 0;
    let mut server = loop {
        attempt += 1;
        match Server::connect(address, access) {
            Ok(server) => break server,
            Err(error) if attempt < ATTEMPTS && is_busy(&error) => std::thread::sleep(PAUSE),
            Err(error) => return Answer::Failed(format!("{error:#}")),
        }
    };
    match place(&mut server) {
        Ok(None) => {}
        Ok(Some(why)) => return Answer::NoPlace(why),
        Err(error) => return Answer::Failed(format!("{}: {error:#}", short(address))),
    }
    let mut devices: Vec<(String, &'static str)> = Snapshot::decode(&server.snapshot)
        .map(|snapshot| {
            let name = |answers: &towline_wire::snapshot::Answers| answers.text(CL_DEVICE_NAME);
            let devices = snapshot.devices.iter();
            devices
                .map(|device| name(&device.answers).unwrap_or_default().trim().to_owned())
                .map(|name| (name, "OpenCL"))
                .collect()
        })
        .unwrap_or_default();
    let mut why = "it has no OpenCL device".to_owned();
    // The first question for CUDA devices has the server start its driver; a program of another kind need not wait for that.
    if all || devices.is_empty() {
        match server.cuda_devices() {
            Ok(Ok(snapshot)) => devices.splice(0..0, cuda_names(&snapshot)).for_each(drop),
            Ok(Err(reason)) => why = format!("{why}, and no CUDA device: {reason}"),
            Err(error) => why = format!("{why}, and says nothing of CUDA: {error:#}"),
        }
    }
    match devices.is_empty() {
        true => Answer::Nothing(why),
        false => Answer::Devices(devices, server.identity.collectives),
    }
}

/// Waits for a place as a session does; tells why there is none.
fn place(server: &mut Server) -> anyhow::Result<Option<String>> {
    let deadline = Instant::now() + PLACE_LIMIT;
    loop {
        let status = server.status()?;
        let why = no_place(&status);
        if why.is_none() || status.draining || Instant::now() >= deadline {
            return Ok(why);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Why a server begins no session, as far as this client may see.
fn no_place(status: &Status) -> Option<String> {
    let most = status.max_sessions;
    match status.draining {
        true => Some("it shuts down and begins no session".to_owned()),
        false if places_in_use(status) < most => full_by_others(status).map(|(used, most)| {
            format!("all its sessions are in use ({used} of {most}), by other tenants too")
        }),
        false if most_of_server(status).is_some_and(|(_, all)| all > most.into()) => Some(format!(
            "all sessions that this tenant may have are in use ({most} of {most})"
        )),
        false => Some(format!("all its sessions are in use ({most} of {most})")),
    }
}

/// The limit of a server's sessions: its use, where the server tells that, and value.
fn most_of_server(status: &Status) -> Option<(Option<u64>, u64)> {
    let limits = &status.limits;
    let limit = limits.iter().find(|limit| limit.name == "sessions")?;
    Some((limit.used, limit.value))
}

/// Sessions in use and the most there may be, of a server that is full by sessions that this client, a tenant without `--admin`, does not see.
pub(crate) fn full_by_others(status: &Status) -> Option<(u64, u64)> {
    let tenants = &status.tenants;
    let sees_own = !tenants.is_empty() && tenants.iter().all(|tenant| !tenant.admin);
    let (Some(used), most) = most_of_server(status)? else {
        return None;
    };
    (sees_own && used >= most && used > status.sessions.len() as u64).then_some((used, most))
}

/// Sessions that hold a place. Those that are cut off give way to new ones.
pub(crate) fn places_in_use(status: &Status) -> u32 {
    let held = status
        .sessions
        .iter()
        .filter(|session| session.away_ms == 0);
    u32::try_from(held.count()).unwrap_or(u32::MAX)
}

/// Whether a server is there but has no time: many programs start at once.
fn is_busy(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<DialError>() {
        Some(DialError::Handshake {
            why: HandshakeError::Rejected(reject),
            ..
        }) => reject.code == RejectCode::Busy,
        Some(DialError::Transport(TransportError::Closed { .. } | TransportError::Lost { .. })) => {
            true
        }
        _ => false,
    }
}

fn cuda_names(snapshot: &[u8]) -> Vec<(String, &'static str)> {
    let devices = cuda::snapshot::Snapshot::decode(snapshot).map(|snapshot| snapshot.devices);
    let devices = devices.unwrap_or_default().into_iter();
    devices
        .map(|device| (String::from_utf8_lossy(&device.name).into_owned(), "CUDA"))
        .collect()
}

/// One line: servers with their devices, equal ones counted.
fn line(answers: &[(Address, Option<Answer>)], visible: Option<&str>) -> String {
    let described = answers.iter().map(|(server, answer)| {
        let server = short(server);
        match answer {
            Some(Answer::Devices(devices, _)) => format!("{server}: {}", counted(devices)),
            Some(Answer::Nothing(_)) => format!("{server}: no device"),
            Some(Answer::NoPlace(_)) => format!("{server}: no place"),
            Some(Answer::Failed(_)) => format!("{server}: no answer"),
            None => format!("{server}: no answer yet"),
        }
    });
    let mut line = format!("towline: {}", described.collect::<Vec<_>>().join("; "));
    if let Some(visible) = visible {
        line += &format!(" (of CUDA devices: CUDA_VISIBLE_DEVICES={visible})");
    }
    line.replace(char::is_control, "?")
}

/// Names in the order of the devices: `2 x NVIDIA H200 (CUDA, OpenCL)`.
fn counted(devices: &[(String, &'static str)]) -> String {
    let mut names: Vec<&String> = Vec::new();
    let mut apis: BTreeMap<&String, BTreeMap<&str, usize>> = BTreeMap::new();
    for (name, api) in devices {
        if !names.contains(&name) {
            names.push(name);
        }
        *apis.entry(name).or_default().entry(api).or_default() += 1;
    }
    let described = names.into_iter().map(|name| {
        let apis = &apis[name];
        // A device may be there for both.
        let count = match apis.values().max() {
            None | Some(1) => String::new(),
            Some(count) => format!("{count} x "),
        };
        let apis: Vec<&str> = apis.keys().copied().collect();
        format!("{count}{name} ({})", apis.join(", "))
    });
    described.collect::<Vec<_>>().join(", ")
}

/// One sentence: why there is no device.
fn refusal(answers: &[(Address, Option<Answer>)], origin: &str) -> String {
    let reasons: Vec<String> = answers
        .iter()
        .map(|(server, answer)| match answer {
            Some(Answer::Failed(why)) => why.clone(),
            Some(Answer::Nothing(why) | Answer::NoPlace(why)) => {
                format!("{} answers, but {why}", short(server))
            }
            Some(Answer::Devices(..)) | None => format!("{} did not answer", short(server)),
        })
        .collect();
    let named = match origin {
        "--server" => String::new(),
        origin => format!(" (named in {origin})"),
    };
    reasons.join("; ") + &named
}

#[cfg(test)]
mod tests {
    use towline_wire::control::{ServerLimit, SessionStatus};

    use super::*;

    fn server(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn devices(names: &[(&str, &'static str)]) -> Answer {
        Answer::Devices(
            names
                .iter()
                .map(|(name, api)| ((*name).to_owned(), *api))
                .collect(),
            true,
        )
    }

    #[test]
    fn line_counts_equal_devices() {
        let h200 = [
            ("NVIDIA H200", "CUDA"),
            ("NVIDIA H200", "CUDA"),
            ("NVIDIA H200", "OpenCL"),
            ("cpu\x1b", "OpenCL"),
        ];
        let answers = [
            (server("gpu1"), Some(devices(&h200))),
            (server("gpu2:1"), Some(Answer::Failed("x".into()))),
            (server("gpu3"), None),
        ];
        assert_eq!(
            line(&answers, Some("0")),
            "towline: gpu1: 2 x NVIDIA H200 (CUDA, OpenCL), cpu? (OpenCL); gpu2:1: no answer; gpu3: no answer yet \
             (of CUDA devices: CUDA_VISIBLE_DEVICES=0)"
        );
    }

    #[test]
    fn collectives_need_every_server_that_has_devices() {
        let with = |other| have_collectives(&[(server("gpu1"), Some(devices(&[]))), other]);
        assert!(with((server("gpu2"), Some(Answer::Nothing("x".into())))));
        assert!(!with((server("gpu2"), Some(Answer::Failed("x".into())))));
        assert!(!with((server("gpu2"), None)));
        let without = Answer::Devices(Vec::new(), false);
        assert!(!with((server("gpu2"), Some(without))));
    }

    #[test]
    fn refusal_names_the_place_of_the_servers() {
        let answers = [
            (server("gpu1"), Some(Answer::Failed("gpu1 refused".into()))),
            (
                server("gpu2"),
                Some(Answer::Nothing("it has no OpenCL device".into())),
            ),
        ];
        let text = refusal(&answers, "/etc/towline/servers");
        assert_eq!(
            text,
            "gpu1 refused; gpu2 answers, but it has no OpenCL device (named in /etc/towline/servers)"
        );
        assert!(!refusal(&answers, "--server").contains("named in"));
    }

    #[test]
    fn server_without_a_place_is_refused() {
        let session = |away_ms| SessionStatus {
            away_ms,
            ..SessionStatus::default()
        };
        let with = |sessions: &[u64], draining| {
            no_place(&Status {
                max_sessions: 2,
                draining,
                sessions: sessions.iter().copied().map(session).collect(),
                ..Status::default()
            })
        };
        assert_eq!(with(&[0], false), None);
        assert_eq!(with(&[0, 7], false), None, "one is cut off");
        assert!(with(&[0, 0], false).unwrap().contains("2 of 2"));
        assert!(with(&[], true).unwrap().contains("shuts down"));
        let among = |own: usize, used, value| {
            no_place(&Status {
                max_sessions: 2,
                sessions: vec![session(0); own],
                tenants: vec![Default::default()],
                limits: vec![ServerLimit {
                    name: "sessions".into(),
                    value,
                    used,
                }],
                ..Status::default()
            })
        };
        assert_eq!(among(1, None, 8), None);
        assert_eq!(among(1, Some(7), 8), None);
        assert!(among(1, Some(8), 8).unwrap().contains("8 of 8), by other"));
        assert!(among(2, None, 8).unwrap().contains("this tenant"));
    }

    #[test]
    fn first_device_is_enough_without_a_terminal() {
        let servers = [server("slow"), server("fast")];
        let answer = |address: &Address| {
            if short(address) == "slow" {
                std::thread::sleep(Duration::from_secs(60));
            }
            devices(&[("x", "CUDA")])
        };
        let start = Instant::now();
        let answers = gather(&servers, false, answer);
        assert!(start.elapsed() < Duration::from_secs(30));
        assert!(answers[0].1.is_none() && has_device(&answers[1].1));
    }

    #[test]
    fn failures_do_not_end_the_wait_for_others() {
        let servers = [server("dead"), server("slow")];
        let answer = |address: &Address| match short(address).as_str() {
            "dead" => Answer::Failed("dead".into()),
            _ => {
                std::thread::sleep(Duration::from_millis(100));
                devices(&[("x", "CUDA")])
            }
        };
        let answers = gather(&servers, false, answer);
        assert!(has_device(&answers[1].1));
    }
}
