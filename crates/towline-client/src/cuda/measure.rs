//! The bandwidth of a session, as a program that copies memory meets it.

use std::time::{Duration, Instant};

use towline_backend::cuda as wire;
use towline_backend::cuda::Message as _;

use super::{Actor, Session};
use crate::raw::HostPtr;

/// The call that waits are counted for.
const CALL: &str = "measure_bandwidth";

/// Time that copies of so many bytes take.
#[derive(Clone, Copy, Debug)]
pub struct Bandwidth {
    /// The bytes of each copy.
    pub bytes: usize,
    /// From the program's memory to the device.
    pub to_device: Duration,
    /// The other way.
    pub from_device: Duration,
}

impl Session {
    /// Copies `bytes` to the first device and back, after once to warm up. Takes that much memory on both sides.
    ///
    /// The status of the driver is returned where it has no device or not the memory.
    pub fn measure_bandwidth(&self, bytes: usize) -> Result<Bandwidth, i32> {
        let context = self.mint(wire::ContextHandle::TAG);
        let retain = wire::PrimaryRetain {
            device: 0,
            flags: 0,
            context: wire::ContextHandle(context),
        };
        self.call(Actor::default(), CALL, &retain)?;
        let actor = Actor {
            thread: 1,
            context,
            ..Actor::default()
        };
        let allocate = wire::MemoryAlloc {
            size: bytes as u64,
            managed_flags: 0,
        };
        let reply = self.call(actor, CALL, &allocate)?;
        let reply = wire::MemoryAllocReply::decode(&reply).map_err(|_| self.malformed())?;
        let address = reply.address.ok_or_else(|| self.malformed())?;
        let mut memory = vec![1_u8; bytes];
        // SAFETY: it has `bytes` bytes and lives until this has ended; each copy is waited for.
        let memory = unsafe { HostPtr::new(memory.as_mut_ptr()) };
        let mut first = 0_u8;
        // SAFETY: as above, with one byte.
        let first = unsafe { HostPtr::new(&raw mut first) };
        let mut measured = Bandwidth {
            bytes,
            to_device: Duration::MAX,
            from_device: Duration::MAX,
        };
        for _ in 0..2 {
            let start = Instant::now();
            self.write(
                actor,
                CALL,
                0,
                address,
                memory,
                bytes,
                super::Source::Fleeting,
            )?;
            self.read(actor, CALL, 0, address, first, 1, true)?;
            measured.to_device = measured.to_device.min(start.elapsed());
            let start = Instant::now();
            self.read(actor, CALL, 0, address, memory, bytes, true)?;
            measured.from_device = measured.from_device.min(start.elapsed());
        }
        self.call(actor, CALL, &wire::MemoryFree { address })?;
        Ok(measured)
    }
}
