//! Connections between the ranks of a communicator: each with each, over TCP. An id names the place where they meet, and has a secret that
//! each shows there and to the others.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use towline_backend::nccl::ID_BYTES;

/// Begins an id of ours.
const MAGIC: [u8; 8] = *b"towlsoft";
const SECRET: usize = 32;
/// Names the address by which others reach this host.
const ADDRESS_VARIABLE: &str = "TOWLINE_SOFT_NCCL_ADDRESS";
/// Limits: of the time that a place to meet is kept for ranks that do not come, and of a stranger's to say who it is.
const PATIENCE: Duration = Duration::from_secs(600);
const STRANGER: Duration = Duration::from_secs(10);
/// A host that is gone is noticed after so long: probes of an idle connection, and how many of them have no answer.
const IDLE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_secs(5);
const PROBES: u32 = 3;
/// Times that nobody has come before it is looked whether somebody has gone.
const LOOKS: u32 = 32;
/// A rank has its connections; then, to each: all have.
const JOINED: u8 = 1;
/// Most ranks.
const MOST: u32 = 4096;

/// An id taken apart.
#[derive(Clone, Copy)]
struct Place {
    address: SocketAddr,
    secret: [u8; SECRET],
}

impl Place {
    fn encode(&self) -> [u8; ID_BYTES] {
        let mut id = [0; ID_BYTES];
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        id[..8].copy_from_slice(&MAGIC);
        id[8..24].copy_from_slice(&ip.octets());
        id[24..26].copy_from_slice(&self.address.port().to_le_bytes());
        id[32..64].copy_from_slice(&self.secret);
        id
    }

    fn decode(id: &[u8; ID_BYTES]) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "no id of this library");
        let (magic, rest) = id.split_first_chunk().ok_or_else(invalid)?;
        if *magic != MAGIC {
            return Err(invalid());
        }
        let (ip, rest) = rest.split_first_chunk::<16>().ok_or_else(invalid)?;
        let (port, _) = rest.split_first_chunk::<2>().ok_or_else(invalid)?;
        let secret = id[32..64].try_into().map_err(|_| invalid())?;
        let ip = Ipv6Addr::from(*ip).to_canonical();
        let address = SocketAddr::new(ip, u16::from_le_bytes(*port));
        Ok(Self { address, secret })
    }
}

fn own_address() -> io::Result<IpAddr> {
    let Ok(named) = std::env::var(ADDRESS_VARIABLE) else {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    };
    named.parse().map_err(|_| {
        let text = format!("{ADDRESS_VARIABLE} is no address: {named:?}");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

fn random() -> io::Result<[u8; SECRET]> {
    let mut secret = [0; SECRET];
    getrandom::fill(&mut secret).map_err(io::Error::other)?;
    Ok(secret)
}

/// Makes an id, and a thread that brings together the ranks that come with it.
pub(super) fn make_id() -> io::Result<[u8; ID_BYTES]> {
    let listener = TcpListener::bind((own_address()?, 0))?;
    let place = Place {
        address: listener.local_addr()?,
        secret: random()?,
    };
    std::thread::Builder::new()
        .name("towline-meeting".into())
        .spawn(move || {
            if let Err(error) = host(&listener, place.secret) {
                log::debug!("the ranks of a communicator did not meet: {error}");
            }
        })?;
    Ok(place.encode())
}

/// Numbers of a rank that comes: which, of how many, and the port that it listens on.
const HELLO: usize = SECRET + 4 + 4 + 2 + 16;

fn hello(secret: [u8; SECRET], rank: u32, ranks: u32, address: SocketAddr) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    bytes[..SECRET].copy_from_slice(&secret);
    bytes[SECRET..SECRET + 4].copy_from_slice(&rank.to_le_bytes());
    bytes[SECRET + 4..SECRET + 8].copy_from_slice(&ranks.to_le_bytes());
    bytes[SECRET + 8..SECRET + 10].copy_from_slice(&address.port().to_le_bytes());
    bytes[SECRET + 10..].copy_from_slice(&ip.octets());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

/// Takes a connection whose other end knows the secret; `None` for a stranger. The rank, how many, and its address in bytes.
fn greet(mut stream: TcpStream, secret: &[u8; SECRET]) -> Option<(TcpStream, u32, u32, [u8; 18])> {
    prepare(&stream).ok()?;
    let mut bytes = [0; HELLO];
    let (deadline, mut read) = (Instant::now() + STRANGER, 0);
    while read < HELLO {
        let left = deadline.saturating_duration_since(Instant::now());
        // No time at all is refused.
        stream.set_read_timeout(Some(left)).ok()?;
        read += stream
            .read(&mut bytes[read..])
            .ok()
            .filter(|count| *count > 0)?;
    }
    stream.set_read_timeout(None).ok()?;
    let shown = &bytes[..SECRET];
    let differs = shown
        .iter()
        .zip(secret)
        .fold(0, |all, (one, other)| all | (one ^ other));
    let (rank, ranks) = (
        number(&bytes[SECRET..SECRET + 4]),
        number(&bytes[SECRET + 4..SECRET + 8]),
    );
    let address = bytes[SECRET + 8..].try_into().ok()?;
    let known = differs == 0 && rank < ranks && ranks <= MOST;
    known.then_some((stream, rank, ranks, address))
}

/// Small messages leave at once, and a host that is gone is noticed.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, INTERVAL)?;
    Ok(sockopt::set_tcp_keepcnt(stream, PROBES)?)
}

/// A message on a connection on which none need have come; `None` where none has.
fn look(mut stream: &TcpStream) -> io::Result<Option<u8>> {
    let mut byte = [0];
    stream.set_nonblocking(true)?;
    let come = stream.read(&mut byte);
    stream.set_nonblocking(false)?;
    match come {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(_) => Ok(Some(byte[0])),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(error) => Err(error),
    }
}

/// Takes a connection, as long as `others` find nobody missing.
fn accept_until(
    listener: &TcpListener,
    deadline: Instant,
    others: impl Fn() -> io::Result<()>,
) -> io::Result<TcpStream> {
    listener.set_nonblocking(true)?;
    for round in 1_u32.. {
        if round.is_multiple_of(LOOKS) {
            others()?;
        }
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            // One that has gone again, or no descriptor left for now, says nothing of those that come later.
            Err(error) => {
                if Instant::now() > deadline {
                    return Err(match error.kind() {
                        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
                        _ => error,
                    });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Waits for all ranks, tells each where the others are, and waits until all have their connections. Where one is lost before, the others
/// learn it by the end of the connections to here.
fn host(listener: &TcpListener, secret: [u8; SECRET]) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let mut come: Vec<Option<(TcpStream, [u8; 18])>> = Vec::new();
    loop {
        let stream = accept_until(listener, deadline, || {
            let mut there = come.iter().flatten();
            there.try_for_each(|(stream, _)| look(stream).map(|_| ()))
        })?;
        let Some((stream, rank, ranks, address)) = greet(stream, &secret) else {
            continue;
        };
        if come.is_empty() {
            come.resize_with(ranks as usize, || None);
        }
        match come.get_mut(rank as usize) {
            Some(place @ None) => *place = Some((stream, address)),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
        if come.iter().all(Option::is_some) {
            break;
        }
    }
    let table: Vec<u8> = come
        .iter()
        .flatten()
        .flat_map(|(_, address)| *address)
        .collect();
    let mut joining: Vec<(TcpStream, bool)> = come
        .into_iter()
        .flatten()
        .map(|(stream, _)| (stream, false))
        .collect();
    joining
        .iter_mut()
        .try_for_each(|(stream, _)| stream.write_all(&table))?;
    while !joining.iter().all(|(_, joined)| *joined) {
        for (stream, joined) in &mut joining {
            *joined |= look(stream)? == Some(JOINED);
        }
        if Instant::now() > deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // The first last: this thread most likely ends with its process.
    let mut joined = joining.iter_mut().rev();
    joined.try_for_each(|(stream, _)| stream.write_all(&[JOINED]))
}

/// One rank's connections to the others.
pub(super) struct Mesh {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// By rank; none for itself.
    peers: Vec<Option<Peer>>,
}

/// A connection, read and written by a thread at a time each.
struct Peer {
    socket: TcpStream,
    reading: Mutex<TcpStream>,
    writing: Mutex<TcpStream>,
}

impl Mesh {
    /// Meets the others under an id.
    pub(super) fn join(id: &[u8; ID_BYTES], rank: usize, ranks: usize) -> io::Result<Self> {
        let place = Place::decode(id)?;
        let deadline = Instant::now() + PATIENCE;
        let listener = TcpListener::bind((own_address()?, 0))?;
        let mut meeting = TcpStream::connect(place.address)?;
        prepare(&meeting)?;
        let (own, all) = (rank as u32, ranks as u32);
        meeting.write_all(&hello(place.secret, own, all, listener.local_addr()?))?;
        let mut table = vec![0; ranks * 18];
        meeting.read_exact(&mut table)?;
        let mut peers: Vec<Option<Peer>> = (0..ranks).map(|_| None).collect();
        for (other, address) in table.as_chunks::<18>().0.iter().enumerate().take(rank) {
            let (port, ip) = address.split_first_chunk::<2>().unwrap_or((&[0; 2], &[]));
            let ip: [u8; 16] = ip.try_into().unwrap_or_default();
            let ip = Ipv6Addr::from(ip).to_canonical();
            let mut stream = TcpStream::connect((ip, u16::from_le_bytes(*port)))?;
            prepare(&stream)?;
            stream.write_all(&hello(place.secret, own, all, listener.local_addr()?))?;
            peers[other] = Some(Peer::new(stream)?);
        }
        while peers.iter().skip(rank + 1).any(Option::is_none) {
            let stream = accept_until(&listener, deadline, || look(&meeting).map(|_| ()))?;
            let Some((stream, other, of, _)) = greet(stream, &place.secret) else {
                continue;
            };
            let expected = of == all && other as usize > rank;
            match peers.get_mut(other as usize).filter(|_| expected) {
                Some(peer @ None) => *peer = Some(Peer::new(stream)?),
                _ => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        meeting.write_all(&[JOINED])?;
        meeting.read_exact(&mut [0])?;
        Ok(Self { rank, ranks, peers })
    }

    /// Sends to and receives from others, all at once; what has come, in the order of `incoming`. A rank's messages to one other keep their
    /// order.
    pub(super) fn exchange(
        &self,
        outgoing: &[(usize, &[u8])],
        incoming: &[(usize, usize)],
    ) -> io::Result<Vec<Vec<u8>>> {
        let gone = || io::Error::from(io::ErrorKind::NotConnected);
        let peer = |rank: usize| {
            let peer = self.peers.get(rank).and_then(Option::as_ref);
            peer.ok_or_else(gone)
        };
        let mut own = outgoing.iter().filter(|(to, _)| *to == self.rank);
        let mut come: Vec<Vec<u8>> = Vec::new();
        for (from, bytes) in incoming {
            come.push(match *from == self.rank {
                true => match own.next() {
                    Some((_, sent)) if sent.len() == *bytes => sent.to_vec(),
                    _ => return Err(io::ErrorKind::InvalidInput.into()),
                },
                false => vec![0; *bytes],
            });
        }
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for rank in (0..self.ranks).filter(|rank| *rank != self.rank) {
                let mine: Vec<&[u8]> = of_rank(outgoing, rank).collect();
                if !mine.is_empty() {
                    let peer = peer(rank)?;
                    threads.push(scope.spawn(move || peer.send(&mine)));
                }
            }
            let mut to_fill: Vec<Vec<&mut Vec<u8>>> = (0..self.ranks).map(|_| Vec::new()).collect();
            for ((from, _), place) in incoming.iter().zip(&mut come) {
                if *from != self.rank {
                    to_fill.get_mut(*from).ok_or_else(gone)?.push(place);
                }
            }
            for (rank, mut places) in to_fill.into_iter().enumerate() {
                if !places.is_empty() {
                    let peer = peer(rank)?;
                    threads.push(scope.spawn(move || peer.receive(&mut places)));
                }
            }
            threads.into_iter().try_for_each(|thread| {
                let ended = thread.join();
                ended.unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
            })
        })?;
        Ok(come)
    }

    /// Ends all connections: whoever waits for them goes on.
    pub(super) fn close(&self) {
        for peer in self.peers.iter().flatten() {
            let _ = peer.socket.shutdown(Shutdown::Both);
        }
    }
}

fn of_rank<'a>(messages: &'a [(usize, &'a [u8])], rank: usize) -> impl Iterator<Item = &'a [u8]> {
    let of = messages.iter().filter(move |(to, _)| *to == rank);
    of.map(|(_, bytes)| *bytes)
}

impl Peer {
    fn new(socket: TcpStream) -> io::Result<Self> {
        let reading = Mutex::new(socket.try_clone()?);
        let writing = Mutex::new(socket.try_clone()?);
        Ok(Self {
            socket,
            reading,
            writing,
        })
    }

    fn send(&self, messages: &[&[u8]]) -> io::Result<()> {
        let writing = self.writing.lock();
        let mut writing = writing.map_err(|_| io::Error::from(io::ErrorKind::Other))?;
        messages.iter().try_for_each(|bytes| {
            writing.write_all(&(bytes.len() as u64).to_le_bytes())?;
            writing.write_all(bytes)
        })
    }

    /// Messages of another length than is awaited are a mistake of the program's.
    fn receive(&self, places: &mut [&mut Vec<u8>]) -> io::Result<()> {
        let reading = self.reading.lock();
        let mut reading = reading.map_err(|_| io::Error::from(io::ErrorKind::Other))?;
        places.iter_mut().try_for_each(|place| {
            let mut length = [0; 8];
            reading.read_exact(&mut length)?;
            if u64::from_le_bytes(length) != place.len() as u64 {
                return Err(io::ErrorKind::InvalidInput.into());
            }
            reading.read_exact(place)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meshes(ranks: usize) -> Vec<Mesh> {
        let id = make_id().expect("loopback is there");
        std::thread::scope(|scope| {
            let join = |rank| scope.spawn(move || Mesh::join(&id, rank, ranks));
            let joining: Vec<_> = (0..ranks).map(join).collect();
            let joined = joining
                .into_iter()
                .map(|joined| joined.join().expect("no panic"));
            joined.collect::<io::Result<_>>().expect("all meet")
        })
    }

    #[test]
    fn every_rank_reaches_every_other_and_itself() {
        let meshes = meshes(4);
        std::thread::scope(|scope| {
            for mesh in &meshes {
                scope.spawn(move || {
                    let mine = [mesh.rank as u8; 1 << 20];
                    let out: Vec<_> = (0..4).map(|to| (to, &mine[..])).collect();
                    let incoming: Vec<_> = (0..4).map(|from| (from, 1 << 20)).collect();
                    let come = mesh.exchange(&out, &incoming).expect("all are there");
                    for (from, bytes) in come.iter().enumerate() {
                        assert!(bytes.iter().all(|byte| *byte == from as u8));
                    }
                });
            }
        });
    }

    #[test]
    fn a_wrong_secret_joins_nothing() {
        let id = make_id().expect("loopback is there");
        let mut wrong = id;
        wrong[40] ^= 1;
        std::thread::scope(|scope| {
            let right = scope.spawn(|| Mesh::join(&id, 0, 2));
            let stranger = Mesh::join(&wrong, 1, 2);
            assert!(stranger.is_err());
            assert!(Mesh::join(&id, 1, 2).is_ok());
            assert!(right.join().expect("no panic").is_ok());
        });
        assert!(Mesh::join(&[0; ID_BYTES], 0, 1).is_err());
    }

    #[test]
    fn rank_lost_while_others_join_ends_them() {
        // Before the others have come, and once all have.
        for ranks in [3, 2] {
            let id = make_id().expect("loopback is there");
            let place = Place::decode(&id).expect("it is ours");
            std::thread::scope(|scope| {
                let waiting = scope.spawn(move || Mesh::join(&id, 0, ranks));
                let mut lost = TcpStream::connect(place.address).expect("it listens");
                let hello = hello(place.secret, 1, ranks as u32, place.address);
                lost.write_all(&hello).expect("it reads");
                if ranks == 2 {
                    let mut table = [0; 36];
                    lost.read_exact(&mut table).expect("both have come");
                }
                drop(lost);
                assert!(waiting.join().expect("no panic").is_err());
            });
        }
    }

    #[test]
    fn a_rank_that_leaves_ends_the_others_waiting() {
        let meshes = meshes(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| meshes[0].exchange(&[], &[(1, 8)]));
            meshes[1].close();
            assert!(waiting.join().expect("no panic").is_err());
        });
    }
}
