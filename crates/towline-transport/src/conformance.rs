//! The suite that every transport must pass: one function per rule.
//!
//! A transport's tests describe it by a [`Fixture`] and call [`check`], which runs every rule and names those that
//! failed. No rule measures time. A rule that waits for something that never comes is stopped after
//! [`RULE_LIMIT`] and counts as failed.
//!
//! ```
//! use std::sync::Arc;
//! use towline_transport::conformance::{self, Fixture};
//! use towline_transport::memory::MemoryTransport;
//!
//! let fixture = Fixture::new(Arc::new(MemoryTransport::new()), |number| format!("memory://rule-{number}"));
//! conformance::check(&fixture);
//! ```

use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::fd::OwnedFd;

use crate::{Address, ConnectOptions, Connection, Listener, Transport, TransportError, recv_exact};

/// How long one rule may take before it is said to hang. The slowest takes well under a second on an idle machine.
pub const RULE_LIMIT: Duration = Duration::from_secs(120);

/// More than any transport buffers on its own, so that a sender has to wait for its reader.
const LARGE_BYTES: usize = 16 << 20;

/// A transport under test.
#[derive(Clone)]
pub struct Fixture {
    transport: Arc<dyn Transport>,
    address: Arc<dyn Fn(u32) -> String + Send + Sync>,
    options: ConnectOptions,
    number: Arc<AtomicU32>,
}

impl Fixture {
    /// `address` gives an address to listen on, for each number another; where the transport resolves it itself, as
    /// tcp does port 0, it may be always the same.
    pub fn new(
        transport: Arc<dyn Transport>,
        address: impl Fn(u32) -> String + Send + Sync + 'static,
    ) -> Self {
        Self {
            transport,
            address: Arc::new(address),
            options: ConnectOptions::default(),
            number: Arc::default(),
        }
    }

    /// Connects with other options than a lane's.
    pub fn with_options(self, options: ConnectOptions) -> Self {
        Self { options, ..self }
    }

    fn listen(&self) -> Box<dyn Listener> {
        let text = (self.address)(self.number.fetch_add(1, Ordering::Relaxed));
        self.transport
            .listen(&text.parse().expect("the fixture gives addresses"))
            .expect("listen")
    }

    fn connect(&self, address: &Address) -> Arc<dyn Connection> {
        self.transport
            .connect(address, &self.options)
            .expect("connect")
    }

    /// A connection, both ends: of whoever connected, and of whoever accepted.
    pub fn pair(&self) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
        let listener = self.listen();
        let client = self.connect(&listener.local_address());
        (client, listener.accept().expect("accept"))
    }
}

/// One thing that every transport must do.
pub type Rule = fn(&Fixture);

macro_rules! rules {
    ($($rule:ident),* $(,)?) => { [$((stringify!($rule), $rule as Rule)),*] };
}

/// Every rule, with its name.
pub const RULES: &[(&str, Rule)] = &rules![
    listener_tells_where_it_listens,
    connecting_to_nothing_is_refused_and_names_the_address,
    address_of_another_scheme_is_refused,
    second_listener_at_an_address_is_refused,
    closing_a_listener_wakes_accept,
    closed_listener_refuses_and_its_connections_stay,
    dropped_listener_frees_its_address,
    connecting_does_not_wait_for_accept,
    many_connections_stay_apart,
    connection_names_its_peer,
    bytes_arrive_in_order,
    parts_arrive_one_behind_the_other,
    both_directions_carry_bytes,
    large_transfer_arrives_whole,
    large_transfer_through_small_buffers_arrives_whole,
    both_directions_at_once_do_not_wait_for_each_other,
    short_buffer_leaves_the_rest,
    recv_does_not_wait_for_a_full_buffer,
    try_recv_on_empty_is_none,
    try_send_fills_then_drains_then_goes_on,
    zero_lengths_do_nothing,
    wait_readable_times_out_on_silence,
    wait_readable_sees_bytes_and_leaves_them,
    wait_readable_sees_the_end,
    peer_close_gives_the_last_bytes_then_zero,
    peer_shutdown_gives_the_last_bytes_then_zero,
    peer_close_gives_a_large_transfer_whole,
    sending_to_a_closed_peer_fails,
    sending_after_own_shutdown_fails,
    shutdown_wakes_a_blocked_recv,
    shutdown_wakes_a_blocked_send,
    shutdown_wakes_a_blocked_wait,
    shutdown_twice_is_once,
    peer_close_wakes_a_blocked_send,
    descriptor_is_there_as_capabilities_say,
    adopted_descriptor_carries_on,
];

/// Runs every rule on `fixture` and panics with the names of those that failed.
pub fn check(fixture: &Fixture) {
    let failures: Vec<String> = RULES
        .iter()
        .filter_map(|(name, rule)| failure(fixture, name, *rule))
        .collect();
    let scheme = fixture.transport.scheme();
    assert!(
        failures.is_empty(),
        "{scheme}: {} of {} rules: {}",
        failures.len(),
        RULES.len(),
        failures.join("; ")
    );
}

/// Runs one rule in a thread of its own; says how it failed, if it did.
fn failure(fixture: &Fixture, name: &str, rule: Rule) -> Option<String> {
    let (done, outcome) = channel();
    let fixture = fixture.clone();
    let runner = thread::Builder::new().name(name.to_owned()).spawn(move || {
        rule(&fixture);
        // Received unless the limit passed, which is reported already.
        let _ = done.send(());
    });
    runner.expect("a thread can be started");
    match outcome.recv_timeout(RULE_LIMIT) {
        Ok(()) => None,
        Err(RecvTimeoutError::Disconnected) => Some(format!("{name} failed")),
        Err(RecvTimeoutError::Timeout) => Some(format!("{name} hangs")),
    }
}

fn send(connection: &Arc<dyn Connection>, bytes: &[u8]) {
    connection.send(&[IoSlice::new(bytes)]).expect("send");
}

fn receive(connection: &Arc<dyn Connection>, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    recv_exact(&**connection, &mut bytes).expect("receive");
    bytes
}

/// Bytes in which no two 4-byte groups are equal, so that a lost, doubled or moved part shows.
fn pattern(len: usize) -> Vec<u8> {
    (0..len.div_ceil(4) as u32)
        .flat_map(u32::to_le_bytes)
        .take(len)
        .collect()
}

/// What `recv` may say once the connection is shut down on this side.
fn is_end(received: &Result<usize, TransportError>) -> bool {
    matches!(received, Ok(0) | Err(TransportError::Closed { .. }))
}

/// What `send` says on a connection that is gone. Which of the two it is depends on how far the news has come.
fn is_gone<T>(sent: &Result<T, TransportError>) -> bool {
    matches!(
        sent,
        Err(TransportError::Closed { .. } | TransportError::Lost { .. })
    )
}

/// Sends until the transport takes no more; gives what it took.
fn fill(connection: &Arc<dyn Connection>, bytes: &[u8]) -> usize {
    let mut sent = 0;
    while sent < bytes.len() {
        match connection.try_send(&bytes[sent..]).expect("try_send") {
            0 => break,
            taken => sent += taken,
        }
    }
    sent
}

fn listener_tells_where_it_listens(fixture: &Fixture) {
    let listener = fixture.listen();
    let address = listener.local_address();
    assert_eq!(address.scheme(), fixture.transport.scheme());
    let client = fixture.connect(&address);
    send(&client, b"found");
    assert_eq!(receive(&listener.accept().unwrap(), 5), b"found");
}

fn connecting_to_nothing_is_refused_and_names_the_address(fixture: &Fixture) {
    let listener = fixture.listen();
    let address = listener.local_address();
    drop(listener);
    let error = fixture
        .transport
        .connect(&address, &fixture.options)
        .err()
        .expect("nobody listens");
    assert!(
        matches!(error, TransportError::ConnectionRefused { .. }),
        "{error}"
    );
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

fn address_of_another_scheme_is_refused(fixture: &Fixture) {
    let other: Address = "other-scheme://x".parse().unwrap();
    let error = fixture
        .transport
        .connect(&other, &ConnectOptions::default())
        .err();
    assert!(
        matches!(error, Some(TransportError::InvalidAddress { .. })),
        "{error:?}"
    );
    let error = fixture.transport.listen(&other).err();
    assert!(
        matches!(error, Some(TransportError::InvalidAddress { .. })),
        "{error:?}"
    );
}

fn second_listener_at_an_address_is_refused(fixture: &Fixture) {
    let first = fixture.listen();
    let error = fixture.transport.listen(&first.local_address()).err();
    assert!(
        matches!(error, Some(TransportError::AddressInUse { .. })),
        "{error:?}"
    );
    // The attempt must not have harmed the first.
    let _client = fixture.connect(&first.local_address());
    first.accept().unwrap();
}

fn closing_a_listener_wakes_accept(fixture: &Fixture) {
    let listener = fixture.listen();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| listener.accept().err());
        // Both orders must work: before the thread has come to `accept`, and while it waits there.
        thread::sleep(Duration::from_millis(10));
        listener.close();
        let error = blocked.join().unwrap();
        assert!(
            matches!(error, Some(TransportError::ListenerClosed { .. })),
            "{error:?}"
        );
    });
    let error = listener.accept().err();
    assert!(
        matches!(error, Some(TransportError::ListenerClosed { .. })),
        "{error:?}"
    );
    listener.close();
}

fn closed_listener_refuses_and_its_connections_stay(fixture: &Fixture) {
    let listener = fixture.listen();
    let client = fixture.connect(&listener.local_address());
    let server = listener.accept().unwrap();
    listener.close();
    let error = fixture
        .transport
        .connect(&listener.local_address(), &ConnectOptions::default())
        .err();
    assert!(
        matches!(error, Some(TransportError::ConnectionRefused { .. })),
        "{error:?}"
    );
    drop(listener);
    send(&client, b"still here");
    assert_eq!(receive(&server, 10), b"still here");
}

fn dropped_listener_frees_its_address(fixture: &Fixture) {
    let first = fixture.listen();
    let address = first.local_address();
    let client = fixture.connect(&address);
    let server = first.accept().unwrap();
    drop((first, server, client));
    let second = fixture
        .transport
        .listen(&address)
        .expect("the address is free again");
    let client = fixture.connect(&address);
    send(&client, b"new");
    assert_eq!(receive(&second.accept().unwrap(), 3), b"new");
}

fn connecting_does_not_wait_for_accept(fixture: &Fixture) {
    let listener = fixture.listen();
    let client = fixture.connect(&listener.local_address());
    send(&client, b"early");
    drop(client);
    let server = listener.accept().unwrap();
    assert_eq!(receive(&server, 5), b"early");
    assert_eq!(server.recv(&mut [0; 1]).unwrap(), 0);
}

fn many_connections_stay_apart(fixture: &Fixture) {
    let listener = fixture.listen();
    let address = listener.local_address();
    let clients: Vec<_> = (0..64u8)
        .map(|number| {
            let client = fixture.connect(&address);
            send(&client, &[number; 100]);
            client
        })
        .collect();
    // They need not be accepted in the order in which they came.
    for _ in &clients {
        let server = listener.accept().unwrap();
        let request = receive(&server, 100);
        assert_eq!(request, [request[0]; 100]);
        send(&server, &request);
        thread::spawn(move || server.recv(&mut [0; 1]));
    }
    for (number, client) in clients.iter().enumerate() {
        assert_eq!(receive(client, 100), [number as u8; 100]);
    }
}

fn connection_names_its_peer(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    assert!(
        client.peer().starts_with(fixture.transport.scheme()),
        "{}",
        client.peer()
    );
    assert!(
        server.peer().starts_with(fixture.transport.scheme()),
        "{}",
        server.peer()
    );
    client.shutdown();
    let error = client
        .send(&[IoSlice::new(b"x")])
        .expect_err("it is shut down");
    assert!(error.to_string().contains(&client.peer()), "{error}");
}

fn bytes_arrive_in_order(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    let bytes = pattern(100_000);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rest = &bytes[..];
            for len in (1..=97).cycle() {
                let (now, later) = rest.split_at(len.min(rest.len()));
                send(&client, now);
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
        });
        assert!(receive(&server, bytes.len()) == bytes);
    });
}

fn parts_arrive_one_behind_the_other(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    let bytes = pattern(300_000);
    let (header, payload) = bytes.split_at(24);
    let (front, back) = payload.split_at(100_001);
    thread::scope(|scope| {
        scope.spawn(|| {
            let parts = [header, &[], front, &[], &[], back, &[]].map(IoSlice::new);
            client.send(&parts).expect("send");
        });
        assert!(receive(&server, bytes.len()) == bytes);
    });
}

fn both_directions_carry_bytes(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    for number in 0..100u32 {
        send(&client, &number.to_le_bytes());
        let request = receive(&server, 4);
        send(&server, &request);
        assert_eq!(receive(&client, 4), number.to_le_bytes());
    }
}

fn large_transfer_arrives_whole(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    let bytes = pattern(LARGE_BYTES);
    thread::scope(|scope| {
        scope.spawn(|| send(&client, &bytes));
        assert!(receive(&server, bytes.len()) == bytes);
    });
}

fn large_transfer_through_small_buffers_arrives_whole(fixture: &Fixture) {
    let listener = fixture.listen();
    let options = ConnectOptions {
        buffer_bytes: Some(4096),
        ..fixture.options.clone()
    };
    let client = fixture
        .transport
        .connect(&listener.local_address(), &options)
        .expect("connect");
    let server = listener.accept().unwrap();
    let bytes = pattern(LARGE_BYTES / 16);
    thread::scope(|scope| {
        scope.spawn(|| send(&client, &bytes));
        assert!(receive(&server, bytes.len()) == bytes);
    });
}

fn both_directions_at_once_do_not_wait_for_each_other(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    let bytes = pattern(LARGE_BYTES / 2);
    thread::scope(|scope| {
        scope.spawn(|| send(&client, &bytes));
        scope.spawn(|| send(&server, &bytes));
        scope.spawn(|| assert!(receive(&client, bytes.len()) == bytes));
        assert!(receive(&server, bytes.len()) == bytes);
    });
}

fn short_buffer_leaves_the_rest(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    send(&client, b"abcdef");
    assert_eq!(receive(&server, 1), b"a");
    assert_eq!(receive(&server, 2), b"bc");
    assert_eq!(receive(&server, 3), b"def");
}

fn recv_does_not_wait_for_a_full_buffer(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    send(&client, b"abc");
    let mut buffer = [0; 1000];
    let mut received = 0;
    // A stream may split what one send gave; it may not wait for more than there is.
    while received < 3 {
        received += server.recv(&mut buffer[received..]).unwrap();
    }
    assert_eq!(&buffer[..received], b"abc");
}

fn try_recv_on_empty_is_none(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    assert_eq!(server.try_recv(&mut [0; 8]).unwrap(), None);
    send(&client, b"x");
    assert!(server.wait_readable(None).unwrap());
    assert_eq!(server.try_recv(&mut [0; 8]).unwrap(), Some(1));
    assert_eq!(server.try_recv(&mut [0; 8]).unwrap(), None);
}

fn try_send_fills_then_drains_then_goes_on(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    let bytes = pattern(LARGE_BYTES);
    let sent = fill(&client, &bytes);
    assert!(sent > 0, "an empty connection takes something");
    assert!(
        sent < bytes.len(),
        "16 MiB were taken that nobody reads: there is no back-pressure"
    );
    thread::scope(|scope| {
        scope.spawn(|| send(&client, &bytes[sent..]));
        assert!(receive(&server, bytes.len()) == bytes);
    });
    assert!(client.try_send(b"x").unwrap() == 1, "room is there again");
    assert_eq!(receive(&server, 1), b"x");
}

fn zero_lengths_do_nothing(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    client.send(&[]).unwrap();
    client.send(&[IoSlice::new(&[])]).unwrap();
    assert_eq!(client.try_send(&[]).unwrap(), 0);
    assert_eq!(server.try_recv(&mut [0; 1]).unwrap(), None);
    assert_eq!(server.recv(&mut []).unwrap(), 0);
    assert_eq!(server.try_recv(&mut []).unwrap(), Some(0));
    send(&client, b"x");
    assert_eq!(server.recv(&mut []).unwrap(), 0);
    assert_eq!(receive(&server, 1), b"x");
}

fn wait_readable_times_out_on_silence(fixture: &Fixture) {
    let (_client, server) = fixture.pair();
    assert!(!server.wait_readable(Some(Duration::ZERO)).unwrap());
    assert!(
        !server
            .wait_readable(Some(Duration::from_micros(1500)))
            .unwrap()
    );
}

fn wait_readable_sees_bytes_and_leaves_them(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| server.wait_readable(None).unwrap());
        send(&client, b"ab");
        assert!(waiting.join().unwrap());
    });
    assert!(server.wait_readable(Some(Duration::MAX)).unwrap());
    assert_eq!(receive(&server, 2), b"ab");
    assert!(!server.wait_readable(Some(Duration::ZERO)).unwrap());
}

fn wait_readable_sees_the_end(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    drop(client);
    assert!(server.wait_readable(None).unwrap());
    assert_eq!(server.try_recv(&mut [0; 1]).unwrap(), Some(0));
}

fn peer_close_gives_the_last_bytes_then_zero(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    send(&server, b"bye");
    drop(server);
    assert_eq!(receive(&client, 3), b"bye");
    assert_eq!(client.recv(&mut [0; 1]).unwrap(), 0);
    assert_eq!(client.recv(&mut [0; 1]).unwrap(), 0);
    let error = recv_exact(&*client, &mut [0; 1]);
    assert!(
        matches!(error, Err(TransportError::Closed { .. })),
        "{error:?}"
    );
}

fn peer_shutdown_gives_the_last_bytes_then_zero(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    send(&server, b"bye");
    server.shutdown();
    assert_eq!(receive(&client, 3), b"bye");
    assert_eq!(client.recv(&mut [0; 1]).unwrap(), 0);
}

fn peer_close_gives_a_large_transfer_whole(fixture: &Fixture) {
    for slow in [false, true] {
        let (client, server) = fixture.pair();
        thread::scope(|scope| {
            scope.spawn(move || {
                send(&server, &pattern(LARGE_BYTES));
                drop(server);
            });
            if slow {
                thread::sleep(Duration::from_millis(50));
            }
            assert!(receive(&client, LARGE_BYTES) == pattern(LARGE_BYTES));
            assert_eq!(client.recv(&mut [0; 1]).unwrap(), 0);
        });
    }
}

fn sending_to_a_closed_peer_fails(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    drop(server);
    assert_eq!(client.recv(&mut [0; 1]).unwrap(), 0);
    // The first bytes may be taken before the news has come back.
    let failed = loop {
        let sent = client.send(&[IoSlice::new(b"anyone?")]);
        if sent.is_err() {
            break sent;
        }
    };
    assert!(is_gone(&failed), "{failed:?}");
    let again = client.try_send(b"anyone?");
    assert!(is_gone(&again), "{again:?}");
}

fn sending_after_own_shutdown_fails(fixture: &Fixture) {
    let (client, _server) = fixture.pair();
    client.shutdown();
    let sent = client.send(&[IoSlice::new(b"x")]);
    assert!(is_gone(&sent), "{sent:?}");
    let sent = client.try_send(b"x");
    assert!(is_gone(&sent), "{sent:?}");
}

fn shutdown_wakes_a_blocked_recv(fixture: &Fixture) {
    let (client, _server) = fixture.pair();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| client.recv(&mut [0; 1]));
        // Gives the thread time to block, the case at issue; without, the outcome is the same.
        thread::sleep(Duration::from_millis(10));
        client.shutdown();
        let received = blocked.join().unwrap();
        assert!(is_end(&received), "{received:?}");
    });
    let received = client.recv(&mut [0; 1]);
    assert!(is_end(&received), "{received:?}");
}

fn shutdown_wakes_a_blocked_send(fixture: &Fixture) {
    let (client, _server) = fixture.pair();
    let bytes = vec![0; LARGE_BYTES];
    // A full connection: the next send blocks.
    while fill(&client, &bytes) > 0 {}
    thread::scope(|scope| {
        let blocked = scope.spawn(|| client.send(&[IoSlice::new(&bytes)]));
        thread::sleep(Duration::from_millis(10));
        client.shutdown();
        let sent = blocked.join().unwrap();
        assert!(is_gone(&sent), "{sent:?}");
    });
}

fn shutdown_wakes_a_blocked_wait(fixture: &Fixture) {
    let (client, _server) = fixture.pair();
    thread::scope(|scope| {
        let blocked = scope.spawn(|| client.wait_readable(None));
        thread::sleep(Duration::from_millis(10));
        client.shutdown();
        assert!(blocked.join().unwrap().unwrap());
    });
}

fn shutdown_twice_is_once(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    client.shutdown();
    client.shutdown();
    assert_eq!(server.recv(&mut [0; 1]).unwrap(), 0);
    server.shutdown();
    let received = client.recv(&mut [0; 1]);
    assert!(is_end(&received), "{received:?}");
}

fn peer_close_wakes_a_blocked_send(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    let bytes = vec![0; LARGE_BYTES];
    while fill(&client, &bytes) > 0 {}
    thread::scope(|scope| {
        let blocked = scope.spawn(|| client.send(&[IoSlice::new(&bytes)]));
        thread::sleep(Duration::from_millis(10));
        // Bytes that nobody will read are in the way of an orderly end.
        drop(server);
        let sent = blocked.join().unwrap();
        assert!(is_gone(&sent), "{sent:?}");
    });
}

fn descriptor_is_there_as_capabilities_say(fixture: &Fixture) {
    let (client, server) = fixture.pair();
    let passes = fixture.transport.capabilities().passes_descriptors;
    assert_eq!(client.descriptor().is_some(), passes);
    assert_eq!(server.descriptor().is_some(), passes);
    let adopted = fixture
        .transport
        .adopt(no_connection())
        .err()
        .expect("a file is no connection");
    assert_eq!(
        matches!(adopted, TransportError::Unsupported { .. }),
        !passes,
        "{adopted}"
    );
}

#[cfg(unix)]
fn no_connection() -> OwnedFd {
    let file = std::fs::File::open("/dev/null");
    file.expect("every Unix has it").into()
}

#[cfg(windows)]
fn no_connection() -> OwnedFd {
    let socket = std::net::UdpSocket::bind("127.0.0.1:0");
    socket.expect("a free port").into()
}

fn adopted_descriptor_carries_on(fixture: &Fixture) {
    if !fixture.transport.capabilities().passes_descriptors {
        return;
    }
    let (client, server) = fixture.pair();
    send(&client, b"preamble|frame");
    assert_eq!(receive(&server, 9), b"preamble|");
    // As when it goes to another process: a copy of the descriptor lives on while the first owner lets go.
    let passed = server
        .descriptor()
        .unwrap()
        .try_clone_to_owned()
        .expect("dup");
    drop(server);
    let adopted = fixture.transport.adopt(passed).expect("adopt");
    assert_eq!(receive(&adopted, 5), b"frame");
    send(&adopted, b"reply");
    assert_eq!(receive(&client, 5), b"reply");
    drop(adopted);
    assert_eq!(client.recv(&mut [0; 1]).unwrap(), 0);
}
