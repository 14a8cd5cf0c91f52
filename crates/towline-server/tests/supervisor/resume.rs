//! Sessions whose connections are cut.

use towline_transport::resume::Resumable;

use super::*;

/// A server whose sessions outlive cuts for so long.
fn with_grace(grace: Duration) -> Server {
    serve(SupervisorConfig {
        bounds: ServerLimits {
            grace,
            ..ServerLimits::default()
        },
        ..config("echo")
    })
}

const LONG: Duration = Duration::from_secs(600);

/// A session with its only lane, from a host of this name.
fn begin(server: &Server, hello: Hello) -> (Client, Arc<Resumable>) {
    let client = Client::join_over(Wire::Clear, &server.address, hello, None);
    let client = client.expect("the server lets us in");
    let lane = Lane::open(&server.address, client.preamble(0, 1));
    let lane = Resumable::new(lane.0, |_, _| ());
    assert!(Lane(Arc::clone(&lane) as _).echoes());
    (client, lane)
}

fn hello(host: &str, pid: u32) -> Hello {
    Hello::new(Purpose::Session, "test", pid, host, [7; 32])
}

fn elsewhere() -> Hello {
    hello("elsewhere", std::process::id())
}

fn session_id(client: &Client) -> u64 {
    let welcome = client.welcome.as_ref().expect("it was let in");
    welcome.session.as_ref().expect("a session").session_id
}

/// Another control connection for the session of `client`.
fn resume(server: &Server, client: &Client, ticket: Ticket) -> Result<Client, String> {
    let asking = Client::join(&server.address, Purpose::Resume, None);
    let mut asking = asking.map_err(|error| error.to_string())?;
    let session_id = session_id(client);
    let question = ResumeSession { session_id, ticket };
    asking.send(&Message::ResumeSession(question).encode());
    match asking.message() {
        Some(Message::SessionResumed(resumed)) => resumed.outcome.map(|()| asking),
        other => panic!("not an outcome: {other:?}"),
    }
}

/// How long the clients of the server's sessions have been cut off.
fn away(server: &Server) -> Vec<u64> {
    let status = Client::query(&server.address).status();
    let sessions = status.sessions.iter();
    sessions.map(|session| session.away_ms).collect()
}

pub(super) fn client_that_was_cut_off_goes_on() -> Result<(), Failed> {
    let server = with_grace(LONG);
    let (client, lane) = begin(&server, elsewhere());
    assert_eq!(away(&server), [0]);
    client.connection.shutdown();
    lane.cut("test");
    wait_until("it is noticed", Duration::from_secs(20), || {
        away(&server)[0] > 0
    });
    let mut again = resume(&server, &client, client.ticket())?;
    again.send(&Message::Ping.encode());
    assert_eq!(again.message(), Some(Message::Alive));
    assert_eq!(away(&server), [0]);
    // Bytes that are sent meanwhile wait.
    let echo = std::thread::spawn({
        let lane = Lane(Arc::clone(&lane) as _);
        move || lane.echoes()
    });
    let preamble = AttachPreamble {
        again: true,
        ..client.preamble(0, 1)
    };
    lane.reattach(Lane::open(&server.address, preamble).0)?;
    assert!(echo.join().expect("it does not panic"));
    Ok(())
}

pub(super) fn connection_that_is_replaced_need_not_have_ended() -> Result<(), Failed> {
    let server = with_grace(LONG);
    let (mut client, _lane) = begin(&server, elsewhere());
    let mut again = resume(&server, &client, client.ticket())?;
    again.send(&Message::Ping.encode());
    assert_eq!(again.message(), Some(Message::Alive));
    assert_eq!(client.message(), None);
    Ok(())
}

pub(super) fn stranger_goes_on_with_no_session() -> Result<(), Failed> {
    let server = with_grace(LONG);
    let (client, lane) = begin(&server, elsewhere());
    let guess = Ticket::from_random([1; TICKET_BYTES]);
    let refused = resume(&server, &client, guess.clone()).err();
    assert!(refused.is_some_and(|reason| reason.contains("is over")));
    // Nor does it take a lane.
    let preamble = AttachPreamble {
        ticket: guess,
        again: true,
        ..client.preamble(0, 1)
    };
    assert!(Lane::open(&server.address, preamble).is_refused());
    let preamble = AttachPreamble {
        again: true,
        ..client.preamble(1, 2)
    };
    assert!(Lane::open(&server.address, preamble).is_refused());
    assert!(Lane(lane).echoes());
    Ok(())
}

pub(super) fn client_that_stays_away_loses_its_session() -> Result<(), Failed> {
    let server = with_grace(Duration::from_millis(300));
    let (client, _lane) = begin(&server, elsewhere());
    client.connection.shutdown();
    wait_until("the session has ended", Duration::from_secs(20), || {
        away(&server).is_empty()
    });
    let refused = resume(&server, &client, client.ticket()).err();
    assert!(refused.is_some_and(|reason| reason.contains("is over")));
    Ok(())
}

pub(super) fn session_without_its_client_yields_its_place() -> Result<(), Failed> {
    let server = serve(SupervisorConfig {
        max_sessions: 1,
        bounds: ServerLimits {
            grace: LONG,
            ..ServerLimits::default()
        },
        ..config("echo")
    });
    let (client, _lane) = begin(&server, elsewhere());
    let refused = Client::join(&server.address, Purpose::Session, None);
    assert!(refused.is_err(), "the client of the session is there");
    client.connection.shutdown();
    wait_until("it is noticed", Duration::from_secs(20), || {
        away(&server)[0] > 0
    });
    assert!(Client::join(&server.address, Purpose::Session, None).is_ok());
    Ok(())
}

pub(super) fn session_without_its_client_yields_its_memory() -> Result<(), Failed> {
    let server = with_grace(LONG);
    let (asking, lane) = begin(&server, elsewhere());
    let lane = Lane(lane);
    let is_made = |order: &[u8; 8]| {
        lane.order(order);
        let mut made = [0; 8];
        recv_exact(&*lane.0, &mut made).expect("an answer");
        u64::from_le_bytes(made) == 1
    };
    let (first, first_lane) = begin(&server, elsewhere());
    let (second, second_lane) = begin(&server, elsewhere());
    let lanes = [first_lane, second_lane].map(|lane| Lane(lane));
    for lane in &lanes {
        lane.order(b"alloc---");
        lane.order(b"done?---");
        recv_exact(&*lane.0, &mut [0; 8]).expect("an answer");
    }
    // Nobody is cut off, itself does not count.
    assert!(!is_made(b"room-any") && !is_made(b"room-own"));
    for (client, order) in [(&first, b"room-own"), (&second, b"room-any")] {
        client.connection.shutdown();
        wait_until("it is noticed", Duration::from_secs(20), || {
            away(&server).into_iter().any(|time| time > 0)
        });
        assert!(!is_made(b"room-big"), "it holds less than that");
        assert!(is_made(order));
        assert!(!is_made(order));
        // The answer comes when the memory is free.
        assert!(away(&server).iter().all(|time| *time == 0));
    }
    assert_eq!(away(&server).len(), 1);
    drop(asking);
    Ok(())
}

pub(super) fn client_process_that_has_ended_is_not_waited_for() -> Result<(), Failed> {
    let server = with_grace(LONG);
    let mut ended = std::process::Command::new("true").spawn()?;
    ended.wait()?;
    let name = rustix::system::uname();
    let host = name.nodename().to_str()?;
    let (client, _lane) = begin(&server, hello(host, ended.id()));
    client.connection.shutdown();
    wait_until("the session has ended", Duration::from_secs(20), || {
        away(&server).is_empty()
    });
    Ok(())
}

pub(super) fn sessions_without_grace_end_with_their_connection() -> Result<(), Failed> {
    let server = with_grace(Duration::ZERO);
    let client = Client::session(&server.address);
    assert!(client.lane(0, 1).echoes());
    client.connection.shutdown();
    wait_until("the session has ended", Duration::from_secs(20), || {
        away(&server).is_empty()
    });
    Ok(())
}
