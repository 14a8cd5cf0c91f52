//! What sessions of one server share with each other: offered under a token that nobody guesses, taken by whoever has the token.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, PoisonError};

use crate::images::ImageDigest;

/// Bytes of a token.
pub const TOKEN_BYTES: usize = 32;
/// Most bytes that describe an offer.
pub const OFFER_BYTES: usize = 256;
/// Most offers of a session at once.
const OFFER_LIMIT: usize = 65_536;

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

/// Where a session offers and takes.
pub trait Broker: Send + Sync {
    /// Offers something; `None` where nothing can be. May wait.
    fn offer(&self, offer: Offer) -> Option<Token>;

    /// What was offered under a token, if it is still. May wait.
    fn take(&self, token: Token) -> Option<Offer>;

    /// Nobody may take this any more. Only what the session itself has offered.
    fn withdraw(&self, token: Token);

    /// Device code that a session has brought before, as a file that nobody can change. May wait.
    fn image(&self, _digest: &ImageDigest) -> Option<OwnedFd> {
        None
    }

    /// Keeps device code, in such a file, for whoever brings the same.
    fn keep_image(&self, _digest: &ImageDigest, _image: OwnedFd) {}
}

/// For sessions that share nothing.
pub struct NoBroker;

impl Broker for NoBroker {
    fn offer(&self, _offer: Offer) -> Option<Token> {
        None
    }

    fn take(&self, _token: Token) -> Option<Offer> {
        None
    }

    fn withdraw(&self, _token: Token) {}
}

/// All offers of a server's sessions.
#[derive(Default)]
pub struct Offers(Mutex<HashMap<Token, (u64, Offer)>>);

impl Offers {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Token, (u64, Offer)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what `owner` offers; whether there is room for it.
    pub fn offer(&self, owner: u64, token: Token, offer: Offer) -> bool {
        let mut offers = self.lock();
        let own = offers.values().filter(|(of, _)| *of == owner).count();
        let fits =
            own < OFFER_LIMIT && offer.bytes.len() <= OFFER_BYTES && !offers.contains_key(&token);
        if fits {
            offers.insert(token, (owner, offer));
        }
        fits
    }

    /// What was offered under a token, with a descriptor of its own.
    pub fn take(&self, token: Token) -> Option<Offer> {
        let offers = self.lock();
        let (_, offer) = offers.get(&token)?;
        let descriptor = match &offer.descriptor {
            Some(descriptor) => Some(descriptor.try_clone().ok()?),
            None => None,
        };
        Some(Offer {
            kind: offer.kind,
            bytes: offer.bytes.clone(),
            descriptor,
        })
    }

    /// Forgets an offer, if it is the owner's.
    pub fn withdraw(&self, owner: u64, token: Token) {
        let mut offers = self.lock();
        if offers.get(&token).is_some_and(|(of, _)| *of == owner) {
            offers.remove(&token);
        }
    }

    /// Forgets all that an owner has offered, when it has ended. Nobody waits for events of its any more.
    pub fn end(&self, owner: u64) {
        self.lock().retain(|_, (of, offer)| {
            let stays = *of != owner;
            if !stays && let Some(page) = &offer.descriptor {
                crate::cuda::end_event(offer.kind, page.as_fd());
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(bytes: usize) -> Offer {
        Offer {
            kind: 1,
            bytes: vec![7; bytes],
            descriptor: None,
        }
    }

    #[test]
    fn an_offer_is_taken_as_often_as_wanted_until_its_owner_withdraws_it() {
        let offers = Offers::default();
        let token = Token([1; TOKEN_BYTES]);
        assert!(offers.offer(5, token, offer(3)));
        assert_eq!(offers.take(token).unwrap().bytes, [7; 3]);
        assert_eq!(offers.take(token).unwrap().kind, 1);
        offers.withdraw(6, token);
        assert!(offers.take(token).is_some(), "it is not the other's");
        offers.withdraw(5, token);
        assert!(offers.take(token).is_none());
    }

    #[test]
    fn what_an_owner_offered_ends_with_it_and_tokens_are_not_reused() {
        let offers = Offers::default();
        let [first, second] = [1, 2].map(|byte| Token([byte; TOKEN_BYTES]));
        assert!(offers.offer(5, first, offer(1)));
        assert!(!offers.offer(6, first, offer(1)), "the token is taken");
        assert!(offers.offer(6, second, offer(1)));
        assert!(!offers.offer(6, Token([3; TOKEN_BYTES]), offer(OFFER_BYTES + 1)));
        offers.end(5);
        assert!(offers.take(first).is_none());
        assert!(offers.take(second).is_some());
    }

    #[test]
    fn a_descriptor_is_given_out_anew_each_time() {
        let offers = Offers::default();
        let token = Token([9; TOKEN_BYTES]);
        let file = tempfile::tempfile().unwrap();
        let with_file = Offer {
            descriptor: Some(file.into()),
            ..offer(0)
        };
        assert!(offers.offer(1, token, with_file));
        let numbers: Vec<_> = (0..2)
            .map(|_| offers.take(token).unwrap().descriptor.unwrap())
            .collect();
        use std::os::fd::AsRawFd;
        assert_ne!(numbers[0].as_raw_fd(), numbers[1].as_raw_fd());
    }

    #[test]
    fn a_token_does_not_show_in_logs() {
        assert_eq!(format!("{:?}", Token([1; TOKEN_BYTES])), "Token(..)");
    }
}
