//! What sessions of one server share with each other: offered under a token that nobody guesses, taken by whoever has the token.
//!
//! A shared event is used until the last session lets go of it, whoever made it, and the ends of all these sessions concern it. So it is
//! kept as long, and everybody who takes it has a number for it.

use std::collections::hash_map::Entry as MapEntry;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use super::images::ImageDigest;
use super::manual::is_event;
use super::page::{OWNER, release as release_page};

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;
/// Most bytes that describe an offer.
pub const OFFER_BYTES: usize = 256;
/// A session may have one of so many parts of the descriptors that offers may hold in all.
const SESSION_SHARE: usize = 4;
/// Most events that a session has taken at once: those of many others.
const TAKEN_LIMIT: usize = 65_536;

/// The right to take what was offered. Whoever knows it has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; TOKEN_BYTES]);

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

/// Something that a session offers to others.
#[derive(Debug)]
pub struct Offer {
    /// What it is.
    pub kind: u8,
    /// What the driver, in another process, needs to find it.
    pub bytes: Vec<u8>,
    /// A descriptor, where that is it.
    pub descriptor: Option<OwnedFd>,
}

/// What a session takes.
#[derive(Debug)]
pub struct Taken {
    /// What was offered.
    pub offer: Offer,
    /// The session's number for an event, which nobody else has for it, to give it back with. 0 for all else.
    pub number: u32,
}

/// Where a session offers and takes.
pub trait Broker: Send + Sync {
    /// Whether anything can be shared.
    fn shares(&self) -> bool {
        true
    }

    /// Offers something; `None` where there is no room for it. May wait.
    fn offer(&self, offer: Offer) -> Option<Token>;

    /// What was offered under a token, if it is still. May wait.
    fn take(&self, token: Token) -> Option<Taken>;

    /// The session does not use any more what it took with a number.
    fn give_back(&self, token: Token, number: u32);

    /// Nobody may take this any more. Only what the session itself has offered.
    fn withdraw(&self, token: Token);

    /// Device code that a session has brought before, as a file that nobody can change. May wait.
    fn image(&self, _digest: &ImageDigest) -> Option<OwnedFd> {
        None
    }

    /// Keeps device code, in such a file, for whoever brings the same.
    fn keep_image(&self, _digest: &ImageDigest, _image: OwnedFd) {}

    /// Has a session give way whose client is cut off, one of the same tenant or any, where all such sessions together hold the bytes that are
    /// lacking: whether one did, and its memory is free. May wait.
    fn make_room(&self, _lacking: u64, _of_tenant: bool) -> bool {
        false
    }
}

/// For sessions that share nothing.
pub struct NoBroker;

impl Broker for NoBroker {
    fn shares(&self) -> bool {
        false
    }

    fn offer(&self, _offer: Offer) -> Option<Token> {
        None
    }

    fn take(&self, _token: Token) -> Option<Taken> {
        None
    }

    fn give_back(&self, _token: Token, _number: u32) {}

    fn withdraw(&self, _token: Token) {}
}

/// That this session has taken something, until it is dropped.
pub(crate) struct Lease {
    broker: Arc<dyn Broker>,
    token: Token,
    number: u32,
    kept: bool,
}

impl Lease {
    pub(crate) fn new(broker: &Arc<dyn Broker>, token: Token, number: u32) -> Self {
        Self {
            broker: Arc::clone(broker),
            token,
            number,
            kept: number == OWNER,
        }
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// It ends with the session.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.kept {
            self.broker.give_back(self.token, self.number);
        }
    }
}

/// All offers of a server's sessions, which have numbers that are never used twice.
pub struct Offers {
    table: Mutex<Table>,
    /// Most of one session.
    of_session: usize,
    /// Most descriptors that all of them hold.
    descriptors: usize,
}

#[derive(Default)]
struct Table {
    entries: HashMap<Token, Entry>,
    /// What entries of a session count, whether it offers them still or others have taken them.
    owned: HashMap<u64, Owned>,
    /// Entries with a descriptor.
    descriptors: usize,
    /// Events that sessions have taken, and the number that each has for it.
    taken: HashMap<u64, HashSet<(Token, u32)>>,
    /// The tenants of sessions that have one.
    tenants: HashMap<u64, u64>,
}

#[derive(Clone, Copy, Default)]
struct Owned {
    entries: usize,
    descriptors: usize,
}

struct Entry {
    owner: u64,
    kind: u8,
    bytes: Vec<u8>,
    descriptor: Option<Arc<OwnedFd>>,
    /// Its owner lives and has not withdrawn it.
    offered: bool,
    /// How many have taken it and not given it back.
    takers: usize,
    /// The last number that was given out.
    last: u32,
}

impl Entry {
    fn is_needed(&self) -> bool {
        self.offered || self.takers > 0
    }
}

impl Offers {
    /// At most so many offers of a session at once, and so many descriptors that all hold.
    pub fn new(of_session: usize, descriptors: usize) -> Self {
        Self {
            table: Mutex::default(),
            of_session,
            descriptors,
        }
    }

    /// How many a session has.
    pub fn count_of(&self, session: u64) -> usize {
        self.lock().owned.get(&session).map_or(0, |own| own.entries)
    }

    /// Descriptors that all hold, and the most that they may.
    pub fn in_use(&self) -> (u64, u64) {
        (self.lock().descriptors as u64, self.descriptors as u64)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whose session it is: sessions take what those of the same tenant offer. Those without a tenant are as of one.
    pub fn join(&self, session: u64, tenant: u64) {
        self.lock().tenants.insert(session, tenant);
    }

    /// Notes what `owner` offers; whether there is room for it.
    pub fn offer(&self, owner: u64, token: Token, offer: Offer) -> bool {
        let table = &mut *self.lock();
        let own = table.owned.get(&owner).copied().unwrap_or_default();
        let room_for_descriptor = offer.descriptor.is_none()
            || (table.descriptors < self.descriptors
                && own.descriptors < self.descriptors.div_ceil(SESSION_SHARE));
        let fits = own.entries < self.of_session
            && room_for_descriptor
            && offer.bytes.len() <= OFFER_BYTES
            && !table.entries.contains_key(&token);
        if fits {
            let entry = Entry {
                owner,
                kind: offer.kind,
                bytes: offer.bytes,
                descriptor: offer.descriptor.map(Arc::new),
                offered: true,
                takers: 0,
                last: OWNER,
            };
            table.insert(token, entry);
        }
        fits
    }

    /// What was offered under a token, with a descriptor of its own, for a session.
    pub fn take(&self, session: u64, token: Token) -> Option<Taken> {
        let table = &mut *self.lock();
        let entry = table.entries.get_mut(&token)?;
        if !entry.offered || table.tenants.get(&session) != table.tenants.get(&entry.owner) {
            return None;
        }
        let descriptor = match &entry.descriptor {
            Some(descriptor) => Some(descriptor.try_clone().ok()?),
            None => None,
        };
        let mut number = 0;
        if is_event(entry.kind) {
            let taken = table.taken.entry(session).or_default();
            if taken.len() >= TAKEN_LIMIT {
                return None;
            }
            number = entry.last.checked_add(1)?;
            taken.insert((token, number));
            entry.last = number;
            entry.takers += 1;
        }
        let offer = Offer {
            kind: entry.kind,
            bytes: entry.bytes.clone(),
            descriptor,
        };
        Some(Taken { offer, number })
    }

    /// A session does not use any more what it took with a number. Only what is its own.
    pub fn give_back(&self, session: u64, token: Token, number: u32) {
        let gone = {
            let table = &mut *self.lock();
            let own = table.taken.get_mut(&session);
            let had = own.is_some_and(|own| own.remove(&(token, number)));
            had.then(|| table.leave(token))
        };
        drop(gone);
    }

    /// Forgets an offer, if it is the owner's.
    pub fn withdraw(&self, owner: u64, token: Token) {
        let gone = {
            let table = &mut *self.lock();
            let entry = table.entries.get_mut(&token);
            let own = entry.filter(|entry| entry.owner == owner);
            own.map(|entry| entry.offered = false)
                .and_then(|()| table.remove_unneeded(token))
        };
        drop(gone);
    }

    /// Forgets all that a session has offered and taken, when it has ended: its process, so that it writes nowhere any more. Nobody
    /// waits for what it has recorded in events.
    pub fn end(&self, session: u64) {
        let mut pages = Vec::new();
        let mut gone = Vec::new();
        let mut guard = self.lock();
        let table = &mut *guard;
        for (token, number) in table.taken.remove(&session).unwrap_or_default() {
            let entry = table.entries.get(&token);
            pages.extend(entry.and_then(|entry| Some((entry.descriptor.clone()?, number))));
            gone.extend(table.leave(token));
        }
        let mut own = Vec::new();
        if table.owned.contains_key(&session) {
            own.extend(table.entries.iter_mut().filter_map(|(token, entry)| {
                (entry.owner == session).then(|| {
                    entry.offered = false;
                    // What nobody has taken keeps nobody waiting, and only events stay taken.
                    if entry.is_needed() {
                        pages.extend(entry.descriptor.clone().map(|page| (page, OWNER)));
                    }
                    *token
                })
            }));
        }
        for token in own {
            gone.extend(table.remove_unneeded(token));
        }
        table.tenants.remove(&session);
        // Others need not wait for as many pages as there may be, nor for descriptors that take long to close.
        drop(guard);
        drop(gone);
        for (page, number) in pages {
            release_page(page.as_fd(), number);
        }
    }
}

impl Table {
    fn insert(&mut self, token: Token, entry: Entry) {
        let descriptors = usize::from(entry.descriptor.is_some());
        self.descriptors += descriptors;
        let owned = self.owned.entry(entry.owner).or_default();
        owned.entries += 1;
        owned.descriptors += descriptors;
        self.entries.insert(token, entry);
    }

    /// Takes out what nobody needs, to be dropped when the table is unlocked: closing a descriptor of a worker's may take long.
    #[must_use]
    fn remove_unneeded(&mut self, token: Token) -> Option<Entry> {
        let MapEntry::Occupied(found) = self.entries.entry(token) else {
            return None;
        };
        if found.get().is_needed() {
            return None;
        }
        let entry = found.remove();
        let descriptors = usize::from(entry.descriptor.is_some());
        self.descriptors -= descriptors;
        if let MapEntry::Occupied(mut owned) = self.owned.entry(entry.owner) {
            owned.get_mut().entries -= 1;
            owned.get_mut().descriptors -= descriptors;
            if owned.get().entries == 0 {
                owned.remove();
            }
        }
        Some(entry)
    }

    /// One who has taken something is gone.
    #[must_use]
    fn leave(&mut self, token: Token) -> Option<Entry> {
        self.entries.get_mut(&token)?.takers -= 1;
        self.remove_unneeded(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Kinds of what is offered.
    const MEMORY: u8 = 0;
    const EVENT: u8 = 1;

    fn offer(bytes: usize) -> Offer {
        Offer {
            kind: MEMORY,
            bytes: vec![7; bytes],
            descriptor: None,
        }
    }

    /// Something in the place of a page.
    fn event() -> Offer {
        Offer {
            kind: EVENT,
            bytes: Vec::new(),
            descriptor: Some(tempfile::tempfile().unwrap().into()),
        }
    }

    /// How much is offered or taken.
    fn kept(offers: &Offers) -> usize {
        offers.lock().entries.len()
    }

    #[test]
    fn an_offer_is_taken_as_often_as_wanted_until_its_owner_withdraws_it() {
        let offers = Offers::new(2048, 100);
        let token = Token([1; TOKEN_BYTES]);
        assert!(offers.offer(5, token, offer(3)));
        assert_eq!(offers.take(6, token).unwrap().offer.bytes, [7; 3]);
        assert_eq!(offers.take(6, token).unwrap().offer.kind, MEMORY);
        offers.withdraw(6, token);
        assert!(offers.take(7, token).is_some(), "it is not the other's");
        offers.withdraw(5, token);
        assert!(offers.take(7, token).is_none());
    }

    #[test]
    fn offer_goes_to_sessions_of_its_tenant_only() {
        let offers = Offers::new(2048, 100);
        let token = Token([1; TOKEN_BYTES]);
        offers.join(5, 1);
        offers.join(6, 1);
        offers.join(7, 2);
        assert!(offers.offer(5, token, offer(3)));
        assert!(offers.take(6, token).is_some());
        assert!(offers.take(7, token).is_none(), "another tenant");
        assert!(offers.take(8, token).is_none(), "no tenant");
        offers.end(7);
        assert!(!offers.lock().tenants.contains_key(&7));
    }

    #[test]
    fn what_an_owner_offered_ends_with_it_and_tokens_are_not_reused() {
        let offers = Offers::new(2048, 100);
        let [first, second] = [1, 2].map(|byte| Token([byte; TOKEN_BYTES]));
        assert!(offers.offer(5, first, offer(1)));
        assert!(!offers.offer(6, first, offer(1)), "the token is taken");
        assert!(offers.offer(6, second, offer(1)));
        assert!(!offers.offer(6, Token([3; TOKEN_BYTES]), offer(OFFER_BYTES + 1)));
        offers.end(5);
        assert!(offers.take(7, first).is_none());
        assert!(offers.take(7, second).is_some());
    }

    #[test]
    fn a_descriptor_is_given_out_anew_each_time() {
        let offers = Offers::new(2048, 100);
        let token = Token([9; TOKEN_BYTES]);
        let file = tempfile::tempfile().unwrap();
        let with_file = Offer {
            descriptor: Some(file.into()),
            ..offer(0)
        };
        assert!(offers.offer(1, token, with_file));
        let numbers: Vec<_> = (0..2)
            .map(|_| offers.take(2, token).unwrap().offer.descriptor.unwrap())
            .collect();
        use std::os::fd::AsRawFd;
        assert_ne!(numbers[0].as_raw_fd(), numbers[1].as_raw_fd());
    }

    #[test]
    fn an_event_is_kept_until_its_owner_and_all_who_took_it_have_let_go() {
        let offers = Offers::new(2048, 100);
        let token = Token([1; TOKEN_BYTES]);
        assert!(offers.offer(1, token, event()));
        let numbers = [2, 3, 3].map(|session| offers.take(session, token).unwrap().number);
        assert_eq!(numbers, [1, 2, 3], "nobody has another's");
        offers.withdraw(1, token);
        assert!(offers.take(4, token).is_none());
        offers.give_back(2, token, 1);
        offers.give_back(2, token, 1);
        offers.give_back(2, token, 2);
        assert_eq!(kept(&offers), 1, "it is not the other's to give back");
        offers.give_back(3, token, 2);
        assert_eq!(kept(&offers), 1);
        offers.end(3);
        assert_eq!(kept(&offers), 0);
        assert!(offers.offer(1, token, event()));
        assert_eq!(offers.take(2, token).unwrap().number, 1);
        offers.end(2);
        assert_eq!(kept(&offers), 1, "it is offered still");
        assert_eq!(
            offers.take(3, token).unwrap().number,
            2,
            "nor one that was another's"
        );
        offers.end(1);
        assert_eq!(kept(&offers), 1, "one has it still");
        offers.end(3);
        assert_eq!(kept(&offers), 0);
    }

    #[test]
    fn what_is_no_event_is_not_kept_for_those_who_took_it() {
        let offers = Offers::new(2048, 100);
        let token = Token([1; TOKEN_BYTES]);
        assert!(offers.offer(1, token, offer(3)));
        assert_eq!(offers.take(2, token).unwrap().number, 0);
        offers.end(1);
        assert_eq!(kept(&offers), 0);
    }

    #[test]
    fn events_that_a_session_takes_are_limited() {
        let offers = Offers::new(2048, 100);
        let token = Token([1; TOKEN_BYTES]);
        let page_less = Offer {
            descriptor: None,
            ..event()
        };
        assert!(offers.offer(1, token, page_less));
        let taken = (0..TAKEN_LIMIT).filter(|_| offers.take(2, token).is_some());
        assert_eq!(taken.count(), TAKEN_LIMIT);
        assert!(offers.take(2, token).is_none());
        offers.give_back(2, token, 7);
        assert!(offers.take(2, token).is_some());
        assert!(offers.take(3, token).is_some());
        offers.end(2);
        offers.withdraw(1, token);
        offers.end(3);
        assert_eq!(kept(&offers), 0);
    }

    #[test]
    fn offers_of_a_session_are_limited_by_count_and_by_descriptors() {
        let offers = Offers::new(2048, 8);
        let mut numbers = 0u64..;
        let mut token = || {
            let mut bytes = [0; TOKEN_BYTES];
            let number = numbers.next().unwrap();
            bytes[..8].copy_from_slice(&number.to_le_bytes());
            Token(bytes)
        };
        let mut held = |session: u64, with_descriptor: bool| {
            let offer = || match with_descriptor {
                true => event(),
                false => offer(1),
            };
            (0..=2048)
                .filter(|_| offers.offer(session, token(), offer()))
                .count()
        };
        assert_eq!(held(1, true), 2, "a share of the descriptors");
        assert_eq!(held(1, false), 2048 - 2, "and the rest without");
        assert_eq!(
            [2, 3, 4, 5].map(|session| held(session, true)),
            [2, 2, 2, 0]
        );
        offers.end(1);
        assert_eq!(held(5, true), 2, "what has ended makes room");
        (2..=5).for_each(|session| offers.end(session));
        let table = offers.lock();
        assert_eq!((table.descriptors, table.owned.len()), (0, 0));
    }

    /// A connection whose other end does not read, so that closing it waits.
    fn unread() -> (std::net::TcpStream, OwnedFd) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        socket.set_nonblocking(true).unwrap();
        while std::io::Write::write(&mut &socket, &[0; 1 << 16]).is_ok() {}
        let linger = Some(std::time::Duration::from_secs(600));
        rustix::net::sockopt::set_socket_linger(&socket, linger).unwrap();
        (listener.accept().unwrap().0, socket.into())
    }

    #[test]
    fn descriptor_that_closes_slowly_blocks_no_other_session() {
        let offers = Offers::new(2048, 100);
        let token = Token([1; TOKEN_BYTES]);
        let (other_end, socket) = unread();
        let slow = Offer {
            descriptor: Some(socket),
            ..offer(0)
        };
        assert!(offers.offer(1, token, slow));
        std::thread::scope(|scope| {
            let withdraws = scope.spawn(|| offers.withdraw(1, token));
            while kept(&offers) > 0 {
                std::thread::yield_now();
            }
            assert!(!withdraws.is_finished());
            drop(other_end);
        });
    }

    #[test]
    fn a_token_does_not_show_in_logs() {
        assert_eq!(format!("{:?}", Token([1; TOKEN_BYTES])), "Token(..)");
    }
}
