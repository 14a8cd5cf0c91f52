//! A ring of bytes in memory that two sides share: one side puts, the other takes, and neither trusts the other.
//!
//! Both count bytes for ever: `tail` is how many were put, `head` how many were taken; their difference lies in the ring. Each side
//! keeps its own count to itself and only publishes it, so that the other side can spoil nothing but what it reads: the peer's count is
//! read once per step and refused when it says that more bytes are in the ring than fit. What a peer writes into the bytes while they are
//! copied out changes the copy and nothing else.
//!
//! **Sleeping.** Who finds nothing to do says so in a word (`parked`), looks once more, and sleeps; the other side, after it has
//! published, looks at that word and rings the bell. The full fences between make sure that one of them sees the other. The bell itself
//! is the connection's.
//!
//! Nothing here makes system calls; `tests/ring_model.rs` runs it through every interleaving that the memory model permits.

/// Who sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleeper {
    /// The side that puts, for room.
    Producer,
    /// The side that takes, for bytes.
    Consumer,
}

/// What a ring consists of. Positions are below the capacity, and ranges do not go beyond it.
pub trait Memory {
    /// Bytes that fit; a power of two.
    fn capacity(&self) -> usize;
    /// Bytes put so far, read with acquire.
    fn load_tail(&self) -> u64;
    /// Publishes bytes put, with release.
    fn store_tail(&self, tail: u64);
    /// Bytes taken so far, read with acquire.
    fn load_head(&self) -> u64;
    /// Publishes bytes taken, with release.
    fn store_head(&self, head: u64);
    /// Says that `who` is about to sleep, or is not.
    fn set_parked(&self, who: Sleeper, parked: bool);
    /// Whether `who` said that it sleeps.
    fn is_parked(&self, who: Sleeper) -> bool;
    /// As [`is_parked`](Self::is_parked), and takes that back in one step, so that only one thread rings.
    fn take_parked(&self, who: Sleeper) -> bool;
    /// A sequentially consistent fence.
    fn fence(&self);
    /// Copies `bytes` to a position.
    fn write(&self, at: usize, bytes: &[u8]);
    /// Copies the bytes at a position.
    fn read(&self, at: usize, bytes: &mut [u8]);
    /// Bytes will be written at a position soon: a hint.
    fn expect_write(&self, _at: usize) {}
}

/// The peer published a count that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it broke the rules of the ring: {0}")]
pub struct Broken(&'static str);

/// Bytes that are published at once: the peer copies these out while the next are copied in.
const PIECE: usize = 128 << 10;

/// The side that puts.
#[derive(Debug)]
pub struct Producer<M> {
    memory: M,
    tail: u64,
    /// The peer's count as last seen: while that leaves room enough, its cache line is left alone.
    head: u64,
}

impl<M: Memory> Producer<M> {
    /// Goes on from what was published: nothing, or what another process of this side did.
    pub fn new(memory: M) -> Self {
        let (tail, head) = (memory.load_tail(), memory.load_head());
        Self { memory, tail, head }
    }

    /// The memory of the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Room for so many bytes.
    pub fn room(&mut self) -> Result<usize, Broken> {
        self.head = self.memory.load_head();
        let capacity = self.memory.capacity();
        let used = self.tail.wrapping_sub(self.head);
        let room = (capacity as u64).checked_sub(used);
        room.map(|room| room as usize)
            .ok_or(Broken("more bytes are taken than were put"))
    }

    /// Whether there is room enough for a sender that slept: for what it has, or for a good part of the ring.
    pub fn has_room(&mut self, wanted: usize) -> Result<bool, Broken> {
        let enough = wake_at(self.memory.capacity()).min(wanted);
        Ok(self.room()? >= enough)
    }

    /// Puts as much of `bytes` as fits into a piece. The peer can take it at once; [`Self::must_ring`] tells whether it must be woken.
    pub fn put(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let capacity = self.memory.capacity();
        let wanted = bytes.len().min(PIECE);
        let known = (capacity as u64).saturating_sub(self.tail.wrapping_sub(self.head));
        let room = match known >= wanted as u64 {
            true => known as usize,
            false => self.room()?,
        };
        let bytes = &bytes[..wanted.min(room)];
        if bytes.is_empty() {
            return Ok(0);
        }
        let at = self.tail as usize & (capacity - 1);
        let (first, second) = bytes.split_at(bytes.len().min(capacity - at));
        self.memory.write(at, first);
        self.memory.write(0, second);
        self.tail = self.tail.wrapping_add(bytes.len() as u64);
        self.memory.store_tail(self.tail);
        self.memory
            .expect_write(self.tail as usize & (capacity - 1));
        Ok(bytes.len())
    }

    /// Publishes `len` bytes that something else has written behind those that were put.
    pub fn placed(&mut self, len: usize) -> Result<(), Broken> {
        if len > self.room()? {
            return Err(Broken("more bytes were placed than fit"));
        }
        self.tail = self.tail.wrapping_add(len as u64);
        self.memory.store_tail(self.tail);
        Ok(())
    }

    /// Bytes put so far, and those of them that the peer has taken, as of the last look.
    pub fn counts(&self) -> (u64, u64) {
        (self.tail, self.head)
    }

    /// After bytes were put: whether the peer sleeps, and this thread is to ring its bell.
    pub fn must_ring(&self) -> bool {
        self.memory.fence();
        self.memory.is_parked(Sleeper::Consumer) && self.memory.take_parked(Sleeper::Consumer)
    }

    /// Before a sleep for room: says so. Look for room once more, then sleep.
    pub fn park(&self) {
        self.memory.set_parked(Sleeper::Producer, true);
        self.memory.fence();
    }
}

/// The side that takes.
#[derive(Debug)]
pub struct Consumer<M> {
    memory: M,
    head: u64,
}

impl<M: Memory> Consumer<M> {
    /// Goes on from what was published: nothing, or what another process of this side did.
    pub fn new(memory: M) -> Self {
        let head = memory.load_head();
        Self { memory, head }
    }

    /// The memory of the ring.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// Bytes that can be taken.
    pub fn waiting(&self) -> Result<usize, Broken> {
        let waiting = self.memory.load_tail().wrapping_sub(self.head);
        match waiting <= self.memory.capacity() as u64 {
            true => Ok(waiting as usize),
            false => Err(Broken("more bytes are in it than fit")),
        }
    }

    /// Takes as much as there is and fits into `buffer`. [`Self::must_ring`] tells whether the peer must be woken.
    pub fn take(&mut self, buffer: &mut [u8]) -> Result<usize, Broken> {
        let len = self.waiting()?.min(buffer.len());
        if len == 0 {
            return Ok(0);
        }
        let capacity = self.memory.capacity();
        let at = self.head as usize & (capacity - 1);
        let (first, second) = buffer[..len].split_at_mut(len.min(capacity - at));
        self.memory.read(at, first);
        self.memory.read(0, second);
        self.head = self.head.wrapping_add(len as u64);
        self.memory.store_head(self.head);
        Ok(len)
    }

    /// Bytes taken so far.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The position of the bytes behind the first `ahead` that wait, and how many of them lie there side by side. They are not taken.
    pub fn look(&self, ahead: u64) -> Result<(usize, usize), Broken> {
        let waiting = (self.waiting()? as u64).checked_sub(ahead);
        let waiting = waiting.ok_or(Broken("bytes that were put are not any more"))? as usize;
        let capacity = self.memory.capacity();
        let at = self.head.wrapping_add(ahead) as usize & (capacity - 1);
        Ok((at, waiting.min(capacity - at)))
    }

    /// Copies bytes out that [`Self::look`] has found.
    pub fn peek(&self, at: usize, bytes: &mut [u8]) {
        self.memory.read(at, bytes);
    }

    /// Takes `len` bytes that were looked at.
    pub fn skip(&mut self, len: u64) {
        self.head = self.head.wrapping_add(len);
        self.memory.store_head(self.head);
    }

    /// After bytes were taken: whether the peer sleeps for room, and there is enough of it now to wake it.
    pub fn must_ring(&self) -> bool {
        self.memory.fence();
        if !self.memory.is_parked(Sleeper::Producer) {
            return false;
        }
        let used = self.memory.load_tail().wrapping_sub(self.head);
        let capacity = self.memory.capacity() as u64;
        // Waking for each small piece of room would cost more than the sleep saves. A full ring is taken whole or not at all: who
        // does not read on has a sender that waits, and that is back-pressure.
        let room = capacity.saturating_sub(used);
        room >= wake_at(self.memory.capacity()) as u64 && self.memory.take_parked(Sleeper::Producer)
    }

    /// Before a sleep for bytes: says so. Look for bytes once more, then sleep.
    pub fn park(&self) {
        self.memory.set_parked(Sleeper::Consumer, true);
        self.memory.fence();
    }
}

/// Room at which a sender is woken.
fn wake_at(capacity: usize) -> usize {
    (capacity / 4).max(1)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    /// A ring of one thread, with all its words open to the test.
    #[derive(Clone, Default)]
    struct Plain(Rc<RefCell<Words>>);

    #[derive(Default)]
    struct Words {
        tail: u64,
        head: u64,
        parked: [bool; 2],
        bytes: [u8; 8],
    }

    impl Memory for Plain {
        fn capacity(&self) -> usize {
            8
        }
        fn load_tail(&self) -> u64 {
            self.0.borrow().tail
        }
        fn store_tail(&self, tail: u64) {
            self.0.borrow_mut().tail = tail;
        }
        fn load_head(&self) -> u64 {
            self.0.borrow().head
        }
        fn store_head(&self, head: u64) {
            self.0.borrow_mut().head = head;
        }
        fn set_parked(&self, who: Sleeper, parked: bool) {
            self.0.borrow_mut().parked[who as usize] = parked;
        }
        fn is_parked(&self, who: Sleeper) -> bool {
            self.0.borrow().parked[who as usize]
        }
        fn take_parked(&self, who: Sleeper) -> bool {
            std::mem::take(&mut self.0.borrow_mut().parked[who as usize])
        }
        fn fence(&self) {}
        fn write(&self, at: usize, bytes: &[u8]) {
            self.0.borrow_mut().bytes[at..][..bytes.len()].copy_from_slice(bytes);
        }
        fn read(&self, at: usize, bytes: &mut [u8]) {
            bytes.copy_from_slice(&self.0.borrow().bytes[at..][..bytes.len()]);
        }
    }

    fn ring() -> (Plain, Producer<Plain>, Consumer<Plain>) {
        let memory = Plain::default();
        let (producer, consumer) = (memory.clone(), memory.clone());
        (memory, Producer::new(producer), Consumer::new(consumer))
    }

    #[test]
    fn bytes_come_out_in_order_around_the_end() {
        let (_, mut producer, mut consumer) = ring();
        let (mut sent, mut received) = (0u8, 0u8);
        for step in 1..100usize {
            let bytes: Vec<u8> = (0..step % 11).map(|n| sent.wrapping_add(n as u8)).collect();
            let put = producer.put(&bytes).unwrap();
            sent = sent.wrapping_add(put as u8);
            let mut out = [0; 5];
            let count = consumer.take(&mut out).unwrap();
            for byte in &out[..count] {
                assert_eq!(*byte, received);
                received = received.wrapping_add(1);
            }
        }
        assert!(received > 100);
    }

    #[test]
    fn a_full_ring_takes_nothing_and_an_empty_one_gives_nothing() {
        let (_, mut producer, mut consumer) = ring();
        assert_eq!(consumer.take(&mut [0; 4]), Ok(0));
        assert_eq!(producer.put(&[1; 20]), Ok(8));
        assert_eq!(producer.put(&[1]), Ok(0));
        assert_eq!(producer.has_room(1), Ok(false));
        assert_eq!(consumer.take(&mut [0; 20]), Ok(8));
        assert_eq!(producer.has_room(100), Ok(true));
    }

    #[test]
    fn a_sleeping_side_is_rung_once() {
        let (_, mut producer, mut consumer) = ring();
        producer.put(&[0; 1]).unwrap();
        assert!(!producer.must_ring());
        consumer.park();
        assert!(producer.must_ring());
        assert!(!producer.must_ring());
        producer.put(&[0; 7]).unwrap();
        producer.park();
        consumer.take(&mut [0; 1]).unwrap();
        assert!(
            !consumer.must_ring(),
            "a byte of room is not worth a wake-up"
        );
        consumer.take(&mut [0; 1]).unwrap();
        assert!(consumer.must_ring());
        assert!(!consumer.must_ring());
    }

    #[test]
    fn bytes_that_another_placed_are_taken_in_turn() {
        let (memory, mut producer, mut consumer) = ring();
        producer.put(&[1; 6]).unwrap();
        consumer.take(&mut [0; 6]).unwrap();
        memory.write(6, &[2, 3]);
        memory.write(0, &[4]);
        producer.placed(3).unwrap();
        producer.put(&[5]).unwrap();
        assert!(producer.placed(5).is_err(), "four places are left");
        assert_eq!(producer.counts(), (10, 6));
        let mut bytes = [0; 8];
        assert_eq!(consumer.take(&mut bytes), Ok(4));
        assert_eq!(bytes[..4], [2, 3, 4, 5]);
    }

    #[test]
    fn bytes_can_be_looked_at_before_they_are_taken() {
        let (memory, mut producer, mut consumer) = ring();
        producer.put(&[0; 6]).unwrap();
        consumer.take(&mut [0; 5]).unwrap();
        producer.put(&[1, 2, 3, 4]).unwrap();
        assert_eq!(consumer.look(0), Ok((5, 3)));
        assert_eq!(consumer.look(3), Ok((0, 2)));
        let mut bytes = [0; 2];
        consumer.peek(0, &mut bytes);
        assert_eq!(bytes, [3, 4]);
        assert_eq!(producer.room(), Ok(3));
        consumer.skip(4);
        assert_eq!(producer.room(), Ok(7));
        assert_eq!(consumer.look(1), Ok((2, 0)));
        memory.store_tail(9);
        assert!(consumer.look(1).is_err());
    }

    #[test]
    fn counts_that_cannot_be_are_refused() {
        let (memory, mut producer, mut consumer) = ring();
        producer.put(&[0; 3]).unwrap();
        memory.store_tail(9);
        assert!(consumer.take(&mut [0; 20]).is_err());
        memory.store_tail(u64::MAX);
        assert!(consumer.waiting().is_err());
        memory.store_head(4);
        assert!(producer.room().is_err());
        assert!(producer.put(&[0; 8]).is_err());
        assert!(producer.has_room(8).is_err());
    }

    #[test]
    fn counts_may_go_around() {
        let memory = Plain::default();
        memory.store_tail(u64::MAX - 2);
        memory.store_head(u64::MAX - 2);
        let mut producer = Producer::new(memory.clone());
        let mut consumer = Consumer::new(memory);
        assert_eq!(producer.put(&[7; 8]), Ok(8));
        assert_eq!(consumer.take(&mut [0; 20]), Ok(8));
        assert_eq!(producer.room(), Ok(8));
    }
}
