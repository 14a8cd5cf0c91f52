//! The devices of a server as its driver describes them: what a client answers device queries from.

use crate::codec::{Decoder, Scalar, put_blob};
use crate::error::DecodeError;

/// Most devices of a server.
const DEVICE_LIMIT: usize = 1024;
/// Most attributes or limits of a device.
const ATTRIBUTE_LIMIT: usize = 1024;

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Name without the NUL.
    pub name: Vec<u8>,
    /// What tells it from every other device.
    pub uuid: [u8; 16],
    /// Bytes of memory.
    pub total_bytes: u64,
    /// `CU_DEVICE_ATTRIBUTE_*` and value, those that the driver answers.
    pub attributes: Vec<(u32, i32)>,
    /// `CU_LIMIT_*` and value of a fresh context, those that the driver answers.
    pub limits: Vec<(u32, u64)>,
    /// Least and greatest priority of streams.
    pub priorities: (i32, i32),
}

impl Device {
    /// The value of an attribute.
    pub fn attribute(&self, attribute: u32) -> Option<i32> {
        let found = self
            .attributes
            .iter()
            .find(|(known, _)| *known == attribute);
        found.map(|(_, value)| *value)
    }

    /// Changes an attribute that the driver has answered.
    pub fn set_attribute(&mut self, attribute: u32, value: i32) {
        let attributes = self.attributes.iter_mut();
        for (_, known) in attributes.filter(|(known, _)| *known == attribute) {
            *known = value;
        }
    }
}

/// A UUID without the `GPU-` that tools write before it.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let digits: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part));
    parts.map(Option::unwrap_or_default).join("-")
}

/// The devices of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What `cuDriverGetVersion` answers.
    pub driver_version: i32,
    /// Whether they belong to NVIDIA's own driver.
    pub genuine: bool,
    /// The devices, in the driver's order.
    pub devices: Vec<Device>,
}

impl Snapshot {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.driver_version.put(&mut out);
        crate::codec::put_flag(&mut out, self.genuine);
        (self.devices.len() as u32).put(&mut out);
        for device in &self.devices {
            put_blob(&mut out, &device.name);
            out.extend_from_slice(&device.uuid);
            device.total_bytes.put(&mut out);
            (device.attributes.len() as u32).put(&mut out);
            for (attribute, value) in &device.attributes {
                attribute.put(&mut out);
                value.put(&mut out);
            }
            (device.limits.len() as u32).put(&mut out);
            for (limit, value) in &device.limits {
                limit.put(&mut out);
                value.put(&mut out);
            }
            device.priorities.0.put(&mut out);
            device.priorities.1.put(&mut out);
        }
        out
    }

    /// Reads a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut snapshot = Self {
            driver_version: decoder.scalar()?,
            genuine: decoder.flag()?,
            devices: Vec::new(),
        };
        for _ in 0..decoder.count("devices", DEVICE_LIMIT)? {
            let mut device = Device {
                name: decoder.blob()?.to_vec(),
                ..Device::default()
            };
            for byte in &mut device.uuid {
                *byte = decoder.scalar()?;
            }
            device.total_bytes = decoder.scalar()?;
            for _ in 0..decoder.count("attributes", ATTRIBUTE_LIMIT)? {
                device
                    .attributes
                    .push((decoder.scalar()?, decoder.scalar()?));
            }
            for _ in 0..decoder.count("limits", ATTRIBUTE_LIMIT)? {
                device.limits.push((decoder.scalar()?, decoder.scalar()?));
            }
            device.priorities = (decoder.scalar()?, decoder.scalar()?);
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
    fn a_snapshot_of_cuda_devices_survives_the_wire_and_no_cut_decodes() {
        let device = Device {
            name: b"NVIDIA H200".into(),
            uuid: [7; 16],
            total_bytes: 141 << 30,
            attributes: vec![(1, 1024), (75, 9)],
            limits: vec![(0, 1024)],
            priorities: (0, -5),
        };
        assert_eq!(device.attribute(75), Some(9));
        let snapshot = Snapshot {
            driver_version: 13_000,
            genuine: true,
            devices: vec![device, Device::default()],
        };
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode(&bytes).as_ref(), Ok(&snapshot));
        for cut in 0..bytes.len() {
            assert!(Snapshot::decode(&bytes[..cut]).is_err());
        }
    }
}
