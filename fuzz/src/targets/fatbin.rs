//! Containers of programs, and how long images are.

use towline_ptx::fatbin::{self, Container, WRAPPER_BYTES, Wrapper, containers};
use towline_ptx::image::{self, Extent};
use towline_ptx::{ComputeCapability, Error};

use crate::Seed;
use crate::memory::{bounded, proportional};

/// Devices to choose for.
const DEVICES: [(u32, u32); 4] = [(7, 5), (8, 6), (9, 0), (12, 0)];
/// Programs of one input that are decompressed: each may be long.
const DECOMPRESSED: usize = 4;

/// Entries lie within their container, what is selected is the whole of what is chosen, and no length leads astray.
pub fn target(bytes: &[u8]) {
    let limit = proportional(bytes);
    match bounded(limit, || image::extent(bytes)) {
        Ok(Extent::Unknown(wanted)) => assert!(wanted > bytes.len() as u64, "asks for what it has"),
        Ok(Extent::Known(..)) => {}
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Some(wrapper) = bytes.first_chunk::<WRAPPER_BYTES>() {
        let _ = bounded(0, || Wrapper::decode(wrapper));
    }
    for container in containers(bytes).flatten() {
        entries(&container);
    }
    for (major, minor) in DEVICES {
        let device = ComputeCapability::new(major, minor);
        if let Ok(Some(alone)) = bounded(limit, || fatbin::select(bytes, device)) {
            assert!(alone.len() <= bytes.len());
            assert_eq!(fatbin::select(&alone, device).as_ref(), Ok(&Some(alone.clone())));
        }
    }
}

fn entries(container: &Container<'_>) {
    let mut left = container.bytes().len();
    for entry in container.entries().flatten() {
        left = left.checked_sub(entry.bytes().len()).expect("entries are longer than their container");
        let programs = bounded(proportional(entry.bytes()), || entry.programs());
        for program in programs.iter().flatten().take(DECOMPRESSED) {
            if let Err(Error::TooLong { len, limit, .. }) = program.image() {
                assert!(len > limit);
            }
        }
    }
}

/// What nvcc writes, and a wrapper.
pub fn seeds() -> Vec<Seed> {
    let mut wrapper = fatbin::WRAPPER_MAGIC.to_le_bytes().to_vec();
    wrapper.extend(1_u32.to_le_bytes());
    wrapper.extend([0; 16]);
    vec![
        Seed::new("default", super::DEFAULT),
        Seed::new("concatenated", super::CONCATENATED),
        Seed::new("size", super::SIZE),
        Seed::new("speed", super::SPEED),
        Seed::new("wrapper", wrapper),
    ]
}
