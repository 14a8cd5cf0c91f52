use std::sync::mpsc::{Receiver, channel};

use towline_transport::memory::{End, Fault, FaultKind, Link, MemoryTransport, Time};
use towline_transport::{ConnectOptions, Transport};

use super::*;

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);
const PAYLOAD: u64 = 9;

fn connections() -> [Arc<dyn Connection>; 2] {
    connections_on(&MemoryTransport::new())
}

fn connections_on(transport: &MemoryTransport) -> [Arc<dyn Connection>; 2] {
    let address = "memory://peers".parse().expect("it is well formed");
    let listener = transport.listen(&address).expect("the name is free");
    let ours = transport
        .connect(&address, &ConnectOptions::default())
        .expect("the listener is there");
    [ours, listener.accept().expect("somebody has connected")]
}

/// One worker's end of a lane.
struct Side {
    peers: Peers,
    lane: Arc<PeerLane>,
}

impl Side {
    fn new(connection: Arc<dyn Connection>) -> Self {
        let peers = Peers::default();
        peers
            .attach(1, connection, 1000)
            .expect("threads can be started");
        let lane = peers.lane(1).expect("it was just attached");
        Self { peers, lane }
    }

    /// Sends the bytes; what is received is how that ended.
    fn send(&self, bytes: &[u8]) -> Receiver<i32> {
        let size = bytes.len() as u64;
        self.lane
            .begin_send(PAYLOAD, size)
            .expect("the number is free");
        self.send_begun(bytes)
    }

    fn send_begun(&self, bytes: &[u8]) -> Receiver<i32> {
        let (sender, ended) = channel();
        let memory: Box<[u8]> = bytes.into();
        let start = Raw(memory.as_ptr().cast_mut().cast());
        let done = Box::new(move |status| {
            drop(memory);
            // The test may have seen enough.
            let _ = sender.send(status);
        });
        self.lane.send(PAYLOAD, bytes.len() as u64, start, done);
        ended
    }

    /// Receives so many bytes; what is received here is how that ended and what has come.
    fn receive(&self, size: usize) -> Receiver<(i32, Vec<u8>)> {
        self.lane
            .begin_receive(PAYLOAD)
            .expect("the number is free");
        self.receive_begun(size)
    }

    fn receive_begun(&self, size: usize) -> Receiver<(i32, Vec<u8>)> {
        let (sender, ended) = channel();
        let mut memory = vec![0; size];
        let start = Raw(memory.as_mut_ptr().cast());
        let done = Box::new(move |status| {
            // The test may have seen enough.
            let _ = sender.send((status, memory));
        });
        self.lane.open(PAYLOAD, size as u64, start, done);
        ended
    }

    /// Waits until the lane knows of no payload.
    fn settles(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let state = self.lane.state();
            if state.sends.is_empty() && state.receives.is_empty() && state.chunks.is_empty() {
                return;
            }
            drop(state);
            assert!(Instant::now() < deadline, "payloads are left behind");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.peers.join();
    }
}

fn pair() -> [Side; 2] {
    connections().map(Side::new)
}

/// A side, and the other end of its lane to say anything on.
fn side_and_stranger() -> (Side, Arc<dyn Connection>) {
    let [ours, stranger] = connections();
    (Side::new(ours), stranger)
}

fn say(stranger: &Arc<dyn Connection>, frame: PeerFrame) {
    // A lane that has ended does not listen.
    let _ = stranger.send(&[IoSlice::new(&frame.to_bytes())]);
}

fn hear(stranger: &Arc<dyn Connection>) -> PeerFrame {
    let mut bytes = [0; PEER_FRAME];
    recv_exact(&**stranger, &mut bytes).expect("the lane says something");
    PeerFrame::from_bytes(&bytes).expect("the lane keeps to the protocol")
}

fn bytes(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7) as u8).collect()
}

#[test]
fn a_payload_arrives_whichever_side_is_first_and_both_ways_at_once() {
    let [one, other] = pair();
    let data = bytes(123_457);
    for _ in 0..3 {
        let (sent, back) = (one.send(&data), other.send(&data[..5]));
        let (landed, there) = (other.receive(data.len()), one.receive(5));
        assert_eq!(landed.recv_timeout(PATIENCE), Ok((0, data.clone())));
        assert_eq!(there.recv_timeout(PATIENCE), Ok((0, data[..5].to_vec())));
        assert_eq!(sent.recv_timeout(PATIENCE), Ok(0));
        assert_eq!(back.recv_timeout(PATIENCE), Ok(0));
        let landed = one.receive(data.len());
        let sent = other.send(&data);
        assert_eq!(landed.recv_timeout(PATIENCE), Ok((0, data.clone())));
        assert_eq!(sent.recv_timeout(PATIENCE), Ok(0));
    }
    one.settles();
    other.settles();
}

#[test]
fn a_sender_that_fails_fails_the_receiver_with_its_status() {
    let [one, other] = pair();
    let landed = other.receive(100);
    one.lane.fail(PAYLOAD, -30);
    assert_eq!(landed.recv_timeout(PATIENCE).map(|end| end.0), Ok(-30));
    one.settles();
    one.lane.fail(PAYLOAD, -31);
    one.settles();
    let landed = other.receive(100);
    assert_eq!(landed.recv_timeout(PATIENCE).map(|end| end.0), Ok(-31));
    other.settles();
}

#[test]
fn a_receiver_that_refuses_fails_the_sender_with_its_status() {
    let [one, other] = pair();
    let sent = one.send(&bytes(100));
    other.lane.begin_receive(PAYLOAD).unwrap();
    other.lane.refuse(PAYLOAD, -40);
    assert_eq!(sent.recv_timeout(PATIENCE), Ok(-40));
    one.settles();
    other.settles();
    other.lane.begin_receive(PAYLOAD).unwrap();
    other.lane.refuse(PAYLOAD, -41);
    other.settles();
    assert_eq!(one.send(&bytes(100)).recv_timeout(PATIENCE), Ok(-41));
    one.settles();
}

#[test]
fn both_sides_may_give_up_at_once() {
    let [one, other] = pair();
    for _ in 0..100 {
        other.lane.begin_receive(PAYLOAD).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| one.lane.fail(PAYLOAD, -30));
            other.lane.refuse(PAYLOAD, -40);
        });
        one.settles();
        other.settles();
    }
}

#[test]
fn sides_that_disagree_about_the_size_both_fail() {
    for (ours, theirs) in [(100, 99), (99, 100)] {
        let [one, other] = pair();
        let sent = one.send(&bytes(ours));
        let landed = other.receive(theirs);
        assert_eq!(sent.recv_timeout(PATIENCE), Ok(CL_INVALID_VALUE));
        let status = landed.recv_timeout(PATIENCE).map(|end| end.0);
        assert_eq!(status, Ok(CL_INVALID_VALUE));
        one.settles();
        other.settles();
    }
}

#[test]
fn a_number_in_use_is_told() {
    let (side, _stranger) = side_and_stranger();
    side.lane.begin_send(PAYLOAD, 8).unwrap();
    side.lane.begin_receive(PAYLOAD).unwrap();
    assert!(side.lane.begin_send(PAYLOAD, 8).is_err());
    assert!(side.lane.begin_receive(PAYLOAD).is_err());
}

#[test]
fn a_lane_that_breaks_ends_its_transfers_and_later_ones() {
    let (side, stranger) = side_and_stranger();
    let (sent, landed) = (side.send(&bytes(100)), side.receive(100));
    stranger.shutdown();
    assert_eq!(sent.recv_timeout(PATIENCE), Ok(LOST));
    assert_eq!(landed.recv_timeout(PATIENCE).map(|end| end.0), Ok(LOST));
    assert_eq!(side.send(&bytes(100)).recv_timeout(PATIENCE), Ok(LOST));
    let status = side.receive(100).recv_timeout(PATIENCE).map(|end| end.0);
    assert_eq!(status, Ok(LOST));
}

/// Sends a payload each way over a lane that fails so, and sees that each side learns of its end: with the right bytes, or with a failure.
fn both_ways_over(faults: &[Fault]) -> MemoryTransport {
    let network = MemoryTransport::simulated(Link::default(), Time::Real);
    let [one, other] = connections_on(&network).map(Side::new);
    network.arm(faults);
    let (data, back) = (bytes(3500), bytes(1700));
    let sent = [one.send(&data), other.send(&back)];
    let landed = [
        (other.receive(data.len()), data),
        (one.receive(back.len()), back),
    ];
    for (landed, right) in landed {
        let (status, memory) = landed.recv_timeout(PATIENCE).expect("a receiver hears");
        let is_right = status == 0 && memory == right;
        let is_failure = status != 0 && !faults.is_empty();
        assert!(is_right || is_failure, "{faults:?}: {status}");
    }
    for sent in sent {
        sent.recv_timeout(PATIENCE).expect("a sender hears");
    }
    network
}

#[test]
fn payload_over_a_lane_that_fails_anywhere_is_right_or_fails() {
    let sound = both_ways_over(&[]).monitors().remove(0);
    for sender in [End::Client, End::Server] {
        for sent in sound.sends(sender) {
            for at_bytes in [sent.start, sent.start.midpoint(sent.end)] {
                for kind in [FaultKind::Cut, FaultKind::Reset, FaultKind::HalfClose] {
                    let fault = Fault {
                        connection: 0,
                        sender,
                        at_bytes,
                        kind,
                        to_all: false,
                    };
                    both_ways_over(&[fault]);
                }
            }
        }
    }
}

#[test]
fn a_lane_that_breaks_between_a_request_and_its_memory_ends_it_too() {
    let (side, stranger) = side_and_stranger();
    side.lane.begin_send(PAYLOAD, 100).unwrap();
    side.lane.begin_receive(PAYLOAD).unwrap();
    stranger.shutdown();
    side.settles();
    assert_eq!(
        side.send_begun(&bytes(100)).recv_timeout(PATIENCE),
        Ok(LOST)
    );
    let status = side.receive_begun(100).recv_timeout(PATIENCE);
    assert_eq!(status.map(|end| end.0), Ok(LOST));
}

/// Says these frames to a side that waits for 100 bytes and has 100 bytes to send, and sees that both end.
fn breaks_with(frames: &[PeerFrame]) {
    let (side, stranger) = side_and_stranger();
    let (sent, landed) = (side.send(&bytes(100)), side.receive(100));
    for frame in frames {
        say(&stranger, *frame);
        if let PeerFrame::Chunk { length, .. } = frame {
            let _ = stranger.send(&[IoSlice::new(&vec![0; *length as usize])]);
        }
    }
    assert_eq!(
        landed.recv_timeout(PATIENCE).map(|end| end.0),
        Ok(LOST),
        "{frames:?}"
    );
    let status = sent.recv_timeout(PATIENCE).expect("it ends");
    assert!([0, LOST].contains(&status), "{frames:?}: {status}");
}

#[test]
fn whoever_breaks_the_rules_of_a_lane_loses_it() {
    let chunk = |payload, offset, length| PeerFrame::Chunk {
        payload,
        offset,
        length,
    };
    let grant = |offset, length, size| PeerFrame::Grant {
        payload: PAYLOAD,
        offset,
        length,
        size,
    };
    // Bytes that were not granted, outside the grant, none, or twice.
    breaks_with(&[chunk(PAYLOAD + 1, 0, 10)]);
    breaks_with(&[chunk(PAYLOAD, 91, 10)]);
    breaks_with(&[chunk(PAYLOAD, u64::MAX, 10)]);
    breaks_with(&[chunk(PAYLOAD, 0, 0)]);
    breaks_with(&[chunk(PAYLOAD, 0, 60), chunk(PAYLOAD, 0, 60)]);
    // More than all, or another whole.
    breaks_with(&[grant(0, 60, 100), grant(0, 60, 100)]);
    breaks_with(&[grant(0, 60, 100), grant(60, 40, 101)]);
    // An answer to what was not said.
    breaks_with(&[PeerFrame::Over { payload: PAYLOAD }]);
    // More than anyone could mean.
    let many: Vec<PeerFrame> = (0..=RECORD_LIMIT as u64)
        .map(|payload| PeerFrame::Grant {
            payload: 1000 + payload,
            offset: 0,
            length: 1,
            size: 1,
        })
        .collect();
    breaks_with(&many);
    let many: Vec<PeerFrame> = (0..=RECORD_LIMIT as u64)
        .map(|payload| PeerFrame::Refuse {
            payload: 1000 + payload,
            status: -1,
        })
        .collect();
    breaks_with(&many);
}

#[test]
fn a_sender_takes_a_refusal_at_any_time() {
    let (side, stranger) = side_and_stranger();
    let sent = side.send(&bytes(100));
    say(
        &stranger,
        PeerFrame::Grant {
            payload: PAYLOAD,
            offset: 0,
            length: 40,
            size: 100,
        },
    );
    let chunk = PeerFrame::Chunk {
        payload: PAYLOAD,
        offset: 0,
        length: 40,
    };
    assert_eq!(hear(&stranger), chunk);
    recv_exact(&*stranger, &mut [0; 40]).expect("the bytes come");
    let (payload, status) = (PAYLOAD, -5);
    say(&stranger, PeerFrame::Refuse { payload, status });
    assert_eq!(sent.recv_timeout(PATIENCE), Ok(-5));
    assert_eq!(hear(&stranger), PeerFrame::NoData { payload, status });
    say(&stranger, PeerFrame::Over { payload });
    side.settles();
}

#[test]
fn lanes_are_limited_and_a_number_is_used_once() {
    let peers = Peers::default();
    let mut strangers = Vec::new();
    for number in (0..=LANE_LIMIT as u64).chain([3]) {
        let [ours, stranger] = connections();
        peers
            .attach(number, ours, 1000)
            .expect("threads can be started");
        strangers.push(stranger);
    }
    assert!(peers.lane(LANE_LIMIT as u64).is_none());
    for refused in &strangers[LANE_LIMIT..] {
        assert!(recv_exact(&**refused, &mut [0]).is_err());
    }
    assert!(peers.wait(3, PATIENCE));
    assert!(!peers.wait(1 << 40, Duration::ZERO));
    peers.join();
    assert!(!peers.wait(3, PATIENCE), "the session is over");
}
