//! Collectives between devices of several processes: the contract, and the vendor's own library behind it.

mod native;

pub use native::{NativeNccl, NcclError};
pub use towline_wire::cuda::collective::{Factor, ID_BYTES, Kind};

/// Results as NCCL numbers them.
pub mod result {
    /// All is well.
    pub const SUCCESS: i32 = 0;
    /// A call of CUDA failed.
    pub const CUDA_ERROR: i32 = 1;
    /// A call of the system failed.
    pub const SYSTEM_ERROR: i32 = 2;
    /// A fault of the library's.
    pub const INTERNAL_ERROR: i32 = 3;
    /// An argument means nothing.
    pub const INVALID_ARGUMENT: i32 = 4;
    /// A call that is not for now.
    pub const INVALID_USAGE: i32 = 5;
    /// Another rank failed, or cannot be reached.
    pub const REMOTE_ERROR: i32 = 6;
    /// Not done yet.
    pub const IN_PROGRESS: i32 = 7;
}

/// A communicator of the library's, by a number of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Communicator(pub usize);

/// A communicator that has come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// The library's number.
    pub communicator: Communicator,
    /// Its rank.
    pub rank: i32,
    /// The number of ranks.
    pub ranks: i32,
}

/// A communicator to be made.
#[derive(Debug, Clone, Copy)]
pub struct Member<'a> {
    /// Its origin.
    pub origin: Origin<'a>,
    /// The program's configuration in NCCL's layout; empty for none.
    pub config: &'a [u64],
}

/// A communicator's origin; see [`towline_wire::cuda::collective::Origin`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as the type of the same name")]
pub enum Origin<'a> {
    Join {
        ranks: i32,
        rank: i32,
        ids: &'a [[u8; ID_BYTES]],
    },
    Split {
        parent: Communicator,
        color: i32,
        key: i32,
    },
    Shrink {
        parent: Communicator,
        excluded: &'a [i32],
        flags: i32,
    },
}

/// A collective or one side of a message; see [`towline_wire::cuda::collective::Operation`].
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "as the type of the same name")]
pub struct Operation {
    pub kind: Kind,
    pub communicator: Communicator,
    /// The driver's stream.
    pub stream: usize,
    pub send: u64,
    pub receive: u64,
    pub count: u64,
    pub datatype: i32,
    pub reduction: i32,
    pub root: i32,
    pub factor: Option<Factor>,
}

/// Ways in which a communicator ends, or stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Completes what was enqueued; it is still to be destroyed.
    Finalize,
    /// Destroys it.
    Destroy,
    /// Ends it at once, with what is under way. May be called while another call is under way.
    Abort,
    /// Gives its memory back, until it is resumed.
    Suspend,
    /// Goes on with it.
    Resume,
    /// Stops what is under way for good; it is still to be destroyed. May be called while another call is under way.
    Revoke,
}

/// A library of collectives. Failures are NCCL's results. Calls for one communicator come one at a time, but for [`End::Abort`],
/// [`End::Revoke`] and [`Self::state`].
pub trait Collectives: Send + Sync {
    /// Its version, as NCCL counts.
    fn version(&self) -> Result<i32, i32>;

    /// An id under which ranks find each other. Whoever asks must live until they have.
    fn id(&self) -> Result<[u8; ID_BYTES], i32>;

    /// Makes communicators together, and waits for their other ranks. `enter` makes current the context of the member of a number, and says
    /// whether that worked. A member that is to have none gets `None`.
    fn make(
        &self,
        members: &[Member<'_>],
        enter: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Option<Made>>, i32>;

    /// Enqueues operations together.
    ///
    /// # Safety
    /// Streams and memory of each are live, and the memory is as large as it says.
    unsafe fn run(&self, operations: &[Operation]) -> Result<(), i32>;

    /// Whether [`Self::run`] waits for the streams before and for the other ranks, always: it is no business of a lane then.
    fn waits(&self) -> bool;

    /// Whether a communicator works.
    fn state(&self, communicator: Communicator) -> i32;

    /// Ends a communicator.
    fn end(&self, communicator: Communicator, how: End) -> Result<(), i32>;

    /// Makes memory known, as a window where there are flags; its handle.
    fn register(
        &self,
        communicator: Communicator,
        address: u64,
        size: u64,
        window: Option<i32>,
    ) -> Result<u64, i32>;

    /// Has such memory forgotten.
    fn deregister(&self, communicator: Communicator, known: u64, window: bool) -> Result<(), i32>;

    /// The last failure, in words.
    fn text(&self) -> String;
}
