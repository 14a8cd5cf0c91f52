//! The links of a session that may move from server to server.

use std::sync::{Arc, OnceLock};

use crate::link::Link;
use crate::peer::Control;

/// The link of a session, and behind it one for each time that the session moved. Only the last is alive.
pub(crate) struct Links {
    pub(crate) link: Arc<Link>,
    /// The connection to its supervisor; `None` for a session without one.
    pub(crate) control: Option<Arc<Control>>,
    next: OnceLock<Box<Self>>,
}

impl Links {
    pub(crate) fn new(link: Arc<Link>, control: Option<Arc<Control>>) -> Self {
        Self {
            link,
            control,
            next: OnceLock::new(),
        }
    }

    /// Those that the session has now.
    #[inline]
    pub(crate) fn last(&self) -> &Self {
        let mut at = self;
        while let Some(next) = at.next.get() {
            at = next;
        }
        at
    }

    /// The session has moved. Its events and failures go with it, as what it has done so far does.
    pub(crate) fn go_on(&self, link: Arc<Link>, control: Option<Arc<Control>>) {
        let last = self.last();
        let waiting = {
            let (mut old, mut next) = (last.link.state(), link.state());
            next.events = std::mem::take(&mut old.events);
            next.failures = std::mem::take(&mut old.failures);
            next.listeners = std::mem::take(&mut old.listeners);
            next.told_elsewhere = std::mem::take(&mut old.told_elsewhere);
            let callbacks = next.events.values().map(|event| event.callbacks.len());
            callbacks.sum::<usize>()
        };
        for _ in 0..waiting {
            link.raise_interest();
        }
        link.meter.add(&last.link.meter);
        let _ = last.next.set(Box::new(Self::new(link, control)));
    }
}
