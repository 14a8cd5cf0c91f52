use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::*;
use crate::memory::MemoryTransport;
use crate::tcp::TcpTransport;
use crate::{ConnectOptions, Connection, Transport, TransportError, recv_exact};

const LIMIT: Duration = Duration::from_secs(20);

fn server() -> ServerTls {
    let (identity, _) = Identity::generate().unwrap();
    ServerTls {
        identity,
        authority: None,
    }
}

/// Both ends of a connection in the clear.
fn clear() -> (Arc<dyn Connection>, Arc<dyn Connection>) {
    let transport = MemoryTransport::new();
    let address = "memory://tls".parse().unwrap();
    let listener = transport.listen(&address).unwrap();
    let client = transport
        .connect(&address, &ConnectOptions::default())
        .unwrap();
    (client, listener.accept().unwrap())
}

type Ends = (
    Result<Arc<TlsConnection>, TransportError>,
    Result<Arc<TlsConnection>, TransportError>,
);

fn shake(client: &ClientTls, server: &ServerTls) -> Ends {
    let (near, far) = clear();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| server.accept(far, &[], LIMIT));
        let client = client.connect(near, LIMIT);
        (client, accepting.join().unwrap())
    })
}

fn pair() -> (Arc<TlsConnection>, Arc<TlsConnection>) {
    let (client, server) = shake(&ClientTls::default(), &server());
    (client.unwrap(), server.unwrap())
}

/// An end that is ours, and one that a test holds in its hands, with a thread that carries bytes between it and our end.
fn by_hand() -> (Arc<TlsConnection>, Arc<TlsConnection>, Middle) {
    let (client, to_server) = clear();
    let (to_client, server) = clear();
    let middle = Middle {
        to_client: Arc::clone(&to_server),
        to_server: Arc::clone(&to_client),
    };
    let (client, server) = thread::scope(|scope| {
        let accepting = scope.spawn(|| self::server().accept(server, &[], LIMIT));
        let connecting = scope.spawn(|| ClientTls::default().connect(client, LIMIT));
        while !(accepting.is_finished() && connecting.is_finished()) {
            middle.carry();
            thread::yield_now();
        }
        middle.carry();
        (connecting.join().unwrap(), accepting.join().unwrap())
    });
    (client.unwrap(), server.unwrap(), middle)
}

struct Middle {
    to_client: Arc<dyn Connection>,
    to_server: Arc<dyn Connection>,
}

impl Middle {
    fn carry(&self) {
        for (from, to) in [
            (&self.to_client, &self.to_server),
            (&self.to_server, &self.to_client),
        ] {
            for bytes in std::iter::from_fn(|| taken(&**from)) {
                to.send(&[IoSlice::new(&bytes)]).unwrap();
            }
        }
    }
}

fn taken(connection: &dyn Connection) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 64 << 10];
    let count = connection.try_recv(&mut bytes).unwrap()?;
    bytes.truncate(count);
    (count > 0).then_some(bytes)
}

fn send(connection: &dyn Connection, bytes: &[u8]) {
    connection.send(&[IoSlice::new(bytes)]).unwrap();
}

fn receive(connection: &dyn Connection, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    recv_exact(connection, &mut bytes).unwrap();
    bytes
}

#[test]
fn both_ends_export_the_same_and_no_other_connection_does() {
    let ((client, server), (other, _)) = (pair(), pair());
    let ours = client.exporter("EXPORTER-towline-test", b"context");
    assert_eq!(ours, server.exporter("EXPORTER-towline-test", b"context"));
    assert_ne!(ours, server.exporter("EXPORTER-towline-test", b""));
    assert_ne!(ours, server.exporter("EXPORTER-towline-other", b"context"));
    assert_ne!(ours, other.exporter("EXPORTER-towline-test", b"context"));
}

#[test]
fn client_sees_the_key_of_the_server() {
    let tls = server();
    let (client, _server) = shake(&ClientTls::default(), &tls);
    let seen = client.unwrap().peer_fingerprint().unwrap();
    assert_eq!(seen, tls.identity.fingerprint().unwrap());
    assert_eq!(seen.to_string().parse(), Ok(seen));
    assert!("ab".parse::<Fingerprint>().is_err());
}

#[test]
fn kept_key_gives_the_same_fingerprint() {
    let (identity, bytes) = Identity::generate().unwrap();
    let again = Identity::from_key(&bytes).unwrap();
    assert_eq!(
        identity.fingerprint().unwrap(),
        again.fingerprint().unwrap()
    );
    assert!(Identity::from_key(b"no key").is_err());
}

#[test]
fn keys_change_under_way_and_bytes_arrive() {
    let (client, server) = pair();
    client.set_records_per_key(3);
    server.set_records_per_key(5);
    let bytes: Vec<u8> = (0..4_000_000u32)
        .map(|number| (number >> 3) as u8)
        .collect();
    thread::scope(|scope| {
        scope.spawn(|| send(&*client, &bytes));
        scope.spawn(|| send(&*server, &bytes));
        scope.spawn(|| assert!(receive(&*client, bytes.len()) == bytes));
        assert!(receive(&*server, bytes.len()) == bytes);
    });
}

/// A peer whose TLS is rustls's own: records, exporter, key changes and the end are as the standard says.
#[test]
fn foreign_client_understands_us() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let stream = TcpTransport.adopt(stream.into()).unwrap();
        let connection = server().accept(stream, &[], LIMIT).unwrap();
        connection.set_records_per_key(2);
        let request = receive(&*connection, 100_000);
        send(&*connection, &request);
        send(
            &*connection,
            &connection.exporter("EXPORTER-towline-test", b"x"),
        );
    });
    let config = rustls::ClientConfig::builder()
        .dangerous()
        .with_custom_certificate_verifier(handshake::any_certificate())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("any.invalid").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = rustls::StreamOwned::new(connection, TcpStream::connect(address).unwrap());
    let request = vec![7; 100_000];
    stream.write_all(&request).unwrap();
    stream.conn.refresh_traffic_keys().unwrap();
    stream.flush().unwrap();
    let mut reply = vec![0; request.len()];
    stream.read_exact(&mut reply).unwrap();
    assert!(reply == request);
    let mut exported = [0; 32];
    stream.read_exact(&mut exported).unwrap();
    let ours = stream
        .conn
        .export_keying_material([0; 32], b"EXPORTER-towline-test", Some(b"x"));
    assert_eq!(ours, Ok(exported));
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "an end in order");
    accepting.join().unwrap();
}

#[test]
fn any_flipped_bit_of_a_record_ends_the_connection() {
    for bit in 0..8 * (5 + 4 + 1 + 16) {
        let (client, server, middle) = by_hand();
        send(&*client, b"four");
        let mut bytes = taken(&*middle.to_client).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        middle.to_server.send(&[IoSlice::new(&bytes)]).unwrap();
        // A longer length awaits more bytes: let it have them.
        middle
            .to_server
            .send(&[IoSlice::new(&[0; 70_000])])
            .unwrap();
        middle.to_server.shutdown();
        let received = server.recv(&mut [0; 64]);
        // The version of a record means nothing (RFC 8446, section 5.1) but is part of what is checked.
        assert!(
            matches!(received, Err(TransportError::Lost { .. })),
            "bit {bit}: {received:?}"
        );
        let again = server.recv(&mut [0; 64]);
        assert!(matches!(again, Err(TransportError::Closed { .. })));
    }
}

/// A handshake of which one bit is changed, in the direction and at the place that are given; whether both sides were content.
fn shake_flipped(tls: &ServerTls, to_client: bool, at: usize) -> (bool, bool) {
    let limit = Duration::from_millis(100);
    let (client, to_server) = clear();
    let (from_client, server) = clear();
    let carry = |from: Arc<dyn Connection>, into: Arc<dyn Connection>, flips: bool| {
        let mut gone = 0;
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.recv(&mut bytes) {
            if flips && (gone..gone + count).contains(&at) {
                bytes[at - gone] ^= 1 << (at % 8);
            }
            gone += count;
            let _ = into.send(&[IoSlice::new(&bytes[..count])]);
        }
        into.shutdown();
    };
    thread::scope(|scope| {
        let (one, other) = (Arc::clone(&to_server), Arc::clone(&from_client));
        scope.spawn(move || carry(one, other, !to_client));
        let (one, other) = (from_client, to_server);
        scope.spawn(move || carry(one, other, to_client));
        let accepting = scope.spawn(|| tls.accept(server, &[], limit).is_ok());
        let connecting = scope.spawn(|| {
            let client = ClientTls::default().connect(client, limit);
            // A server whose last message was changed finds out with the next.
            client.is_ok_and(|client| client.recv(&mut [0]).is_ok_and(|count| count == 0))
        });
        (connecting.join().unwrap(), accepting.join().unwrap())
    })
}

#[test]
fn flipped_bits_of_a_handshake_harm_nobody() {
    let tls = server();
    assert_eq!(shake_flipped(&tls, false, usize::MAX), (true, true));
    let mut refused = 0;
    for at in (0..280).step_by(2) {
        for to_client in [false, true] {
            refused += u32::from(shake_flipped(&tls, to_client, at) != (true, true));
        }
    }
    // Not all: the versions of first records mean nothing, nor does a message for boxes in the middle (RFC 8446, section 5.1 and D.4).
    assert!(refused > 260, "{refused} of 280");
}

#[test]
fn record_that_never_ends_is_given_up() {
    let receive: [fn(&TlsConnection) -> bool; 2] =
        [|_| true, |server| server.wait_readable(None).unwrap()];
    for wait in receive {
        let (client, mut server, middle) = by_hand();
        TlsConnection::set_patience(&mut server, Duration::from_millis(20));
        send(&*client, b"four");
        let mut bytes = taken(&*middle.to_client).unwrap();
        // The length, which now awaits bytes that the client does not send.
        bytes[3] ^= 1;
        middle.to_server.send(&[IoSlice::new(&bytes)]).unwrap();
        assert!(wait(&server));
        let received = server.recv(&mut [0; 64]);
        assert!(
            matches!(received, Err(TransportError::Lost { .. })),
            "{received:?}"
        );
    }
}

#[test]
fn record_that_comes_twice_ends_the_connection() {
    let (client, server, middle) = by_hand();
    send(&*client, b"once");
    let bytes = taken(&*middle.to_client).unwrap();
    middle.to_server.send(&[IoSlice::new(&bytes)]).unwrap();
    middle.to_server.send(&[IoSlice::new(&bytes)]).unwrap();
    assert_eq!(receive(&*server, 4), b"once");
    let received = server.recv(&mut [0; 64]);
    assert!(
        matches!(received, Err(TransportError::Lost { .. })),
        "{received:?}"
    );
}

#[test]
fn cut_stream_is_no_orderly_end() {
    let (client, server, middle) = by_hand();
    send(&*client, b"all of it");
    middle.carry();
    middle.to_server.shutdown();
    assert_eq!(receive(&*server, 9), b"all of it");
    assert!(server.wait_readable(None).unwrap());
    let received = server.recv(&mut [0; 64]);
    assert!(
        matches!(received, Err(TransportError::Lost { .. })),
        "{received:?}"
    );
}

#[test]
fn clear_bytes_are_refused_by_both_sides() {
    let (near, far) = clear();
    send(&*near, b"TWLC, in the clear");
    let error = server().accept(far, &[], LIMIT).err().unwrap();
    assert!(matches!(error, TransportError::NotTls { .. }), "{error}");
    let (near, far) = clear();
    send(&*far, b"TWLC, in the clear");
    let error = ClientTls::default().connect(near, LIMIT).err().unwrap();
    let TransportError::NotTls { said, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(said, b"TWLC, in the clear");
}

#[test]
fn silent_peer_is_given_up() {
    let (near, _far) = clear();
    let error = ClientTls::default()
        .connect(near, Duration::from_millis(10))
        .err();
    assert!(matches!(error, Some(TransportError::TimedOut { .. })));
}

#[test]
fn bytes_read_before_belong_to_the_handshake() {
    let (near, far) = clear();
    let tls = server();
    thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let mut first = [0; 4];
            recv_exact(&*far, &mut first).unwrap();
            assert!(is_handshake(&first));
            tls.accept(Arc::clone(&far), &first, LIMIT)
        });
        let client = ClientTls::default().connect(near, LIMIT).unwrap();
        send(&*client, b"at once");
        assert_eq!(receive(&*accepting.join().unwrap().unwrap(), 7), b"at once");
    });
}

#[test]
fn bytes_replaced_after_a_partial_send_fail() {
    let (client, server) = pair();
    let bytes = vec![1; 4 << 20];
    let mut sent = 0;
    loop {
        match client.try_send(&bytes[sent..]).unwrap() {
            0 => break,
            count => sent += count,
        }
    }
    let reading = thread::spawn(move || {
        let mut bytes = [0; 64 << 10];
        while server.recv(&mut bytes).is_ok_and(|count| count > 0) {}
    });
    let other = client.send(&[IoSlice::new(b"other bytes")]);
    assert!(other.is_err());
    reading.join().unwrap();
}

/// An authority, and identities that it signed.
struct Site {
    issuer: rcgen::CertifiedIssuer<'static, rcgen::KeyPair>,
}

impl Site {
    fn new() -> Self {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        Self {
            issuer: rcgen::CertifiedIssuer::self_signed(parameters, key).unwrap(),
        }
    }

    fn authority(&self) -> Authority {
        Authority::from_pem(self.issuer.pem().as_bytes()).unwrap()
    }

    fn identity(&self, name: &str) -> Identity {
        self.identity_of(name, (1975, 1, 1), (4096, 1, 1))
    }

    /// One that is valid between two days.
    fn identity_of(&self, name: &str, from: (i32, u8, u8), to: (i32, u8, u8)) -> Identity {
        let day = |(year, month, day)| rcgen::date_time_ymd(year, month, day);
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        (parameters.not_before, parameters.not_after) = (day(from), day(to));
        let certificate = parameters.signed_by(&key, &self.issuer).unwrap();
        Identity::from_pem(certificate.pem().as_bytes(), key.serialize_pem().as_bytes()).unwrap()
    }
}

/// Whether client and server take each other, and carry bytes.
fn meets(client: &ClientTls, server: &ServerTls) -> bool {
    let (Ok(client), Ok(server)) = shake(client, server) else {
        return false;
    };
    let _ = client.send(&[IoSlice::new(b"x")]);
    recv_exact(&*server, &mut [0]).is_ok()
}

#[test]
fn authority_vouches_for_the_name_of_a_server() {
    let (site, other) = (Site::new(), Site::new());
    let tls = ServerTls {
        identity: site.identity("gpu1.example"),
        authority: None,
    };
    let client = |authority, name: &str| ClientTls {
        authority: Some((authority, name.to_owned())),
        identity: None,
    };
    assert!(meets(&client(site.authority(), "gpu1.example"), &tls));
    assert!(!meets(&client(site.authority(), "gpu2.example"), &tls));
    assert!(!meets(&client(other.authority(), "gpu1.example"), &tls));
    assert!(!meets(&client(site.authority(), "gpu1.example"), &server()));
}

#[test]
fn refused_certificates_come_with_advice() {
    let (site, other) = (Site::new(), Site::new());
    let (past, future) = ((2001, 2, 3), (4000, 1, 1));
    let told = |identity: Identity, authority: Authority| {
        let tls = ServerTls {
            identity,
            authority: None,
        };
        let client = ClientTls {
            authority: Some((authority, "gpu1.example".into())),
            identity: None,
        };
        let TransportError::Tls { reason, .. } = shake(&client, &tls).0.err().unwrap() else {
            panic!("another error")
        };
        assert!(reason.contains("; ") && !reason.contains('"'), "{reason}");
        reason
    };
    let expired = site.identity_of("gpu1.example", (2000, 1, 1), past);
    assert_eq!(expired.end(), Some(981_158_400));
    let expired = told(expired, site.authority());
    assert!(expired.contains("ended on 2001-02-03"), "{expired}");
    let early = site.identity_of("gpu1.example", future, (4001, 1, 1));
    let early = told(early, site.authority());
    assert!(early.contains("valid from 4000-01-01 on"), "{early}");
    let stranger = told(other.identity("gpu1.example"), site.authority());
    assert!(stranger.contains("--ca"), "{stranger}");
    let named = told(site.identity("gpu2.example"), site.authority());
    assert!(
        named.contains("is for gpu2.example, not for gpu1.example"),
        "{named}"
    );
}

#[test]
fn authority_vouches_for_clients() {
    let (site, other) = (Site::new(), Site::new());
    let tls = ServerTls {
        identity: site.identity("gpu1.example"),
        authority: Some(site.authority()),
    };
    let client = |identity| ClientTls {
        authority: None,
        identity,
    };
    assert!(meets(&client(Some(site.identity("someone"))), &tls));
    assert!(!meets(&client(Some(other.identity("someone"))), &tls));
    assert!(!meets(&client(None), &tls));
    let (without, _) = shake(&client(None), &tls);
    let told = without.unwrap().recv(&mut [0]).unwrap_err().to_string();
    assert!(told.contains("asks for a certificate"), "{told}");
}

#[test]
fn waits_see_what_another_receive_left_here() {
    let (client, server, middle) = by_hand();
    for round in 0..200 {
        thread::scope(|scope| {
            let receiving = scope.spawn(|| server.recv(&mut [0; 10]).unwrap());
            let waiting = scope.spawn(|| server.wait_readable(Some(LIMIT)).unwrap());
            thread::sleep(Duration::from_millis(1));
            client.send(&[IoSlice::new(&[1; 10])]).unwrap();
            client.send(&[IoSlice::new(&[2; 4])]).unwrap();
            middle.carry();
            assert_eq!(receiving.join().unwrap(), 10);
            assert!(waiting.join().unwrap(), "round {round}");
        });
        assert_eq!(server.recv(&mut [0; 10]).unwrap(), 4);
    }
}
