//! The calls that are written by hand, by group, as methods that are named like the C functions.

pub(crate) mod array;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod entry;
pub(crate) mod error;
pub(crate) mod graph;
pub(crate) mod interop;
pub(crate) mod launch;
pub(crate) mod memory;
pub(crate) mod occupancy;
pub(crate) mod properties;
pub(crate) mod register;
pub(crate) mod texture;
