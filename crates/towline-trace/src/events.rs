//! `rank-N.events`: what a rank did, in order.
//!
//! An event is a byte that says what it is, then numbers of 7 bits a byte, the lowest first, the highest bit set in all but
//! the last: the nanoseconds since the call before, and
//!
//! ```text
//! 1 send, 2 recv       communicator, peer, tag, bytes
//! 3 isend, 4 irecv     request, communicator, peer, tag, bytes
//! 5 wait, 7 cancelled  request, peer, tag: of a message from anywhere, else 0
//! 6 collective         call, communicator, root, bytes, lists
//! ```
//!
//! Communicators are the rank's own numbers; peers, roots and tags are counted from 1, and 0 is any or none; peers and roots
//! are ranks of `MPI_COMM_WORLD`. A list is its length and its sizes; of a neighbourhood, with the peer before each size.

use std::io::Read;

use crate::collective::Call;

/// More than any collective has members.
const MOST_LISTED: u64 = 1 << 20;

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Event {
    pub(crate) compute_ns: u64,
    pub(crate) what: What,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum What {
    Cancelled {
        request: u64,
    },
    Collective(Collective),
    Irecv {
        request: u64,
        message: Message,
    },
    Isend {
        request: u64,
        message: Message,
    },
    Recv(Message),
    Send(Message),
    Wait {
        request: u64,
        peer: Option<u32>,
        tag: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Message {
    pub(crate) communicator: u32,
    pub(crate) peer: Option<u32>,
    pub(crate) tag: Option<u64>,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Collective {
    pub(crate) call: Call,
    pub(crate) communicator: u32,
    pub(crate) root: Option<u32>,
    pub(crate) bytes: u64,
    /// By member; empty where the call has none.
    pub(crate) sizes: [Vec<u64>; 2],
    /// To and from neighbours.
    pub(crate) neighbours: [Vec<(Option<u32>, u64)>; 2],
}

/// Reads events until the end, or until something is wrong.
pub(crate) struct Events<R> {
    input: R,
    failed: bool,
}

impl<R: Read> Events<R> {
    pub(crate) fn new(input: R) -> Self {
        Self {
            input,
            failed: false,
        }
    }

    fn byte(&mut self) -> Result<Option<u8>, &'static str> {
        let mut byte = [0];
        match self.input.read(&mut byte) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some(byte[0])),
            Err(_) => Err("could not be read"),
        }
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?.ok_or("is cut off within an event")?;
            let bits = u64::from(byte & 127);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte < 128 {
                return Ok(number);
            }
        }
        Err("has a number that is too large")
    }

    /// Counted from 1; 0 is none.
    fn rank(&mut self) -> Result<Option<u32>, &'static str> {
        let number = self.number()?;
        u32::try_from(number)
            .map(|number| number.checked_sub(1))
            .map_err(|_| "has an impossible rank")
    }

    fn communicator(&mut self) -> Result<u32, &'static str> {
        u32::try_from(self.number()?).map_err(|_| "has an impossible communicator")
    }

    fn message(&mut self) -> Result<Message, &'static str> {
        Ok(Message {
            communicator: self.communicator()?,
            peer: self.rank()?,
            tag: self.number()?.checked_sub(1),
            bytes: self.number()?,
        })
    }

    fn length(&mut self) -> Result<u64, &'static str> {
        match self.number()? {
            length if length <= MOST_LISTED => Ok(length),
            _ => Err("has a list that is too long"),
        }
    }

    fn sizes(&mut self) -> Result<Vec<u64>, &'static str> {
        (0..self.length()?).map(|_| self.number()).collect()
    }

    fn neighbours(&mut self) -> Result<Vec<(Option<u32>, u64)>, &'static str> {
        (0..self.length()?)
            .map(|_| Ok((self.rank()?, self.number()?)))
            .collect()
    }

    fn collective(&mut self) -> Result<Collective, &'static str> {
        let mut collective = Collective {
            call: Call::from_number(self.number()?).ok_or("has an unknown collective")?,
            communicator: self.communicator()?,
            root: self.rank()?,
            bytes: self.number()?,
            sizes: Default::default(),
            neighbours: Default::default(),
        };
        match collective.call {
            Call::Gatherv | Call::Scatterv | Call::Allgatherv | Call::ReduceScatter => {
                collective.sizes[0] = self.sizes()?;
            }
            Call::Alltoallv | Call::Alltoallw => collective.sizes = [self.sizes()?, self.sizes()?],
            Call::NeighborAllgather
            | Call::NeighborAllgatherv
            | Call::NeighborAlltoall
            | Call::NeighborAlltoallv
            | Call::NeighborAlltoallw => {
                collective.neighbours = [self.neighbours()?, self.neighbours()?];
            }
            _ => {}
        }
        Ok(collective)
    }

    fn event(&mut self) -> Result<Option<Event>, &'static str> {
        let Some(kind) = self.byte()? else {
            return Ok(None);
        };
        let compute_ns = self.number()?;
        let what = match kind {
            1 => What::Send(self.message()?),
            2 => What::Recv(self.message()?),
            3 => What::Isend {
                request: self.number()?,
                message: self.message()?,
            },
            4 => What::Irecv {
                request: self.number()?,
                message: self.message()?,
            },
            5 => What::Wait {
                request: self.number()?,
                peer: self.rank()?,
                tag: self.number()?.checked_sub(1),
            },
            6 => What::Collective(self.collective()?),
            7 => {
                let request = self.number()?;
                self.rank()?;
                self.number()?;
                What::Cancelled { request }
            }
            _ => return Err("has an unknown event"),
        };
        Ok(Some(Event { compute_ns, what }))
    }
}

impl<R: Read> Iterator for Events<R> {
    type Item = Result<Event, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.event().transpose();
        self.failed = matches!(next, Some(Err(_)));
        next
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_send_is_read_as_it_was_written() {
        let bytes = [1, 0xe8, 0x07, 0, 4, 100, 0x80, 0x10];
        let events: Vec<_> = Events::new(&bytes[..]).collect();
        let message = Message {
            communicator: 0,
            peer: Some(3),
            tag: Some(99),
            bytes: 2048,
        };
        assert_eq!(
            events,
            [Ok(Event {
                compute_ns: 1000,
                what: What::Send(message)
            })]
        );
    }

    #[test]
    fn an_event_that_is_cut_off_is_an_error_and_the_end() {
        let bytes = [1, 0, 0, 4, 100, 8, 1, 0, 0];
        let mut events = Events::new(&bytes[..]);
        assert!(events.next().unwrap().is_ok());
        assert_eq!(events.next(), Some(Err("is cut off within an event")));
        assert_eq!(events.next(), None);
    }

    #[test]
    fn a_list_that_is_announced_too_long_is_refused_before_it_is_read() {
        let bytes = [6, 0, 11, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert_eq!(
            Events::new(&bytes[..]).next(),
            Some(Err("has a list that is too long"))
        );
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let events = Events::new(&bytes[..]).count();
            prop_assert!(events <= bytes.len());
        }
    }
}
