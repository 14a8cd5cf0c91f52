//! What plain TCP moves between two processes: the measure that Towline's figures stand beside (the papers' iperf).
//!
//! A [`Peer`] is a process that echoes, receives or sends as many bytes as each 9-byte command says; [`Streams`] is the other end.
//! It is no part of a server: it runs only while someone measures.

use std::io::{BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::child::{Process, this_program};

/// Most bytes that one command moves.
const MAX_BYTES: u64 = 64 << 30;
/// Most bytes that one echo carries.
const MAX_ECHO_BYTES: usize = 64 << 10;
/// Memory that one stream of payload lands in or comes from: beyond every cache, as a program's data is.
const PAYLOAD_BYTES: u64 = 64 << 20;
/// Memory of a stream that moves the same bytes over and over, as iperf does: it stays in the cache.
const CACHED_BYTES: u64 = 128 << 10;
/// Below this many bytes for each, one stream is faster than several.
const MIN_STREAM_BYTES: u64 = 64 << 10;
/// Most connections at once.
const MAX_CONNECTIONS: usize = 64;

/// `towline bench peer`.
#[derive(Args, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// End when standard input ends
    #[arg(long, hide = true)]
    until_end_of_input: bool,
}

/// From client to server or back.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Client to server.
    Write,
    /// Server to client.
    Read,
}

impl Direction {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Write, Self::Read];

    /// As in identifiers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
        }
    }
}

/// What the bytes of a plain stream come from and land in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Memory {
    /// Data of its own, as payload has: reading and writing it is part of the work.
    Payload,
    /// The same small buffer all the time: what the network code alone moves.
    Cached,
}

impl Memory {
    fn bytes(self) -> u64 {
        match self {
            Self::Payload => PAYLOAD_BYTES,
            Self::Cached => CACHED_BYTES,
        }
    }

    fn command(self, direction: Direction) -> u8 {
        match (direction, self) {
            (Direction::Write, Self::Payload) => RECEIVE,
            (Direction::Write, Self::Cached) => RECEIVE_CACHED,
            (Direction::Read, Self::Payload) => SEND,
            (Direction::Read, Self::Cached) => SEND_CACHED,
        }
    }
}

const ECHO: u8 = b'E';
const RECEIVE: u8 = b'W';
const RECEIVE_CACHED: u8 = b'w';
const SEND: u8 = b'R';
const SEND_CACHED: u8 = b'r';

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let listener = TcpListener::bind(options.listen)
        .with_context(|| format!("could not listen on {}", options.listen))?;
    println!("{}", listener.local_addr()?);
    if options.until_end_of_input {
        std::thread::spawn(move || serve(&listener));
        // Whoever started us has gone when this returns.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    } else {
        serve(&listener);
    }
    Ok(ExitCode::SUCCESS)
}

fn serve(listener: &TcpListener) {
    let live = std::sync::Arc::new(());
    for connection in listener.incoming() {
        let connection = match connection {
            Ok(connection) => connection,
            Err(error) => {
                log::warn!("connection not accepted: {error}");
                continue;
            }
        };
        if std::sync::Arc::strong_count(&live) > MAX_CONNECTIONS {
            log::warn!("more than {MAX_CONNECTIONS} connections: one refused");
            continue;
        }
        let ticket = std::sync::Arc::clone(&live);
        std::thread::spawn(move || {
            if let Err(error) = answer(connection) {
                log::debug!("connection ended: {error}");
            }
            drop(ticket);
        });
    }
}

fn answer(mut connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut buffer = Vec::new();
    let (payload, cached) = (Memory::Payload, Memory::Cached);
    loop {
        let mut command = [0; 9];
        connection.read_exact(&mut command)?;
        let [kind, bytes @ ..] = command;
        let bytes = u64::from_le_bytes(bytes);
        let limit = if kind == ECHO {
            MAX_ECHO_BYTES as u64
        } else {
            MAX_BYTES
        };
        if bytes > limit {
            return Err(std::io::Error::other("command beyond the limit"));
        }
        match kind {
            ECHO => {
                let mut data = vec![0; bytes as usize];
                connection.read_exact(&mut data)?;
                connection.write_all(&data)?;
            }
            RECEIVE => {
                receive(
                    &mut connection,
                    bytes,
                    buffer_for(&mut buffer, bytes, payload),
                )?;
                connection.write_all(&[1])?;
            }
            RECEIVE_CACHED => {
                receive(
                    &mut connection,
                    bytes,
                    buffer_for(&mut buffer, bytes, cached),
                )?;
                connection.write_all(&[1])?;
            }
            SEND => send(
                &mut connection,
                bytes,
                buffer_for(&mut buffer, bytes, payload),
            )?,
            SEND_CACHED => send(
                &mut connection,
                bytes,
                buffer_for(&mut buffer, bytes, cached),
            )?,
            _ => return Err(std::io::Error::other("unknown command")),
        }
    }
}

/// As much memory as moving so many bytes takes.
fn buffer_for(buffer: &mut Vec<u8>, bytes: u64, memory: Memory) -> &mut [u8] {
    let wanted = bytes.min(memory.bytes()) as usize;
    if buffer.len() < wanted {
        buffer.resize(wanted, 0x5a);
    }
    &mut buffer[..wanted]
}

fn receive(connection: &mut TcpStream, bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(buffer.len() as u64) as usize;
        connection.read_exact(&mut buffer[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}

fn send(connection: &mut TcpStream, bytes: u64, buffer: &mut [u8]) -> std::io::Result<()> {
    let mut left = bytes;
    while left > 0 {
        let piece = left.min(buffer.len() as u64) as usize;
        connection.write_all(&buffer[..piece])?;
        left -= piece as u64;
    }
    Ok(())
}

/// A peer that this process started on this machine; it ends with the value.
pub(crate) struct Peer {
    process: Process,
    pub(crate) address: SocketAddr,
}

impl Peer {
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(this_program()?);
        command
            .args(["bench", "peer", "--until-end-of-input"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = Process::spawn(&mut command)?;
        let mut line = String::new();
        let stdout = process
            .0
            .stdout
            .take()
            .context("standard output is piped")?;
        std::io::BufReader::new(stdout).read_line(&mut line)?;
        let address = line
            .trim()
            .parse()
            .with_context(|| format!("the TCP peer did not start; it said `{}`", line.trim()))?;
        Ok(Self { process, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.0.id()
    }
}

/// Plain connections to a peer.
pub(crate) struct Streams {
    streams: Vec<(TcpStream, Vec<u8>)>,
}

impl Streams {
    pub(crate) fn connect(address: SocketAddr, count: usize) -> anyhow::Result<Self> {
        let streams = (0..count)
            .map(|_| {
                let stream = TcpStream::connect(address)
                    .with_context(|| format!("could not reach the TCP peer at {address}"))?;
                stream.set_nodelay(true)?;
                Ok((stream, Vec::new()))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        if streams.is_empty() {
            bail!("no stream to measure with");
        }
        Ok(Self { streams })
    }

    /// Microseconds of one round trip of so many bytes.
    pub(crate) fn round_trip_us(&mut self, bytes: usize) -> anyhow::Result<f64> {
        let (stream, _) = &mut self.streams[0];
        let mut message = vec![0; 9 + bytes];
        message[0] = ECHO;
        message[1..9].copy_from_slice(&(bytes as u64).to_le_bytes());
        let start = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message[9..])?;
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }

    /// Seconds that the streams together take for so many bytes.
    pub(crate) fn transfer_s(
        &mut self,
        direction: Direction,
        memory: Memory,
        bytes: u64,
    ) -> anyhow::Result<f64> {
        let useful = (bytes / MIN_STREAM_BYTES).clamp(1, self.streams.len() as u64);
        let share = bytes / useful;
        for (_, buffer) in &mut self.streams[..useful as usize] {
            buffer_for(buffer, share, memory);
        }
        let start = Instant::now();
        if useful == 1 {
            let (stream, buffer) = &mut self.streams[0];
            one_way(stream, buffer, (direction, memory), bytes)?;
            return Ok(start.elapsed().as_secs_f64());
        }
        std::thread::scope(|scope| {
            let streams = self.streams[..useful as usize].iter_mut();
            let threads: Vec<_> = streams
                .enumerate()
                .map(|(index, (stream, buffer))| {
                    let bytes = if index == 0 {
                        bytes - share * (useful - 1)
                    } else {
                        share
                    };
                    scope.spawn(move || one_way(stream, buffer, (direction, memory), bytes))
                })
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| match thread.join() {
                    Ok(result) => result,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
        })?;
        Ok(start.elapsed().as_secs_f64())
    }
}

fn one_way(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    (direction, memory): (Direction, Memory),
    bytes: u64,
) -> std::io::Result<()> {
    let buffer = buffer_for(buffer, bytes, memory);
    let mut command = [memory.command(direction); 9];
    command[1..].copy_from_slice(&bytes.to_le_bytes());
    match direction {
        Direction::Write => {
            stream.write_all(&command)?;
            send(stream, bytes, buffer)?;
            stream.read_exact(&mut [0])
        }
        Direction::Read => {
            stream.write_all(&command)?;
            receive(stream, bytes, buffer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener));
        address
    }

    #[test]
    fn streams_move_both_ways_and_stay_usable() {
        let mut streams = Streams::connect(peer(), 3).unwrap();
        for bytes in [1, 100_000, 1_000_001] {
            for direction in Direction::ALL {
                for memory in [Memory::Payload, Memory::Cached] {
                    assert!(streams.transfer_s(direction, memory, bytes).unwrap() > 0.0);
                }
                assert!(streams.round_trip_us(64).unwrap() > 0.0);
            }
        }
    }

    #[test]
    fn command_beyond_the_limit_ends_the_connection() {
        let mut connection = TcpStream::connect(peer()).unwrap();
        let mut command = [SEND; 9];
        command[1..].copy_from_slice(&u64::MAX.to_le_bytes());
        connection.write_all(&command).unwrap();
        assert_eq!(connection.read(&mut [0; 16]).unwrap_or(0), 0);
    }
}
