//! The supervisor against honest and hostile clients, with real worker processes.
//!
//! This program is its own worker: started with the argument `worker` it serves a trivial engine that echoes, and does
//! what its orders say ("crash", "exit", ...). Hence a `main` of its own.

mod access;
mod client;
mod encryption;
mod engine;
mod hostile;
mod life;
mod metrics;
mod migration;
mod monitor;
mod peers;
mod resume;
mod sessions;

use std::io::IoSlice;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libtest_mimic::{Arguments, Failed, Trial};
use towline_server::supervisor::{
    ImageConfig, JailConfig, MetricsConfig, MostAhead, Quota, ServerLimits, Supervisor,
    SupervisorConfig, SupervisorError, TenantEntry, TenantLimits, TenantTable,
};
use towline_server::worker::cuda::{self, CudaOptions};
use towline_server::worker::nvml::{self, NvmlOptions};
use towline_server::worker::process::{self, Engine, EngineError, LaneKind, Session};
use towline_sys::jail::{UnprivilegedUser, WorkerKind};
use towline_sys::process::WorkerProgram;
use towline_transport::tls::{ClientTls, Identity, ServerTls, TlsConnection};
use towline_transport::{
    Address, ConnectOptions, Connection, Registry, TransportError, recv_exact, recv_exact_within,
};
use towline_wire::control::{
    AttachPreamble, Channel, CheckpointSession, ClientHandshake, ClientProgress, HandshakeError,
    Hello, KillSession, LaneEnd, LaneKey, Message, MessageBuffer, MigrateSession, NvmlQuestions,
    PEER_CHALLENGE_BYTES, PEER_HELLO_BYTES, PeerConnect, PeerConnector, PeerOffer, Purpose,
    Question, Reject, RejectCode, ResumeSession, ServerIdentity, SessionCheckpointed,
    SessionLimits, SessionMigrated, Status, TICKET_BYTES, Ticket, Token, VersionRange, Welcome,
    labels, limits,
};
use towline_wire::nvml::{
    DeviceGetMemoryInfo, DeviceGetMemoryInfoReply, DeviceGetPowerUsage, DeviceGetPowerUsageReply,
    DeviceHandle, Message as _, NVML_ERROR_INVALID_ARGUMENT, Processes, ProcessesReply, Request,
};

use client::{Client, Lane, Wire};
use engine::{EchoEngine, open_engine};

fn main() {
    env_logger::Builder::from_env(env_logger::Env::new().filter("TOWLINE_LOG")).init();
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("worker") {
        let kind = arguments.next().unwrap_or_default();
        if kind.starts_with("monitor") {
            let options = NvmlOptions {
                null: true,
                ..NvmlOptions::default()
            };
            process::monitor(|| {}, move || nvml::open(&options));
        }
        process::main(|| {}, move || open_engine(&kind));
    }
    libtest_mimic::run(&Arguments::from_args(), tests()).exit();
}

/// Tests by module, each under its own name.
macro_rules! tests {
    ($($module:ident { $($test:ident,)* })*) => {
        vec![$($(Trial::test(stringify!($test), $module::$test)),*),*]
    };
}

fn tests() -> Vec<Trial> {
    tests! {
        sessions {
            session_echoes_through_its_worker,
            ping_in_a_session_is_answered,
            cuda_session_gets_a_worker_of_its_own_kind,
            cuda_session_without_a_driver_is_told_and_others_go_on,
            server_with_cuda_only_serves_and_says_what_it_lacks,
            server_without_any_device_says_why_for_each_api,
            cuda_devices_are_told_without_a_session_and_nobody_stays,
            lanes_and_bytes_sent_early_arrive,
            closing_control_frees_the_worker_within_a_second,
            worker_that_ignores_the_end_is_killed_within_a_second,
            crash_is_told_to_its_client_and_spares_the_others,
            engine_error_reaches_the_client,
            audit_tells_of_each_session_what_it_was_and_how_it_ended,
            killed_session_is_told_and_audited,
            tenant_kills_its_own_sessions_only,
            session_cannot_kill_others,
            worker_killed_for_memory_is_not_blamed_on_the_driver,
            workers_start_at_once_and_clients_get_them_in_the_order_they_came,
            sessions_are_limited_and_places_come_back,
            status_counts_what_the_engine_counts,
            devices_are_the_workers_snapshot,
        }
        access {
            token_matrix_lets_in_only_equal_tokens,
            other_version_is_told_what_the_server_speaks,
            routable_address_needs_a_token,
            sessions_that_are_not_kept_apart_are_for_this_user_alone,
            wrong_ticket_is_refused,
            ticket_cannot_be_replayed,
            ticket_dies_with_its_session,
        }
        encryption {
            session_is_encrypted_from_end_to_end,
            clear_client_is_refused_unless_both_sides_agreed,
            loopback_without_a_token_stays_clear,
            middle_with_tls_ends_of_its_own_is_refused,
            unknown_tenant_gets_the_answer_of_a_wrong_token,
            stranger_with_the_ticket_takes_no_lane_away,
            silent_strangers_hold_no_lane_up,
            lane_of_another_session_is_refused,
            flipped_bits_give_errors_and_never_wrong_bytes,
        }
        hostile {
            lane_flood_is_refused,
            offers_of_a_session_are_limited_and_others_get_in,
            garbage_is_refused_and_serves_on,
            slow_client_is_cut_off,
            flood_of_silent_connections_does_not_shut_others_out,
            connections_left_half_open_hold_nobody_up_for_long,
            endless_flood_lets_every_client_in,
            session_without_lanes_ends_and_frees_its_place,
            names_of_clients_are_shown_without_control_characters,
            idle_queries_make_place_for_new_ones,
            client_that_never_reads_is_cut_off,
            hostile_worker_cannot_harm_the_supervisor,
            worker_that_holds_its_reader_up_is_killed,
        }
        migration {
            session_that_has_moved_is_ended_and_audited,
            session_that_stays_goes_on,
            two_requests_for_one_move_are_one,
            checkpointed_session_is_ended_and_audited,
            tenants_checkpoint_their_own_sessions,
            client_that_leaves_unasked_breaks_the_protocol,
            session_that_ends_before_it_moves_is_told,
            impossible_moves_are_neither_asked_for_nor_audited,
            tenants_move_their_own_sessions_and_admins_drain,
        }
        life {
            failing_worker_says_why_at_start,
            start_can_be_interrupted,
            stop_leaves_nothing_behind,
            jailed_worker_is_confined,
            temporary_files_of_a_session_can_be_resized,
            worker_of_a_kind_that_starts_no_programs_cannot,
        }
        metrics {
            metrics_follow_sessions_and_counters_stay,
            metrics_count_crashes_and_refusals_by_reason,
            metrics_beyond_this_host_need_their_token,
            metrics_are_told_on_a_unix_socket,
            hostile_scrapes_do_not_keep_others_out,
            metrics_tell_what_nvml_says_of_devices,
            metrics_have_the_names_of_docs_alerts_and_dashboard,
        }
        monitor {
            one_monitor_answers_all_who_ask_nvml,
            monitor_that_died_is_followed_by_another,
            client_sees_the_processes_of_its_own_machine,
            limited_session_sees_its_limit_through_nvml,
            server_without_nvml_says_so,
        }
        peers {
            servers_that_list_each_other_connect_their_workers,
            server_that_is_not_listed_is_refused_by_both_sides,
            peer_ticket_is_good_once_and_for_nothing_else,
            peer_ticket_dies_with_its_session,
            peer_that_does_not_know_the_token_is_refused,
            peer_from_another_address_is_refused_without_a_token,
            peer_beyond_this_machine_needs_a_token,
            garbage_of_peers_is_refused_and_serves_on,
        }
        resume {
            client_that_was_cut_off_goes_on,
            connection_that_is_replaced_need_not_have_ended,
            stranger_goes_on_with_no_session,
            client_that_stays_away_loses_its_session,
            session_without_its_client_yields_its_place,
            session_without_its_client_yields_its_memory,
            client_process_that_has_ended_is_not_waited_for,
            sessions_without_grace_end_with_their_connection,
        }
    }
}

/// A server of anna, bert and operators, who are admins.
fn with_tenants(kind: &str) -> SupervisorConfig {
    let entry = |name: &str| TenantEntry {
        admin: name == "operators",
        ..TenantEntry::new(name, secret_of(name))
    };
    let entries = ["anna", "bert", "operators"].map(|name| (name.to_owned(), entry(name)));
    SupervisorConfig {
        tenants: Arc::new(TenantTable::listed(entries.into())),
        ..config(kind)
    }
}

fn secret_of(tenant: &str) -> Token {
    token(&format!("the token of {tenant}")).expect("it is long enough")
}

fn join_as(tenant: &str, purpose: Purpose, server: &Server) -> Result<Client, HandshakeError> {
    let hello = Hello::new(purpose, "test", 1, "laptop", [7; 32]).of_tenant(tenant);
    Client::join_over(Wire::Tls, &server.address, hello, Some(secret_of(tenant)))
}

fn config(kind: &str) -> SupervisorConfig {
    SupervisorConfig {
        listen: vec!["tcp://127.0.0.1:0".parse().unwrap()],
        tenants: Arc::new(TenantTable::single(None)),
        leases: None,
        tls: ServerTls {
            identity: Identity::generate().unwrap().0,
            authority: None,
        },
        no_encryption: false,
        insecure: false,
        peer_token: None,
        peers: Vec::new(),
        max_sessions: 8,
        audit_log: None,
        metrics: None,
        quota: Quota {
            temporary_bytes: 1 << 30,
            processes: 1024,
            ..Quota::default()
        },
        bounds: ServerLimits::default(),
        limits: SessionLimits {
            max_lanes: 4,
            payload_lanes: 2,
            chunk_bytes: 1 << 20,
            chunk_count: 4,
        },
        worker: Some(worker(kind)),
        cuda_worker: None,
        cuda_is_expected: true,
        most_ahead: MostAhead { opencl: 1, cuda: 1 },
        collectives: None,
        nvml_worker: None,
        images: ImageConfig::default(),
        kernels: None,
        jail: JailConfig {
            disabled: true,
            ..JailConfig::default()
        },
        identity: ServerIdentity {
            name: "here".into(),
            software: "test".into(),
            key_lasts: false,
            collectives: false,
        },
    }
}

fn worker(kind: &str) -> WorkerProgram {
    WorkerProgram {
        path: WorkerProgram::this_program(),
        arguments: vec!["worker".into(), kind.into()],
        environment: std::env::vars_os()
            .filter(|(name, _)| name == "TOWLINE_LOG" || name == "PATH")
            .collect(),
        kind: WorkerKind::OpenCl,
    }
}

struct Server {
    supervisor: Supervisor,
    address: Address,
}

fn serve(config: SupervisorConfig) -> Server {
    let supervisor = Supervisor::start(config).unwrap_or_else(|error| panic!("{error}"));
    let address = supervisor.addresses().remove(0);
    Server {
        supervisor,
        address,
    }
}

fn token(text: &str) -> Option<Token> {
    Some(Token::from_bytes(text.as_bytes()).unwrap())
}

fn alive(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn wait_until(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "{what} did not come true within {limit:?}"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The workers of a kind that live. Tests run at once, so each that counts has a kind of its own.
fn workers(kind: &str) -> Vec<u32> {
    let arguments = format!("worker\0{kind}\0");
    let entries = std::fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
        line.is_ok_and(|line| line.ends_with(&arguments))
    })
    .collect()
}

fn only_worker(address: &Address) -> u32 {
    let sessions = Client::query(address).status().sessions;
    assert_eq!(sessions.len(), 1);
    sessions[0].worker_pid
}

/// Two free ports of this machine, as the addresses of two servers.
fn two_addresses() -> [Address; 2] {
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().to_string().parse().unwrap())
}

/// Two servers that list each other, as the lists say.
fn serve_peers(
    tokens: [Option<Token>; 2],
    lists: [&[Address]; 2],
    at: &[Address; 2],
) -> [Server; 2] {
    let server = |index: usize| {
        serve(SupervisorConfig {
            listen: vec![at[index].clone()],
            tenants: Arc::new(TenantTable::single(tokens[index].clone())),
            peer_token: tokens[index].clone(),
            peers: lists[index].to_vec(),
            ..config("echo")
        })
    };
    [server(0), server(1)]
}
