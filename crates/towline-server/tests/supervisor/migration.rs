//! Sessions whose clients are asked to move them, or to write a checkpoint.

use super::*;

const ELSEWHERE: &str = "tcp://gpu2:7140";

impl Client {
    fn ask_to_migrate(&self, session_id: u64, to: &str) {
        let to = to.to_owned();
        let request = MigrateSession { session_id, to };
        self.send(&Message::MigrateSession(request).encode());
    }

    /// The answer to [`Self::ask_to_migrate`].
    fn migrated(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            match self.message() {
                Some(Message::Alive) if Instant::now() < deadline => {}
                Some(Message::SessionMigrated(migrated)) => return migrated.outcome,
                other => panic!("not an outcome: {other:?}"),
            }
        }
    }

    /// The address that a session's client is asked to move to.
    fn asked(&mut self) -> String {
        match self.message() {
            Some(Message::MigrateSession(request)) => request.to,
            other => panic!("not asked: {other:?}"),
        }
    }

    fn ask_for_checkpoint(&self, session_id: u64, folder: &str) {
        let folder = folder.to_owned();
        let request = CheckpointSession { session_id, folder };
        self.send(&Message::CheckpointSession(request).encode());
    }

    /// The answer to [`Self::ask_for_checkpoint`].
    fn checkpointed(&mut self) -> Result<(), String> {
        loop {
            match self.message() {
                Some(Message::Alive) => {}
                Some(Message::SessionCheckpointed(answer)) => return answer.outcome,
                other => panic!("not an outcome: {other:?}"),
            }
        }
    }

    /// The folder that a session's client is asked to write a checkpoint into.
    fn asked_for_checkpoint(&mut self) -> String {
        match self.message() {
            Some(Message::CheckpointSession(request)) => request.folder,
            other => panic!("not asked: {other:?}"),
        }
    }

    fn answer(&self, outcome: Result<(), String>) {
        let answer = SessionMigrated {
            session_id: 1,
            outcome,
        };
        self.send(&Message::SessionMigrated(answer).encode());
    }
}

pub(super) fn session_that_has_moved_is_ended_and_audited() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit");
    let server = serve(SupervisorConfig {
        audit_log: Some(path.clone()),
        ..config("echo")
    });
    let mut moves = Client::session(&server.address);
    assert!(moves.lane(0, 1).echoes());
    let mut asking = Client::query(&server.address);
    asking.ask_to_migrate(1, ELSEWHERE);
    assert_eq!(moves.asked(), ELSEWHERE);
    // It takes its time, and who asked is told that the server lives.
    assert_eq!(asking.message(), Some(Message::Alive));
    moves.answer(Ok(()));
    let Some(Message::SessionEnded(ended)) = moves.message() else {
        panic!("not told")
    };
    assert_eq!(ended.reason, "the session moved to tcp://gpu2:7140");
    assert_eq!(asking.migrated(), Ok(()));
    assert!(asking.status().sessions.is_empty());
    let audit = std::fs::read_to_string(&path)?;
    let is_told = |words: &str| audit.contains(words);
    assert!(
        is_told("session_migrated") && is_told(r#""failure":null"#),
        "{audit}"
    );
    assert!(
        is_told(r#""reason":"the session moved to tcp://gpu2:7140""#),
        "{audit}"
    );
    Ok(())
}

pub(super) fn session_that_stays_goes_on() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut stays = Client::session(&server.address);
    let lane = stays.lane(0, 1);
    let mut asking = Client::query(&server.address);
    for _ in 0..2 {
        asking.ask_to_migrate(1, ELSEWHERE);
        assert_eq!(stays.asked(), ELSEWHERE);
        stays.answer(Err("it has\u{1b} pipes".into()));
        let reason = asking.migrated().expect_err("it stays");
        assert!(
            reason.starts_with("it has") && !reason.contains('\u{1b}'),
            "{reason}"
        );
    }
    assert!(lane.echoes());
    assert_eq!(stays.status().sessions.len(), 1);
    Ok(())
}

pub(super) fn two_requests_for_one_move_are_one() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut stays = Client::session(&server.address);
    assert!(stays.lane(0, 1).echoes());
    let mut asking = [(); 3].map(|()| Client::query(&server.address));
    asking[0].ask_to_migrate(1, ELSEWHERE);
    assert_eq!(stays.asked(), ELSEWHERE);
    asking[1].ask_to_migrate(1, ELSEWHERE);
    asking[2].ask_to_migrate(1, "tcp://gpu3:7140");
    let other = asking[2].migrated().expect_err("it is on its way");
    assert!(
        other.contains("about to move to tcp://gpu2:7140"),
        "{other}"
    );
    assert_eq!(asking[1].message(), Some(Message::Alive));
    stays.answer(Err("no room".into()));
    for asking in &mut asking[..2] {
        assert_eq!(asking.migrated(), Err("no room".into()));
    }
    Ok(())
}

pub(super) fn checkpointed_session_is_ended_and_audited() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit");
    let server = serve(SupervisorConfig {
        audit_log: Some(path.clone()),
        ..config("echo")
    });
    let mut session = Client::session(&server.address);
    assert!(session.lane(0, 1).echoes());
    let mut asking = [(); 3].map(|()| Client::query(&server.address));
    asking[0].ask_for_checkpoint(1, "/held");
    assert_eq!(session.asked_for_checkpoint(), "/held");
    // One that is under way takes no other wish.
    asking[1].ask_for_checkpoint(1, "/elsewhere");
    let other = asking[1].checkpointed().expect_err("it is under way");
    assert!(
        other.contains("about to write a checkpoint into /held"),
        "{other}"
    );
    asking[2].ask_to_migrate(1, ELSEWHERE);
    assert!(asking[2].migrated().is_err());
    let answer = SessionCheckpointed {
        session_id: 1,
        outcome: Ok(()),
    };
    session.send(&Message::SessionCheckpointed(answer).encode());
    let Some(Message::SessionEnded(ended)) = session.message() else {
        panic!("not told")
    };
    assert_eq!(ended.reason, "the session was checkpointed in /held");
    assert_eq!(asking[0].checkpointed(), Ok(()));
    assert!(asking[0].status().sessions.is_empty());
    let audit = std::fs::read_to_string(&path)?;
    assert!(audit.contains("session_checkpointed"), "{audit}");
    Ok(())
}

pub(super) fn tenants_checkpoint_their_own_sessions() -> Result<(), Failed> {
    let server = serve(with_tenants("echo"));
    let mut session = join_as("anna", Purpose::Session, &server)?;
    assert!(session.lane(0, 1).echoes());
    let mut bert = join_as("bert", Purpose::Query, &server)?;
    bert.ask_for_checkpoint(1, "/held");
    let foreign = bert.checkpointed().expect_err("it is anna's");
    bert.ask_for_checkpoint(9, "/held");
    let missing = bert.checkpointed().expect_err("there is none");
    assert_eq!(foreign.replace('1', "9"), missing);
    let mut anna = join_as("anna", Purpose::Query, &server)?;
    anna.ask_for_checkpoint(1, "held");
    let relative = anna.checkpointed().expect_err("it is no absolute path");
    assert!(relative.contains("no absolute path"), "{relative}");
    anna.ask_for_checkpoint(1, "/held");
    assert_eq!(session.asked_for_checkpoint(), "/held");
    Ok(())
}

pub(super) fn client_that_leaves_unasked_breaks_the_protocol() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    client.answer(Ok(()));
    let Some(Message::Reject(reject)) = client.message() else {
        panic!("not rejected")
    };
    assert_eq!(reject.code, RejectCode::Malformed);
    Ok(())
}

pub(super) fn session_that_ends_before_it_moves_is_told() -> Result<(), Failed> {
    let server = serve(config("echo"));
    let mut client = Client::session(&server.address);
    let lane = client.lane(0, 1);
    assert!(lane.echoes());
    let mut asking = Client::query(&server.address);
    asking.ask_to_migrate(1, ELSEWHERE);
    client.asked();
    drop((client, lane));
    let reason = asking.migrated().expect_err("it has ended");
    assert!(reason.contains("has ended before"), "{reason}");
    asking.ask_to_migrate(1, "no address/");
    assert!(asking.migrated().is_err());
    Ok(())
}

pub(super) fn tenants_move_their_own_sessions_and_admins_drain() -> Result<(), Failed> {
    let server = serve(with_tenants("echo"));
    let join = |name: &str, purpose| join_as(name, purpose, &server);
    let mut session = join("anna", Purpose::Session)?;
    assert!(session.lane(0, 1).echoes());
    let mut bert = join("bert", Purpose::Query)?;
    bert.ask_to_migrate(1, ELSEWHERE);
    let foreign = bert.migrated().expect_err("it is anna's");
    bert.ask_to_migrate(9, ELSEWHERE);
    let missing = bert.migrated().expect_err("there is none");
    assert_eq!(foreign.replace('1', "9"), missing);
    for name in ["anna", "operators"] {
        let mut asking = join(name, Purpose::Query)?;
        asking.ask_to_migrate(1, ELSEWHERE);
        assert_eq!(session.asked(), ELSEWHERE);
        session.answer(Err("not now".into()));
        assert_eq!(asking.migrated(), Err("not now".into()));
    }
    let drain = |client: &mut Client| {
        client.send(&Message::DrainServer.encode());
        match client.message() {
            Some(Message::ServerDrains(drains)) => drains.outcome,
            other => panic!("not an outcome: {other:?}"),
        }
    };
    assert!(drain(&mut bert).is_err() && !server.supervisor.is_drained());
    join("bert", Purpose::Session)?;
    assert_eq!(drain(&mut join("operators", Purpose::Query)?), Ok(()));
    let Err(HandshakeError::Rejected(reject)) = join("bert", Purpose::Session).map(drop) else {
        panic!("the server takes no more")
    };
    assert_eq!(reject.code, RejectCode::ShuttingDown);
    assert!(!server.supervisor.is_drained());
    drop(session);
    wait_until("the last session's end", Duration::from_secs(10), || {
        server.supervisor.is_drained()
    });
    Ok(())
}

pub(super) fn impossible_moves_are_neither_asked_for_nor_audited() -> Result<(), Failed> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("audit");
    let server = serve(SupervisorConfig {
        audit_log: Some(path.clone()),
        ..config("echo")
    });
    let mut session = Client::session(&server.address);
    assert!(session.lane(0, 1).echoes());
    let mut asking = Client::query(&server.address);
    asking.ask_to_migrate(1, "nowhere://");
    assert!(asking.migrated().is_err());
    asking.ask_for_checkpoint(1, "not/absolute");
    assert!(asking.checkpointed().is_err());
    let audit = std::fs::read_to_string(&path)?;
    assert_eq!(audit.lines().count(), 1, "{audit}");
    session.send(&Message::Ping.encode());
    assert_eq!(session.message(), Some(Message::Alive));
    Ok(())
}
