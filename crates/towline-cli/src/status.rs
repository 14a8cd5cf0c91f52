//! `towline status`: who uses servers, and how much.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use towline_transport::Address;
use towline_wire::control::{LIMITS, Purpose, ServerIdentity, Status};

use crate::FAILURE;
use crate::ask::{self, Server};
use crate::cli::StatusOptions;
use crate::probe::full_by_others;
use crate::servers;
use crate::table::{self, Table};

/// How often `--watch` asks.
const PERIOD: Duration = Duration::from_secs(1);

/// One server, as `--json` prints it.
#[derive(Debug, Serialize)]
struct ServerStatus {
    server: String,
    name: String,
    software: String,
    uptime_ms: u64,
    draining: bool,
    max_sessions: u32,
    sessions_started: u64,
    sessions_crashed: u64,
    rejected: u64,
    sessions: Vec<SessionStatus>,
    /// Empty where the server has one token for all, or none.
    tenants: Vec<TenantStatus>,
    /// Limits of all clients together, and of the time that each may take.
    limits: BTreeMap<String, ServerLimit>,
    /// Sessions of all tenants and the most there may be, where others have places that this client lacks. In `limits`, too.
    #[serde(skip)]
    full_by_others: Option<(u64, u64)>,
}

#[derive(Debug, Serialize)]
struct ServerLimit {
    value: u64,
    /// Where it is known.
    used: Option<u64>,
}

/// Use and limits of a tenant; a limit of 0 is none.
#[derive(Debug, Serialize)]
struct TenantStatus {
    name: String,
    admin: bool,
    sessions: u32,
    max_sessions: u32,
    device_memory_bytes: u64,
    device_memory_limit: u64,
    sessions_started: u64,
    sessions_crashed: u64,
    rejected: u64,
    /// Of all its sessions since the start.
    device_time_ms: u64,
    /// Time from which it has no sessions, as RFC 3339 has it; null if it has no end.
    until: Option<String>,
    /// Whether `towline lease` gave it.
    lease: bool,
    /// Its devices, as its entry names them; empty if it has all.
    devices: Vec<String>,
    /// Of their time, in percent.
    share: Option<u8>,
    priority: &'static str,
    /// For turns on devices, since the start.
    wait_ms: u64,
}

#[derive(Debug, Serialize)]
struct SessionStatus {
    id: u64,
    tenant: String,
    api: &'static str,
    program: String,
    host: String,
    pid: u32,
    peer: String,
    worker_pid: u32,
    age_ms: u64,
    /// How long its client has been cut off; 0 while it is there.
    away_ms: u64,
    lanes: u16,
    peer_lanes: u16,
    device_memory_bytes: u64,
    /// Device memory that it has given up for others until it goes on.
    swapped_bytes: u64,
    device_memory_peak: u64,
    /// 0 where nothing limits it.
    device_memory_limit: u64,
    received_bytes: u64,
    sent_bytes: u64,
    calls: u64,
    launches: u64,
    device_time_ms: u64,
    limits: BTreeMap<&'static str, Limit>,
}

#[derive(Debug, Serialize)]
struct Limit {
    /// 0 where there is none.
    value: u64,
    /// Where it is known.
    used: Option<u64>,
    enforced_by: &'static str,
}

pub(crate) fn run(options: &StatusOptions) -> anyhow::Result<ExitCode> {
    let chosen = servers::choose(&options.servers)?;
    let access = servers::access(&chosen.settings)?;
    let servers = chosen.servers;
    loop {
        let results = ask::on_all(&servers, |address| {
            let mut server = Server::connect(address, &access)?;
            let status = server.status()?;
            Ok(describe(address, &server.identity, status))
        });
        let mut found = Vec::new();
        let mut failures = String::new();
        for (address, result) in servers.iter().zip(results) {
            match result {
                Ok(status) => found.push(status),
                Err(error) => {
                    let text = ask::told("could not ask", address, &error);
                    writeln!(failures, "towline: {text}")?;
                }
            }
        }
        let text = match options.json {
            // One line each time, so that a reader of --watch can tell the answers apart.
            true if options.watch => serde_json::to_string(&found)? + "\n",
            true => serde_json::to_string_pretty(&found)? + "\n",
            false => render(&found, table::terminal_columns()),
        };
        let mut out = std::io::stdout().lock();
        if options.watch && !options.json {
            // Home, and clear what is below.
            out.write_all(b"\x1b[H\x1b[J")?;
        }
        out.write_all(text.as_bytes())?;
        out.flush()?;
        eprint!("{failures}");
        if !options.watch {
            return Ok(ExitCode::from(if failures.is_empty() {
                0
            } else {
                FAILURE
            }));
        }
        std::thread::sleep(PERIOD);
    }
}

fn describe(address: &Address, identity: &ServerIdentity, status: Status) -> ServerStatus {
    let full_by_others = full_by_others(&status);
    let sessions = status.sessions.into_iter().map(|session| SessionStatus {
        id: session.session_id,
        tenant: session.tenant,
        api: match session.purpose {
            Purpose::CudaSession => "cuda",
            _ => "opencl",
        },
        program: session.program,
        host: session.hostname,
        pid: session.client_pid,
        peer: session.peer,
        worker_pid: session.worker_pid,
        age_ms: session.age_ms,
        away_ms: session.away_ms,
        lanes: session.lanes,
        peer_lanes: session.peer_lanes,
        device_memory_bytes: session.device_memory_bytes,
        swapped_bytes: session.swapped_bytes,
        device_memory_peak: session.device_memory_peak,
        device_memory_limit: session.device_memory_limit,
        received_bytes: session.received_bytes,
        sent_bytes: session.sent_bytes,
        calls: session.calls,
        launches: session.launches,
        device_time_ms: session.device_time_us / 1000,
        limits: LIMITS
            .iter()
            .zip(session.limits)
            .map(|(name, limit)| {
                let limit = Limit {
                    value: limit.value,
                    used: limit.used,
                    enforced_by: limit.enforcement.name(),
                };
                (*name, limit)
            })
            .collect(),
    });
    let tenants = status.tenants.into_iter().map(|tenant| TenantStatus {
        name: tenant.name,
        admin: tenant.admin,
        sessions: tenant.sessions,
        max_sessions: tenant.max_sessions,
        device_memory_bytes: tenant.device_memory_bytes,
        device_memory_limit: tenant.device_memory_limit,
        sessions_started: tenant.sessions_started,
        sessions_crashed: tenant.sessions_crashed,
        rejected: tenant.rejected,
        device_time_ms: tenant.device_time_us / 1000,
        until: moment(tenant.until_s).map(|until| until.to_string()),
        lease: tenant.is_lease,
        devices: tenant.devices,
        share: tenant.time.percent,
        priority: tenant.time.priority.name(),
        wait_ms: tenant.wait_us / 1000,
    });
    let limits = status.limits.into_iter().map(|limit| {
        let (value, used) = (limit.value, limit.used);
        (limit.name, ServerLimit { value, used })
    });
    ServerStatus {
        server: address.to_string(),
        name: identity.name.clone(),
        software: identity.software.clone(),
        uptime_ms: status.uptime_ms,
        draining: status.draining,
        max_sessions: status.max_sessions,
        sessions_started: status.sessions_started,
        sessions_crashed: status.sessions_crashed,
        rejected: status.rejected,
        sessions: sessions.collect(),
        tenants: tenants.collect(),
        limits: limits.collect(),
        full_by_others,
    }
}

/// Columns that a narrow terminal lacks, the least telling first.
const SPARE: [&str; 9] = [
    "WORKER", "PEERS", "LANES", "CALLS", "SENT", "RECEIVED", "API", "PID", "CLIENT",
];

fn render(servers: &[ServerStatus], columns: Option<usize>) -> String {
    let mut text = String::new();
    for (index, server) in servers.iter().enumerate() {
        let gap = if index > 0 { "\n" } else { "" };
        let draining = if server.draining {
            ", shutting down"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "{gap}{} ({}, {}), up {}{draining}: {} of {} sessions in use\n  {} since the start, {} crashed, {} refused",
            server.server,
            server.name.replace(char::is_control, "?"),
            server.software.replace(char::is_control, "?"),
            table::duration(server.uptime_ms),
            server.sessions.len(),
            server.max_sessions,
            server.sessions_started,
            server.sessions_crashed,
            table::counted(server.rejected, "client")
        );
        if let Some((used, most)) = server.full_by_others {
            let _ = writeln!(
                text,
                "  no place: {used} of {most} sessions of the server are in use, by other tenants too"
            );
        }
        let listed = !server.tenants.is_empty();
        let mut heading = vec![
            ">ID",
            "API",
            "PROGRAM",
            "CLIENT",
            ">PID",
            ">AGE",
            ">LANES",
            ">PEERS",
            ">MEMORY",
            ">RECEIVED",
            ">SENT",
            ">CALLS",
            ">BUSY",
            ">WORKER",
        ];
        if listed {
            heading.insert(0, "TENANT");
        }
        let mut sessions = Table::new(heading);
        for session in &server.sessions {
            let mut row = vec![
                session.id.to_string(),
                match session.api {
                    "cuda" => "CUDA",
                    _ => "OpenCL",
                }
                .to_owned(),
                session.program.clone(),
                session.host.clone(),
                session.pid.to_string(),
                table::duration(session.age_ms),
                session.lanes.to_string(),
                session.peer_lanes.to_string(),
                table::bytes(session.device_memory_bytes),
                table::bytes(session.received_bytes),
                table::bytes(session.sent_bytes),
                session.calls.to_string(),
                table::duration(session.device_time_ms),
                session.worker_pid.to_string(),
            ];
            if listed {
                row.insert(0, session.tenant.clone());
            }
            sessions.add(row);
        }
        if !sessions.is_empty() {
            text.push_str(&sessions.render_within(columns, &SPARE));
        }
        for session in server.sessions.iter().filter(|session| session.away_ms > 0) {
            let away = table::duration(session.away_ms);
            // Writing to a string does not fail.
            let _ = writeln!(
                text,
                "session {}: its client has been cut off for {away}",
                session.id
            );
        }
        for session in server
            .sessions
            .iter()
            .filter(|session| session.swapped_bytes > 0)
        {
            let swapped = table::bytes(session.swapped_bytes);
            // As above.
            let _ = writeln!(
                text,
                "session {}: swapped out, {swapped} in the server's host memory",
                session.id
            );
        }
    }
    text
}

/// A time that a server tells; `None` for none.
pub(crate) fn moment(seconds: u64) -> Option<jiff::Timestamp> {
    let seconds = i64::try_from(seconds).ok().filter(|seconds| *seconds > 0)?;
    jiff::Timestamp::from_second(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_listed_below_their_server() {
        let session = towline_wire::control::SessionStatus {
            session_id: 3,
            purpose: Purpose::CudaSession,
            program: "nbody".into(),
            device_memory_bytes: 1 << 30,
            device_time_us: 7_500_000,
            ..Default::default()
        };
        let status = Status {
            max_sessions: 8,
            sessions: vec![session],
            ..Default::default()
        };
        let identity = ServerIdentity {
            name: "gpu1".into(),
            software: "towline 1".into(),
            key_lasts: false,
            collectives: false,
        };
        let seen = |status: Status| {
            let server = "gpu1:7000".parse().unwrap();
            render(&[describe(&server, &identity, status)], None)
        };
        let mut named = status.clone();
        named.sessions[0].tenant = "anna".into();
        named.tenants = vec![Default::default()];
        let text = seen(named);
        assert!(
            text.contains("\nTENANT  ID") && text.contains("\nanna     3"),
            "{text}"
        );
        let text = seen(status.clone());
        assert!(
            text.starts_with("tcp://gpu1:7000 (gpu1, towline 1), up 0.0 s: 1 of 8 sessions in use"),
            "{text}"
        );
        let mut full = status.clone();
        full.tenants = vec![Default::default()];
        full.limits = vec![towline_wire::control::ServerLimit {
            name: "sessions".into(),
            value: 8,
            used: Some(8),
        }];
        let full = seen(full);
        assert!(full.contains("\n  no place: 8 of 8 sessions"), "{full}");
        let text = seen(status);
        assert!(!text.contains("TENANT"), "{text}");
        for part in ["CUDA", "nbody", "1.0 GiB", "7.5 s"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }
}
