//! Questions to NVML, and the worker that answers them.

use super::*;

fn with_monitor(kind: &str) -> SupervisorConfig {
    SupervisorConfig {
        cuda_worker: Some(worker("echo")),
        nvml_worker: Some(worker(kind)),
        ..config("echo")
    }
}

/// Asks NVML one question, and gives the reply if it went well.
fn ask<'a>(client: &mut Client, request: &impl Request<'a>) -> Result<Vec<u8>, i32> {
    let mut body = Vec::new();
    request.encode(&mut body);
    let question = Question {
        call: call_of(request),
        body,
    };
    let questions = vec![question];
    client.send(&Message::NvmlQuestions(NvmlQuestions { questions }).encode());
    match client.message() {
        Some(Message::NvmlAnswers(mut answers)) if answers.answers.len() == 1 => {
            let answer = answers.answers.remove(0);
            match answer.status {
                0 => Ok(answer.body),
                status => Err(status),
            }
        }
        other => panic!("not an answer: {other:?}"),
    }
}

fn call_of<'a, R: Request<'a>>(_: &R) -> u16 {
    R::ID
}

const POWER: DeviceGetPowerUsage = DeviceGetPowerUsage {
    device: DeviceHandle(1),
};

pub(super) fn one_monitor_answers_all_who_ask_nvml() -> Result<(), Failed> {
    let server = serve(with_monitor("monitor-one"));
    assert_eq!(workers("monitor-one").len(), 0);
    let mut clients: Vec<Client> = (0..3)
        .map(|_| Client::join(&server.address, Purpose::Nvml, None))
        .collect::<Result<_, _>>()?;
    for client in &mut clients {
        let welcome = client.welcome.as_ref().expect("it was let in");
        assert!(welcome.session.is_none());
        let snapshot = towline_wire::nvml::snapshot::Snapshot::decode(&welcome.snapshot)?;
        assert_eq!(snapshot.devices[0].name, b"Towline null device");
        let reply = ask(client, &POWER).expect("it is supported");
        let reply = DeviceGetPowerUsageReply::decode(&reply)?;
        assert_eq!(reply.power, Some(42_000));
    }
    assert_eq!(workers("monitor-one").len(), 1);
    assert!(clients[0].status().sessions.is_empty());
    Ok(())
}

pub(super) fn monitor_that_died_is_followed_by_another() -> Result<(), Failed> {
    let server = serve(with_monitor("monitor-dies"));
    let mut client = Client::join(&server.address, Purpose::Nvml, None)?;
    assert!(ask(&mut client, &POWER).is_ok());
    let monitor = workers("monitor-dies").first().map(|pid| *pid as i32);
    let monitor = monitor.and_then(rustix::process::Pid::from_raw);
    rustix::process::kill_process(monitor.expect("it runs"), rustix::process::Signal::KILL)?;
    let answered = || ask(&mut client, &POWER).is_ok();
    wait_until("an answer of another", Duration::from_secs(20), answered);
    Ok(())
}

pub(super) fn client_sees_the_processes_of_its_own_machine() -> Result<(), Failed> {
    let server = serve(with_monitor("monitor"));
    let cuda = Client::join(&server.address, Purpose::CudaSession, None)?;
    let lane = cuda.lane(0, 1);
    lane.order(b"alloc---");
    let mut nvml = Client::join(&server.address, Purpose::Nvml, None)?;
    let processes = |room| Processes {
        device: DeviceHandle(1),
        room,
    };
    let mut told = Vec::new();
    wait_until(
        "the session among the processes",
        Duration::from_secs(5),
        || {
            let body = ask(&mut nvml, &processes(8)).expect("it is supported");
            let reply = ProcessesReply::decode(&body).expect("a reply");
            told = reply.pids.map(|pids| pids.to_vec()).unwrap_or_default();
            !told.is_empty()
        },
    );
    assert_eq!(told, [std::process::id()]);
    let body = ask(&mut nvml, &processes(0)).expect("it is supported");
    assert_eq!(ProcessesReply::decode(&body)?.count, 1);
    // Another machine has other processes.
    let mut elsewhere = Client::join_from("there", &server.address, Purpose::Nvml, None)?;
    let body = ask(&mut elsewhere, &processes(8)).expect("it is supported");
    assert_eq!(ProcessesReply::decode(&body)?.count, 0);
    // One that is not there has none.
    let missing = Processes {
        device: DeviceHandle(9),
        room: 8,
    };
    assert_eq!(ask(&mut nvml, &missing), Err(NVML_ERROR_INVALID_ARGUMENT));
    Ok(())
}

pub(super) fn limited_session_sees_its_limit_through_nvml() -> Result<(), Failed> {
    const LIMIT: u64 = 64 << 20;
    let mut limited = with_monitor("monitor-limit");
    limited.quota.device_memory_bytes = LIMIT;
    let server = serve(limited);
    let mut nvml = Client::join(&server.address, Purpose::Nvml, None)?;
    let question = DeviceGetMemoryInfo {
        device: DeviceHandle(1),
    };
    let memory = |nvml: &mut Client| {
        let body = ask(nvml, &question).expect("it is supported");
        let reply = DeviceGetMemoryInfoReply::decode(&body).expect("a reply");
        reply.memory.expect("it was asked for")
    };
    let whole = memory(&mut nvml);
    assert_eq!((whole.total, whole.free, whole.used), (LIMIT, LIMIT, 0));
    let cuda = Client::join(&server.address, Purpose::CudaSession, None)?;
    cuda.lane(0, 1).order(b"alloc---");
    let mut left = whole;
    wait_until("memory that is held", Duration::from_secs(5), || {
        left = memory(&mut nvml);
        left.used > 0
    });
    assert_eq!(left.total, LIMIT);
    assert_eq!(left.free + left.used, LIMIT);
    Ok(())
}

pub(super) fn server_without_nvml_says_so() -> Result<(), Failed> {
    for nvml_worker in [None, Some(worker("broken"))] {
        let server = serve(SupervisorConfig {
            nvml_worker,
            ..config("echo")
        });
        let refused = Client::join(&server.address, Purpose::Nvml, None).err();
        match refused {
            Some(HandshakeError::Rejected(Reject {
                code: RejectCode::NoDevice,
                text,
                ..
            })) => assert!(text.contains("through NVML"), "{text}"),
            other => return Err(format!("refused with {other:?}").into()),
        }
        assert!(Client::session(&server.address).lane(0, 1).echoes());
    }
    Ok(())
}
