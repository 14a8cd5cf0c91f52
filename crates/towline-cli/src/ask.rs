//! A control connection that asks a server for devices or status, or to end or move sessions.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use towline_client::access::Access;
use towline_client::dial::{DialError, knock};
use towline_transport::{Address, Connection};
use towline_wire::control::{
    Answer, CheckpointSession, GiveLease, KillSession, Lease, Message, MessageBuffer,
    MigrateSession, NvmlQuestions, Purpose, Question, SHOWN_TEXT, ServerIdentity, Status,
    printable,
};

/// How long a server may take for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A server that let us in.
pub(crate) struct Server {
    connection: std::sync::Arc<dyn Connection>,
    buffer: MessageBuffer,
    /// Who it says it is.
    pub(crate) identity: ServerIdentity,
    /// Its devices.
    pub(crate) snapshot: Vec<u8>,
}

impl Server {
    /// Connects and proves that we know the token.
    pub(crate) fn connect(address: &Address, access: &Access) -> anyhow::Result<Self> {
        Ok(Self::connect_to(address, access, Purpose::Query)?)
    }

    /// The same, to ask what NVML tells too. Servers without it refuse.
    pub(crate) fn connect_for_nvml(address: &Address, access: &Access) -> Result<Self, DialError> {
        Self::connect_to(address, access, Purpose::Nvml)
    }

    fn connect_to(address: &Address, access: &Access, purpose: Purpose) -> Result<Self, DialError> {
        let opened = knock(address, access, purpose)?;
        Ok(Self {
            connection: opened.connection,
            buffer: opened.buffer,
            identity: opened.welcome.server,
            snapshot: opened.welcome.snapshot,
        })
    }

    /// The sessions of now.
    pub(crate) fn status(&mut self) -> anyhow::Result<Status> {
        match self.ask(&Message::StatusRequest)? {
            Message::Status(status) => Ok(status),
            other => Err(unexpected(&other, "its status")),
        }
    }

    /// Its devices for CUDA; or why it has none.
    pub(crate) fn cuda_devices(&mut self) -> anyhow::Result<Result<Vec<u8>, String>> {
        match self.ask(&Message::CudaDevicesRequest)? {
            Message::CudaDevices(devices) => Ok(devices.snapshot),
            other => Err(unexpected(&other, "its CUDA devices")),
        }
    }

    /// What NVML answers, one for one.
    pub(crate) fn nvml(&mut self, questions: Vec<Question>) -> anyhow::Result<Vec<Answer>> {
        match self.ask(&Message::NvmlQuestions(NvmlQuestions { questions }))? {
            Message::NvmlAnswers(answers) => Ok(answers.answers),
            other => Err(unexpected(&other, "what NVML tells")),
        }
    }

    /// Ends a session, and returns when its worker is gone.
    pub(crate) fn kill(&mut self, session_id: u64) -> anyhow::Result<()> {
        match self.ask(&Message::KillSession(KillSession { session_id }))? {
            Message::SessionKilled(killed) => killed
                .outcome
                .map_err(|reason| anyhow!(printable(&reason, SHOWN_TEXT))),
            other => Err(unexpected(&other, "whether the session is gone")),
        }
    }

    /// Has a session's client move it to another server, and returns when it has.
    pub(crate) fn migrate(&mut self, session_id: u64, to: &Address) -> anyhow::Result<()> {
        let to = to.to_string();
        let mut answer = self.ask(&Message::MigrateSession(MigrateSession { session_id, to }))?;
        // Its client moves what the devices hold, and the server says that it is alive.
        while answer == Message::Alive {
            answer = Message::decode(&self.frame()?)?;
        }
        match answer {
            Message::SessionMigrated(migrated) => migrated
                .outcome
                .map_err(|reason| anyhow!(printable(&reason, SHOWN_TEXT))),
            other => Err(unexpected(&other, "whether the session has moved")),
        }
    }

    /// Has a session's client write a checkpoint into a folder of its machine, and returns when the session has left the server.
    pub(crate) fn checkpoint(&mut self, session_id: u64, folder: &str) -> anyhow::Result<()> {
        let folder = folder.to_owned();
        let request = CheckpointSession { session_id, folder };
        let mut answer = self.ask(&Message::CheckpointSession(request))?;
        // Its client reads what the devices hold, and the server says that it is alive.
        while answer == Message::Alive {
            answer = Message::decode(&self.frame()?)?;
        }
        match answer {
            Message::SessionCheckpointed(checkpointed) => checkpointed
                .outcome
                .map_err(|reason| anyhow!(printable(&reason, SHOWN_TEXT))),
            other => Err(unexpected(&other, "whether the session has a checkpoint")),
        }
    }

    /// Asks for a lease; in the inner error, why there is none.
    pub(crate) fn give_lease(
        &mut self,
        request: GiveLease,
    ) -> anyhow::Result<Result<Lease, String>> {
        let mut answer = self.ask(&Message::GiveLease(request))?;
        // It may have to start a worker first.
        while answer == Message::Alive {
            answer = Message::decode(&self.frame()?)?;
        }
        match answer {
            Message::LeaseGiven(given) => Ok(given
                .outcome
                .map_err(|reason| printable(&reason, SHOWN_TEXT))),
            other => Err(unexpected(&other, "a lease")),
        }
    }

    /// Renews or ends a lease.
    pub(crate) fn change_lease(&mut self, request: &Message) -> anyhow::Result<()> {
        match self.ask(request)? {
            Message::LeaseChanged(changed) => changed
                .outcome
                .map_err(|reason| anyhow!(printable(&reason, SHOWN_TEXT))),
            other => Err(unexpected(&other, "whether the lease is changed")),
        }
    }

    /// Has the server take no more sessions, and end after its last.
    pub(crate) fn drain(&mut self) -> anyhow::Result<()> {
        match self.ask(&Message::DrainServer)? {
            Message::ServerDrains(drains) => drains
                .outcome
                .map_err(|reason| anyhow!(printable(&reason, SHOWN_TEXT))),
            other => Err(unexpected(&other, "whether it drains")),
        }
    }

    fn ask(&mut self, request: &Message) -> anyhow::Result<Message> {
        self.connection.send(&[IoSlice::new(&request.encode())])?;
        match Message::decode(&self.frame()?)? {
            Message::Reject(reject) => bail!(reject),
            answer => Ok(answer),
        }
    }

    fn frame(&mut self) -> anyhow::Result<Vec<u8>> {
        let deadline = Instant::now() + ANSWER_LIMIT;
        let mut bytes = [0; 16 * 1024];
        loop {
            if let Some(frame) = self.buffer.next_frame()? {
                return Ok(frame);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.connection.wait_readable(Some(left))? {
                bail!(
                    "the server did not answer within {} s",
                    ANSWER_LIMIT.as_secs()
                );
            }
            match self.connection.recv(&mut bytes)? {
                0 => bail!("the server closed the connection without an answer; its log says why"),
                count => self.buffer.push(&bytes[..count]),
            }
        }
    }
}

fn unexpected(answer: &Message, wanted: &str) -> anyhow::Error {
    anyhow!(
        "the server answered with {} instead of {wanted}",
        answer.name()
    )
}

/// The text that tells of an error with a server, which may name the server itself.
pub(crate) fn told(attempt: &str, address: &Address, error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    match text.contains(&address.to_string()) {
        true => text,
        false => format!("{attempt} {address}: {text}"),
    }
}

/// Does the same on all servers at once; results are in the order of `servers`.
pub(crate) fn on_all<T: Send>(
    servers: &[Address],
    work: impl Fn(&Address) -> anyhow::Result<T> + Sync,
) -> Vec<anyhow::Result<T>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = servers
            .iter()
            .map(|server| scope.spawn(|| work(server)))
            .collect();
        let finished = threads.into_iter().map(|thread| match thread.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        finished.collect()
    })
}
