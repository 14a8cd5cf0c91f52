//! The targets, one module each.

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
    address, chunk, control, facts, frame, handles, handshake, landing, peer, push, reply, request, snapshot,
}
