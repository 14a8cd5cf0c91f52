//! What NVML says of a server and its devices that never changes: in the server's welcome, so that listing devices costs nothing more.

use crate::codec::{Decoder, Scalar, put_blob};
use crate::error::DecodeError;

/// Most devices of a server.
const DEVICE_LIMIT: usize = 1024;

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Device {
    /// Its number on the server, from 0: a client may not be told of all.
    pub number: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// Its UUID as text: `GPU-...`.
    pub uuid: Vec<u8>,
    /// Its serial number; empty where it has none.
    pub serial: Vec<u8>,
    /// The PCI place on the server: domain, bus, device.
    pub place: [u32; 3],
    /// The PCI ids of the device and of its subsystem.
    pub ids: [u32; 2],
    /// The base class and subclass, where the driver tells them.
    pub class: [u32; 2],
}

/// A server's devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The version of the driver.
    pub driver_version: Vec<u8>,
    /// The version of the library.
    pub nvml_version: Vec<u8>,
    /// The CUDA version of the driver: 13000 is 13.0.
    pub cuda_version: i32,
    /// The devices, in the order of the library.
    pub devices: Vec<Device>,
}

impl Snapshot {
    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_blob(&mut out, &self.driver_version);
        put_blob(&mut out, &self.nvml_version);
        self.cuda_version.put(&mut out);
        (self.devices.len() as u32).put(&mut out);
        for device in &self.devices {
            device.number.put(&mut out);
            put_blob(&mut out, &device.name);
            put_blob(&mut out, &device.uuid);
            put_blob(&mut out, &device.serial);
            device.place.put(&mut out);
            device.ids.put(&mut out);
            device.class.put(&mut out);
        }
        out
    }

    /// Reads a snapshot.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let mut snapshot = Self {
            driver_version: decoder.blob()?.to_vec(),
            nvml_version: decoder.blob()?.to_vec(),
            cuda_version: decoder.scalar()?,
            devices: Vec::new(),
        };
        for _ in 0..decoder.count("devices", DEVICE_LIMIT)? {
            snapshot.devices.push(Device {
                number: decoder.scalar()?,
                name: decoder.blob()?.to_vec(),
                uuid: decoder.blob()?.to_vec(),
                serial: decoder.blob()?.to_vec(),
                place: decoder.scalar()?,
                ids: decoder.scalar()?,
                class: decoder.scalar()?,
            });
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
        let device = Device {
            number: 3,
            name: b"NVIDIA H200".into(),
            uuid: b"GPU-00000000-0000-0000-0000-000000000001".into(),
            serial: b"1650".into(),
            place: [0, 0x1b, 0],
            ids: [0x2335_10de, 0x18be_10de],
            class: [3, 2],
        };
        let snapshot = Snapshot {
            driver_version: b"580.159".into(),
            nvml_version: b"13.580.159".into(),
            cuda_version: 13_000,
            devices: vec![device, Device::default()],
        };
        let bytes = snapshot.encode();
        assert_eq!(Snapshot::decode(&bytes).as_ref(), Ok(&snapshot));
        for cut in 0..bytes.len() {
            assert!(Snapshot::decode(&bytes[..cut]).is_err());
        }
    }
}
