//! `towline bench proxy`: a link of a given speed and delay, in user space.
//!
//! Each direction of the link is shared by all connections through it: a piece of data leaves when the link is free, takes its size
//! over the rate, and arrives a delay later. A sender that is ahead of the link is held back as by a full queue, so TCP's own flow
//! control does the rest. Sleeping is accurate to some 10 us, and relaying costs CPU time on this machine: what a link really gives
//! is measured through it (`towline bench net`, and the `tcp` leg of `towline bench opencl`), not assumed.

use std::fmt;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use serde::{Deserialize, Serialize};

/// How far a sender may be ahead of the link, as time on the link: what a network card and a switch hold.
const QUEUE: Duration = Duration::from_millis(1);
/// Time on the link of one piece: short beside the delays of interest.
const PIECE: Duration = Duration::from_micros(20);
/// Bounds of a piece: a usual packet, and what one system call moves well.
const PIECE_BYTES: std::ops::RangeInclusive<usize> = 1460..=256 << 10;

/// `towline bench proxy`.
#[derive(Args, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where connections go
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// Speed and one-way delay of the link, as in 1G,100us (bits per second)
    #[arg(long, value_name = "RATE,DELAY")]
    link: Link,
}

/// Speed and delay of a link.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Link {
    /// Bits per second, each way.
    pub bits_per_s: f64,
    /// One-way delay.
    pub delay_us: f64,
}

impl FromStr for Link {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is no link: write RATE,DELAY as in 400M,200us or 10G,20us");
        let (rate, delay) = text.split_once(',').ok_or_else(wrong)?;
        let (rate, unit) = split_unit(rate);
        let scale = match unit {
            "K" => 1e3,
            "M" => 1e6,
            "G" => 1e9,
            _ => return Err(wrong()),
        };
        let (delay, unit) = split_unit(delay);
        let micros = match unit {
            "us" => 1.0,
            "ms" => 1e3,
            _ => return Err(wrong()),
        };
        let link = Self {
            bits_per_s: rate.parse::<f64>().map_err(|_| wrong())? * scale,
            delay_us: delay.parse::<f64>().map_err(|_| wrong())? * micros,
        };
        let sane = (1e3..1e13).contains(&link.bits_per_s) && (0.0..1e7).contains(&link.delay_us);
        sane.then_some(link).ok_or_else(wrong)
    }
}

fn split_unit(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_at(
        text.find(|letter: char| letter.is_ascii_alphabetic())
            .unwrap_or(text.len()),
    )
}

impl fmt::Display for Link {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} Mbit/s, {} us one way",
            self.bits_per_s / 1e6,
            self.delay_us
        )
    }
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let proxy = Proxy::start(options.link)?;
    let listening = proxy.forward(options.listen, options.to)?;
    println!("{listening}");
    loop {
        std::thread::park();
    }
}

/// One direction: when the link is free again.
struct Direction {
    link: Link,
    free_at: Mutex<Instant>,
}

impl Direction {
    fn new(link: Link) -> Self {
        Self {
            link,
            free_at: Mutex::new(Instant::now()),
        }
    }

    fn time_on_link(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 * 8.0 / self.link.bits_per_s)
    }

    /// How long a sender must wait before it may queue more.
    fn ahead(&self, now: Instant) -> Duration {
        let free_at = *self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        free_at.saturating_duration_since(now).saturating_sub(QUEUE)
    }

    /// When `bytes` that are queued at `now` arrive.
    fn send(&self, bytes: usize, now: Instant) -> Instant {
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        *free_at = now.max(*free_at) + self.time_on_link(bytes);
        *free_at + Duration::from_secs_f64(self.link.delay_us * 1e-6)
    }

    fn piece_bytes(&self) -> usize {
        let bytes = PIECE.as_secs_f64() * self.link.bits_per_s / 8.0;
        (bytes as usize).clamp(*PIECE_BYTES.start(), *PIECE_BYTES.end())
    }
}

/// A link that any number of addresses can be reached through.
pub struct Proxy {
    there: Arc<Direction>,
    back: Arc<Direction>,
}

impl Proxy {
    /// A link that nothing uses yet.
    pub fn start(link: Link) -> anyhow::Result<Self> {
        Ok(Self {
            there: Arc::new(Direction::new(link)),
            back: Arc::new(Direction::new(link)),
        })
    }

    /// Relays connections to `listen` through the link to `to`; returns where it listens. Ends with the process.
    pub fn forward(&self, listen: SocketAddr, to: SocketAddr) -> anyhow::Result<SocketAddr> {
        let listener =
            TcpListener::bind(listen).with_context(|| format!("could not listen on {listen}"))?;
        let address = listener.local_addr()?;
        let (there, back) = (Arc::clone(&self.there), Arc::clone(&self.back));
        std::thread::Builder::new()
            .name("proxy-accept".into())
            .spawn(move || {
                for near in listener.incoming() {
                    let relayed = near.and_then(|near| relay(near, to, &there, &back));
                    if let Err(error) = relayed {
                        log::warn!("connection to {to} not relayed: {error}");
                    }
                }
            })?;
        Ok(address)
    }
}

fn relay(
    near: TcpStream,
    to: SocketAddr,
    there: &Arc<Direction>,
    back: &Arc<Direction>,
) -> std::io::Result<()> {
    near.set_nodelay(true)?;
    let far = TcpStream::connect(to)?;
    far.set_nodelay(true)?;
    let pairs = [
        (near.try_clone()?, far.try_clone()?, Arc::clone(there)),
        (far, near, Arc::clone(back)),
    ];
    for (from, to, direction) in pairs {
        // As many pieces as are under way at full speed, so that the channel itself never slows the link.
        let under_way = QUEUE.as_secs_f64() + direction.link.delay_us * 1e-6 + PIECE.as_secs_f64();
        let pieces = under_way
            / direction
                .time_on_link(direction.piece_bytes())
                .as_secs_f64();
        let (sender, receiver) = sync_channel(pieces as usize + 16);
        std::thread::Builder::new()
            .name("proxy-send".into())
            .spawn(move || take_in(from, &direction, &sender))?;
        std::thread::Builder::new()
            .name("proxy-deliver".into())
            .spawn(move || deliver(to, &receiver))?;
    }
    Ok(())
}

/// Data under way, and when it arrives.
type Piece = (Instant, Vec<u8>);

fn take_in(mut from: TcpStream, direction: &Direction, pieces: &SyncSender<Piece>) {
    precise_sleep();
    let mut buffer = vec![0; direction.piece_bytes()];
    loop {
        let ahead = direction.ahead(Instant::now());
        if !ahead.is_zero() {
            std::thread::sleep(ahead);
        }
        let count = match from.read(&mut buffer) {
            Ok(count) => count,
            Err(error) => {
                log::debug!("proxied connection: {error}");
                0
            }
        };
        let arrives = direction.send(count, Instant::now());
        // Also the end of the stream takes its time; a gone receiver has said why.
        if pieces.send((arrives, buffer[..count].to_vec())).is_err() || count == 0 {
            return;
        }
    }
}

fn deliver(mut to: TcpStream, pieces: &Receiver<Piece>) {
    precise_sleep();
    for (arrives, data) in pieces {
        let early = arrives.saturating_duration_since(Instant::now());
        if !early.is_zero() {
            std::thread::sleep(early);
        }
        if data.is_empty() {
            break;
        }
        if let Err(error) = to.write_all(&data) {
            log::debug!("proxied connection: {error}");
            break;
        }
    }
    // The other side may have closed it already.
    let _ = to.shutdown(Shutdown::Write);
}

/// Lets this thread's sleeps end when they should rather than up to 50 us later.
fn precise_sleep() {
    if let Err(error) = rustix::thread::set_current_timer_slack(NonZeroU64::new(1)) {
        log::warn!("delays of the link are less exact: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_from_text() {
        let link: Link = "400M,200us".parse().unwrap();
        assert_eq!((link.bits_per_s, link.delay_us), (4e8, 200.0));
        let link: Link = "100G,0.5ms".parse().unwrap();
        assert_eq!((link.bits_per_s, link.delay_us), (1e11, 500.0));
        for wrong in ["1G", "1,1us", "1G,1", "xG,1us", "-1G,1us", "1G,-1us"] {
            let error = wrong.parse::<Link>().unwrap_err();
            assert!(error.contains("RATE,DELAY"), "{error}");
        }
    }

    #[test]
    fn pieces_leave_one_after_the_other_and_arrive_a_delay_later() {
        let direction = Direction::new("8M,100us".parse().unwrap());
        let now = Instant::now() + Duration::from_secs(1);
        let first = direction.send(1000, now);
        let second = direction.send(1000, now);
        assert_eq!(first - now, Duration::from_micros(1100));
        assert_eq!(second - now, Duration::from_micros(2100));
        assert_eq!(direction.ahead(now), Duration::from_millis(1));
    }

    fn through(link: &str) -> (TcpStream, TcpStream) {
        let far = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Proxy::start(link.parse().unwrap()).unwrap();
        let near = proxy
            .forward("127.0.0.1:0".parse().unwrap(), far.local_addr().unwrap())
            .unwrap();
        let client = TcpStream::connect(near).unwrap();
        client.set_nodelay(true).unwrap();
        (client, far.accept().unwrap().0)
    }

    #[test]
    fn a_round_trip_takes_twice_the_delay() {
        let (mut client, mut server) = through("10G,5ms");
        let start = Instant::now();
        let mut byte = [0];
        client.write_all(b"x").unwrap();
        server.read_exact(&mut byte).unwrap();
        server.write_all(&byte).unwrap();
        client.read_exact(&mut byte).unwrap();
        assert!(start.elapsed() >= Duration::from_millis(10));
    }

    #[test]
    fn bytes_arrive_unchanged_at_no_more_than_the_rate() {
        let (mut client, mut server) = through("80M,100us");
        let sent: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        let copy = sent.clone();
        let start = Instant::now();
        let sender = std::thread::spawn(move || {
            client.write_all(&copy).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            client
        });
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        // 200,000 bytes at 10 MB/s.
        assert!(start.elapsed() >= Duration::from_millis(20));
        assert_eq!(received, sent);
        sender.join().unwrap();
    }
}
