//! The ring of the shm transport, with a peer that writes what it likes into the shared words.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use towline_transport::shm::ring::{Consumer, Memory, Producer, Sleeper};

use crate::Seed;

const CAPACITY: usize = 32;

/// Shared words and bytes. Accesses outside of the ring panic.
#[derive(Clone, Default)]
struct Words(Rc<Shared>);

#[derive(Default)]
struct Shared {
    tail: Cell<u64>,
    head: Cell<u64>,
    parked: [Cell<bool>; 2],
    bytes: RefCell<[u8; CAPACITY]>,
}

impl Memory for Words {
    fn capacity(&self) -> usize {
        CAPACITY
    }
    fn load_tail(&self) -> u64 {
        self.0.tail.get()
    }
    fn store_tail(&self, tail: u64) {
        self.0.tail.set(tail);
    }
    fn load_head(&self) -> u64 {
        self.0.head.get()
    }
    fn store_head(&self, head: u64) {
        self.0.head.set(head);
    }
    fn set_parked(&self, who: Sleeper, parked: bool) {
        self.0.parked[who as usize].set(parked);
    }
    fn is_parked(&self, who: Sleeper) -> bool {
        self.0.parked[who as usize].get()
    }
    fn take_parked(&self, who: Sleeper) -> bool {
        self.0.parked[who as usize].take()
    }
    fn fence(&self) {}
    fn write(&self, at: usize, bytes: &[u8]) {
        self.0.bytes.borrow_mut()[at..][..bytes.len()].copy_from_slice(bytes);
    }
    fn read(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.0.bytes.borrow()[at..][..bytes.len()]);
    }
}

/// Whatever the peer publishes, no byte outside of the ring is touched and no step gives more than fits; and as long as it keeps to the
/// rules, bytes come out in order and who sleeps is rung once. Input: pairs of operation and argument.
pub fn target(bytes: &[u8]) {
    let words = Words::default();
    let mut producer = Producer::new(words.clone());
    let mut consumer = Consumer::new(words.clone());
    let mut inside = VecDeque::new();
    let mut honest = true;
    let mut next = 0_u8;
    for [operation, argument] in bytes.as_chunks::<2>().0 {
        // The highest values stand for the end of the number range.
        let wide = match *argument {
            250.. => u64::MAX - u64::from(255 - argument),
            argument => argument.into(),
        };
        match operation % 8 {
            0 | 1 => {
                let data: Vec<u8> = (0..*argument).map(|n| next.wrapping_add(n)).collect();
                let put = producer.put(&data);
                assert!(!honest || put.is_ok());
                let put = put.unwrap_or(0);
                assert!(put <= CAPACITY && put <= data.len());
                assert!(!honest || put == data.len().min(CAPACITY - inside.len()));
                inside.extend(&data[..put]);
                next = next.wrapping_add(put as u8);
                let slept = words.is_parked(Sleeper::Consumer);
                assert_eq!(producer.must_ring(), slept);
                assert!(!words.is_parked(Sleeper::Consumer), "rung twice");
            }
            2 | 3 => {
                let mut room = vec![0; usize::from(*argument)];
                let taken = consumer.take(&mut room);
                assert!(!honest || taken.is_ok());
                let taken = taken.unwrap_or(0);
                assert!(taken <= CAPACITY && taken <= room.len());
                if honest {
                    let expected: Vec<u8> = inside.drain(..taken).collect();
                    assert_eq!(&room[..taken], expected);
                    assert!(taken == room.len() || inside.is_empty());
                }
                consumer.must_ring();
            }
            4 => match argument % 2 {
                0 => producer.park(),
                _ => consumer.park(),
            },
            5 => {
                let enough = producer.has_room(usize::from(*argument));
                assert!(!honest || enough.is_ok());
            }
            // A peer that does as it likes.
            6 => {
                honest = false;
                words.store_tail(wide);
            }
            _ => {
                honest = false;
                words.store_head(wide);
            }
        }
    }
}

/// Honest turns around the end of the ring, and counts that cannot be.
pub fn seeds() -> Vec<Seed> {
    vec![
        Seed::new(
            "around",
            [0, 20, 2, 12, 0, 30, 4, 1, 2, 40, 0, 5, 5, 9, 2, 5],
        ),
        Seed::new(
            "sleepers",
            [0, 40, 4, 0, 2, 1, 2, 9, 2, 40, 4, 1, 0, 3, 0, 1],
        ),
        Seed::new("tail", [0, 9, 6, 255, 2, 9, 6, 200, 2, 9, 0, 9]),
        Seed::new("head", [0, 9, 7, 251, 0, 9, 5, 1, 7, 30, 0, 40, 2, 40]),
    ]
}
