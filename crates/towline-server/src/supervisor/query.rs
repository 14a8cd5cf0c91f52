//! Connections that only ask: status, devices, what NVML tells. Programs keep them open between questions, so that one too many ends the
//! one that has been silent longest, of the address that holds most. A new question is let in, unless there are too many that do not end
//! although they were told to.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use towline_transport::Connection;

use super::lock;
use super::origin::{Origin, heaviest};

/// All of them.
pub(super) struct Queries {
    most: usize,
    /// The most with those that are being ended.
    most_threads: usize,
    /// Said to one that makes place.
    farewell: Vec<u8>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: u64,
    places: BTreeMap<u64, Query>,
    /// Those without a place, whose threads have not ended.
    ending: usize,
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
    /// At most so many, and so many with those that are being ended; one that makes place hears `farewell`.
    pub(super) fn new(most: usize, most_threads: usize, farewell: Vec<u8>) -> Self {
        Self {
            most,
            most_threads,
            farewell,
            state: Mutex::default(),
        }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        lock(&self.state).places.len()
    }

    /// Takes a place, and ends another connection if there is none. `None` where too many are being ended.
    pub(super) fn take(&self, connection: &Arc<dyn Connection>) -> Option<QueryPlace<'_>> {
        let mut state = lock(&self.state);
        if state.places.len() + state.ending >= self.most_threads {
            return None;
        }
        let victim = (state.places.len() >= self.most)
            .then(|| state.most_expendable())
            .flatten();
        if let Some(query) = victim.and_then(|number| state.places.remove(&number)) {
            state.ending += 1;
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
        Some(QueryPlace {
            queries: self,
            number,
        })
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

    /// Whether it had to make place: its connection is closed, and its thread is to end.
    pub(super) fn is_lost(&self) -> bool {
        !lock(&self.queries.state).places.contains_key(&self.number)
    }
}

impl Drop for QueryPlace<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.queries.state);
        if state.places.remove(&self.number).is_none() {
            state.ending -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_transport::{ConnectOptions, Registry};

    use super::*;

    #[test]
    fn questions_that_do_not_end_are_counted() {
        let listener = Registry::global().listen(&"tcp://127.0.0.1:0".parse().unwrap());
        let place = listener.as_ref().unwrap().local_address();
        let connection = || {
            let options = ConnectOptions::default();
            Registry::global().connect(&place, &options).unwrap()
        };
        let queries = Queries::new(2, 4, Vec::new());
        let mut places: Vec<_> = (0..4)
            .map(|_| queries.take(&connection()).unwrap())
            .collect();
        let lost: Vec<_> = places.iter().map(QueryPlace::is_lost).collect();
        assert_eq!(lost, [true, true, false, false]);
        assert!(queries.take(&connection()).is_none());
        places.remove(0);
        let next = queries.take(&connection()).unwrap();
        assert!(places[1].is_lost());
        drop((next, places));
        let state = lock(&queries.state);
        assert_eq!((state.places.len(), state.ending), (0, 0));
    }
}
