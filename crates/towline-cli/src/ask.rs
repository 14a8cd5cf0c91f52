//! A control connection that asks a server for devices or status.

use std::io::IoSlice;
use std::time::{Duration, Instant};

use anyhow::bail;
use towline_client::access::Access;
use towline_client::dial::knock;
use towline_transport::{Address, Connection};
use towline_wire::control::{Message, MessageBuffer, Purpose, ServerIdentity, Status};

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
        let opened = knock(address, access, Purpose::Query)?;
        Ok(Self {
            connection: opened.connection,
            buffer: opened.buffer,
            identity: opened.welcome.server,
            snapshot: opened.welcome.snapshot,
        })
    }

    /// The sessions of now.
    pub(crate) fn status(&mut self) -> anyhow::Result<Status> {
        self.send(&Message::StatusRequest.encode())?;
        match Message::decode(&self.frame()?)? {
            Message::Status(status) => Ok(status),
            Message::Reject(reject) => bail!(reject),
            other => bail!(
                "the server answered with {} instead of its status",
                other.name()
            ),
        }
    }

    /// Its devices for CUDA; or why it has none.
    pub(crate) fn cuda_devices(&mut self) -> anyhow::Result<Result<Vec<u8>, String>> {
        self.send(&Message::CudaDevicesRequest.encode())?;
        match Message::decode(&self.frame()?)? {
            Message::CudaDevices(devices) => Ok(devices.snapshot),
            Message::Reject(reject) => bail!(reject),
            other => bail!(
                "the server answered with {} instead of its CUDA devices",
                other.name()
            ),
        }
    }

    fn send(&self, frame: &[u8]) -> anyhow::Result<()> {
        Ok(self.connection.send(&[IoSlice::new(frame)])?)
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
