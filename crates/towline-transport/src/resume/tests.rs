use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use super::*;
use crate::memory::{End, Fault, FaultKind, Link, MemoryTransport, Time};
use crate::{ConnectOptions, Transport, recv_exact};

/// Both ends of a link that fails as planned.
fn link(fault: Option<Fault>, buffer_bytes: usize) -> [Arc<dyn Connection>; 2] {
    let network = MemoryTransport::simulated(
        Link {
            buffer_bytes,
            ..Link::default()
        },
        Time::Real,
    );
    let address = "memory://resume".parse().unwrap();
    let listener = network.listen(&address).unwrap();
    let client = network.connect(&address, &ConnectOptions::default());
    let ends = [client.unwrap(), listener.accept().unwrap()];
    network.arm(fault.as_slice());
    ends
}

fn fault(sender: End, at_bytes: u64, kind: FaultKind) -> Fault {
    Fault {
        connection: 0,
        sender,
        at_bytes,
        kind,
        to_all: false,
    }
}

/// Two ends that a thread gives another link whenever one of them finds theirs broken.
struct Pair {
    ends: [Arc<Resumable>; 2],
    cuts: Receiver<()>,
}

struct Over<'a>(&'a [Arc<Resumable>; 2]);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|end| end.shutdown());
    }
}

fn pair_over(links: [Arc<dyn Connection>; 2]) -> Pair {
    let (sender, cuts) = channel();
    let ends = links.map(|link| {
        let sender: Sender<()> = sender.clone();
        Resumable::new(link, move |_, _| {
            // The test may be over.
            let _ = sender.send(());
        })
    });
    Pair { ends, cuts }
}

impl Pair {
    /// Gives links to both ends, one after another, for as long as `body` runs; each may fail as `plan` says.
    fn mended<T>(
        self,
        mut plan: impl FnMut() -> Option<Fault> + Send,
        body: impl FnOnce(&[Arc<Resumable>; 2]) -> T,
    ) -> T {
        let Self { ends, cuts } = self;
        let is_over = |ends: &[Arc<Resumable>; 2]| ends.iter().any(|end| end.is_over());
        thread::scope(|scope| {
            let mending = ends.clone();
            scope.spawn(move || {
                while !is_over(&mending) {
                    let noticed = cuts.recv_timeout(Duration::from_millis(20)).is_ok();
                    if !noticed && !mending.iter().any(|end| end.is_cut()) {
                        continue;
                    }
                    let links = link(plan(), 1 << 20);
                    thread::scope(|scope| {
                        for (end, link) in mending.iter().zip(links) {
                            // It may break again at once, or the test be over.
                            scope.spawn(move || end.reattach(link).is_ok());
                        }
                    });
                }
            });
            // The thread above ends, whatever becomes of `body`.
            let over = Over(&ends);
            let result = body(&ends);
            drop(over);
            result
        })
    }
}

fn pattern(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|index| (index * 7 + index / 251) as u8 ^ seed)
        .collect()
}

/// Sends a stream in parts of these sizes, over and over; some of them without waiting.
fn send_in_parts(end: &Resumable, bytes: &[u8], sizes: &[usize]) {
    let (mut rest, mut sizes) = (bytes, sizes.iter().copied().cycle().enumerate());
    while let Some((turn, size)) = sizes.next().filter(|_| !rest.is_empty()) {
        let part = &rest[..size.min(rest.len())];
        rest = &rest[part.len()..];
        let taken = match turn % 2 {
            0 => 0,
            _ => end.try_send(part).unwrap(),
        };
        let (one, other) = part[taken..].split_at((part.len() - taken) / 3);
        end.send(&[IoSlice::new(one), IoSlice::new(other)]).unwrap();
    }
}

/// Both ends send a stream and receive the other's.
fn exchange(ends: &[Arc<Resumable>; 2], length: usize, sizes: &[usize]) {
    thread::scope(|scope| {
        for (seed, end) in ends.iter().enumerate() {
            scope.spawn(move || send_in_parts(end, &pattern(seed as u8, length), sizes));
            scope.spawn(move || {
                let mut received = vec![0; length];
                recv_exact(&**end, &mut received).unwrap();
                assert!(received == pattern(1 - seed as u8, length));
            });
        }
    });
}

#[test]
fn stream_goes_on_after_a_fault_at_any_byte() {
    for kind in [FaultKind::Cut, FaultKind::Reset, FaultKind::HalfClose] {
        for sender in [End::Client, End::Server] {
            for at_bytes in 0..100 {
                let links = link(Some(fault(sender, at_bytes, kind)), 1 << 20);
                pair_over(links).mended(|| None, |ends| exchange(ends, 40, &[3, 20, 1]));
            }
        }
    }
}

#[test]
fn link_is_read_only_once_both_ends_met() {
    let [far, near] = link(None, 1 << 20);
    let lane = Resumable::without_link(near.peer(), |_, _| ());
    // It came first: it is no record.
    far.send(&[IoSlice::new(&[0; 8])]).unwrap();
    let mut data = [0; 5];
    assert_eq!(lane.try_recv(&mut data).unwrap(), None);
    assert_eq!(lane.try_send(&data).unwrap(), 0);
    lane.reattach(near).unwrap();
    let mut position = [0xff; 8];
    recv_exact(&*far, &mut position).unwrap();
    assert_eq!(position, [0; 8]);
    let record = [&[5, 0, 0, 0][..], &[0; 12], b"right"].concat();
    far.send(&[IoSlice::new(&record)]).unwrap();
    recv_exact(&*lane, &mut data).unwrap();
    assert_eq!(&data, b"right");
}

#[test]
fn stream_goes_on_through_many_cuts() {
    let mut state = 11_u64;
    let mut random = move || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    for round in 0..6 {
        let mut left = 12;
        let mut plan = || {
            left -= 1;
            let kind =
                [FaultKind::Cut, FaultKind::Reset, FaultKind::HalfClose][random() as usize % 3];
            let sender = [End::Client, End::Server][random() as usize % 2];
            (left > 0).then(|| fault(sender, random() % 300_000, kind))
        };
        let first = link(plan(), 1 << 20);
        let sizes = [1, 70_000, 16, 300_000, 4096 + round];
        pair_over(first).mended(plan, |ends| exchange(ends, 2 << 20, &sizes));
    }
}

#[test]
fn stalled_link_is_left_once_it_is_cut() {
    let links = link(Some(fault(End::Client, 30, FaultKind::Stall)), 1 << 20);
    pair_over(links).mended(
        || None,
        |ends| {
            let [client, server] = ends;
            client.send(&[IoSlice::new(&pattern(0, 100))]).unwrap();
            assert!(
                !server
                    .wait_readable(Some(Duration::from_millis(20)))
                    .unwrap()
                    || {
                        let mut some = [0; 100];
                        server
                            .try_recv(&mut some)
                            .unwrap()
                            .is_none_or(|count| count < 100)
                    }
            );
            client.cut("it is silent");
            assert!(client.send(&[IoSlice::new(b"more")]).is_ok());
        },
    );
}

#[test]
fn bytes_acknowledged_late_do_not_pile_up() {
    let pair = pair_over(link(None, 1 << 20));
    pair.mended(
        || None,
        |ends| {
            exchange(ends, 24 << 20, &[1 << 20]);
            ends.iter().for_each(|end| {
                let outbound = lock(&end.outbound);
                assert!(
                    outbound.kept.len() < KEPT_LIMIT / 2,
                    "{}",
                    outbound.kept.len()
                );
            });
        },
    );
}

#[test]
fn cut_with_too_much_under_way_ends_the_connection() {
    let Pair { ends, .. } = pair_over(link(None, 64 << 20));
    let [client, server] = &ends;
    for _ in 0..24 {
        client.send(&[IoSlice::new(&[7; 1 << 20])]).unwrap();
    }
    ends.iter().for_each(|end| end.cut("test"));
    let links = link(None, 1 << 20);
    thread::scope(|scope| {
        for (end, link) in ends.iter().zip(links) {
            scope.spawn(move || end.reattach(link).is_ok());
        }
    });
    let error = client.recv(&mut [0; 8]).unwrap_err().to_string();
    assert!(error.contains("not kept any more"), "{error}");
    // It learns of the end from its owner, as of any cut that lasts.
    server.fail("the other end has given up".into());
    let error = server.recv(&mut [0; 8]).unwrap_err().to_string();
    assert!(error.contains("has given up"), "{error}");
}

#[test]
fn shutdown_wakes_callers_that_wait_for_a_link() {
    let Pair { ends, cuts } = pair_over(link(None, 1 << 20));
    let [client, _server] = &ends;
    client.cut("test");
    cuts.recv().unwrap();
    thread::scope(|scope| {
        let reading = scope.spawn(|| client.recv(&mut [0; 8]));
        let sending = scope.spawn(|| client.send(&[IoSlice::new(b"bytes")]));
        let waiting = scope.spawn(|| client.wait_readable(None));
        assert!(
            !client
                .wait_readable(Some(Duration::from_millis(5)))
                .unwrap()
        );
        client.shutdown();
        assert!(reading.join().unwrap().is_err());
        assert!(sending.join().unwrap().is_err());
        assert!(waiting.join().unwrap().unwrap());
    });
}

#[test]
fn end_of_stream_is_told_from_a_cut() {
    let Pair { ends, .. } = pair_over(link(None, 1 << 20));
    let [client, server] = &ends;
    client.send(&[IoSlice::new(b"last")]).unwrap();
    client.shutdown();
    let mut received = [0; 4];
    recv_exact(&**server, &mut received).unwrap();
    assert_eq!(server.recv(&mut received).unwrap(), 0);
    assert!(!server.is_cut());
}

/// The error of an end that gets these bytes.
fn refused(bytes: &[u8]) -> String {
    let [near, far] = link(None, 1 << 20);
    let end = Resumable::new(near, |_, _| ());
    // Behind a record of none.
    far.send(&[IoSlice::new(&[0; HEADER]), IoSlice::new(bytes)])
        .unwrap();
    let error = end.recv(&mut [0; 8]).unwrap_err();
    assert!(end.is_over());
    error.to_string()
}

#[test]
fn records_that_break_the_rules_end_the_connection() {
    let record = |length: u32, flags: u32, acknowledged: u64| {
        let parts = [
            &length.to_le_bytes()[..],
            &flags.to_le_bytes(),
            &acknowledged.to_le_bytes(),
        ];
        refused(&parts.concat())
    };
    assert!(record(u32::MAX, 0, 0).contains("a record of"));
    assert!(record(1, 2, 0).contains("flags 0x2"));
    assert!(record(1, 0, 1).contains("never sent"));
}

/// A server that turns connections away before it knows that they are of a stream.
#[test]
fn links_that_begin_with_words_are_cut() {
    let words = b"TWLC and why it has no time for another";
    let [near, far] = link(None, 1 << 20);
    let end = Resumable::new(near, |_, _| ());
    far.send(&[IoSlice::new(words)]).unwrap();
    assert_eq!(end.try_recv(&mut [0; 80]).unwrap(), None);
    assert!(end.is_cut());
    let [near, far] = link(None, 1 << 20);
    far.send(&[IoSlice::new(words)]).unwrap();
    let error = end.reattach(near).unwrap_err().to_string();
    assert!(error.contains("more than was sent"), "{error}");
    assert!(end.is_cut() && !end.is_over());
    let [near, far] = link(None, 1 << 20);
    far.send(&[IoSlice::new(&[0; 8])]).unwrap();
    end.reattach(near).unwrap();
    let mut position = [0xff; 8];
    recv_exact(&*far, &mut position).unwrap();
    assert_eq!(position, [0; 8]);
}

#[test]
fn later_link_takes_the_place_of_one_that_joins() {
    let lane = Resumable::without_link("peer".into(), |_, _| ());
    let ([first, silent], [second, far]) = (link(None, 1 << 20), link(None, 1 << 20));
    far.send(&[IoSlice::new(&[0; 8])]).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| lane.reattach(first));
        let mut position = [0xff; 8];
        // It has said how far it is, and waits for the same.
        recv_exact(&*silent, &mut position).unwrap();
        lane.reattach(second).unwrap();
        // It was told, and has not waited until its time was up.
        let late = waiting.join().unwrap().unwrap_err();
        assert!(matches!(late, TransportError::Closed { .. }), "{late}");
    });
    assert!(!lane.is_cut());
}
