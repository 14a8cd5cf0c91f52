//! Configuration spaces with the capabilities that a description asks for.

/// What a space is to have.
#[derive(Clone, Debug, Default)]
pub struct Space {
    /// The kind of port, as in the PCI Express capability.
    pub port: u16,
    /// Capabilities and control of ACS.
    pub acs: Option<(u16, u16)>,
    /// Whether ATS is on.
    pub ats: Option<bool>,
    /// All virtual functions there can be, the first one's distance, theirs from each other.
    pub sriov: Option<(u16, u16, u16)>,
}

impl Space {
    pub const ENDPOINT: u16 = 0;
    pub const ROOT: u16 = 4;
    pub const UPSTREAM: u16 = 5;
    pub const DOWNSTREAM: u16 = 6;

    pub fn bytes(&self, vendor: u16, device: u16) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        let mut put = |at: usize, words: &[u16]| {
            for (index, word) in words.iter().enumerate() {
                bytes[at + 2 * index..at + 2 * index + 2].copy_from_slice(&word.to_le_bytes());
            }
        };
        put(0, &[vendor, device, 0x0406, 0x0010]);
        put(0x34, &[0x40]);
        // Power management, then PCI Express.
        put(0x40, &[0x6001, 0x0003]);
        put(0x60, &[0x0010, 2 | self.port << 4]);
        // Error reporting heads the list on real devices too.
        let mut heads = vec![(0x100, 0x0001)];
        if let Some((capabilities, control)) = self.acs {
            heads.push((0x148, 0x000d));
            put(0x14c, &[capabilities, control]);
        }
        if let Some(enabled) = self.ats {
            heads.push((0x160, 0x000f));
            put(0x166, &[u16::from(enabled) << 15]);
        }
        if let Some((total, offset, stride)) = self.sriov {
            heads.push((0x180, 0x0010));
            put(0x18c, &[total, total, 0, 0, offset, stride]);
        }
        for (index, &(at, id)) in heads.iter().enumerate() {
            let next = heads.get(index + 1).map_or(0, |&(next, _)| next as u16);
            put(at, &[id, 1 | next << 4]);
        }
        bytes
    }
}
