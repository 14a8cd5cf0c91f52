//! Rings whose peer dies, whose words are overwritten, or whose bell does not ring, wherever that strikes: the right bytes or an end, in time.

use std::sync::mpsc::{RecvTimeoutError, channel};

use super::super::ring::{Consumer, Memory, Producer, Sleeper};
use super::super::view::View;
use super::*;

/// The kernel tells at once of a peer that is gone; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);
const RING: usize = 4096;
/// More than a ring holds, several times.
const LONG: usize = 20_000;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Xorshift: the same numbers on every machine.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// The result of `act`, which must come in time.
fn in_time<T: Send + 'static>(what: &str, act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, done) = channel();
    std::thread::spawn(move || sender.send(act()));
    match done.recv_timeout(PATIENCE) {
        Ok(found) => found,
        Err(RecvTimeoutError::Timeout) => panic!("{what} hangs"),
        Err(RecvTimeoutError::Disconnected) => panic!("{what} panicked"),
    }
}

/// Everything that comes until the connection ends.
fn all_of(connection: &dyn Connection) -> Vec<u8> {
    let (mut found, mut part) = (Vec::new(), [0; 1000]);
    while let Ok(count @ 1..) = connection.recv(&mut part) {
        found.extend_from_slice(&part[..count]);
    }
    found
}

/// Around every place where something begins or ends in a ring, and some by chance.
fn offsets() -> Vec<usize> {
    let mut random = Random::new(1);
    let around = (1..=LONG / RING)
        .flat_map(|rings| [-1, 0, 1].map(|by| (rings * RING).wrapping_add_signed(by)));
    let chance = (0..60).map(|_| 1 + random.below(LONG));
    [1, 2].into_iter().chain(around).chain(chance).collect()
}

/// Two ends with rings as small as can be.
fn small(server: &Server) -> [Arc<dyn Connection>; 2] {
    let options = ConnectOptions {
        buffer_bytes: Some(RING),
        ..ConnectOptions::default()
    };
    let client = server.connect(&options);
    let accepted = server.listener.accept().unwrap();
    // Either side has said something, so that both know the rings.
    send(&*client, b"x");
    assert_eq!(receive(&*accepted, 1), b"x");
    [client, accepted]
}

#[test]
fn bytes_before_a_senders_end_all_arrive() {
    let server = Server::new("");
    for (case, offset) in offsets().into_iter().enumerate() {
        let mut ends = small(&server);
        ends.rotate_left(case % 2);
        let [from, to] = ends;
        let found = std::thread::scope(|scope| {
            let reading = scope.spawn(move || in_time("reading", move || all_of(&*to)));
            let mut random = Random::new(case as u64);
            let mut rest = &pattern(offset)[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at(rest.len().min(1 + random.below(6000)));
                send(&*from, now);
                rest = later;
            }
            drop(from);
            reading.join().unwrap()
        });
        assert!(found == pattern(offset), "{} of {offset}", found.len());
    }
}

#[test]
fn sender_whose_receiver_ends_anywhere_fails() {
    let server = Server::new("");
    for (case, offset) in offsets().into_iter().enumerate() {
        let mut ends = small(&server);
        ends.rotate_left(case % 2);
        let [from, to] = ends;
        let taking = std::thread::spawn(move || receive(&*to, offset));
        let sent = in_time("sending", move || {
            let sent = from.send(&[IoSlice::new(&pattern(offset + 3 * RING))]);
            (sent.is_err(), from.recv(&mut [0; 8]).unwrap_or(0))
        });
        assert!(taking.join().unwrap() == pattern(offset), "{offset}");
        assert_eq!(sent, (true, 0), "{offset}");
    }
}

/// A peer that keeps to the rules of rings until a test breaks them: the side that connected.
struct Peer {
    socket: OwnedFd,
    to_victim: View,
    from_victim: View,
    out: Producer<View>,
    back: Consumer<View>,
}

impl Peer {
    fn new(server: &Server) -> (Self, Arc<dyn Connection>) {
        let (socket, victim) = server.stranger();
        let sizes = Sizes::both(RING);
        let memory = view::make(sizes).unwrap();
        let hello = Hello { sizes: Some(sizes) };
        send_with(&socket, &hello.encode(), &[memory.descriptor()]).unwrap();
        send_with(&socket, b"\x01\x01\0x", &[]).unwrap();
        assert_eq!(receive(&*victim, 1), b"x");
        let (to_victim, from_victim) = View::pair(Arc::new(memory), sizes);
        let peer = Self {
            socket,
            out: Producer::new(to_victim.clone()),
            back: Consumer::new(from_victim.clone()),
            to_victim,
            from_victim,
        };
        (peer, victim)
    }

    fn ring(&self) {
        // The victim may be gone, or have enough to hear.
        let _ = rustix::net::send(&self.socket, &[0], rustix::net::SendFlags::DONTWAIT);
    }

    /// Puts as much as fits, and says how much that was. A count that cannot be is taken for a full ring.
    fn put(&mut self, bytes: &[u8], rings: bool) -> usize {
        let put = self.out.put(bytes).unwrap_or(0);
        if self.out.must_ring() && rings {
            self.ring();
        }
        put
    }

    fn take(&mut self, rings: bool) -> Vec<u8> {
        let mut bytes = vec![0; RING];
        let count = self.back.take(&mut bytes).unwrap_or(0);
        if self.back.must_ring() && rings {
            self.ring();
        }
        bytes.truncate(count);
        bytes
    }

    /// Puts another number into a word; whether bytes that the victim takes may be others from now on.
    fn overwrite(&self, random: &mut Random) -> bool {
        let view = [&self.to_victim, &self.from_victim][random.below(2)];
        let word = random.below(4);
        let old = match word {
            0 => view.load_tail(),
            _ => view.load_head(),
        };
        let ring = RING as u64;
        let chance = random.below(1 << 40) as u64;
        let others = [
            0,
            u64::MAX,
            old.wrapping_sub(1),
            old + 1,
            old + 100,
            old + ring,
            old + ring + 1,
            1 << 63,
            chance,
        ];
        let new = others[random.below(others.len())];
        match word {
            0 => view.store_tail(new),
            1 => view.store_head(new),
            2 => view.set_parked(Sleeper::Producer, new % 2 == 1),
            _ => view.set_parked(Sleeper::Consumer, new % 2 == 1),
        }
        word < 2 && std::ptr::eq(view, &self.to_victim)
    }
}

#[test]
fn words_overwritten_at_any_time_give_right_bytes_or_an_end() {
    let server = Server::new("");
    let mut whole = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (mut peer, victim) = Peer::new(&server);
        let (reader, sender) = (Arc::clone(&victim), victim);
        let (read, sent) = (channel(), channel());
        std::thread::spawn(move || read.0.send(all_of(&*reader)));
        std::thread::spawn(move || {
            sent.0
                .send(sender.send(&[IoSlice::new(&pattern(LONG))]).is_ok())
        });
        let bytes = pattern(LONG);
        let (mut put, mut taken, mut honest) = (0_usize, Vec::new(), usize::MAX);
        let strikes = random.below(40);
        for step in 0..60 {
            if step == strikes && peer.overwrite(&mut random) {
                // Bytes that the victim has not taken yet may be written over.
                honest = put.saturating_sub(RING);
            }
            let end = bytes.len().min(put + 1 + random.below(2000));
            put += peer.put(&bytes[put..end], true);
            taken.extend(peer.take(true));
            if random.below(4) == 0 {
                std::thread::yield_now();
            }
        }
        drop(peer);
        let found = read.1.recv_timeout(PATIENCE);
        let found = found.unwrap_or_else(|error| panic!("seed {seed}: reading: {error}"));
        let right = found.len().min(put).min(honest);
        assert!(found[..right] == bytes[..right], "seed {seed}: wrong bytes");
        let done = sent.1.recv_timeout(PATIENCE);
        done.unwrap_or_else(|error| panic!("seed {seed}: sending: {error}"));
        whole += usize::from(found.len() == put);
    }
    println!("{whole} streams came whole");
    assert!((1..300).contains(&whole), "the mix tests nothing");
}

/// How a wait ends whose bell was lost.
#[derive(Clone, Copy, Debug)]
enum Then {
    /// The peer rings for something else.
    Rings,
    Dies,
}

#[test]
fn reader_whose_bell_is_lost_goes_on_at_the_next_or_at_the_end() {
    let server = Server::new("");
    for (case, len) in offsets().into_iter().enumerate() {
        let len = len.min(RING);
        let then = [Then::Rings, Then::Dies][case % 2];
        let (mut peer, victim) = Peer::new(&server);
        let waiting = Arc::clone(&victim);
        let (sender, found) = channel();
        std::thread::spawn(move || sender.send(receive(&*waiting, len)));
        let deadline = Instant::now() + PATIENCE;
        while !peer.to_victim.is_parked(Sleeper::Consumer) {
            assert!(Instant::now() < deadline, "it does not sleep");
            std::thread::yield_now();
        }
        let bytes = pattern(len);
        let mut put = 0;
        while put < len {
            put += peer.put(&bytes[put..], false);
        }
        // A wait with a deadline ends at it, though nothing rings.
        let asked = Instant::now();
        assert!(victim.wait_readable(Some(Duration::from_millis(1))).is_ok());
        assert!(asked.elapsed() < PATIENCE);
        match then {
            Then::Rings => peer.ring(),
            Then::Dies => drop(peer),
        }
        let found = found.recv_timeout(PATIENCE);
        assert!(found.as_ref() == Ok(&bytes), "{then:?} after {len} bytes");
    }
}

#[test]
fn sender_whose_bell_is_lost_goes_on_at_the_next_or_fails() {
    let server = Server::new("");
    for (case, more) in offsets().into_iter().enumerate() {
        let more = more.min(RING);
        let then = [Then::Rings, Then::Dies][case % 2];
        let (mut peer, victim) = Peer::new(&server);
        let (sender, done) = channel();
        let bytes = pattern(RING + more);
        std::thread::spawn(move || sender.send(victim.send(&[IoSlice::new(&bytes)]).is_ok()));
        let deadline = Instant::now() + PATIENCE;
        while !peer.from_victim.is_parked(Sleeper::Producer) {
            assert!(Instant::now() < deadline, "it does not sleep");
            std::thread::yield_now();
        }
        let mut taken = peer.take(false);
        match then {
            Then::Rings => {
                peer.ring();
                while taken.len() < RING + more && Instant::now() < deadline {
                    taken.extend(peer.take(true));
                }
                assert!(taken == pattern(RING + more), "{more}");
                assert_eq!(done.recv_timeout(PATIENCE), Ok(true), "{more}");
            }
            Then::Dies => {
                drop(peer);
                // Bytes that had room by then are sent.
                assert!(done.recv_timeout(PATIENCE).is_ok(), "{more}: sending hangs");
            }
        }
    }
}
