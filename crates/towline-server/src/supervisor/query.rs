//! Connections that only ask: status, devices, what NVML tells. Programs keep them open between questions, so that one too many ends the
//! one that has been silent longest, of the address that holds most. A new question is always let in.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use towline_transport::Connection;

use super::lock;
use super::origin::{Origin, heaviest};

/// All of them.
pub(super) struct Queries {
    most: usize,
    /// Said to one that makes place.
    farewell: Vec<u8>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    places: BTreeMap<u64, Query>,
}

struct Query {
    origin: Origin,
    connection: Arc<dyn Connection>,
    /// When it last asked.
    asked: Instant,
}

/// A place among them; dropping it gives it back.
pub(super) struct QueryPlace<'a> {
    queries: &'a Queries,
    number: u64,
}

impl Queries {
    /// At most so many; one that makes place hears `farewell`.
    pub(super) fn new(most: usize, farewell: Vec<u8>) -> Self {
        Self {
            most,
            farewell,
            state: Mutex::default(),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        lock(&self.state).places.len()
    }

    /// Takes a place, and ends another connection if there is none.
    pub(super) fn take(&self, connection: &Arc<dyn Connection>) -> QueryPlace<'_> {
        let mut state = lock(&self.state);
        let victim = (state.places.len() >= self.most)
            .then(|| state.most_expendable())
            .flatten();
        if let Some(query) = victim.and_then(|number| state.places.remove(&number)) {
            log::debug!("too many queries: {} makes place", query.connection.peer());
            // It is being closed whether or not it still hears why.
            let _ = query.connection.try_send(&self.farewell);
            query.connection.shutdown();
        }
        state.last += 1;
        let number = state.last;
        let query = Query {
            origin: Origin::of(&connection.peer()),
            connection: Arc::clone(connection),
            asked: Instant::now(),
        };
        state.places.insert(number, query);
        QueryPlace {
            queries: self,
            number,
        }
    }
}

impl State {
    fn most_expendable(&self) -> Option<u64> {
        let heaviest = heaviest(self.places.values().map(|query| &query.origin))?;
        let own = self.places.iter();
        let own = own.filter(|(_, query)| query.origin == heaviest);
        own.min_by_key(|(_, query)| query.asked)
            .map(|(number, _)| *number)
    }
}

impl QueryPlace<'_> {
    /// It asks something.
    pub(super) fn asks(&self) {
        if let Some(query) = lock(&self.queries.state).places.get_mut(&self.number) {
            query.asked = Instant::now();
        }
    }
}

impl Drop for QueryPlace<'_> {
    fn drop(&mut self) {
        lock(&self.queries.state).places.remove(&self.number);
    }
}
