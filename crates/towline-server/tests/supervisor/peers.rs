//! Servers that list each other.

use super::*;

pub(super) fn servers_that_list_each_other_connect_their_workers() -> Result<(), Failed> {
    for secret in [None, token("sixteen bytes or more")] {
        let at = two_addresses();
        let [first, second] = at.clone();
        let tokens = [secret.clone(), secret.clone()];
        let servers = serve_peers(tokens, [&at[1..], &at[..1]], &at);
        let mut from = Client::join(&first, Purpose::Session, secret.clone())?;
        let mut to = Client::join(&second, Purpose::Session, secret)?;
        let peers = |client: &Client| {
            let session = client.welcome.clone().and_then(|welcome| welcome.session);
            session.expect("a session").peers
        };
        assert_eq!(peers(&from), [second.to_string()]);
        assert_eq!(peers(&to), [first.to_string()]);
        let (source, target) = (from.lane(0, 1), to.lane(0, 1));
        assert!(source.echoes() && target.echoes());
        let ticket = to.offer(&first.to_string())?;
        from.connect(&second.to_string(), &ticket)?;
        wait_until(
            "the answer over the peer lane",
            Duration::from_secs(20),
            || {
                source.order(b"peer----");
                source.order(b"pongs---");
                let mut pongs = [0; 8];
                recv_exact(&*source.0, &mut pongs).is_ok() && pongs != [0; 8]
            },
        );
        for client in [&mut from, &mut to] {
            assert_eq!(client.status().sessions[0].peer_lanes, 1);
        }
        drop(servers);
    }
    Ok(())
}

pub(super) fn server_that_is_not_listed_is_refused_by_both_sides() -> Result<(), Failed> {
    let at = two_addresses();
    let [first, second] = at.clone();
    // The second lists nobody; the first lists the second.
    let _servers = serve_peers([None, None], [&at[1..], &[]], &at);
    let (mut from, mut to) = (Client::session(&first), Client::session(&second));
    assert!(to.offer(&first.to_string()).is_err());
    let ticket = Ticket::from_random([3; TICKET_BYTES]);
    assert!(from.connect(&second.to_string(), &ticket).is_err());
    // A client cannot have a server connect to a place of its own choice.
    let elsewhere = std::net::TcpListener::bind("127.0.0.1:0")?;
    elsewhere.set_nonblocking(true)?;
    let address = elsewhere.local_addr()?.to_string();
    for text in [
        address.clone(),
        format!("tcp://{address}"),
        format!("{second}\0"),
        String::new(),
    ] {
        assert!(from.connect(&text, &ticket).is_err(), "{text}");
        assert!(from.offer(&text).is_err(), "{text}");
    }
    let said = from.offer("gpu2\n\u{1b}[2J").expect_err("it is not listed");
    assert!(!said.contains(char::is_control), "{said}");
    assert!(elsewhere.accept().is_err(), "the server has connected");
    assert!(from.lane(0, 1).echoes() && to.lane(0, 1).echoes());
    Ok(())
}

pub(super) fn peer_ticket_is_good_once_and_for_nothing_else() -> Result<(), Failed> {
    let at = two_addresses();
    let [first, second] = at.clone();
    let _servers = serve_peers([None, None], [&at[1..], &at[..1]], &at);
    let (mut from, mut to) = (Client::session(&first), Client::session(&second));
    let ticket = to.offer(&first.to_string())?;
    let preamble = AttachPreamble {
        ticket: ticket.clone(),
        lane_index: 0,
        lane_count: 1,
        again: false,
    };
    assert!(Lane::open(&second, preamble).is_refused());
    assert_eq!(from.connect(&second.to_string(), &ticket), Ok(()));
    assert!(from.connect(&second.to_string(), &ticket).is_err());
    // Nor does a session's own ticket make a peer.
    let own = to.ticket();
    assert!(from.connect(&second.to_string(), &own).is_err());
    // What waits to be used is limited, and what is used makes place.
    let tickets: Vec<_> = std::iter::from_fn(|| to.offer(&first.to_string()).ok())
        .take(100)
        .collect();
    assert!(tickets.len() < 100, "{}", tickets.len());
    assert_eq!(from.connect(&second.to_string(), &tickets[0]), Ok(()));
    assert!(to.offer(&first.to_string()).is_ok());
    Ok(())
}

pub(super) fn peer_ticket_dies_with_its_session() -> Result<(), Failed> {
    let at = two_addresses();
    let [first, second] = at.clone();
    let _servers = serve_peers([None, None], [&at[1..], &at[..1]], &at);
    let (mut from, mut to) = (Client::session(&first), Client::session(&second));
    let ticket = to.offer(&first.to_string())?;
    drop(to);
    wait_until("the session's end", Duration::from_secs(2), || {
        Client::query(&second).status().sessions.is_empty()
    });
    assert!(from.connect(&second.to_string(), &ticket).is_err());
    Ok(())
}

pub(super) fn peer_that_does_not_know_the_token_is_refused() -> Result<(), Failed> {
    let at = two_addresses();
    let [first, second] = at.clone();
    let (ours, theirs) = (
        token("sixteen bytes or more"),
        token("sixteen bytes, other"),
    );
    let _servers = serve_peers([ours.clone(), theirs.clone()], [&at[1..], &at[..1]], &at);
    let mut from = Client::join(&first, Purpose::Session, ours)?;
    let mut to = Client::join(&second, Purpose::Session, theirs)?;
    let ticket = to.offer(&first.to_string())?;
    let refused = from.connect(&second.to_string(), &ticket);
    assert!(
        refused
            .as_ref()
            .is_err_and(|reason| reason.contains("token")),
        "{refused:?}"
    );
    // Whoever has the ticket but not the token does not get in either.
    let ticket = to.offer(&first.to_string())?;
    let (connector, hello) = PeerConnector::start(&ticket, None, [7; 32], true);
    let connection = Registry::global().connect(&second, &ConnectOptions::default())?;
    connection.send(&[IoSlice::new(&hello)])?;
    let mut challenge = [0; PEER_CHALLENGE_BYTES];
    recv_exact(&*connection, &mut challenge)?;
    assert!(connector.answer(&challenge).is_err());
    connection.send(&[IoSlice::new(&[0; 32])])?;
    assert!(Lane(connection).is_refused());
    Ok(())
}

pub(super) fn peer_from_another_address_is_refused_without_a_token() -> Result<(), Failed> {
    let at = two_addresses();
    let [first, second] = at.clone();
    // Our connections come from 127.0.0.1.
    let other: Address = first
        .to_string()
        .replace("127.0.0.1", "127.0.0.9")
        .parse()?;
    let _servers = serve_peers([None, None], [&at[1..], std::slice::from_ref(&other)], &at);
    let (mut from, mut to) = (Client::session(&first), Client::session(&second));
    let ticket = to.offer(&other.to_string())?;
    assert!(from.connect(&second.to_string(), &ticket).is_err());
    Ok(())
}

pub(super) fn peer_beyond_this_machine_needs_a_token() -> Result<(), Failed> {
    let far = SupervisorConfig {
        peers: vec!["192.0.2.1:7140".parse()?],
        ..config("echo")
    };
    assert!(matches!(
        Supervisor::start(far.clone()),
        Err(SupervisorError::PeerWithoutToken { .. })
    ));
    drop(serve(SupervisorConfig {
        insecure: true,
        ..far.clone()
    }));
    drop(serve(SupervisorConfig {
        peer_token: token("sixteen bytes or more"),
        ..far
    }));
    Ok(())
}

pub(super) fn garbage_of_peers_is_refused_and_serves_on() -> Result<(), Failed> {
    let at = two_addresses();
    let [first, second] = at.clone();
    let _servers = serve_peers([None, None], [&at[1..], &at[..1]], &at);
    for filler in [0, 1, b'T', 255] {
        let mut hello = [filler; PEER_HELLO_BYTES];
        hello[..4].copy_from_slice(b"TWLP");
        let connection = Registry::global().connect(&second, &ConnectOptions::default())?;
        connection.send(&[IoSlice::new(&hello)])?;
        assert!(Lane(connection).is_refused());
    }
    let mut query = Client::query(&first);
    query.send(
        &Message::PeerOffer(PeerOffer {
            lane: 1,
            address: second.to_string(),
        })
        .encode(),
    );
    // A connection that only asks has no worker to connect.
    assert!(matches!(query.message(), Some(Message::Reject(_))));
    assert!(Client::session(&second).lane(0, 1).echoes());
    Ok(())
}
