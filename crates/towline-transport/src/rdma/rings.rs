//! Rings in memory of the accepting side, as the connecting side reaches them: it writes what it sends into one, and reads what comes from
//! the other. Only addresses and counts are here.

/// Bytes from which on a ring is used; fewer go as messages, which take one request.
pub(super) const LEAST_BYTES: usize = 32 << 10;
/// A ring that has no room for so many is left to drain: requests of a few bytes cost as much as large ones.
const LEAST_ROOM: usize = 4 << 10;
/// Sizes that a ring may have.
const CAPACITIES: std::ops::RangeInclusive<u32> = 4096..=16 << 20;

/// A ring of the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remote {
    pub(super) address: u64,
    pub(super) key: u32,
    /// A power of two.
    pub(super) capacity: u32,
}

impl Remote {
    const BYTES: usize = 16;

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_le_bytes());
        bytes[12..].copy_from_slice(&self.capacity.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (words, _) = bytes.as_chunks::<4>();
        let [.., key, capacity] = *words else {
            return None;
        };
        let capacity = u32::from_le_bytes(capacity);
        let is_sound = CAPACITIES.contains(&capacity) && capacity.is_power_of_two();
        is_sound.then_some(Self {
            address: u64::from_le_bytes(*bytes.first_chunk()?),
            key: u32::from_le_bytes(key),
            capacity,
        })
    }

    /// The address of the byte at a position of the stream, and how many of `len` bytes lie there side by side.
    pub(super) fn piece(&self, position: u64, len: usize) -> (u64, usize) {
        let at = position & u64::from(self.capacity - 1);
        let side_by_side = (u64::from(self.capacity) - at) as usize;
        (self.address.wrapping_add(at), len.min(side_by_side))
    }
}

/// The message by which the accepting side grants its rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grant {
    /// Bytes that the connecting side had sent before the first one of the ring.
    pub(super) base: u64,
    /// For what the connecting side sends.
    pub(super) up: Remote,
    /// For what it receives, from the next byte on.
    pub(super) down: Remote,
}

impl Grant {
    pub(super) const BYTES: usize = 8 + 2 * Remote::BYTES;

    pub(super) fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.base.to_le_bytes());
        bytes[8..8 + Remote::BYTES].copy_from_slice(&self.up.encode());
        bytes[8 + Remote::BYTES..].copy_from_slice(&self.down.encode());
        bytes
    }

    pub(super) fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let (base, rings) = bytes.split_first_chunk()?;
        let (up, down) = rings.split_first_chunk()?;
        Some(Self {
            base: u64::from_le_bytes(*base),
            up: Remote::decode(up)?,
            down: Remote::decode(down.first_chunk()?)?,
        })
    }
}

/// The connecting side's reach.
#[derive(Debug)]
pub(super) struct Reach {
    grant: Grant,
    /// Bytes that had come before the first one of the ring.
    down_base: u64,
    /// Bytes of the stream that reads were asked for, and those that have come of them.
    pub(super) asked: u64,
    pub(super) read: u64,
    /// Reads under way.
    pub(super) under_way: u32,
}

impl Reach {
    /// `None` where the grant cannot be: `sent` bytes had been sent and `arrived` had come.
    pub(super) fn new(grant: Grant, sent: u64, arrived: u64) -> Option<Self> {
        (grant.base <= sent).then_some(Self {
            grant,
            down_base: arrived,
            asked: arrived,
            read: arrived,
            under_way: 0,
        })
    }

    /// The place for the next of `len` bytes to send, and how many fit there side by side, when `sent` have been sent and the peer has
    /// taken `taken` of them.
    pub(super) fn place(&self, sent: u64, taken: u64, len: usize) -> ((u64, u32), usize) {
        let up = &self.grant.up;
        // Bytes before the ring's first one take no room in it.
        let used = sent - taken.clamp(self.grant.base, sent);
        let room = match u64::from(up.capacity).saturating_sub(used) as usize {
            room if room < len.min(LEAST_ROOM) => 0,
            room => room,
        };
        let (address, len) = up.piece(sent - self.grant.base, len.min(room));
        ((address, up.key), len)
    }

    /// The place of `len` bytes to receive from a position of the stream on, and how many lie there side by side.
    pub(super) fn source(&self, position: u64, len: usize) -> ((u64, u32), usize) {
        let down = &self.grant.down;
        let (address, len) = down.piece(position - self.down_base, len);
        ((address, down.key), len)
    }

    /// Bytes that the peer's ring holds at most.
    pub(super) fn down_capacity(&self) -> u64 {
        self.grant.down.capacity.into()
    }

    /// Bytes that the peer may still place, when `arrived` have come and `taken` of them are not needed any more.
    pub(super) fn down_room(&self, arrived: u64, taken: u64) -> u64 {
        // Those before the ring's first one take no room in it.
        let used = arrived - taken.max(self.down_base);
        self.down_capacity().saturating_sub(used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: Remote = Remote {
        address: 0x10_0000,
        key: 7,
        capacity: 8192,
    };
    const DOWN: Remote = Remote {
        address: 0x20_0000,
        key: 8,
        capacity: 4096,
    };
    const GRANT: Grant = Grant {
        base: 100,
        up: UP,
        down: DOWN,
    };

    #[test]
    fn grant_comes_back_as_it_was() {
        assert_eq!(Grant::decode(&GRANT.encode()), Some(GRANT));
    }

    #[test]
    fn rings_of_no_possible_size_are_refused() {
        for capacity in [0, 1, 2048, 5000, 32 << 20, u32::MAX] {
            let up = Remote { capacity, ..UP };
            assert_eq!(Grant::decode(&Grant { up, ..GRANT }.encode()), None);
            let down = Remote { capacity, ..DOWN };
            assert_eq!(Grant::decode(&Grant { down, ..GRANT }.encode()), None);
        }
    }

    #[test]
    fn grant_of_bytes_never_sent_is_refused() {
        assert!(Reach::new(GRANT, 99, 0).is_none());
        assert!(Reach::new(GRANT, 100, 0).is_some());
    }

    #[test]
    fn bytes_lie_side_by_side_up_to_the_rings_end() {
        let reach = Reach::new(GRANT, 100, 50).unwrap();
        assert_eq!(reach.place(100, 0, 9000), ((0x10_0000, 7), 8192));
        assert_eq!(reach.place(8000, 8000, 9000), ((0x10_0000 + 7900, 7), 292));
        assert_eq!(reach.place(8292, 8200, 9000), ((0x10_0000, 7), 8100));
        assert_eq!(reach.source(50 + 4000, 200), ((0x20_0000 + 4000, 8), 96));
        assert_eq!(reach.source(50 + 4096, 200), ((0x20_0000, 8), 200));
    }

    #[test]
    fn bytes_before_the_ring_take_no_room_in_it() {
        let reach = Reach::new(GRANT, 100, 50).unwrap();
        assert_eq!(reach.down_room(50, 0), 4096);
        assert_eq!(reach.down_room(50 + 4000, 20), 96);
        assert_eq!(reach.down_room(50 + 4096, 51), 1);
    }

    #[test]
    fn full_ring_has_no_place() {
        let reach = Reach::new(GRANT, 100, 0).unwrap();
        assert_eq!(reach.place(100 + 8192, 0, 10).1, 0);
        assert_eq!(reach.place(100 + 8192, 100, 10).1, 0);
        assert_eq!(reach.place(100 + 8192, 109, 10).1, 0, "room for a part");
        assert_eq!(reach.place(100 + 8192, 110, 10).1, 10);
        assert_eq!(reach.place(100 + 8192, 100 + 4096, 9000).1, 4096);
    }
}
