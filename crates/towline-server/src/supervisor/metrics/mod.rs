//! Figures of the server for a monitoring system: `GET /metrics` over HTTP, in Prometheus's text format.
//!
//! Figures stay where they are counted. A scrape gathers them into a page ([`page`]) and then sends it, so that nothing is locked while a
//! client reads. A page serves all scrapes of a second: however often it is asked for, workers are asked once.

mod page;
mod request;

use std::fmt;
use std::io::IoSlice;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use towline_transport::{Address, Connection, Listener, Registry, TransportError, shm};
use towline_wire::control::Token;

use self::request::{HEAD_BYTES, Request, Wrong};
use super::accept::accept_each;
use super::query::Queries;
use super::{ANSWER_LIMIT, Shared, SupervisorError, lock, spawn};

/// Longest time for a client to send its request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Connections at once; one more ends another ([`Queries`]).
const MOST_CONNECTIONS: usize = 16;
/// Connections with those that are being ended. Beyond that a new one is refused.
const MOST_THREADS: usize = 64;
/// Age up to which a page is sent again.
const FRESH: Duration = Duration::from_secs(1);

/// The place of the metrics, and their secret.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// Address to listen on: `tcp://` or, for a Unix socket, `shm://`.
    pub listen: Address,
    /// The secret that clients must bring. Needed beyond this host.
    pub token: Option<Token>,
}

impl MetricsConfig {
    pub(super) fn check(&self) -> Result<(), SupervisorError> {
        if self.listen.scheme() != "tcp" || self.listen.is_loopback() {
            return Ok(());
        }
        if self.token.is_none() {
            return Err(SupervisorError::MetricsWithoutToken {
                address: self.listen.clone(),
            });
        }
        log::warn!(
            "{}: metrics, and their token, can be read on the way: they are not encrypted",
            self.listen
        );
        Ok(())
    }

    pub(super) fn listen(&self) -> Result<Arc<dyn Listener>, TransportError> {
        Ok(Arc::from(match self.listen.scheme() {
            "shm" => shm::listen_plainly(&self.listen)?,
            _ => Registry::global().listen(&self.listen)?,
        }))
    }
}

/// Times of workers, by their kind.
#[derive(Clone)]
pub(super) struct TimingFamilies {
    start: TimingFamily,
    wait: TimingFamily,
}

type TimingFamily = Family<[(&'static str, &'static str); 1], Histogram, fn() -> Histogram>;

/// Times of workers of one kind, in seconds.
pub(super) struct Timings {
    /// Between the start of a worker and its being ready.
    pub(super) start: Histogram,
    /// That a client waited for a worker.
    pub(super) wait: Histogram,
}

impl TimingFamilies {
    pub(super) fn new() -> Self {
        // A worker that waits for a client is there at once, and one that loads a driver takes seconds.
        let times = || {
            Histogram::new([
                0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
            ])
        };
        Self {
            start: Family::new_with_constructor(times),
            wait: Family::new_with_constructor(times),
        }
    }

    pub(super) fn of(&self, api: &'static str) -> Timings {
        let of = |family: &TimingFamily| family.get_or_create_owned(&[("api", api)]);
        Timings {
            start: of(&self.start),
            wait: of(&self.wait),
        }
    }
}

/// See the module's text.
pub(super) struct Metrics {
    token: Option<Token>,
    connections: Queries,
    timings: TimingFamilies,
    /// The last page, and when it was made.
    page: Mutex<Option<(Instant, Arc<String>)>>,
}

impl Metrics {
    pub(super) fn new(config: &MetricsConfig, timings: TimingFamilies) -> Self {
        Self {
            token: config.token.clone(),
            connections: Queries::new(MOST_CONNECTIONS, MOST_THREADS, busy()),
            timings,
            page: Mutex::default(),
        }
    }

    fn page(&self, shared: &Shared) -> Result<Arc<String>, fmt::Error> {
        let mut last = lock(&self.page);
        if let Some((_, page)) = last.as_ref().filter(|(made, _)| made.elapsed() < FRESH) {
            return Ok(Arc::clone(page));
        }
        let page = Arc::new(page::make(shared, &self.timings)?);
        *last = Some((Instant::now(), Arc::clone(&page)));
        Ok(page)
    }

    fn answer(&self, request: &Request, shared: &Shared) -> Vec<u8> {
        let token = self.token.as_ref();
        if token.is_some_and(|token| !token.is(&request.bearer)) {
            return Wrong::TOKEN.response();
        }
        if let Err(wrong) = request.check() {
            return wrong.response();
        }
        match self.page(shared) {
            Ok(page) => {
                let kind = format!("Content-Type: {CONTENT_TYPE}\r\n");
                request::response("200 OK", &kind, &page)
            }
            Err(fmt::Error) => Wrong::PAGE.response(),
        }
    }
}

/// Tells the log where they are.
pub(super) fn announce(listener: &dyn Listener) {
    let address = listener.local_address();
    match address.scheme() {
        "shm" => log::info!("metrics are at /metrics of unix:{}", address.rest()),
        _ => log::info!("metrics are at http://{}/metrics", address.rest()),
    }
}

/// Body of the listener's thread.
pub(super) fn accept_loop(listener: &dyn Listener, shared: &Arc<Shared>) {
    if shared.monitor.is_some() {
        // So that its figures are there before the first program has asked.
        let shared = Arc::clone(shared);
        let start = move || {
            let started = shared.monitor.as_ref().map(|monitor| monitor.snapshot());
            if let Some(Err(reason)) = started {
                log::info!("metrics tell nothing of the devices themselves: {reason}");
            }
        };
        if let Err(error) = spawn("metrics", start) {
            log::warn!("{error}: {}", error.source);
        }
    }
    let threads = Arc::new(());
    accept_each(listener, "metrics", |connection| {
        if Arc::strong_count(&threads) > MOST_THREADS {
            let _ = connection.try_send(&busy());
            connection.shutdown();
            return None;
        }
        let (shared, thread) = (Arc::clone(shared), Arc::clone(&threads));
        Some(move || {
            if let Some(metrics) = &shared.metrics
                && let Err(error) = serve(&connection, metrics, &shared)
            {
                log::debug!("metrics: {}: {error}", connection.peer());
            }
            drop(thread);
        })
    });
}

fn busy() -> Vec<u8> {
    Wrong::BUSY.response()
}

fn serve(
    connection: &Arc<dyn Connection>,
    metrics: &Metrics,
    shared: &Shared,
) -> Result<(), TransportError> {
    let Some(_place) = metrics.connections.take(connection) else {
        let _ = connection.try_send(&busy());
        connection.shutdown();
        return Ok(());
    };
    let deadline = shared
        .deadlines
        .set(connection, REQUEST_LIMIT, Wrong::LATE.response());
    let request = receive(&**connection);
    drop(deadline);
    let answer = match request? {
        Ok(request) => metrics.answer(&request, shared),
        Err(wrong) => wrong.response(),
    };
    let _deadline = shared.deadlines.set(connection, ANSWER_LIMIT, Vec::new());
    connection.send(&[IoSlice::new(&answer)])?;
    connection.shutdown();
    Ok(())
}

/// Receives a request; in the inner error, what is wrong with it.
fn receive(connection: &dyn Connection) -> Result<Result<Request, Wrong>, TransportError> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        let count = connection.recv(&mut bytes)?;
        if count == 0 {
            return Err(TransportError::Closed {
                peer: connection.peer(),
            });
        }
        head.extend_from_slice(&bytes[..count]);
        match Request::parse(&head) {
            Ok(Some(request)) => return Ok(Ok(request)),
            Ok(None) if head.len() <= HEAD_BYTES => {}
            Ok(None) => return Ok(Err(Wrong::LONG)),
            Err(wrong) => return Ok(Err(wrong)),
        }
    }
}
