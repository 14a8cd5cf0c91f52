//! What only this transport has: sockets as files, greetings of strangers, memory that is not what it says, descriptors beside bytes.

use std::io::{IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::door::send_with;
use super::hello::Hello;
use super::view::{self, Sizes};
use super::*;
use crate::recv_exact;

mod faults;

#[test]
fn plain_listener_takes_bytes_without_a_hello() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    let address = format!("shm://{}?mode=600", path.display());
    let listener = listen_plainly(&address.parse().unwrap()).unwrap();
    let mode = path.metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"GET").unwrap();
    let mut received = [0; 3];
    recv_exact(&*listener.accept().unwrap(), &mut received).unwrap();
    assert_eq!(&received, b"GET");
    drop(listener);
    assert!(!path.exists());
}

/// A listener in a folder of its own.
struct Server {
    listener: Box<dyn Listener>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Server {
    fn new(options: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.sock");
        let address = format!("shm://{}{options}", path.display())
            .parse()
            .unwrap();
        let listener = ShmTransport.listen(&address).unwrap();
        Self {
            listener,
            path,
            _folder: folder,
        }
    }

    fn connect(&self, options: &ConnectOptions) -> Arc<dyn Connection> {
        let address = self.listener.local_address();
        ShmTransport.connect(&address, options).unwrap()
    }

    fn pair(&self) -> (Arc<dyn Connection>, Arc<dyn Connection>) {
        let client = self.connect(&ConnectOptions::default());
        (client, self.listener.accept().unwrap())
    }

    /// Somebody who says on the socket what it likes.
    fn stranger(&self) -> (OwnedFd, Arc<dyn Connection>) {
        let stranger = UnixStream::connect(&self.path).unwrap();
        (stranger.into(), self.listener.accept().unwrap())
    }
}

fn send(connection: &dyn Connection, bytes: &[u8]) {
    connection.send(&[IoSlice::new(bytes)]).unwrap();
}

fn receive(connection: &dyn Connection, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    recv_exact(connection, &mut bytes).unwrap();
    bytes
}

fn loss(connection: &dyn Connection) -> String {
    match connection.recv(&mut [0; 8]) {
        Err(TransportError::Lost { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_socket_is_there_for_whom_the_address_says() {
    let server = Server::new("?mode=660");
    assert_eq!(mode(&server.path), 0o660);
    assert_eq!(mode(&Server::new("?mode=600").path), 0o600);
    let everybody = geteuid().is_root();
    let usual = if everybody { 0o666 } else { 0o600 };
    assert_eq!(mode(&Server::new("").path), usual);
}

#[test]
fn a_killed_servers_socket_is_taken_over_and_other_files_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let address: Address = format!("shm://{}", path.display()).parse().unwrap();
    assert!(path.exists());
    drop(ShmTransport.listen(&address).unwrap());
    assert!(
        !path.exists(),
        "a server takes its socket away when it ends"
    );
    std::fs::write(&path, "precious").unwrap();
    let error = ShmTransport.listen(&address).err().unwrap();
    assert!(
        matches!(error, TransportError::AddressInUse { .. }),
        "{error}"
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

#[test]
fn a_server_that_ends_leaves_its_successors_socket_alone() {
    let server = Server::new("");
    std::fs::remove_file(&server.path).unwrap();
    let successor = ShmTransport
        .listen(&server.listener.local_address())
        .unwrap();
    server.listener.close();
    assert!(server.path.exists());
    drop(successor);
}

#[test]
fn nobody_there_says_how_to_start_a_server() {
    let missing = "shm:///no/such/folder/x.sock".parse().unwrap();
    let error = ShmTransport
        .connect(&missing, &ConnectOptions::default())
        .err()
        .unwrap();
    assert!(
        matches!(error, TransportError::ConnectionRefused { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("with that path"), "{error}");
}

#[test]
fn the_first_bytes_of_a_peer_that_left_are_there_although_sending_to_it_has_failed() {
    let server = Server::new("");
    let (client, accepted) = server.pair();
    send(&*client, b"early");
    drop(client);
    // It finds out that the peer is gone before anything was read.
    while accepted.send(&[IoSlice::new(&[0; 4096])]).is_ok() {}
    assert_eq!(receive(&*accepted, 5), b"early");
    assert_eq!(accepted.recv(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_preamble_can_be_read_without_mapping_what_a_stranger_sent() {
    let server = Server::new("");
    let (stranger, accepted) = server.stranger();
    // Memory that would be refused: it is not sealed.
    let memory = rustix::fs::memfd_create("evil", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    let hello = Hello {
        sizes: Some(Sizes::both(4096)),
    };
    send_with(&stranger, &hello.encode(), &[memory.as_fd()]).unwrap();
    // Bells before it are none of its bytes.
    send_with(&stranger, b"\0\0\x01\x08\0preamble", &[]).unwrap();
    assert_eq!(receive(&*accepted, 8), b"preamble");
    // It can be passed on, too: whoever goes on with it looks at the memory.
    let passed = accepted.descriptor().unwrap().try_clone_to_owned().unwrap();
    let adopted = ShmTransport.adopt(passed).unwrap();
    assert!(loss(&*adopted).contains("not sealed"));
}

#[test]
fn greetings_that_are_none_end_the_connection_and_nothing_else() {
    let server = Server::new("");
    let good = Hello {
        sizes: Some(Sizes::both(4096)),
    };
    let (stranger, accepted) = server.stranger();
    send_with(&stranger, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", &[]).unwrap();
    assert!(loss(&*accepted).contains("same release"));
    let (stranger, accepted) = server.stranger();
    send_with(&stranger, &good.encode(), &[]).unwrap();
    assert!(loss(&*accepted).contains("no memory"));
    let (stranger, accepted) = server.stranger();
    send_with(&stranger, &good.encode()[..10], &[]).unwrap();
    assert_eq!(accepted.try_recv(&mut [0; 8]).unwrap(), None);
    drop(stranger);
    assert_eq!(accepted.recv(&mut [0; 8]).unwrap(), 0);
    for lead in [&b"x"[..], b"\x01\0\0", b"\x01\xff\xffx"] {
        let (stranger, accepted) = server.stranger();
        let memory = view::make(Sizes::both(4096)).unwrap();
        send_with(&stranger, &good.encode(), &[memory.descriptor()]).unwrap();
        send_with(&stranger, lead, &[]).unwrap();
        assert!(loss(&*accepted).contains("rotocol"));
    }
    let (client, other) = server.pair();
    send(&*client, b"fine");
    assert_eq!(receive(&*other, 4), b"fine");
}

#[test]
fn a_peer_that_spoils_the_counts_loses_the_connection() {
    let server = Server::new("");
    let (stranger, accepted) = server.stranger();
    let sizes = Sizes::both(4096);
    let memory = view::make(sizes).unwrap();
    let hello = Hello { sizes: Some(sizes) };
    send_with(&stranger, &hello.encode(), &[memory.descriptor()]).unwrap();
    send_with(&stranger, b"\x01\x01\0x", &[]).unwrap();
    assert_eq!(receive(&*accepted, 1), b"x");
    let (to_acceptor, to_connector) = view::View::pair(Arc::new(memory), sizes);
    use super::ring::Memory;
    to_acceptor.store_tail(4097);
    assert!(loss(&*accepted).contains("rules of the ring"));
    to_connector.store_head(u64::MAX);
    assert!(accepted.send(&[IoSlice::new(&[0; 5000])]).is_err());
}

#[test]
fn descriptors_are_there_before_the_bytes_behind_them() {
    let server = Server::new("");
    let (client, accepted) = server.pair();
    assert!(client.shares_memory());
    for number in 0..10u8 {
        let (near, mut far) = UnixStream::pair().unwrap();
        client.send_descriptor(near.as_fd()).unwrap();
        send(&*client, &[number]);
        assert_eq!(receive(&*accepted, 1), [number]);
        assert!(accepted.shares_memory());
        let got = accepted.take_descriptor().unwrap().expect("it was sent");
        drop(near);
        far.write_all(&[number]).unwrap();
        let mut byte = [0; 1];
        rustix::io::read(&got, &mut byte).unwrap();
        assert_eq!(byte, [number]);
        assert!(accepted.take_descriptor().unwrap().is_none());
    }
}

#[test]
fn a_descriptor_comes_while_another_thread_sleeps_for_bytes() {
    let server = Server::new("");
    let (client, accepted) = server.pair();
    send(&*client, b"x");
    assert_eq!(receive(&*accepted, 1), b"x");
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| receive(&*accepted, 1));
        // Both orders must work; this makes the one that is at issue likely.
        std::thread::sleep(Duration::from_millis(20));
        for _ in 0..20 {
            client.send_descriptor(std::io::stdin().as_fd()).unwrap();
            let until = Instant::now() + Duration::from_secs(20);
            while accepted.take_descriptor().unwrap().is_none() {
                assert!(Instant::now() < until, "it does not come");
            }
        }
        send(&*client, b"y");
        assert_eq!(sleeper.join().unwrap(), b"y");
    });
}

#[test]
fn a_flood_of_descriptors_ends_the_connection() {
    let server = Server::new("");
    let (client, accepted) = server.pair();
    send(&*client, b"x");
    assert_eq!(receive(&*accepted, 1), b"x");
    std::thread::scope(|scope| {
        // Whoever sleeps takes in what comes, and nobody asks for it.
        let sleeper = scope.spawn(|| receive(&*accepted, 1));
        for _ in 0..100 {
            client.send_descriptor(std::io::stdin().as_fd()).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
        send(&*client, b"y");
        assert_eq!(sleeper.join().unwrap(), b"y");
    });
    let refused = (0..100).find_map(|_| accepted.take_descriptor().err());
    assert!(refused.is_some());
    assert_eq!(accepted.recv(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn a_sleeper_for_bytes_and_one_for_room_do_not_take_each_others_wake_ups() {
    let server = Server::new("");
    let (client, accepted) = server.pair();
    let bytes: Vec<u8> = (0..3_000_000u32).flat_map(u32::to_le_bytes).collect();
    // Each side sends more than fits while it waits for bytes itself, in small steps, so that both kinds of sleep happen often.
    std::thread::scope(|scope| {
        for end in [&client, &accepted] {
            scope.spawn(|| bytes.chunks(300_001).for_each(|part| send(&**end, part)));
            scope.spawn(|| {
                let mut received = Vec::new();
                let mut part = vec![0; 70_001];
                while received.len() < bytes.len() {
                    let count = end.recv(&mut part).unwrap();
                    received.extend_from_slice(&part[..count]);
                }
                assert!(received == bytes);
            });
        }
    });
}

/// Not a test: the process that [`a_killed_peer_is_noticed_at_once`] kills.
#[test]
#[ignore = "is run by another test"]
fn victim() {
    let address: Address = std::env::var("TOWLINE_TEST_ADDRESS")
        .unwrap()
        .parse()
        .unwrap();
    let lane = ShmTransport
        .connect(&address, &ConnectOptions::default())
        .unwrap();
    send(&*lane, b"here");
    lane.recv(&mut [0; 1]).unwrap();
}

#[test]
fn a_killed_peer_is_noticed_at_once() {
    let server = Server::new("");
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "shm::tests::victim"])
        .env(
            "TOWLINE_TEST_ADDRESS",
            server.listener.local_address().to_string(),
        )
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let accepted = server.listener.accept().unwrap();
    assert_eq!(receive(&*accepted, 4), b"here");
    let full = vec![0; 8 << 20];
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| accepted.recv(&mut [0; 1]).unwrap());
        // Nobody reads it: this fills the ring and waits for room.
        let sending = scope.spawn(|| accepted.send(&[IoSlice::new(&full)]).is_err());
        std::thread::sleep(Duration::from_millis(20));
        victim.kill().unwrap();
        victim.wait().unwrap();
        assert_eq!(reading.join().unwrap(), 0);
        assert!(sending.join().unwrap());
    });
    assert!(!accepted.shares_memory() || accepted.try_recv(&mut [0; 1]).unwrap() == Some(0));
}

/// A socket whose last close takes an hour: its peer does not read what it was sent.
fn lingering() -> (OwnedFd, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut ours = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    ours.set_nonblocking(true).unwrap();
    while ours.write(&[0; 1 << 16]).is_ok() {}
    let hour = Some(Duration::from_secs(3600));
    rustix::net::sockopt::set_socket_linger(&ours, hour).unwrap();
    (ours.into(), theirs)
}

#[test]
fn descriptor_that_closes_slowly_holds_nobody_up() {
    let (done, ended) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let server = Server::new("");
        let sizes = Sizes::both(4096);
        let hello = Hello { sizes: Some(sizes) };
        let (stranger, adopted) = server.stranger();
        let (slow, _peer) = lingering();
        send_with(&stranger, &hello.encode(), &[slow.as_fd()]).unwrap();
        drop(slow);
        assert!(loss(&*adopted).contains("no memory"));
        drop(adopted);
        // Read by nobody, beside bytes of a plain connection, and more than one.
        for greeting in [Hello::PLAIN.encode(), hello.encode()] {
            let (stranger, adopted) = server.stranger();
            let _ = send_with(&stranger, &greeting, &[]);
            let (slow, _peer) = lingering();
            let (other, _other_peer) = lingering();
            send_with(&stranger, b"x", &[slow.as_fd(), other.as_fd()]).unwrap();
            drop((slow, other));
            let _ = adopted.try_recv(&mut [0]);
            drop(adopted);
        }
        done.send(()).unwrap();
    });
    ended.recv_timeout(Duration::from_secs(60)).unwrap();
}
