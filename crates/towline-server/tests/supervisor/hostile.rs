//! Peers that break the rules.

use super::*;

pub(super) fn lane_flood_is_refused() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    assert!(
        client.lane(0, 5).is_refused(),
        "the limit of this server is 4"
    );
    let other = Client::session(&server.address);
    let lanes: Vec<Lane> = (0..4).map(|index| other.lane(index, 4)).collect();
    assert!(lanes.iter().all(Lane::echoes));
    assert!((0..200).all(|index| other.lane(index % 4, 4).is_refused()));
    assert!(lanes.iter().all(Lane::echoes));
    Ok(())
}

pub(super) fn offers_of_a_session_are_limited_and_others_get_in() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        cuda_worker: Some(worker("offers")),
        ..config("echo")
    });
    let join = || Client::join(&server.address, Purpose::CudaSession, None);
    let taken = |client: &Client| {
        let lane = client.lane(0, 1);
        lane.order(b"offers--");
        let mut count = [0; 8];
        recv_exact(&*lane.0, &mut count).expect("the worker answers");
        u64::from_le_bytes(count)
    };
    let limit = ServerLimits::default().session_offers as u64;
    let clients = [join()?, join()?];
    for client in &clients {
        let count = taken(client);
        assert!((1..=limit).contains(&count), "{count}");
    }
    let third = join()?;
    assert!(third.lane(0, 1).echoes());
    drop(clients);
    // What ended has given its room back.
    wait_until("room", Duration::from_secs(10), || {
        join().is_ok_and(|client| taken(&client) > 0)
    });
    Ok(())
}

pub(super) fn garbage_is_refused_and_serves_on() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let pieces: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"TWLC\x01\0\0\0\xff\xff\xff\xff",
        b"TWLC\x63\0\0\0\0\0\0\0",
        b"TWLC\x01\0\0\0\x04\0\0\0\x01\0\x01\0",
        b"TWLA\xff\xff0123456789012345678901234567890123456789",
        &Message::StatusRequest.encode(),
    ];
    for piece in pieces {
        let client = Client::dial(&server.address);
        client.send(piece);
        let mut bytes = [0; 4096];
        let closed = (0..100).any(|_| matches!(client.connection.recv(&mut bytes), Ok(0) | Err(_)));
        assert!(closed, "{piece:?} is not refused");
    }
    // Garbage behind a good handshake ends that session only.
    let mut client = Client::session(&server.address);
    client
        .send(&Message::Hello(Hello::new(Purpose::Session, "again", 1, "here", [0; 32])).encode());
    assert!(matches!(
        client.message(),
        Some(Message::Reject(Reject {
            code: RejectCode::Malformed,
            ..
        }))
    ));
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    assert!(Client::query(&server.address).status().rejected >= 6);
    Ok(())
}

pub(super) fn slow_client_is_cut_off() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::dial(&server.address);
    let start = Instant::now();
    let hello = Message::Hello(Hello::new(Purpose::Session, "slow", 1, "here", [0; 32])).encode();
    // One byte at a time keeps it busy, but not for ever.
    for byte in &hello {
        if client
            .connection
            .wait_readable(Some(Duration::from_millis(300)))?
        {
            break;
        }
        let _ = client.connection.send(&[IoSlice::new(&[*byte])]);
    }
    assert!(matches!(
        client.message(),
        Some(Message::Reject(Reject {
            code: RejectCode::HandshakeTimeout,
            ..
        }))
    ));
    assert!(
        (4..8).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    Ok(())
}

pub(super) fn flood_of_silent_connections_does_not_shut_others_out() -> Result<(), Failed> {
    let server = serve(config("echo"));
    // More than the supervisor keeps.
    let mut silent: Vec<Client> = (0..300).map(|_| Client::dial(&server.address)).collect();
    let start = Instant::now();
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    let rejected = silent[0].message();
    assert!(
        matches!(
            rejected,
            Some(Message::Reject(Reject {
                code: RejectCode::Busy,
                ..
            }))
        ),
        "{rejected:?}"
    );
    Ok(())
}

pub(super) fn connections_left_half_open_hold_nobody_up_for_long() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let silence = |client: Client| {
        let first = [IoSlice::new(b"TWLC")];
        client.connection.send(&first).map(|()| client)
    };
    // More than the supervisor keeps, all of which have said something.
    let half: Vec<_> = (0..700)
        .map(|_| silence(Client::dial(&server.address)))
        .collect();
    let start = Instant::now();
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    let waited = start.elapsed();
    assert!(waited < Duration::from_secs(1), "{waited:?}");
    drop(half);
    Ok(())
}

pub(super) fn endless_flood_lets_every_client_in() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let flood = || {
            let mut silent = std::collections::VecDeque::new();
            while !over.load(Ordering::Relaxed) {
                // More than the supervisor keeps, and more with every one that it closes.
                silent.push_back(Client::dial(&server.address));
                if silent.len() > 300 {
                    silent.pop_front();
                }
            }
        };
        scope.spawn(flood);
        // On a machine with much else to do a client may be too slow, and asks again, as ours do.
        let join = |_| {
            let attempt = || Client::join(&server.address, Purpose::Session, None).map(drop);
            let again = |_| attempt();
            (0..3).fold(attempt(), |outcome, _| outcome.or_else(again))
        };
        let joined: Vec<_> = (0..10).map(join).collect();
        over.store(true, Ordering::Relaxed);
        assert!(joined.iter().all(Result::is_ok), "{joined:?}");
    });
    Ok(())
}

pub(super) fn session_without_lanes_ends_and_frees_its_place() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        max_sessions: 2,
        bounds: ServerLimits {
            lanes: Duration::from_millis(500),
            ..ServerLimits::default()
        },
        ..config("echo")
    });
    let complete = Client::session(&server.address);
    let lanes: Vec<Lane> = (0..2).map(|index| complete.lane(index, 2)).collect();
    // One lane of two is not enough.
    let mut half = Client::session(&server.address);
    let _lane = half.lane(1, 2);
    let said = half.message();
    assert!(
        matches!(&said, Some(Message::SessionEnded(ended)) if ended.reason.contains("lanes")),
        "{said:?}"
    );
    wait_until("a place", Duration::from_secs(5), || {
        Client::join(&server.address, Purpose::Session, None).is_ok()
    });
    assert!(lanes.iter().all(Lane::echoes), "the other goes on");
    Ok(())
}

pub(super) fn names_of_clients_are_shown_without_control_characters() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::join_from("host\r\n\u{1b}[2J", &server.address, Purpose::Session, None)?;
    let status = Client::query(&server.address).status();
    assert_eq!(status.sessions[0].hostname, "host\\r\\n\\u{1b}[2J");
    drop(client);
    Ok(())
}

pub(super) fn idle_queries_make_place_for_new_ones() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut idle: Vec<Client> = (0..256).map(|_| Client::query(&server.address)).collect();
    idle[0].status();
    let mut new: Vec<Client> = (0..8).map(|_| Client::query(&server.address)).collect();
    assert!(new.iter_mut().all(|client| client.status().uptime_ms > 0));
    idle[0].status();
    let said = idle[1].message();
    assert!(
        matches!(
            said,
            Some(Message::Reject(Reject {
                code: RejectCode::Busy,
                ..
            }))
        ),
        "the one that was silent longest: {said:?}"
    );
    Ok(())
}

pub(super) fn client_that_never_reads_is_cut_off() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::query(&server.address);
    let request = Message::DevicesRequest.encode();
    let start = Instant::now();
    // Each answer has 100 kB: they fill the socket buffers, and then the server waits for us in vain.
    let cut = loop {
        match client.connection.try_send(&request) {
            Err(TransportError::Closed { .. } | TransportError::Lost { .. }) => break true,
            Err(_) => break true,
            Ok(_) if start.elapsed() > Duration::from_secs(30) => break false,
            Ok(_) => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    assert!(
        cut,
        "the server still waits for a client that does not read"
    );
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    Ok(())
}

pub(super) fn hostile_worker_cannot_harm_the_supervisor() -> Result<(), Failed> {
    for (kind, wrong) in [
        ("hostile", "not a message"),
        ("hostile-memory", "memory that it had not reserved"),
    ] {
        let error = Supervisor::start(config(kind)).err();
        let error = error.expect("it never gets ready").to_string();
        assert!(
            error.contains("broke the protocol") && error.contains(wrong),
            "{error}"
        );
    }
    Ok(())
}

pub(super) fn worker_that_holds_its_reader_up_is_killed() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    let worker = only_worker(&server.address);
    lane.order(b"hold-up-");
    // The descriptor is closed where nobody waits for that.
    wait_until("it is gone", Duration::from_secs(20), || !alive(worker));
    drop(client);
    assert!(Client::session(&server.address).lane(0, 1).echoes());
    Ok(())
}
