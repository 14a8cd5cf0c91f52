//! Who is let in: tokens, versions, tickets.

use super::*;

pub(super) fn token_matrix_lets_in_only_equal_tokens() -> Result<(), Failed> {
    let open = serve(config("echo"));
    let closed = serve(SupervisorConfig {
        tenants: Arc::new(TenantTable::single(token("sixteen bytes or more"))),
        ..config("echo")
    });
    let join =
        |server: &Server, token| Client::join(&server.address, Purpose::Session, token).map(drop);
    assert_eq!(join(&open, None), Ok(()));
    assert_eq!(
        join(&open, token("sixteen bytes or more")),
        Err(HandshakeError::ServerWithoutToken)
    );
    assert_eq!(join(&closed, None), Err(HandshakeError::TokenRequired));
    assert_eq!(
        join(&closed, token("sixteen bytes or less")),
        Err(HandshakeError::TokenWrong)
    );
    assert_eq!(join(&closed, token("sixteen bytes or more")), Ok(()));
    let query = Client::join(&closed.address, Purpose::Query, None).map(drop);
    assert_eq!(query, Err(HandshakeError::TokenRequired));
    Ok(())
}

pub(super) fn other_version_is_told_what_the_server_speaks() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::dial(&server.address);
    let versions = VersionRange { min: 900, max: 901 };
    let hello = Hello {
        versions,
        ..Hello::new(Purpose::Session, "future", 1, "there", [0; 32])
    };
    client.send(&Message::Hello(hello).encode());
    let Some(Message::Reject(Reject { code, versions, .. })) = client.message() else {
        panic!("not rejected")
    };
    assert_eq!((code, versions.max), (RejectCode::VersionMismatch, 2));
    Ok(())
}

pub(super) fn routable_address_needs_a_token() -> Result<(), Failed> {
    let mut everywhere = SupervisorConfig {
        listen: vec!["tcp://0.0.0.0:0".parse().unwrap()],
        ..config("echo")
    };
    everywhere.jail.shared_user = true;
    let error = Supervisor::start(everywhere.clone())
        .err()
        .expect("refused");
    assert!(matches!(error, SupervisorError::NoToken { .. }), "{error}");
    assert!(
        error.to_string().contains("--token-file") && error.to_string().contains("--insecure"),
        "{error}"
    );
    Supervisor::start(SupervisorConfig {
        tenants: Arc::new(TenantTable::single(token("sixteen bytes or more"))),
        ..everywhere.clone()
    })?;
    Supervisor::start(SupervisorConfig {
        insecure: true,
        ..everywhere
    })?;
    Ok(())
}

pub(super) fn sessions_that_are_not_kept_apart_are_for_this_user_alone() -> Result<(), Failed> {
    let everywhere = SupervisorConfig {
        listen: vec!["tcp://0.0.0.0:0".parse().unwrap()],
        tenants: Arc::new(TenantTable::single(token("sixteen bytes or more"))),
        ..config("echo")
    };
    let error = Supervisor::start(everywhere.clone())
        .err()
        .expect("refused");
    assert!(
        matches!(error, SupervisorError::SharedUser { .. }),
        "{error}"
    );
    assert!(
        error.to_string().contains("--no-jail") && error.to_string().contains("--shared-user"),
        "{error}"
    );
    let mut told = everywhere.clone();
    told.jail.shared_user = true;
    Supervisor::start(told)?;
    // One user for all, in namespaces of their own.
    let mut apart = everywhere;
    apart.jail = JailConfig {
        user: Some(UnprivilegedUser::named("nobody")?),
        ..JailConfig::default()
    };
    Supervisor::start(apart)?;
    Ok(())
}

pub(super) fn wrong_ticket_is_refused() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let guess = AttachPreamble {
        ticket: Ticket::from_random([1; TICKET_BYTES]),
        lane_index: 0,
        lane_count: 1,
        again: false,
    };
    assert!(Lane::open(&server.address, guess).is_refused());
    assert!(client.lane(0, 1).echoes());
    Ok(())
}

pub(super) fn ticket_cannot_be_replayed() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    assert!(client.lane(0, 1).is_refused());
    assert!(lane.echoes());
    Ok(())
}

pub(super) fn ticket_dies_with_its_session() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let client = Client::session(&server.address);
    let preamble = AttachPreamble {
        ticket: client.ticket(),
        lane_index: 0,
        lane_count: 1,
        again: false,
    };
    drop(client);
    wait_until("the session's end", Duration::from_secs(2), || {
        Client::query(&server.address).status().sessions.is_empty()
    });
    assert!(Lane::open(&server.address, preamble).is_refused());
    Ok(())
}
