//! The supervisor as a broker: what this worker's session shares with others goes over the channel.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towline_sys::channel::Channel;
use towline_worker::{
    Broker, ImageDigest, MemoryBudget, OFFER_BYTES, Offer, Reserved, Taken, Token,
};

use super::protocol::{self, FromWorker};

/// Longest time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same, where other sessions are to end or to give way first.
const ROOM_PATIENCE: Duration = Duration::from_secs(180);

/// What the supervisor answers.
enum Answer {
    Token(Option<Token>),
    Taken(Option<Taken>),
    Image(Option<OwnedFd>),
    Reserved(Reserved),
    Room(bool),
}

/// See the module's text.
pub(super) struct ChannelBroker {
    channel: Arc<Channel>,
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Sender<Answer>>>,
}

impl ChannelBroker {
    pub(super) fn new(channel: Arc<Channel>) -> Self {
        Self {
            channel,
            next: AtomicU64::new(1),
            waiting: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Sender<Answer>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and waits for its answer.
    fn ask(
        &self,
        message: impl FnOnce(u64) -> FromWorker,
        descriptor: Option<&OwnedFd>,
    ) -> Option<Answer> {
        self.ask_within(PATIENCE, message, descriptor)
    }

    fn ask_within(
        &self,
        patience: Duration,
        message: impl FnOnce(u64) -> FromWorker,
        descriptor: Option<&OwnedFd>,
    ) -> Option<Answer> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = channel();
        self.lock().insert(request, sender);
        let message = protocol::encode(&message(request));
        let sent = self
            .channel
            .send(&message, descriptor.map(|descriptor| descriptor.as_fd()));
        let answer = match sent {
            Ok(()) => answer.recv_timeout(patience).ok(),
            Err(error) => {
                log::warn!("{error}: {}", error.source);
                None
            }
        };
        self.lock().remove(&request);
        answer
    }

    fn tell(&self, request: u64, answer: Answer) {
        if let Some(sender) = self.lock().remove(&request) {
            // Who asked may have given up.
            let _ = sender.send(answer);
        }
    }

    /// The supervisor has answered an offer.
    pub(super) fn offered(&self, request: u64, token: Option<[u8; towline_worker::TOKEN_BYTES]>) {
        self.tell(request, Answer::Token(token.map(Token)));
    }

    /// The supervisor has answered who wants an image.
    pub(super) fn found(&self, request: u64, image: Option<OwnedFd>) {
        self.tell(request, Answer::Image(image));
    }

    /// The supervisor has answered who wants memory.
    pub(super) fn reserved(&self, request: u64, reserved: Reserved) {
        self.tell(request, Answer::Reserved(reserved));
    }

    /// The supervisor has answered who wants room.
    pub(super) fn room_made(&self, request: u64, made: bool) {
        self.tell(request, Answer::Room(made));
    }

    /// The supervisor has answered who wants to take something.
    pub(super) fn taken(
        &self,
        request: u64,
        offer: Option<(u8, Vec<u8>)>,
        number: u32,
        descriptor: Option<OwnedFd>,
    ) {
        let offer = offer.map(|(kind, bytes)| Offer {
            kind,
            bytes,
            descriptor,
        });
        let taken = offer.map(|offer| Taken { offer, number });
        self.tell(request, Answer::Taken(taken));
    }
}

impl Broker for ChannelBroker {
    fn offer(&self, offer: Offer) -> Option<Token> {
        let Offer {
            kind,
            bytes,
            descriptor,
        } = offer;
        if bytes.len() > OFFER_BYTES {
            return None;
        }
        let message = |request| FromWorker::Offer {
            request,
            kind,
            bytes,
        };
        match self.ask(message, descriptor.as_ref())? {
            Answer::Token(token) => token,
            _ => None,
        }
    }

    fn take(&self, token: Token) -> Option<Taken> {
        let message = |request| FromWorker::Take {
            request,
            token: token.0,
        };
        match self.ask(message, None)? {
            Answer::Taken(taken) => taken,
            _ => None,
        }
    }

    fn give_back(&self, token: Token, number: u32) {
        let token = token.0;
        let message = protocol::encode(&FromWorker::GiveBack { token, number });
        if let Err(error) = self.channel.send(&message, None) {
            log::debug!("{error}: {}", error.source);
        }
    }

    fn withdraw(&self, token: Token) {
        let message = protocol::encode(&FromWorker::Withdraw { token: token.0 });
        if let Err(error) = self.channel.send(&message, None) {
            log::debug!("{error}: {}", error.source);
        }
    }

    fn image(&self, digest: &ImageDigest) -> Option<OwnedFd> {
        let message = |request| FromWorker::FindImage {
            request,
            digest: *digest,
        };
        match self.ask(message, None)? {
            Answer::Image(image) => image,
            _ => None,
        }
    }

    fn keep_image(&self, digest: &ImageDigest, image: OwnedFd) {
        let message = protocol::encode(&FromWorker::KeepImage { digest: *digest });
        if let Err(error) = self.channel.send(&message, Some(image.as_fd())) {
            log::debug!("{error}: {}", error.source);
        }
    }

    fn make_room(&self, lacking: u64, of_tenant: bool) -> bool {
        let message = |request| FromWorker::MakeRoom {
            request,
            lacking,
            of_tenant,
        };
        let answer = self.ask_within(ROOM_PATIENCE, message, None);
        matches!(answer, Some(Answer::Room(true)))
    }
}

impl MemoryBudget for ChannelBroker {
    fn reserve(&self, wanted: u64, least: u64) -> Reserved {
        let message = |request| FromWorker::ReserveMemory {
            request,
            wanted,
            least,
        };
        match self.ask(message, None) {
            Some(Answer::Reserved(reserved)) => reserved,
            _ => Reserved::default(),
        }
    }

    fn release(&self, bytes: u64) {
        let message = protocol::encode(&FromWorker::ReturnMemory { bytes });
        if let Err(error) = self.channel.send(&message, None) {
            log::debug!("{error}: {}", error.source);
        }
    }
}

impl fmt::Debug for ChannelBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBroker").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use towline_worker::{Images, Offers, TOKEN_BYTES};

    use super::*;
    use crate::worker::protocol::ToWorker;

    /// A broker whose supervisor answers until the channel ends.
    fn supervised() -> Arc<ChannelBroker> {
        let (ours, theirs) = Channel::pair().unwrap();
        let broker = Arc::new(ChannelBroker::new(Arc::new(ours)));
        let worker = Arc::clone(&broker);
        std::thread::spawn(move || {
            let (offers, images) = (Offers::new(2048, 8), Images::in_memory(1000));
            while let Ok(Some(received)) = theirs.recv() {
                match protocol::decode(&received.bytes).unwrap() {
                    FromWorker::Offer {
                        request,
                        kind,
                        bytes,
                    } => {
                        let offer = Offer {
                            kind,
                            bytes,
                            descriptor: received.descriptor,
                        };
                        let token = [request as u8; TOKEN_BYTES];
                        let kept = offers.offer(1, Token(token), offer);
                        worker.offered(request, kept.then_some(token));
                    }
                    FromWorker::Take { request, token } => {
                        let taken = offers.take(2, Token(token));
                        let (ToWorker::Taken { offer, number, .. }, descriptor) =
                            ToWorker::taken(request, taken)
                        else {
                            return;
                        };
                        worker.taken(request, offer, number, descriptor);
                    }
                    FromWorker::GiveBack { token, number } => {
                        offers.give_back(2, Token(token), number);
                    }
                    FromWorker::Withdraw { token } => offers.withdraw(1, Token(token)),
                    FromWorker::FindImage { request, digest } => {
                        worker.found(request, images.find(&digest));
                    }
                    FromWorker::KeepImage { digest } => {
                        images.keep(&digest, received.descriptor.unwrap());
                    }
                    _ => return,
                }
            }
        });
        broker
    }

    #[test]
    fn what_is_offered_is_taken_with_its_descriptor_until_it_is_withdrawn() {
        let broker = supervised();
        let file: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
        let offer = Offer {
            kind: 2,
            bytes: vec![1; OFFER_BYTES],
            descriptor: Some(file),
        };
        let token = broker.offer(offer).unwrap();
        let Taken { offer, number } = broker.take(token).unwrap();
        assert_eq!((offer.kind, offer.bytes.len()), (2, OFFER_BYTES));
        assert!(offer.descriptor.is_some());
        assert_eq!(number, 0, "it is no event");
        broker.withdraw(token);
        assert!(broker.take(token).is_none());
    }

    #[test]
    fn an_event_is_taken_with_a_number_of_its_own_each_time() {
        let broker = supervised();
        let event = Offer {
            kind: 1,
            bytes: Vec::new(),
            descriptor: Some(std::fs::File::open("/dev/null").unwrap().into()),
        };
        let token = broker.offer(event).unwrap();
        let numbers = [(); 3].map(|()| {
            let number = broker.take(token).unwrap().number;
            broker.give_back(token, number);
            number
        });
        assert_eq!(numbers, [1, 2, 3]);
    }

    #[test]
    fn an_image_is_not_known_until_it_was_brought_and_is_what_its_digest_says() {
        let broker = supervised();
        // SHA-256 of "abc", by FIPS 180-2.
        let digest = *b"\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\
            \xb0\x03\x61\xa3\x96\x17\x7a\x9c\xb4\x10\xff\x61\xf2\x00\x15\xad";
        assert!(broker.image(&digest).is_none());
        broker.keep_image(&digest, towline_worker::sealed_image(b"abd").unwrap());
        assert!(broker.image(&digest).is_none(), "it is another");
        broker.keep_image(&digest, towline_worker::sealed_image(b"abc").unwrap());
        let image = std::fs::File::from(broker.image(&digest).unwrap());
        let mut bytes = [0; 4];
        let read = std::os::unix::fs::FileExt::read_at(&image, &mut bytes, 0).unwrap();
        assert_eq!(&bytes[..read], b"abc");
    }

    #[test]
    fn what_is_too_long_and_what_nobody_offers_is_refused() {
        let broker = supervised();
        let long = Offer {
            kind: 0,
            bytes: vec![0; OFFER_BYTES + 1],
            descriptor: None,
        };
        assert!(broker.offer(long).is_none());
        assert!(broker.take(Token([9; TOKEN_BYTES])).is_none());
    }
}
