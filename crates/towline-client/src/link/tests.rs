//! A link whose server, or whose lanes, fail while data is on its way.

use towline_session::Landing;
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Transport};
use towline_wire::codec::List;
use towline_wire::frame::ChunkHeader;
use towline_wire::push::Push;

use super::*;
use crate::memory::HostBox;
use crate::state::{Read, Slot, ToldBy};

/// Bytes of the read, which come on the payload lane.
const SIZE: usize = 300 << 10;
/// The read's payload.
const PAYLOAD: u64 = 9;
/// The request that the server answers once the read is over.
const REQUEST: u64 = 3;

/// A server's ends of the command lane and the payload lane.
struct Server {
    command: Arc<dyn Connection>,
    payload: Arc<dyn Connection>,
    outbox: Outbox,
}

impl Server {
    fn push(&self, push: &Push<'_>) {
        self.outbox.post(push.id(), |out| push.encode(out));
        let sent = self.outbox.flush(
            || 0,
            |bytes| self.command.send(&[std::io::IoSlice::new(bytes)]),
        );
        sent.expect("the client takes it");
    }

    /// A chunk that announces the whole payload and brings its first bytes only.
    fn begin_chunk(&self) {
        let header = ChunkHeader {
            payload: PAYLOAD,
            offset: 0,
            length: SIZE as u32,
        };
        let begun = [7; 4096];
        let header = header.to_bytes();
        let parts = [&header[..], &begun].map(std::io::IoSlice::new);
        self.payload.send(&parts).expect("the client takes it");
    }

    fn answer(&self) {
        self.push(&Push::Reply {
            to: REQUEST,
            status: 0,
            after: List::Values(&[PAYLOAD]),
            body: &[],
        });
    }
}

/// A link with a read under way and a request whose answer comes after it. The control connection is listened to, so a broken lane waits
/// for the server's last words before it ends the session.
fn reading(target: &mut [u8], told_by: ToldBy) -> (Arc<Link>, Server) {
    let network = MemoryTransport::new();
    let address: Address = "memory://server".parse().expect("it is well formed");
    let listener = network.listen(&address).expect("the name is free");
    let connect = || {
        let ours = network.connect(&address, &ConnectOptions::default());
        (
            ours.expect("it listens"),
            listener.accept().expect("a connection"),
        )
    };
    let ((command, theirs), (lane, their_lane)) = (connect(), connect());
    let link = Link::start("server", command, vec![lane], 64 << 10, OPENCL).expect("threads");
    link.expect_explanation();
    let read = Read {
        target: HostBox::linear(target.as_ptr(), target.len()),
        landing: Landing::new(target.len() as u64),
        active: 0,
        failed: None,
        event: None,
        told_by,
    };
    link.state().reads.insert(PAYLOAD, read);
    link.state().replies.insert(REQUEST, Slot::Asked);
    let server = Server {
        command: theirs,
        payload: their_lane,
        outbox: Outbox::new(),
    };
    (link, server)
}

#[test]
fn read_over_a_broken_lane_fails() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Call);
    server.begin_chunk();
    server.payload.shutdown();
    assert_eq!(link.wait_read(PAYLOAD), Err(LOST));
}

#[test]
fn wait_behind_a_read_over_a_broken_lane_fails() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.begin_chunk();
    server.payload.shutdown();
    server.answer();
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
}

#[test]
fn read_without_data_but_with_success_ends_the_session() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.push(&Push::NoData {
        payload: PAYLOAD,
        status: 0,
    });
    server.answer();
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
    assert!(
        link.lost()
            .is_some_and(|reason| reason.contains("is no failure"))
    );
}

#[test]
fn data_shorter_than_the_read_ends_the_session() {
    let mut target = vec![0; SIZE];
    let (link, server) = reading(&mut target, ToldBy::Queue(5));
    server.push(&Push::Data {
        payload: PAYLOAD,
        bytes: &[1; 100],
    });
    server.answer();
    let reply = link.wait_reply(REQUEST, Duration::ZERO);
    assert_eq!(reply.map(|reply| reply.status), Err(LOST));
}
