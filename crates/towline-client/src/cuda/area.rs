//! The application's memory in graphs: what a launch reads and writes when it comes to the node.

use super::{Actor, PAYLOAD_TAG, Session};
use crate::memory::HostBox;

/// A box of the application's memory.
#[derive(Debug, Clone, Copy)]
pub struct HostArea {
    /// Where its first row begins.
    pub start: *mut u8,
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
    /// Bytes from a row to the next.
    pub pitch: usize,
    /// Bytes from a slice to the next.
    pub slice: usize,
}

impl HostArea {
    fn memory(&self) -> HostBox {
        HostBox::pitched(
            self.start,
            self.width,
            self.height,
            self.depth,
            self.pitch,
            self.slice,
        )
    }
}

impl Session {
    /// Gives what lies there a number under which the server asks for it, rows end to end. With `settle` data on its way there is
    /// waited for.
    ///
    /// # Safety
    /// The memory is readable when the server asks.
    pub unsafe fn offer(&self, area: &HostArea, settle: bool) -> Result<u64, i32> {
        let memory = area.memory();
        if settle {
            let range = memory.range();
            self.settle_reads(range.start, range.len())?;
        }
        let payload = self.mint(PAYLOAD_TAG);
        self.link().expect_grants(payload, memory)?;
        Ok(payload)
    }

    /// Gives what the server sends a number, and a place. The next wait for `stream` tells a failure.
    ///
    /// # Safety
    /// The memory is writable, and left alone, until the data is there.
    pub unsafe fn await_data(&self, actor: Actor, stream: u64, area: &HostArea) -> u64 {
        self.expect_data(area.memory(), stream, actor, false)
    }
}
