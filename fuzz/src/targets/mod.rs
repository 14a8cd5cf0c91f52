//! The targets, one module each.

use towline_ptx::fatbin::{Container, EntryKind};

use crate::Target;

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(pub mod $name;)*

        /// Every target.
        pub const TARGETS: &[Target] = &[
            $(Target { name: stringify!($name), run: $name::target, seeds: $name::seeds }),*
        ];
    };
}

targets! {
    address, chunk, collective, control, cubin, cuda_reply, cuda_request, facts, fatbin, files, frame, handles, handshake, landing,
    peer, ptx, push, reply, request, resume, shm_ring, snapshot, trace,
}

/// Containers as nvcc writes them: what the tests of `towline-ptx` use.
macro_rules! compiled {
    ($name:literal) => {
        include_bytes!(concat!(
            "../../../crates/towline-ptx/tests/data/",
            $name,
            ".fatbin"
        ))
    };
}

const CONCATENATED: &[u8] = compiled!("concatenated");
const DEFAULT: &[u8] = compiled!("tiny-default");
const LARGE: &[u8] = compiled!("large");
const SIZE: &[u8] = compiled!("tiny-size");
const SPEED: &[u8] = compiled!("tiny-speed");

/// The decompressed programs of one kind.
fn programs(container: &[u8], kind: EntryKind) -> Vec<Vec<u8>> {
    Container::parse(container)
        .and_then(|container| container.programs())
        .expect("committed containers are whole")
        .iter()
        .filter(|program| program.kind == kind)
        .map(|program| program.image().expect("committed programs are whole"))
        .collect()
}
