//! Descriptions of devices, which clients take from servers.

use towline_wire::snapshot::{Answers, DEVICE_LIMIT, Device, Snapshot};

use crate::Seed;
use crate::memory::{bounded, proportional};

/// A snapshot has one encoding; every device in it has its platform.
pub fn target(bytes: &[u8]) {
    if let Ok(snapshot) = bounded(proportional(bytes), || Snapshot::decode(bytes)) {
        assert_eq!(snapshot.encode(), bytes);
        assert!(snapshot.devices.len() <= DEVICE_LIMIT);
        for device in &snapshot.devices {
            assert!(snapshot.platforms.len() > device.platform as usize);
            for (query, _) in &device.answers.0 {
                let _ = (device.answers.text(*query), device.answers.number(*query));
            }
        }
    }
}

/// An empty one, and one with two devices of two platforms.
pub fn seeds() -> Vec<Seed> {
    let device = |handle, platform| Device {
        handle,
        platform,
        answers: Answers(vec![
            (0x1000, 4_u64.to_le_bytes().to_vec()),
            (0x102b, b"Null device\0".to_vec()),
            (0x1030, Vec::new()),
        ]),
    };
    let two = Snapshot {
        platforms: vec![
            Answers(vec![(0x902, b"Portable\0".to_vec())]),
            Answers(vec![]),
        ],
        devices: vec![device(1, 0), device(2, 1)],
    };
    vec![
        Seed::new("empty", Snapshot::default().encode()),
        Seed::new("two", two.encode()),
    ]
}
