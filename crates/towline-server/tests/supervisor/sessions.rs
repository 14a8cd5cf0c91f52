//! Sessions: how they begin, what they cost, how they end.

use super::*;

pub(super) fn session_echoes_through_its_worker() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lanes: Vec<Lane> = (0..3).map(|index| client.lane(index, 3)).collect();
    assert!(lanes.iter().all(Lane::echoes));
    Ok(())
}

pub(super) fn ping_in_a_session_is_answered() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    client.send(&Message::Ping.encode());
    assert_eq!(client.message(), Some(Message::Alive));
    Ok(())
}

pub(super) fn cuda_session_gets_a_worker_of_its_own_kind() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        cuda_worker: Some(worker("cuda")),
        ..config("echo")
    });
    let cuda = Client::join(&server.address, Purpose::CudaSession, None)?;
    let welcome = cuda.welcome.as_ref().expect("it was let in");
    let snapshot = towline_wire::cuda::snapshot::Snapshot::decode(&welcome.snapshot)?;
    assert_eq!(snapshot.devices[0].name, b"Towline null device");
    // Both kinds at once, and a second of this kind.
    let opencl = Client::session(&server.address);
    assert!(opencl.lane(0, 1).echoes());
    let second = Client::join(&server.address, Purpose::CudaSession, None)?;
    assert!(second.welcome.is_some());
    Ok(())
}

pub(super) fn cuda_session_without_a_driver_is_told_and_others_go_on() -> Result<(), Failed> {
    for cuda_worker in [None, Some(worker("broken"))] {
        let server = serve(SupervisorConfig {
            cuda_worker,
            ..config("echo")
        });
        let refused = Client::join(&server.address, Purpose::CudaSession, None).err();
        match refused {
            Some(HandshakeError::Rejected(Reject {
                code: RejectCode::NoDevice,
                ..
            })) => {}
            other => return Err(format!("refused with {other:?}").into()),
        }
        assert!(Client::session(&server.address).lane(0, 1).echoes());
    }
    Ok(())
}

pub(super) fn server_with_cuda_only_serves_and_says_what_it_lacks() -> Result<(), Failed> {
    for worker_kind in [None, Some(worker("broken"))] {
        let server = serve(SupervisorConfig {
            worker: worker_kind,
            cuda_worker: Some(worker("cuda")),
            ..config("echo")
        });
        let refused = Client::join(&server.address, Purpose::Session, None).err();
        match refused {
            Some(HandshakeError::Rejected(Reject {
                code: RejectCode::NoDevice,
                text,
                ..
            })) => assert!(text.contains("no OpenCL devices"), "{text}"),
            other => return Err(format!("refused with {other:?}").into()),
        }
        let query = Client::query(&server.address);
        let snapshot = query.welcome.expect("it was let in").snapshot;
        assert_eq!(
            towline_wire::snapshot::Snapshot::decode(&snapshot)?.devices,
            []
        );
        let cuda = Client::join(&server.address, Purpose::CudaSession, None)?;
        assert!(cuda.welcome.is_some());
    }
    Ok(())
}

pub(super) fn server_without_any_device_says_why_for_each_api() -> Result<(), Failed> {
    let started = Supervisor::start(SupervisorConfig {
        cuda_worker: Some(worker("broken")),
        ..config("broken")
    });
    let said = started
        .err()
        .map(|error| error.to_string())
        .unwrap_or_default();
    assert!(
        said.contains("no OpenCL platform was found; nor for CUDA:"),
        "{said}"
    );
    Ok(())
}

pub(super) fn cuda_devices_are_told_without_a_session_and_nobody_stays() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        cuda_worker: Some(worker("cuda-look")),
        ..config("echo")
    });
    let mut client = Client::query(&server.address);
    for _ in 0..2 {
        client.send(&Message::CudaDevicesRequest.encode());
        let Some(Message::CudaDevices(devices)) = client.message() else {
            panic!("no devices")
        };
        let snapshot = devices.snapshot.map_err(Failed::from)?;
        let snapshot = towline_wire::cuda::snapshot::Snapshot::decode(&snapshot)?;
        assert_eq!(snapshot.devices[0].name, b"Towline null device");
    }
    // A driver would hold memory of the device.
    wait_until("no worker", Duration::from_secs(5), || {
        workers("cuda-look").is_empty()
    });
    Ok(())
}

pub(super) fn lanes_and_bytes_sent_early_arrive() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let connection = Registry::global().connect(&server.address, &ConnectOptions::default())?;
    let preamble = AttachPreamble {
        ticket: client.ticket(),
        lane_index: 0,
        lane_count: 1,
        again: false,
    }
    .encode();
    let mut early = preamble.to_vec();
    early.extend_from_slice(&[b'e'; 80_000]);
    connection.send(&[IoSlice::new(&early)])?;
    let mut back = vec![0; 80_000];
    recv_exact(&*connection, &mut back)?;
    assert!(back.iter().all(|byte| *byte == b'e'));
    Ok(())
}

pub(super) fn closing_control_frees_the_worker_within_a_second() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    let worker = only_worker(&server.address);
    drop(client);
    wait_until("the worker's end", Duration::from_secs(1), || {
        !alive(worker)
    });
    assert!(lane.is_refused());
    // The process is gone a moment before all that it had is.
    wait_until("the session's end", Duration::from_secs(1), || {
        Client::query(&server.address).status().sessions.is_empty()
    });
    Ok(())
}

pub(super) fn worker_that_ignores_the_end_is_killed_within_a_second() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    let worker = only_worker(&server.address);
    lane.order(b"hang----");
    std::thread::sleep(Duration::from_millis(100));
    drop(client);
    wait_until("the worker's end", Duration::from_secs(1), || {
        !alive(worker)
    });
    Ok(())
}

pub(super) fn crash_is_told_to_its_client_and_spares_the_others() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut victim = Client::session(&server.address);
    let other = Client::session(&server.address);
    let (victims_lane, others_lane) = (victim.lane(0, 1), other.lane(0, 1));
    assert!(victims_lane.echoes() && others_lane.echoes());
    victims_lane.order(b"crash---");
    let Some(Message::SessionEnded(ended)) = victim.message() else {
        panic!("not told")
    };
    assert!(ended.reason.contains("SIGABRT"), "{}", ended.reason);
    assert_eq!(victim.message(), None);
    assert!(others_lane.echoes());
    wait_until("counting the crash", Duration::from_secs(5), || {
        let status = Client::query(&server.address).status();
        status.sessions_crashed == 1 && status.sessions.len() == 1
    });
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    Ok(())
}

pub(super) fn engine_error_reaches_the_client() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    client.lane(0, 2).order(b"fail----");
    let _second = client.lane(1, 2);
    let Some(Message::SessionEnded(ended)) = client.message() else {
        panic!("not told")
    };
    assert_eq!(ended.reason, "the device is lost");
    assert_eq!(
        Client::query(&server.address).status().sessions_crashed,
        0,
        "the worker ended in order"
    );
    Ok(())
}

pub(super) fn workers_start_at_once_and_clients_get_them_in_the_order_they_came()
-> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let pipe = folder.path().join("gate");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()?
            .success()
    );
    // Open to both, so that neither side waits for the other.
    let mut gate = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)?;
    let kind = format!("gated-{}", pipe.display());
    let at_once = 2 * std::thread::available_parallelism()?.get();
    let clients = at_once + 2;
    let server = serve(SupervisorConfig {
        cuda_worker: Some(worker(&kind)),
        max_sessions: u32::try_from(clients)?,
        ..config("echo")
    });
    let mut query = Client::query(&server.address);
    let (welcomed, order) = std::sync::mpsc::channel();
    std::thread::scope(|scope| -> Result<(), Failed> {
        for client in 0..clients {
            let (welcomed, address) = (welcomed.clone(), &server.address);
            scope.spawn(move || {
                let session = Client::join(address, Purpose::CudaSession, None);
                // The test may have failed by now.
                let _ = welcomed.send((client, session));
            });
            let admitted = client as u64 + 1;
            wait_until("admitted", Duration::from_secs(10), || {
                query.status().sessions_started == admitted
            });
            // From being admitted to waiting is one step.
            std::thread::sleep(Duration::from_millis(20));
        }
        wait_until("several start", Duration::from_secs(10), || {
            workers(&kind).len() >= at_once
        });
        assert_eq!(workers(&kind).len(), at_once, "and no more than these");
        let mut held = Vec::new();
        for client in 0..clients {
            std::io::Write::write_all(&mut gate, b"x")?;
            let (served, session) = order.recv_timeout(Duration::from_secs(20))?;
            held.push(session?);
            assert_eq!(served, client);
        }
        Ok(())
    })
}

pub(super) fn audit_tells_of_each_session_what_it_was_and_how_it_ended() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit");
    let server = serve(SupervisorConfig {
        audit_log: Some(path.clone()),
        ..config("echo")
    });
    let quiet = Client::session(&server.address);
    assert!(quiet.lane(0, 1).echoes());
    drop(quiet);
    let mut crashing = Client::session(&server.address);
    crashing.lane(0, 1).order(b"crash---");
    crashing.message();
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        lines.map_while(Result::ok).collect()
    };
    wait_until("four lines", Duration::from_secs(10), || lines().len() == 4);
    let lines = lines();
    let of = |event: &str, session: u64| {
        let found = lines
            .iter()
            .find(|line| line["event"] == event && line["session"] == session);
        found.expect("there is such a line").clone()
    };
    let started = of("session_started", 1);
    assert_eq!(
        (&started["program"], &started["api"], &started["host"]),
        (&"test".into(), &"opencl".into(), &"here".into())
    );
    assert_eq!(started["tenant"], "default");
    let ended = of("session_ended", 1);
    assert_eq!(
        (&ended["calls"], &ended["crashed"], &ended["reason"]),
        (&1.into(), &false.into(), &serde_json::Value::Null)
    );
    let crashed = of("session_ended", 2);
    let reason = crashed["reason"].as_str().unwrap_or_default();
    assert!(
        crashed["crashed"] == true && reason.contains("SIGABRT"),
        "{crashed}"
    );
    Ok(())
}

pub(super) fn killed_session_is_told_and_audited() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit");
    let server = serve(SupervisorConfig {
        audit_log: Some(path.clone()),
        ..config("echo")
    });
    let mut victim = Client::session(&server.address);
    let other = Client::session(&server.address);
    let lanes = [victim.lane(0, 1), other.lane(0, 1)];
    assert!(lanes.iter().all(Lane::echoes));
    let mut killer = Client::join_from("laptop", &server.address, Purpose::Query, None)?;
    assert_eq!(killer.kill(1), Ok(()));
    // The answer comes when the worker is gone.
    let sessions = killer.status().sessions;
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].session_id, 2);
    let Some(Message::SessionEnded(ended)) = victim.message() else {
        panic!("not told")
    };
    let reason = "the session was ended with `towline kill` on laptop";
    assert_eq!(ended.reason, reason);
    assert!(lanes[1].echoes());
    let again = killer.kill(1).expect_err("it is gone");
    assert!(again.contains("no session 1"), "{again}");
    assert_eq!(killer.status().sessions_crashed, 0);
    let lines = || -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines = text.lines().map(serde_json::from_str);
        lines.map_while(Result::ok).collect()
    };
    wait_until("four lines", Duration::from_secs(10), || lines().len() == 4);
    let lines = lines();
    assert_eq!(lines[2]["event"], "session_killed");
    assert_eq!(
        (&lines[2]["session"], &lines[2]["by_host"]),
        (&1.into(), &"laptop".into())
    );
    assert_eq!(lines[3]["event"], "session_ended");
    assert_eq!(
        (&lines[3]["crashed"], &lines[3]["reason"]),
        (&false.into(), &reason.into())
    );
    Ok(())
}

pub(super) fn tenant_kills_its_own_sessions_only() -> Result<(), Failed> {
    let server = serve(with_tenants("echo"));
    let join = |name: &str, purpose| join_as(name, purpose, &server);
    let mut first = join("anna", Purpose::Session)?;
    let second = join("anna", Purpose::Session)?;
    let mut bert = join("bert", Purpose::Query)?;
    let foreign = bert.kill(1).expect_err("it is anna's");
    let missing = bert.kill(9).expect_err("there is none");
    assert_eq!(foreign.replace('1', "9"), missing);
    assert!(second.lane(0, 1).echoes());
    assert_eq!(join("anna", Purpose::Query)?.kill(2), Ok(()));
    assert_eq!(join("operators", Purpose::Query)?.kill(1), Ok(()));
    let Some(Message::SessionEnded(ended)) = first.message() else {
        panic!("not told")
    };
    assert_eq!(
        ended.reason,
        "the tenant `operators` ended the session with `towline kill` on laptop"
    );
    Ok(())
}

pub(super) fn session_cannot_kill_others() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    let other = Client::session(&server.address);
    client.send(&Message::KillSession(KillSession { session_id: 2 }).encode());
    let Some(Message::Reject(reject)) = client.message() else {
        panic!("not rejected")
    };
    assert_eq!(reject.code, RejectCode::Malformed);
    assert!(other.lane(0, 1).echoes());
    Ok(())
}

pub(super) fn worker_killed_for_memory_is_not_blamed_on_the_driver() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    client.lane(0, 1).order(b"kill----");
    let said = client.message();
    assert!(
        matches!(&said, Some(Message::SessionEnded(ended))
            if ended.reason.contains("out of memory") && !ended.reason.contains("driver")),
        "{said:?}"
    );
    Ok(())
}

pub(super) fn sessions_are_limited_and_places_come_back() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        max_sessions: 2,
        ..config("echo")
    });
    let first = Client::session(&server.address);
    let _second = Client::session(&server.address);
    let third = Client::join(&server.address, Purpose::Session, None);
    let Err(HandshakeError::Rejected(reject)) = third.map(drop) else {
        panic!("a third session")
    };
    assert_eq!(reject.code, RejectCode::TooManySessions);
    assert!(reject.text.contains("--max-sessions"), "{}", reject.text);
    // Asking takes no place.
    assert_eq!(Client::query(&server.address).status().sessions.len(), 2);
    drop(first);
    wait_until("a free place", Duration::from_secs(2), || {
        Client::join(&server.address, Purpose::Session, None).is_ok()
    });
    Ok(())
}

pub(super) fn status_counts_what_the_engine_counts() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!((0..5).all(|_| lane.echoes()));
    let status = client.status();
    let session = &status.sessions[0];
    assert_eq!(
        (session.calls, session.received_bytes, session.lanes),
        (5, 40, 1)
    );
    assert_eq!(
        (session.program.as_str(), session.client_pid),
        ("test", std::process::id())
    );
    assert_eq!(
        (
            status.max_sessions,
            status.sessions_started,
            status.draining
        ),
        (8, 1, false)
    );
    Ok(())
}

pub(super) fn devices_are_the_workers_snapshot() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let expected = EchoEngine.snapshot();
    let mut client = Client::query(&server.address);
    client.send(&Message::DevicesRequest.encode());
    let Some(Message::Devices(devices)) = client.message() else {
        panic!("no devices")
    };
    assert_eq!(devices.snapshot, expected);
    // Also just after the worker at hand was given away.
    let session = Client::session(&server.address);
    let query = Client::query(&server.address);
    assert_eq!(query.welcome.expect("welcome").snapshot, expected);
    assert_eq!(session.welcome.expect("welcome").snapshot, expected);
    Ok(())
}
