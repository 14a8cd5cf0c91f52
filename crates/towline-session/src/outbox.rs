//! Messages on their way out of one lane, from any number of threads, in one order.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use towline_wire::frame::{
    FRAME_HEADER, FRAME_LIMIT, FrameHeader, MESSAGE_HEADER, MESSAGE_LIMIT, begin_message,
    end_message,
};

/// Numbers messages, collects them while the link is busy and hands them over as frames.
///
/// [`Outbox::post`] never blocks on the link. [`Outbox::flush`] sends everything posted before it; several threads may call it, the
/// link is used by one at a time and the order of numbers is the order on the wire.
///
/// ```
/// use towline_session::Outbox;
/// use towline_wire::frame::FrameReader;
///
/// let (outbox, mut reader) = (Outbox::new(), FrameReader::new());
/// outbox.post(0x0901, |body| body.extend(b"hello"));
/// outbox.flush(
///     || 0,
///     |frame| {
///         reader.space()[..frame.len()].copy_from_slice(frame);
///         reader.filled(frame.len());
///         Ok::<(), std::io::Error>(())
///     },
/// )?;
/// let message = reader.next().unwrap().unwrap();
/// assert_eq!((message.number, message.id), (1, 0x0901));
/// assert_eq!(message.body, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Outbox {
    queued: Mutex<Queued>,
    /// Held while sending.
    sending: Mutex<Sending>,
}

/// The buffer that is not being filled: a frame, of which the link has taken the first `sent` bytes.
#[derive(Debug, Default)]
struct Sending {
    frame: Vec<u8>,
    sent: usize,
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
            sending: Mutex::default(),
        }
    }

    /// Queues a message and gives its number and the bytes that now wait. One that is longer than the peer takes, or would make the frame
    /// so, is not queued: its number is 0, which no message has.
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
        let length = queued.buffer.len() - at - MESSAGE_HEADER;
        if length > MESSAGE_LIMIT || queued.buffer.len() - FRAME_HEADER > FRAME_LIMIT {
            queued.buffer.truncate(at);
            return (0, queued.buffer.len() - FRAME_HEADER);
        }
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
        let mut sending = lock(&self.sending);
        let mut queued = lock(&self.queued);
        *sending = Sending::default();
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
        let mut sending = lock(&self.sending);
        while sending.is_under_way() || self.take_frame(&mut sending, &acknowledged) {
            let rest = sending.frame.get(sending.sent..).unwrap_or_default();
            send(rest)?;
            sending.done();
        }
        Ok(())
    }

    /// Sends what waits as far as that takes no waiting, neither for another thread that sends nor for the link: `send` says how many
    /// bytes it took. `false` when something is left, which goes before all else at the next turn.
    pub fn try_flush<E>(
        &self,
        acknowledged: impl Fn() -> u64,
        mut send: impl FnMut(&[u8]) -> Result<usize, E>,
    ) -> Result<bool, E> {
        let mut sending = match self.sending.try_lock() {
            Ok(sending) => sending,
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        while sending.is_under_way() || self.take_frame(&mut sending, &acknowledged) {
            let rest = sending.frame.get(sending.sent..).unwrap_or_default();
            let taken = send(rest)?;
            sending.sent += taken;
            if sending.is_under_way() {
                return Ok(false);
            }
            sending.done();
        }
        Ok(true)
    }

    /// Makes a frame of what waits; `false` when nothing does.
    fn take_frame(&self, sending: &mut Sending, acknowledged: &impl Fn() -> u64) -> bool {
        let sequence = {
            let mut queued = lock(&self.queued);
            if queued.buffer.len() == FRAME_HEADER {
                return false;
            }
            sending.frame.clear();
            sending.frame.resize(FRAME_HEADER, 0);
            std::mem::swap(&mut queued.buffer, &mut sending.frame);
            let next = queued.next;
            std::mem::replace(&mut queued.first, next)
        };
        let header = FrameHeader {
            length: (sending.frame.len() - FRAME_HEADER) as u32,
            sequence,
            acknowledged: acknowledged(),
        };
        sending.frame[..FRAME_HEADER].copy_from_slice(&header.to_bytes());
        sending.sent = 0;
        true
    }
}

impl Sending {
    /// Whether the link has not taken all of the frame.
    fn is_under_way(&self) -> bool {
        self.sent < self.frame.len()
    }

    fn done(&mut self) {
        self.sent = self.frame.len();
        // One huge message must not pin its memory for the session's life.
        if self.frame.capacity() > KEEP {
            *self = Self::default();
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
    /// Queues a message and gives its number; 0 where it is too long, as [`Outbox::post`] has it.
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
    #[cfg_attr(miri, ignore = "Miri takes hours to fill hundreds of megabytes")]
    fn a_message_that_the_peer_would_not_take_is_not_queued() {
        let outbox = Outbox::new();
        assert_eq!(outbox.post(1, |out| out.push(1)), (1, 9));
        let long = |out: &mut Vec<u8>| out.resize(out.len() + MESSAGE_LIMIT + 1, 0);
        assert_eq!(outbox.post(2, long), (0, 9));
        assert_eq!(outbox.post(3, |out| out.push(3)), (2, 18));
        let mut stream = Vec::new();
        let sent: Result<(), Infallible> = outbox.flush(
            || 0,
            |bytes| {
                stream.extend_from_slice(bytes);
                Ok(())
            },
        );
        assert_eq!(sent, Ok(()));
        assert_eq!(read(&stream), [(1, 1, vec![1]), (2, 3, vec![3])]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri takes hours to fill hundreds of megabytes")]
    fn messages_that_together_are_longer_than_a_frame_are_not_queued() {
        let outbox = Outbox::new();
        let long = |out: &mut Vec<u8>| out.resize(out.len() + MESSAGE_LIMIT, 0);
        let numbers: Vec<u64> = (0..5).map(|_| outbox.post(1, long).0).collect();
        assert_eq!(numbers, [1, 2, 3, 0, 0]);
    }

    #[test]
    fn what_the_link_does_not_take_at_once_goes_out_before_all_else() {
        let outbox = Outbox::new();
        let mut stream = Vec::new();
        outbox.post(1, |out| out.extend_from_slice(&[1; 40]));
        let mut room = 30;
        let mut take = |bytes: &[u8]| {
            let count = bytes.len().min(room);
            room -= count;
            stream.extend_from_slice(&bytes[..count]);
            Ok::<usize, Infallible>(count)
        };
        assert_eq!(outbox.try_flush(|| 0, &mut take), Ok(false));
        outbox.post(2, |out| out.push(2));
        assert_eq!(outbox.try_flush(|| 0, &mut take), Ok(false));
        assert_eq!(stream.len(), 30);
        let sent: Result<(), Infallible> = outbox.flush(
            || 0,
            |bytes| {
                stream.extend_from_slice(bytes);
                Ok(())
            },
        );
        assert_eq!(sent, Ok(()));
        assert_eq!(read(&stream), [(1, 1, vec![1; 40]), (2, 2, vec![2])]);
    }

    #[test]
    fn who_finds_another_thread_sending_leaves_it_to_that_one() {
        let outbox = Outbox::new();
        outbox.post(1, |_| ());
        let (mut stream, mut seen) = (Vec::new(), None);
        let sent = outbox.try_flush(
            || 0,
            |bytes| {
                if seen.is_none() {
                    outbox.post(2, |_| ());
                    let take = |bytes: &[u8]| Ok::<usize, Infallible>(bytes.len());
                    seen = Some(outbox.try_flush(|| 0, take));
                }
                stream.extend_from_slice(bytes);
                Ok::<usize, Infallible>(bytes.len())
            },
        );
        assert_eq!((sent, seen), (Ok(true), Some(Ok(false))));
        assert_eq!(read(&stream), [(1, 1, vec![]), (2, 2, vec![])]);
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
