//! A server's devices as its worker saw them when it started: what the client answers device queries from.

use crate::codec::{Decoder, Scalar, put_blob};
use crate::error::DecodeError;

/// Most devices that one server offers.
pub const DEVICE_LIMIT: usize = 1024;
/// Most answers kept per device or platform.
const ANSWER_LIMIT: usize = 1024;

/// Answers to info queries: the query's number and the bytes of its answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers(pub Vec<(u32, Vec<u8>)>);

impl Answers {
    /// The answer to `query`.
    pub fn get(&self, query: u32) -> Option<&[u8]> {
        self.0
            .iter()
            .find(|(known, _)| *known == query)
            .map(|(_, answer)| answer.as_slice())
    }

    /// An answer that is text: up to the NUL.
    pub fn text(&self, query: u32) -> Option<String> {
        let bytes = self.get(query)?;
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned())
    }

    /// An answer that is a number of up to eight bytes.
    pub fn number(&self, query: u32) -> Option<u64> {
        let bytes = self.get(query)?;
        if bytes.len() > 8 {
            return None;
        }
        let mut wide = [0; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(u64::from_le_bytes(wide))
    }

    fn put(&self, out: &mut Vec<u8>) {
        (self.0.len() as u32).put(out);
        for (query, answer) in &self.0 {
            query.put(out);
            put_blob(out, answer);
        }
    }

    fn take(decoder: &mut Decoder<'_>) -> Result<Self, DecodeError> {
        let count = decoder.scalar::<u32>()? as usize;
        if count > ANSWER_LIMIT {
            return Err(DecodeError::TooLong {
                what: "answers",
                len: count as u64,
                limit: ANSWER_LIMIT as u64,
            });
        }
        let mut answers = Vec::new();
        for _ in 0..count {
            answers.push((decoder.scalar()?, decoder.blob()?.to_vec()));
        }
        Ok(Self(answers))
    }
}

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number in every session with this server.
    pub handle: u64,
    /// Which of the snapshot's platforms it belongs to.
    pub platform: u32,
    /// What `clGetDeviceInfo` answers; handles in it are left out.
    pub answers: Answers,
}

impl Device {
    /// Tells it from every other device, where it says so.
    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.answers.get(UUID)?.try_into().ok()
    }

    /// Bytes of its memory; 0 where it does not say.
    pub fn memory_bytes(&self) -> u64 {
        self.answers.number(GLOBAL_MEM_SIZE).unwrap_or(0)
    }
}

/// CL_DEVICE_MAX_MEM_ALLOC_SIZE and CL_DEVICE_GLOBAL_MEM_SIZE: 64 bits each.
const MAX_MEM_ALLOC_SIZE: u32 = 0x1010;
const GLOBAL_MEM_SIZE: u32 = 0x101f;
/// CL_DEVICE_UUID_KHR: 16 bytes.
const UUID: u32 = 0x106a;

/// The devices of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What `clGetPlatformInfo` answers, per vendor platform.
    pub platforms: Vec<Answers>,
    /// The devices.
    pub devices: Vec<Device>,
}

impl Snapshot {
    /// The snapshot's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        (self.platforms.len() as u32).put(&mut out);
        self.platforms
            .iter()
            .for_each(|platform| platform.put(&mut out));
        (self.devices.len() as u32).put(&mut out);
        for device in &self.devices {
            device.handle.put(&mut out);
            device.platform.put(&mut out);
            device.answers.put(&mut out);
        }
        out
    }

    /// Leaves out all devices but those of which `keep` says so by number, and platforms that have none then.
    pub fn keep(&mut self, keep: impl Fn(usize, &Device) -> bool) {
        let mut number = 0;
        self.devices.retain(|device| {
            number += 1;
            keep(number - 1, device)
        });
        let platforms = std::mem::take(&mut self.platforms);
        for (before, platform) in (0..).zip(platforms) {
            let now = self.platforms.len() as u32;
            let own = self.devices.iter_mut();
            let mut own = own.filter(|device| device.platform == before).peekable();
            if own.peek().is_some() {
                own.for_each(|device| device.platform = now);
                self.platforms.push(platform);
            }
        }
    }

    /// Memory of all devices.
    pub fn memory_bytes(&self) -> u64 {
        let sizes = self.devices.iter().map(Device::memory_bytes);
        sizes.fold(0, u64::saturating_add)
    }

    /// Has no device tell of more memory than this.
    pub fn limit_memory(&mut self, bytes: u64) {
        const SIZES: [u32; 2] = [MAX_MEM_ALLOC_SIZE, GLOBAL_MEM_SIZE];
        let answers = self
            .devices
            .iter_mut()
            .flat_map(|device| &mut device.answers.0);
        for (query, answer) in answers {
            if let (true, Ok(size)) = (SIZES.contains(query), answer.as_slice().try_into()) {
                *answer = u64::from_le_bytes(size).min(bytes).to_le_bytes().to_vec();
            }
        }
    }

    /// Reads a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut snapshot = Self::default();
        let limit = |what, count: usize| match count <= DEVICE_LIMIT {
            true => Ok(count),
            false => Err(DecodeError::TooLong {
                what,
                len: count as u64,
                limit: DEVICE_LIMIT as u64,
            }),
        };
        for _ in 0..limit("platforms", decoder.scalar::<u32>()? as usize)? {
            snapshot.platforms.push(Answers::take(&mut decoder)?);
        }
        for _ in 0..limit("devices", decoder.scalar::<u32>()? as usize)? {
            let device = Device {
                handle: decoder.scalar()?,
                platform: decoder.scalar()?,
                answers: Answers::take(&mut decoder)?,
            };
            if device.handle == 0 || device.platform as usize >= snapshot.platforms.len() {
                return Err(DecodeError::BadValue {
                    what: "platform of a device",
                    value: device.platform.into(),
                });
            }
            snapshot.devices.push(device);
        }
        decoder.finish()?;
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_survives_the_wire_and_no_cut_decodes() {
        let snapshot = Snapshot {
            platforms: vec![Answers(vec![(0x902, b"Portable\0".to_vec())])],
            devices: vec![Device {
                handle: 7,
                platform: 0,
                answers: Answers(vec![(0x1002, 4_u32.to_le_bytes().to_vec())]),
            }],
        };
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode(&bytes).as_ref(), Ok(&snapshot));
        assert_eq!(
            snapshot.platforms[0].text(0x902).as_deref(),
            Some("Portable")
        );
        assert_eq!(snapshot.devices[0].answers.number(0x1002), Some(4));
        for cut in 0..bytes.len() {
            assert!(Snapshot::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn devices_left_out_take_their_platforms_along() {
        let device = |handle, platform| Device {
            handle,
            platform,
            ..Device::default()
        };
        let name = |text: &str| Answers(vec![(0x902, text.as_bytes().to_vec())]);
        let mut snapshot = Snapshot {
            platforms: vec![name("one"), name("two"), name("three")],
            devices: vec![device(1, 0), device(2, 1), device(3, 2), device(4, 2)],
        };
        snapshot.keep(|number, _| number % 2 == 1);
        assert_eq!(snapshot.platforms, [name("two"), name("three")]);
        assert_eq!(snapshot.devices, [device(2, 0), device(4, 1)]);
    }

    #[test]
    fn limited_memory_shows_in_both_sizes_and_nowhere_else() {
        let answers = [(0x1010, 1 << 30), (0x101f, 4 << 30), (0x1020, 9 << 30)];
        let answers = answers.map(|(query, size): (u32, u64)| (query, size.to_le_bytes().to_vec()));
        let mut snapshot = Snapshot {
            platforms: vec![],
            devices: vec![Device {
                answers: Answers(answers.into()),
                ..Device::default()
            }],
        };
        snapshot.limit_memory(2 << 30);
        let told = |query| snapshot.devices[0].answers.number(query);
        assert_eq!(
            [0x1010, 0x101f, 0x1020].map(told),
            [Some(1 << 30), Some(2 << 30), Some(9 << 30)]
        );
    }

    #[test]
    fn a_device_of_no_platform_is_refused() {
        let snapshot = Snapshot {
            platforms: vec![],
            devices: vec![Device {
                handle: 1,
                ..Device::default()
            }],
        };
        assert!(matches!(
            Snapshot::decode(&snapshot.encode()),
            Err(DecodeError::BadValue { .. })
        ));
    }
}
