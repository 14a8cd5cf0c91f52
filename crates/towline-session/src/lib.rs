//! What both ends of a session keep: numbered messages on their way out, the server's table of client-minted handles, the accounting
//! of payload. No I/O and no clock: the callers own both, so tests run it over any link.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod landing;
mod outbox;
mod table;

pub use landing::{Claim, Landing, LandingError, Whole};
pub use outbox::{Batch, Outbox};
pub use table::{Addresses, Entry, NumberHasher, Numbers, Table, TableError};

/// High bits of every handle that a client mints. Plain data that a program passes as a kernel argument is not taken for one.
pub const HANDLE_BASE: u64 = 0x7c4c << 48;
/// High bits of the devices that a server lists.
pub const DEVICE_BASE: u64 = 0x7c4d << 48;
