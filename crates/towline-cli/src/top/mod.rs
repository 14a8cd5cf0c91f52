//! `towline top`: who uses servers, live in a terminal.

mod feed;
mod grid;
mod model;
mod screen;
mod views;

#[cfg(test)]
mod tests;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use log::LevelFilter;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use towline_client::access::Access;
use towline_sys::signals::BlockedSignals;
use towline_transport::Address;

use self::feed::News;
use self::model::Server;
use self::screen::{Request, Screen};
use crate::cli::TopOptions;
use crate::servers;

/// Time between two looks for news and signals while no key comes.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two drawings without news: the screen tells for how long servers have been silent.
const REDRAW: Duration = Duration::from_secs(1);
/// Added to the number of a signal, as shells do.
const SIGNAL_CODE: i32 = 128;

pub(crate) fn run(options: &TopOptions) -> anyhow::Result<ExitCode> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        bail!(
            "`towline top` needs a terminal; `towline status`, or `towline status --json`, does without"
        );
    }
    let chosen = servers::choose(&options.servers)?;
    let access = Arc::new(servers::access(&chosen.settings)?);
    // Before there is another thread. A signal leaves the screen in order.
    let signals = BlockedSignals::of_server(true)?;
    let signal = Arc::new(AtomicI32::new(0));
    let caught = Arc::clone(&signal);
    std::thread::spawn(move || {
        while let Ok(number) = signals.wait() {
            if number == Signal::HUP.as_raw() {
                // There is no terminal to give back, and a thread that reads from it may never come back.
                std::process::exit(SIGNAL_CODE + number);
            }
            caught.store(number, Ordering::Release);
        }
    });
    let interval = Duration::from_secs(options.interval);
    let (sender, news) = mpsc::channel();
    let watched = Watched::start(chosen.servers, &access, interval, &sender);
    let of = |address: &Address| Server::new(servers::short(address), interval);
    let found = watched.addresses.iter().map(of).collect();
    // As crossterm has it.
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let screen = Screen::new(found, colour);
    // A line of the log would be drawn over the screen.
    log::set_max_level(LevelFilter::Off);
    let mut terminal = ratatui::try_init().context("could not take the terminal over")?;
    let result = show(&mut terminal, screen, &watched, &news, &signal);
    let restored = ratatui::try_restore().context("could not give the terminal back");
    let code = result?;
    restored?;
    Ok(code)
}

/// Servers and the threads that ask them.
struct Watched {
    addresses: Vec<Address>,
    access: Arc<Access>,
    nudges: Vec<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
    news: Sender<News>,
}

impl Watched {
    fn start(
        addresses: Vec<Address>,
        access: &Arc<Access>,
        interval: Duration,
        news: &Sender<News>,
    ) -> Self {
        let watch = |(number, address): (usize, &Address)| {
            let (nudge, nudges) = mpsc::channel();
            let (address, access, news) = (address.clone(), Arc::clone(access), news.clone());
            let thread = std::thread::spawn(move || {
                feed::watch(number, &address, &access, interval, &nudges, &news);
            });
            (nudge, thread)
        };
        let (nudges, threads) = addresses.iter().enumerate().map(watch).unzip();
        Self {
            nudges,
            threads,
            addresses,
            access: Arc::clone(access),
            news: news.clone(),
        }
    }
}

/// The exit status of a program that a signal ends.
fn signalled(number: i32) -> ExitCode {
    ExitCode::from(u8::try_from(SIGNAL_CODE + number).unwrap_or(u8::MAX))
}

/// Waits for a key as long as this, and tells whether the terminal is gone.
fn is_gone(limit: Duration) -> anyhow::Result<bool> {
    let keys = std::io::stdin();
    let mut polled = [PollFd::new(&keys, PollFlags::IN)];
    let limit = Timespec::try_from(limit)?;
    match poll(&mut polled, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error).context("could not wait for keys"),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    Ok(polled[0].revents().intersects(gone))
}

/// Draws what is heard and does what keys ask for until one, or a signal, ends it.
fn show(
    terminal: &mut DefaultTerminal,
    mut screen: Screen,
    watched: &Watched,
    news: &Receiver<News>,
    signal: &AtomicI32,
) -> anyhow::Result<ExitCode> {
    let mut drawn: Option<Instant> = None;
    let mut look = LOOK;
    loop {
        for item in news.try_iter() {
            let changed = match item {
                News::Told(..) => &[],
                News::Killed(server, ..) => &watched.nudges[server..=server],
                News::Moved(..) => &watched.nudges[..],
            };
            for nudge in changed {
                // A thread that has died is seen below.
                let _ = nudge.send(());
            }
            screen.hear(item);
            drawn = None;
        }
        // A panic has given the terminal back.
        if watched.threads.iter().any(JoinHandle::is_finished) {
            bail!("a thread that asks a server has died: please report it");
        }
        let caught = signal.load(Ordering::Acquire);
        if caught != 0 {
            return Ok(signalled(caught));
        }
        if drawn.is_none_or(|drawn| drawn.elapsed() >= REDRAW) {
            terminal.draw(|frame| screen.draw(frame, Instant::now()))?;
            drawn = Some(Instant::now());
        }
        // At the end of its input crossterm reads for ever.
        if is_gone(look)? {
            return Ok(signalled(Signal::HUP.as_raw()));
        }
        if !event::poll(Duration::ZERO)? {
            look = LOOK;
            continue;
        }
        // More of them may be in crossterm's hands.
        look = Duration::ZERO;
        drawn = None;
        if let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            match screen.press(key) {
                Request::None => {}
                Request::Quit => return Ok(ExitCode::SUCCESS),
                Request::Kill(key) => {
                    let address = watched.addresses[key.server].clone();
                    let (access, news) = (Arc::clone(&watched.access), watched.news.clone());
                    feed::kill(key.server, address, access, key.item, news);
                }
                Request::Migrate(key, to) => {
                    let address = watched.addresses[key.server].clone();
                    let (access, news) = (Arc::clone(&watched.access), watched.news.clone());
                    feed::migrate(key.server, address, access, key.item, to, news);
                }
            }
        }
    }
}
