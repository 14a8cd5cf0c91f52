//! Messages on their way out of one lane, from any number of threads, in one order.

use std::sync::{Mutex, MutexGuard, PoisonError};

use towline_wire::frame::{FRAME_HEADER, FrameHeader, begin_message, end_message};

/// Numbers messages, collects them while the link is busy and hands them over as frames.
///
/// [`Outbox::post`] never blocks on the link. [`Outbox::flush`] sends everything posted before it; several threads may call it, the
/// link is used by one at a time and the order of numbers is the order on the wire.
#[derive(Debug)]
pub struct Outbox {
    queued: Mutex<Queued>,
    /// Held while sending; the buffer that is not being filled.
    sending: Mutex<Vec<u8>>,
}

#[derive(Debug)]
struct Queued {
    /// A frame in the making: room for its header, then messages.
    buffer: Vec<u8>,
    first: u64,
    next: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self::new()
    }
}

impl Outbox {
    /// An empty outbox whose first message gets number 1.
    pub fn new() -> Self {
        Self {
            queued: Mutex::new(Queued {
                buffer: vec![0; FRAME_HEADER],
                first: 1,
                next: 1,
            }),
            sending: Mutex::new(Vec::new()),
        }
    }

    /// Queues a message and gives its number and the bytes that now wait.
    #[inline]
    pub fn post(&self, id: u16, encode: impl FnOnce(&mut Vec<u8>)) -> (u64, usize) {
        let mut queued = lock(&self.queued);
        Self::append(&mut queued, id, encode)
    }

    /// Queues several messages that nothing may come between.
    #[inline]
    pub fn post_all(&self, fill: impl FnOnce(&mut Batch<'_>)) -> usize {
        let mut queued = lock(&self.queued);
        fill(&mut Batch {
            queued: &mut queued,
        });
        queued.buffer.len() - FRAME_HEADER
    }

    #[inline]
    fn append(queued: &mut Queued, id: u16, encode: impl FnOnce(&mut Vec<u8>)) -> (u64, usize) {
        let at = begin_message(&mut queued.buffer, id);
        encode(&mut queued.buffer);
        end_message(&mut queued.buffer, at);
        let number = queued.next;
        queued.next += 1;
        (number, queued.buffer.len() - FRAME_HEADER)
    }

    /// Whether something waits to be flushed.
    pub fn is_empty(&self) -> bool {
        lock(&self.queued).buffer.len() == FRAME_HEADER
    }

    /// Forgets what waits, and gives its memory back.
    pub fn clear(&self) {
        let mut spare = lock(&self.sending);
        let mut queued = lock(&self.queued);
        *spare = Vec::new();
        queued.buffer = vec![0; FRAME_HEADER];
        queued.first = queued.next;
    }

    /// The number that the next message will get.
    pub fn next_number(&self) -> u64 {
        lock(&self.queued).next
    }

    /// Sends what waits, in frames that acknowledge `acknowledged` messages of the peer, until nothing waits any more.
    pub fn flush<E>(
        &self,
        acknowledged: impl Fn() -> u64,
        mut send: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut spare = lock(&self.sending);
        loop {
            let sequence = {
                let mut queued = lock(&self.queued);
                if queued.buffer.len() == FRAME_HEADER {
                    return Ok(());
                }
                spare.clear();
                spare.resize(FRAME_HEADER, 0);
                std::mem::swap(&mut queued.buffer, &mut spare);
                let next = queued.next;
                std::mem::replace(&mut queued.first, next)
            };
            let length = (spare.len() - FRAME_HEADER) as u32;
            let header = FrameHeader {
                length,
                sequence,
                acknowledged: acknowledged(),
            };
            spare[..FRAME_HEADER].copy_from_slice(&header.to_bytes());
            send(&spare)?;
            // One huge message must not pin its memory for the session's life.
            if spare.capacity() > KEEP {
                *spare = Vec::new();
            }
        }
    }
}

/// Buffers up to this size are kept for the next frame.
const KEEP: usize = 4 << 20;

/// Messages that go out side by side; see [`Outbox::post_all`].
pub struct Batch<'a> {
    queued: &'a mut Queued,
}

impl Batch<'_> {
    /// Queues a message and gives its number.
    #[inline]
    pub fn post(&mut self, id: u16, encode: impl FnOnce(&mut Vec<u8>)) -> u64 {
        Outbox::append(self.queued, id, encode).0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The guarded state is whole between any two statements, so a panicking holder leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use towline_wire::frame::FrameReader;

    use super::*;

    fn read(stream: &[u8]) -> Vec<(u64, u16, Vec<u8>)> {
        let mut reader = FrameReader::new();
        reader.space()[..stream.len()].copy_from_slice(stream);
        reader.filled(stream.len());
        let mut seen = Vec::new();
        while let Some(message) = reader.next().expect("an outbox writes valid frames") {
            seen.push((message.number, message.id, message.body.to_vec()));
        }
        seen
    }

    #[test]
    fn what_is_posted_while_the_link_is_busy_goes_out_as_one_frame() {
        let outbox = Outbox::new();
        assert_eq!(outbox.post(1, |out| out.push(10)).0, 1);
        assert_eq!(outbox.post(2, |_| ()).0, 2);
        let mut frames = Vec::new();
        let sent: Result<(), Infallible> = outbox.flush(
            || 0,
            |bytes| {
                frames.push(bytes.to_vec());
                if frames.len() == 1 {
                    outbox.post(3, |out| out.push(30));
                    outbox.post(4, |out| out.push(40));
                }
                Ok(())
            },
        );
        assert_eq!(sent, Ok(()));
        assert_eq!(frames.len(), 2);
        assert_eq!(
            read(&frames.concat()),
            [
                (1, 1, vec![10]),
                (2, 2, vec![]),
                (3, 3, vec![30]),
                (4, 4, vec![40])
            ]
        );
    }

    #[test]
    fn numbers_follow_the_order_on_the_wire_from_many_threads() {
        let outbox = Outbox::new();
        let stream = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for thread in 0..4_u16 {
                let (outbox, stream) = (&outbox, &stream);
                scope.spawn(move || {
                    for _ in 0..500 {
                        outbox.post(thread, |out| out.extend_from_slice(&[1, 2, 3]));
                        let sent: Result<(), Infallible> = outbox.flush(
                            || 0,
                            |bytes| {
                                stream
                                    .lock()
                                    .expect("no test thread panics")
                                    .extend_from_slice(bytes);
                                Ok(())
                            },
                        );
                        assert_eq!(sent, Ok(()));
                    }
                });
            }
        });
        let stream = stream.into_inner().expect("no test thread panics");
        let numbers: Vec<u64> = read(&stream)
            .into_iter()
            .map(|(number, ..)| number)
            .collect();
        assert_eq!(numbers, (1..=2000).collect::<Vec<u64>>());
    }
}
