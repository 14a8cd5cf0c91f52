//! The supervisor as a broker: what this worker's session shares with others goes over the channel.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use towline_sys::channel::Channel;
use towline_worker::{Broker, OFFER_BYTES, Offer, Token};

use super::protocol::{self, FromWorker};

/// How long the supervisor may take: it does not wait for anybody either.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the supervisor answers.
enum Answer {
    Token(Option<Token>),
    Offer(Option<Offer>),
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
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = channel();
        self.lock().insert(request, sender);
        let message = protocol::encode(&message(request));
        let sent = self
            .channel
            .send(&message, descriptor.map(|descriptor| descriptor.as_fd()));
        let answer = match sent {
            Ok(()) => answer.recv_timeout(PATIENCE).ok(),
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

    /// The supervisor has answered who wants to take something.
    pub(super) fn taken(
        &self,
        request: u64,
        offer: Option<(u8, Vec<u8>)>,
        descriptor: Option<OwnedFd>,
    ) {
        let offer = offer.map(|(kind, bytes)| Offer {
            kind,
            bytes,
            descriptor,
        });
        self.tell(request, Answer::Offer(offer));
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
            Answer::Offer(_) => None,
        }
    }

    fn take(&self, token: Token) -> Option<Offer> {
        let message = |request| FromWorker::Take {
            request,
            token: token.0,
        };
        match self.ask(message, None)? {
            Answer::Offer(offer) => offer,
            Answer::Token(_) => None,
        }
    }

    fn withdraw(&self, token: Token) {
        let message = protocol::encode(&FromWorker::Withdraw { token: token.0 });
        if let Err(error) = self.channel.send(&message, None) {
            log::debug!("{error}: {}", error.source);
        }
    }
}

#[cfg(test)]
mod tests {
    use towline_worker::{Offers, TOKEN_BYTES};

    use super::*;

    /// A broker whose supervisor answers until the channel ends.
    fn supervised() -> Arc<ChannelBroker> {
        let (ours, theirs) = Channel::pair().unwrap();
        let broker = Arc::new(ChannelBroker::new(Arc::new(ours)));
        let worker = Arc::clone(&broker);
        std::thread::spawn(move || {
            let offers = Offers::default();
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
                        let taken = offers.take(Token(token));
                        let (offer, descriptor) = match taken {
                            Some(taken) => (Some((taken.kind, taken.bytes)), taken.descriptor),
                            None => (None, None),
                        };
                        worker.taken(request, offer, descriptor);
                    }
                    FromWorker::Withdraw { token } => offers.withdraw(1, Token(token)),
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
        let taken = broker.take(token).unwrap();
        assert_eq!((taken.kind, taken.bytes.len()), (2, OFFER_BYTES));
        assert!(taken.descriptor.is_some());
        broker.withdraw(token);
        assert!(broker.take(token).is_none());
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
