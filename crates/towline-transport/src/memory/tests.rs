use std::io::IoSlice;
use std::time::Instant;

use super::*;
use crate::recv_exact;

type Ends = (Arc<dyn Connection>, Arc<dyn Connection>, LinkMonitor);

fn pair(link: Link) -> Ends {
    join(&MemoryTransport::with_link(link))
}

/// Two ends of a connection whose client is to fail so.
fn pair_with(at_bytes: u64, kind: FaultKind) -> Ends {
    let fault = Fault {
        connection: 0,
        sender: End::Client,
        at_bytes,
        kind,
        to_all: false,
    };
    let transport = MemoryTransport::simulated(Link::default(), Time::Real);
    let ends = join(&transport);
    transport.arm(&[fault]);
    ends
}

fn join(transport: &MemoryTransport) -> Ends {
    let address = "memory://pair".parse().unwrap();
    let listener = transport.listen(&address).unwrap();
    let client = transport
        .connect(&address, &ConnectOptions::default())
        .unwrap();
    let server = listener.accept().unwrap();
    (client, server, transport.monitors().remove(0))
}

fn send(connection: &Arc<dyn Connection>, bytes: &[u8]) -> Result<(), TransportError> {
    connection.send(&[IoSlice::new(bytes)])
}

#[test]
fn networks_do_not_know_each_others_names() {
    let _listener = MemoryTransport::new()
        .listen(&"memory://here".parse().unwrap())
        .unwrap();
    let error = MemoryTransport::new().connect(
        &"memory://here".parse().unwrap(),
        &ConnectOptions::default(),
    );
    assert!(matches!(
        error,
        Err(TransportError::ConnectionRefused { .. })
    ));
}

#[test]
fn name_is_free_again_when_its_listener_is_gone() {
    let transport = MemoryTransport::new();
    let address = "memory://name".parse().unwrap();
    let first = transport.listen(&address).unwrap();
    assert!(matches!(
        transport.listen(&address),
        Err(TransportError::AddressInUse { .. })
    ));
    drop(first);
    assert!(transport.listen(&address).is_ok());
}

#[test]
fn bytes_arrive_no_earlier_than_latency_and_bandwidth_allow() {
    let link = Link {
        latency: Duration::from_millis(20),
        bandwidth_bytes_per_s: Some(1_000_000),
        ..Link::default()
    };
    let (client, server, _) = pair(link);
    let start = Instant::now();
    send(&client, &[7; 40_000]).unwrap();
    assert_eq!(server.try_recv(&mut [0; 1]).unwrap(), None);
    recv_exact(&*server, &mut [0; 40_000]).unwrap();
    // 40 ms on the line and 20 ms of flight; a loaded machine may take longer.
    assert!(start.elapsed() >= Duration::from_millis(60));
}

#[test]
fn requests_and_replies_count_as_turns_however_many_sends_they_take() {
    let (client, server, monitor) = pair(Link::default());
    for _ in 0..3 {
        send(&client, b"re").unwrap();
        send(&client, b"quest").unwrap();
        recv_exact(&*server, &mut [0; 7]).unwrap();
        send(&server, b"reply").unwrap();
        recv_exact(&*client, &mut [0; 5]).unwrap();
    }
    let expected = Traffic {
        client_to_server_bytes: 21,
        server_to_client_bytes: 15,
        turns: 6,
    };
    assert_eq!(monitor.traffic(), expected);
}

#[test]
fn cut_loses_what_is_in_flight_and_wakes_a_blocked_reader() {
    let (client, server, monitor) = pair(Link {
        latency: Duration::from_secs(3600),
        ..Link::default()
    });
    send(&client, b"lost").unwrap();
    let blocked = std::thread::spawn(move || server.recv(&mut [0; 4]));
    monitor.cut();
    assert!(matches!(
        blocked.join().unwrap(),
        Err(TransportError::Lost { .. })
    ));
    assert!(matches!(
        send(&client, b"x"),
        Err(TransportError::Lost { .. })
    ));
}

#[test]
fn link_cut_after_n_bytes_delivers_exactly_those() {
    let (client, server, monitor) = pair(Link {
        cut_after_bytes: Some(10),
        ..Link::default()
    });
    send(&server, b"123").unwrap();
    assert!(matches!(
        send(&client, b"0123456789"),
        Err(TransportError::Lost { .. })
    ));
    let mut received = [0; 7];
    recv_exact(&*server, &mut received).unwrap();
    assert_eq!(&received, b"0123456");
    assert!(matches!(
        server.recv(&mut received),
        Err(TransportError::Lost { .. })
    ));
    assert_eq!(monitor.traffic().client_to_server_bytes, 7);
}

#[test]
fn traffic_of_a_closed_connection_can_still_be_read() {
    let (client, server, monitor) = pair(Link::default());
    send(&client, b"unread").unwrap();
    drop((client, server));
    assert_eq!(monitor.traffic().client_to_server_bytes, 6);
    assert_eq!(monitor.wire.state().pipes[0].bytes.capacity(), 0);
}

#[cfg(unix)]
#[test]
fn descriptors_are_neither_given_nor_taken() {
    let (client, _server, _) = pair(Link::default());
    assert!(client.descriptor().is_none());
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(matches!(
        MemoryTransport::new().adopt(file.into()),
        Err(TransportError::Unsupported { .. })
    ));
}

#[test]
fn virtual_delay_costs_no_real_time() {
    let link = Link {
        latency: Duration::from_secs(3600),
        bandwidth_bytes_per_s: Some(1),
        ..Link::default()
    };
    let transport = MemoryTransport::simulated(link, Time::Virtual);
    let (client, server, _) = join(&transport);
    let (real, start) = (Instant::now(), transport.network.clock.now());
    send(&client, &[7; 40_000]).unwrap();
    assert_eq!(server.try_recv(&mut [0; 1]).unwrap(), None);
    recv_exact(&*server, &mut [0; 40_000]).unwrap();
    let took = transport.network.clock.now() - start;
    assert!(took >= Duration::from_secs(43_600));
    assert!(real.elapsed() < Duration::from_secs(3600));
}

#[test]
fn advancing_the_clock_ends_a_wait_with_a_limit() {
    let transport = MemoryTransport::simulated(Link::default(), Time::Virtual);
    let (_client, server, _) = join(&transport);
    let limit = Some(Duration::from_secs(3600));
    let blocked = std::thread::spawn(move || server.wait_readable(limit));
    while !blocked.is_finished() {
        transport.advance(Duration::from_secs(3600));
        std::thread::yield_now();
    }
    assert!(!blocked.join().unwrap().unwrap());
}

#[test]
fn cut_in_the_middle_of_a_send_loses_both_directions() {
    let (client, server, monitor) = pair_with(3, FaultKind::Cut);
    assert!(matches!(
        send(&client, b"abcde"),
        Err(TransportError::Lost { .. })
    ));
    assert!(matches!(
        server.recv(&mut [0; 5]),
        Err(TransportError::Lost { .. })
    ));
    assert!(monitor.struck());
    assert_eq!(monitor.traffic().client_to_server_bytes, 3);
}

#[test]
fn fault_strikes_before_the_byte_that_it_names_is_sent() {
    let (client, server, monitor) = pair_with(3, FaultKind::Cut);
    send(&client, b"abc").unwrap();
    let mut received = [0; 3];
    recv_exact(&*server, &mut received).unwrap();
    assert_eq!((&received, monitor.struck()), (b"abc", false));
    assert!(matches!(
        client.try_send(b"d"),
        Err(TransportError::Lost { .. })
    ));
    assert!(monitor.struck());
}

#[test]
fn reset_delivers_what_is_in_flight() {
    let (client, server, _) = pair_with(3, FaultKind::Reset);
    assert!(send(&client, b"abcde").is_err());
    let mut received = [0; 3];
    recv_exact(&*server, &mut received).unwrap();
    assert_eq!(&received, b"abc");
    assert!(matches!(
        server.recv(&mut received),
        Err(TransportError::Lost { .. })
    ));
}

#[test]
fn half_close_ends_one_direction_and_leaves_the_opposite() {
    let (client, server, _) = pair_with(3, FaultKind::HalfClose);
    send(&client, b"abcde").unwrap();
    let mut received = [0; 5];
    recv_exact(&*server, &mut received[..3]).unwrap();
    assert_eq!(server.recv(&mut received).unwrap(), 0);
    send(&server, b"back").unwrap();
    recv_exact(&*client, &mut received[..4]).unwrap();
    assert_eq!(&received[..4], b"back");
}

#[test]
fn stalled_bytes_arrive_when_the_link_resumes() {
    let (client, server, monitor) = pair_with(3, FaultKind::Stall);
    send(&client, b"abcde").unwrap();
    client.shutdown();
    let mut received = [0; 5];
    recv_exact(&*server, &mut received[..3]).unwrap();
    assert_eq!(server.try_recv(&mut received).unwrap(), None);
    monitor.resume();
    recv_exact(&*server, &mut received[3..]).unwrap();
    assert_eq!(&received, b"abcde");
    assert_eq!(server.recv(&mut received).unwrap(), 0);
}

#[test]
fn fault_to_all_strikes_every_connection() {
    let fault = Fault {
        connection: 1,
        sender: End::Client,
        at_bytes: 0,
        kind: FaultKind::Cut,
        to_all: true,
    };
    let transport = MemoryTransport::simulated(Link::default(), Time::Real);
    let address = "memory://all".parse().unwrap();
    let _listener = transport.listen(&address).unwrap();
    let connect = || transport.connect(&address, &ConnectOptions::default());
    let [first, second] = [connect().unwrap(), connect().unwrap()];
    transport.arm(&[fault]);
    send(&first, b"lives").unwrap();
    assert!(!transport.wait_struck(Duration::ZERO));
    assert!(send(&second, b"x").is_err());
    assert!(send(&first, b"x").is_err());
    assert!(transport.wait_struck(Duration::ZERO));
}

#[test]
fn parts_of_sends_are_recorded_with_their_offsets() {
    let transport = MemoryTransport::simulated(Link::default(), Time::Real);
    let (client, server, monitor) = join(&transport);
    client
        .send(&[IoSlice::new(b"header"), IoSlice::new(b"body")])
        .unwrap();
    server.try_send(b"ok").unwrap();
    assert_eq!(monitor.sends(End::Client), [0..6, 6..10]);
    assert_eq!(monitor.sends(End::Server), [Range { start: 0, end: 2 }]);
}
