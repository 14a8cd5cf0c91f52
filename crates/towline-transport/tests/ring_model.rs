//! The ring of the shm transport through every interleaving that the memory model permits, by loom.

#![cfg(target_os = "linux")]

use std::cell::Cell;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use loom::sync::{Arc, Condvar, Mutex};
use towline_transport::shm::ring::{Consumer, Memory, Producer, Sleeper};

const CAPACITY: usize = 2;

/// A ring whose every access loom sees. Cells of bytes fail the model when both sides touch one at once.
struct Words {
    tail: AtomicU64,
    head: AtomicU64,
    parked: [AtomicBool; 2],
    bytes: [UnsafeCell<u8>; CAPACITY],
}

#[derive(Clone)]
struct Modelled(Arc<Words>);

impl Modelled {
    fn new() -> Self {
        Self(Arc::new(Words {
            tail: AtomicU64::new(0),
            head: AtomicU64::new(0),
            parked: [AtomicBool::new(false), AtomicBool::new(false)],
            bytes: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }))
    }
}

impl Memory for Modelled {
    fn capacity(&self) -> usize {
        CAPACITY
    }
    fn load_tail(&self) -> u64 {
        self.0.tail.load(Ordering::Acquire)
    }
    fn store_tail(&self, tail: u64) {
        self.0.tail.store(tail, Ordering::Release);
    }
    fn load_head(&self) -> u64 {
        self.0.head.load(Ordering::Acquire)
    }
    fn store_head(&self, head: u64) {
        self.0.head.store(head, Ordering::Release);
    }
    fn set_parked(&self, who: Sleeper, parked: bool) {
        self.0.parked[who as usize].store(parked, Ordering::Relaxed);
    }
    fn is_parked(&self, who: Sleeper) -> bool {
        self.0.parked[who as usize].load(Ordering::Relaxed)
    }
    fn take_parked(&self, who: Sleeper) -> bool {
        self.0.parked[who as usize].swap(false, Ordering::Relaxed)
    }
    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
    fn write(&self, at: usize, bytes: &[u8]) {
        for (cell, byte) in self.0.bytes[at..].iter().zip(bytes) {
            // SAFETY: loom fails the model where another thread has the cell.
            cell.with_mut(|place| unsafe { *place = *byte });
        }
    }
    fn read(&self, at: usize, bytes: &mut [u8]) {
        for (cell, byte) in self.0.bytes[at..].iter().zip(bytes) {
            // SAFETY: as above.
            *byte = cell.with(|place| unsafe { *place });
        }
    }
}

/// The bell of one side, which keeps what was rung before anybody listened, as a socket does.
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn sleep(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn put_all(mut producer: Producer<Modelled>, bytes: &[u8], own: &Bell, peers: &Bell) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let put = producer.put(rest).unwrap();
        rest = &rest[put..];
        if put > 0 && producer.must_ring() {
            peers.ring();
        }
        if put == 0 {
            producer.park();
            if !producer.has_room(rest.len()).unwrap() {
                own.sleep();
            }
        }
    }
}

fn take_all(mut consumer: Consumer<Modelled>, expected: &[u8], own: &Bell, peers: &Bell) {
    let taken = Cell::new(0);
    while taken.get() < expected.len() {
        let mut byte = [0; 1];
        if consumer.take(&mut byte).unwrap() == 1 {
            assert_eq!(byte[0], expected[taken.get()]);
            taken.set(taken.get() + 1);
            if consumer.must_ring() {
                peers.ring();
            }
        } else {
            consumer.park();
            if consumer.waiting().unwrap() == 0 {
                own.sleep();
            }
        }
    }
}

fn model(bytes: &'static [u8]) {
    let mut builder = loom::model::Builder::new();
    // Bugs of this kind show with few switches of threads; without a bound this takes hours.
    builder.preemption_bound = Some(3);
    builder.check(move || {
        let memory = Modelled::new();
        let (for_room, for_bytes) = (Bell::new(), Bell::new());
        let producer = Producer::new(memory.clone());
        let consumer = Consumer::new(memory);
        let (own, peers) = (Arc::clone(&for_room), Arc::clone(&for_bytes));
        let putting = loom::thread::spawn(move || put_all(producer, bytes, &own, &peers));
        take_all(consumer, bytes, &for_bytes, &for_room);
        putting.join().unwrap();
    });
}

/// Neither a byte that is read too early, nor one overwritten too early, nor a sleep that nobody ends.
#[test]
fn every_interleaving_brings_each_byte_once_and_wakes_who_sleeps() {
    model(&[1]);
    model(&[1, 2, 3]);
}
