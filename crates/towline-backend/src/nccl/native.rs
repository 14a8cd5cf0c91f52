//! The vendor's own library, loaded at run time.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::*;

type Comm = *mut c_void;
type Stream = *mut c_void;
type Status = c_int;

/// An id as the library takes it: by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct Id([u8; ID_BYTES]);

/// Reasons why the vendor's library could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NcclError {
    /// The library cannot be loaded.
    #[error(
        "cannot load the NCCL library {library}; install NVIDIA's NCCL, or name the file with --nccl"
    )]
    Load {
        /// Its name or path.
        library: String,
        /// The cause.
        #[source]
        source: libloading::Error,
    },
    /// The library lacks a function.
    #[error("{library} is no NCCL library of version 2.14 or later: it lacks {symbol}")]
    NotNccl {
        /// Its name or path.
        library: String,
        /// The missing function.
        symbol: &'static str,
    },
    /// It is the one that gives programs the devices of servers.
    #[error(
        "{library} is Towline's own library, not the vendor's NCCL: a server would be a client of itself; take its folder out of \
         LD_LIBRARY_PATH, or name the vendor's with --nccl"
    )]
    OwnLibrary {
        /// Its name or path.
        library: String,
    },
}

/// Declares the library's functions: those that it must have, and those that came later.
macro_rules! functions {
    (
        $(fn $name:ident($($argument:ty),*) -> $answer:ty;)*
        optional: $(fn $later:ident($($later_argument:ty),*) -> $later_answer:ty;)*
    ) => {
        #[allow(non_snake_case, reason = "named as the library's functions")]
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) -> $answer,)*
            $($later: Option<unsafe extern "C" fn($($later_argument),*) -> $later_answer>,)*
        }

        impl Functions {
            fn load(library: &'static libloading::Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        // SAFETY: the type is the library's declaration of this name.
                        let found = unsafe { library.get(stringify!($name)) };
                        *found.map_err(|_| stringify!($name))?
                    },)*
                    $($later: {
                        // SAFETY: as above.
                        let found = unsafe { library.get(stringify!($later)) };
                        found.ok().map(|found| *found)
                    },)*
                })
            }
        }
    };
}

functions! {
    fn ncclGetVersion(*mut c_int) -> Status;
    fn ncclGetUniqueId(*mut Id) -> Status;
    fn ncclCommInitRankConfig(*mut Comm, c_int, Id, c_int, *mut c_void) -> Status;
    fn ncclCommFinalize(Comm) -> Status;
    fn ncclCommDestroy(Comm) -> Status;
    fn ncclCommAbort(Comm) -> Status;
    fn ncclCommGetAsyncError(Comm, *mut Status) -> Status;
    fn ncclCommCount(Comm, *mut c_int) -> Status;
    fn ncclCommUserRank(Comm, *mut c_int) -> Status;
    fn ncclRedOpCreatePreMulSum(*mut c_int, *mut c_void, c_int, c_int, Comm) -> Status;
    fn ncclRedOpDestroy(c_int, Comm) -> Status;
    fn ncclReduce(*const c_void, *mut c_void, usize, c_int, c_int, c_int, Comm, Stream) -> Status;
    fn ncclBroadcast(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Status;
    fn ncclAllReduce(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Status;
    fn ncclReduceScatter(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Status;
    fn ncclAllGather(*const c_void, *mut c_void, usize, c_int, Comm, Stream) -> Status;
    fn ncclSend(*const c_void, usize, c_int, c_int, Comm, Stream) -> Status;
    fn ncclRecv(*mut c_void, usize, c_int, c_int, Comm, Stream) -> Status;
    fn ncclGroupStart() -> Status;
    fn ncclGroupEnd() -> Status;
    fn ncclGetLastError(Comm) -> *const c_char;
    optional:
    fn ncclCommInitRankScalable(*mut Comm, c_int, c_int, c_int, *mut Id, *mut c_void) -> Status;
    fn ncclCommSplit(Comm, c_int, c_int, *mut Comm, *mut c_void) -> Status;
    fn ncclCommShrink(Comm, *mut c_int, c_int, *mut Comm, *mut c_void, c_int) -> Status;
    fn ncclCommSuspend(Comm, c_int) -> Status;
    fn ncclCommResume(Comm) -> Status;
    fn ncclCommRevoke(Comm, c_int) -> Status;
    fn ncclCommRegister(Comm, *mut c_void, usize, *mut *mut c_void) -> Status;
    fn ncclCommDeregister(Comm, *mut c_void) -> Status;
    fn ncclCommWindowRegister(Comm, *mut c_void, usize, *mut *mut c_void, c_int) -> Status;
    fn ncclCommWindowDeregister(Comm, *mut c_void) -> Status;
    fn ncclAlltoAll(*const c_void, *mut c_void, usize, c_int, Comm, Stream) -> Status;
    fn ncclGather(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Status;
    fn ncclScatter(*const c_void, *mut c_void, usize, c_int, c_int, Comm, Stream) -> Status;
}

/// The word of a configuration that says whether calls wait: behind its size, magic and version.
const BLOCKING_WORD: usize = 2;
/// Its words that are pointers, to names.
const POINTER_WORDS: [usize; 2] = [4, 6];
/// Places of a factor.
const SCALAR_ON_DEVICE: c_int = 0;
const SCALAR_ON_HOST: c_int = 1;
/// The least configuration: up to and with `blocking` of NCCL 2.14.
const LEAST_CONFIG: usize = 24;

fn check(status: Status) -> Result<(), i32> {
    match status {
        result::SUCCESS => Ok(()),
        status => Err(status),
    }
}

fn pointer<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(address as usize)
}

/// The vendor's library of this host.
pub struct NativeNccl {
    functions: Functions,
}

impl NativeNccl {
    /// Loads a library by name or path.
    pub fn from_library(name: &str) -> Result<Self, NcclError> {
        // SAFETY: loading runs the vendor's initialisers, which is what the operator asked for by naming the library.
        let library =
            unsafe { libloading::Library::new(name) }.map_err(|source| NcclError::Load {
                library: name.into(),
                source,
            })?;
        // Its threads and exit handlers may outlive us: unloading it is never safe.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        // SAFETY: the address is only looked for.
        let own = unsafe { library.get::<*const c_void>(crate::OWN_LIBRARY_SYMBOL) };
        if own.is_ok() {
            return Err(NcclError::OwnLibrary {
                library: name.into(),
            });
        }
        let functions = Functions::load(library).map_err(|symbol| NcclError::NotNccl {
            library: name.into(),
            symbol,
        })?;
        Ok(Self { functions })
    }

    /// Runs calls as one.
    fn together<T>(&self, calls: impl FnOnce() -> Result<T, i32>) -> Result<T, i32> {
        // SAFETY: no arguments.
        check(unsafe { (self.functions.ncclGroupStart)() })?;
        let outcome = calls();
        // SAFETY: as above. The group ends whatever came of its calls.
        let ended = check(unsafe { (self.functions.ncclGroupEnd)() });
        let outcome = outcome?;
        ended.map(|()| outcome)
    }

    /// Begins to make one; the group's end completes it.
    fn begin(
        &self,
        member: &Member<'_>,
        place: *mut Comm,
        config: &mut Vec<u64>,
    ) -> Result<(), i32> {
        let functions = &self.functions;
        let config = match config.is_empty() {
            true => ptr::null_mut(),
            false => config.as_mut_ptr().cast::<c_void>(),
        };
        let status = match member.origin {
            Origin::Join { ranks, rank, ids } => match ids {
                // SAFETY: one place for the communicator, which stays until the group has ended, as the configuration does.
                [id] => unsafe {
                    (functions.ncclCommInitRankConfig)(place, ranks, Id(*id), rank, config)
                },
                _ => {
                    let join = functions.ncclCommInitRankScalable;
                    let join = join.ok_or(result::INVALID_USAGE)?;
                    let mut all: Vec<Id> = ids.iter().copied().map(Id).collect();
                    let count = all.len() as c_int;
                    // SAFETY: as above; as many ids as it says, which the call copies.
                    unsafe { join(place, ranks, rank, count, all.as_mut_ptr(), config) }
                }
            },
            Origin::Split { parent, color, key } => {
                let split = functions.ncclCommSplit.ok_or(result::INVALID_USAGE)?;
                // SAFETY: the parent is live; the rest as above.
                unsafe { split(parent.0 as Comm, color, key, place, config) }
            }
            Origin::Shrink {
                parent,
                excluded,
                flags,
            } => {
                let shrink = functions.ncclCommShrink.ok_or(result::INVALID_USAGE)?;
                let mut excluded = excluded.to_vec();
                let count = excluded.len() as c_int;
                // SAFETY: as above; as many ranks as it says, which the call copies.
                unsafe {
                    shrink(
                        parent.0 as Comm,
                        excluded.as_mut_ptr(),
                        count,
                        place,
                        config,
                        flags,
                    )
                }
            }
        };
        check(status)
    }

    /// Refuses an origin that this version of the library has no function for.
    fn expect_origin(&self, origin: &Origin<'_>) -> Result<(), i32> {
        let functions = &self.functions;
        let has = match origin {
            Origin::Join { ids, .. } => {
                ids.len() == 1 || functions.ncclCommInitRankScalable.is_some()
            }
            Origin::Split { .. } => functions.ncclCommSplit.is_some(),
            Origin::Shrink { .. } => functions.ncclCommShrink.is_some(),
        };
        has.then_some(()).ok_or(result::INVALID_USAGE)
    }

    fn describe(&self, comm: Comm) -> Result<Made, i32> {
        let (mut rank, mut ranks) = (0, 0);
        // SAFETY: the communicator is live; one place for the number.
        check(unsafe { (self.functions.ncclCommUserRank)(comm, &raw mut rank) })?;
        // SAFETY: as above.
        check(unsafe { (self.functions.ncclCommCount)(comm, &raw mut ranks) })?;
        Ok(Made {
            communicator: Communicator(comm.expose_provenance()),
            rank,
            ranks,
        })
    }

    /// A reduction that sums what it has multiplied by an operation's factor.
    fn scale(&self, operation: &Operation, factor: Factor) -> Result<i32, i32> {
        let mut reduction = 0;
        let (Factor::Bits(mut scalar) | Factor::At(mut scalar)) = factor;
        let (place, residence) = match factor {
            Factor::At(_) => (pointer(scalar), SCALAR_ON_DEVICE),
            Factor::Bits(_) => ((&raw mut scalar).cast(), SCALAR_ON_HOST),
        };
        let comm = ptr::with_exposed_provenance_mut(operation.communicator.0);
        let make = self.functions.ncclRedOpCreatePreMulSum;
        // SAFETY: the communicator is live; the scalar lies where the residence says; one place for the number.
        check(unsafe {
            make(
                &raw mut reduction,
                place,
                operation.datatype,
                residence,
                comm,
            )
        })?;
        Ok(reduction)
    }

    /// # Safety
    /// As [`Collectives::run`].
    unsafe fn start_all(&self, operations: &[Operation]) -> Result<(), i32> {
        if let [operation] = operations {
            // SAFETY: streams, memory and communicators are as `run` asks.
            return unsafe { self.start(operation) };
        }
        self.together(|| {
            operations.iter().try_for_each(|operation| {
                // SAFETY: streams, memory and communicators are as `run` asks.
                unsafe { self.start(operation) }
            })
        })
    }

    /// # Safety
    /// As [`Collectives::run`].
    unsafe fn start(&self, operation: &Operation) -> Result<(), i32> {
        let functions = &self.functions;
        let &Operation {
            count,
            datatype,
            reduction,
            root,
            ..
        } = operation;
        let send: *mut c_void = pointer(operation.send);
        let receive: *mut c_void = pointer(operation.receive);
        let comm: Comm = ptr::with_exposed_provenance_mut(operation.communicator.0);
        let stream: Stream = ptr::with_exposed_provenance_mut(operation.stream);
        let count = usize::try_from(count).map_err(|_| result::INVALID_ARGUMENT)?;
        let status = match operation.kind {
            // SAFETY: streams, memory and communicators are as `run` asks.
            Kind::AllReduce => unsafe {
                (functions.ncclAllReduce)(send, receive, count, datatype, reduction, comm, stream)
            },
            // SAFETY: as above.
            Kind::Reduce => unsafe {
                (functions.ncclReduce)(
                    send, receive, count, datatype, reduction, root, comm, stream,
                )
            },
            // SAFETY: as above.
            Kind::Broadcast => unsafe {
                (functions.ncclBroadcast)(send, receive, count, datatype, root, comm, stream)
            },
            // SAFETY: as above.
            Kind::ReduceScatter => unsafe {
                (functions.ncclReduceScatter)(
                    send, receive, count, datatype, reduction, comm, stream,
                )
            },
            // SAFETY: as above.
            Kind::AllGather => unsafe {
                (functions.ncclAllGather)(send, receive, count, datatype, comm, stream)
            },
            // SAFETY: as above.
            Kind::Send => unsafe {
                (functions.ncclSend)(send, count, datatype, root, comm, stream)
            },
            // SAFETY: as above.
            Kind::Recv => unsafe {
                (functions.ncclRecv)(receive, count, datatype, root, comm, stream)
            },
            Kind::AllToAll => {
                let call = functions.ncclAlltoAll.ok_or(result::INVALID_USAGE)?;
                // SAFETY: as above.
                unsafe { call(send, receive, count, datatype, comm, stream) }
            }
            Kind::Gather => {
                let call = functions.ncclGather.ok_or(result::INVALID_USAGE)?;
                // SAFETY: as above.
                unsafe { call(send, receive, count, datatype, root, comm, stream) }
            }
            Kind::Scatter => {
                let call = functions.ncclScatter.ok_or(result::INVALID_USAGE)?;
                // SAFETY: as above.
                unsafe { call(send, receive, count, datatype, root, comm, stream) }
            }
        };
        check(status)
    }
}

/// The configuration for the library: calls wait, whatever the program wants of its own, and nothing points into the program's memory. A
/// size that the words do not bear out is refused.
fn waiting(config: &[u64]) -> Result<Vec<u64>, i32> {
    let mut config = config.to_vec();
    let Some(size) = config.first() else {
        return Ok(config);
    };
    if *size < LEAST_CONFIG as u64 || *size > config.len() as u64 * 8 {
        return Err(result::INVALID_ARGUMENT);
    }
    // The lower half of its word; the higher is the size of thread block clusters.
    config[BLOCKING_WORD] = config[BLOCKING_WORD] & !0xffff_ffff | 1;
    for word in POINTER_WORDS {
        config.get_mut(word).into_iter().for_each(|word| *word = 0);
    }
    Ok(config)
}

impl Collectives for NativeNccl {
    fn version(&self) -> Result<i32, i32> {
        let mut version = 0;
        // SAFETY: one place for the number.
        check(unsafe { (self.functions.ncclGetVersion)(&raw mut version) })?;
        Ok(version)
    }

    fn id(&self) -> Result<[u8; ID_BYTES], i32> {
        let mut id = Id([0; ID_BYTES]);
        // SAFETY: one place for the id.
        check(unsafe { (self.functions.ncclGetUniqueId)(&raw mut id) })?;
        Ok(id.0)
    }

    fn make(
        &self,
        members: &[Member<'_>],
        enter: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Option<Made>>, i32> {
        let mut places: Vec<Comm> = vec![ptr::null_mut(); members.len()];
        let configs = members.iter().map(|member| waiting(member.config));
        let mut configs = configs.collect::<Result<Vec<_>, _>>()?;
        // A group that has begun waits for other ranks, though a later member cannot be made.
        for (number, member) in members.iter().enumerate() {
            self.expect_origin(&member.origin)?;
            if !enter(number) {
                return Err(result::CUDA_ERROR);
            }
        }
        let first = places.as_mut_ptr();
        let outcome = self.together(|| {
            for (number, (member, config)) in members.iter().zip(&mut configs).enumerate() {
                if !enter(number) {
                    return Err(result::CUDA_ERROR);
                }
                self.begin(member, first.wrapping_add(number), config)?;
            }
            Ok(())
        });
        let made = outcome.and_then(|()| {
            let made = places.iter().map(|comm| match comm.is_null() {
                true => Ok(None),
                false => self.describe(*comm).map(Some),
            });
            made.collect()
        });
        if made.is_err() {
            for comm in places.into_iter().filter(|comm| !comm.is_null()) {
                // SAFETY: the library has given the communicator, and nobody else has it.
                unsafe { (self.functions.ncclCommAbort)(comm) };
            }
        }
        made
    }

    unsafe fn run(&self, operations: &[Operation]) -> Result<(), i32> {
        if operations
            .iter()
            .all(|operation| operation.factor.is_none())
        {
            // SAFETY: the caller's promise.
            return unsafe { self.start_all(operations) };
        }
        let mut operations = operations.to_vec();
        let mut made = Vec::new();
        let outcome = operations.iter_mut().try_for_each(|operation| {
            if let Some(factor) = operation.factor {
                operation.reduction = self.scale(operation, factor)?;
                made.push((operation.reduction, operation.communicator));
            }
            Ok(())
        });
        let outcome = outcome.and_then(|()| {
            // SAFETY: the caller's promise.
            unsafe { self.start_all(&operations) }
        });
        for (reduction, communicator) in made {
            let comm = ptr::with_exposed_provenance_mut(communicator.0);
            // SAFETY: the communicator is live, and the reduction its own. Operations that were enqueued do not need it any more.
            unsafe { (self.functions.ncclRedOpDestroy)(reduction, comm) };
        }
        outcome
    }

    fn waits(&self) -> bool {
        false
    }

    fn state(&self, communicator: Communicator) -> i32 {
        let mut state = result::SUCCESS;
        let comm = ptr::with_exposed_provenance_mut(communicator.0);
        // SAFETY: the communicator is live; one place for the result.
        match unsafe { (self.functions.ncclCommGetAsyncError)(comm, &raw mut state) } {
            result::SUCCESS => state,
            failed => failed,
        }
    }

    fn end(&self, communicator: Communicator, how: End) -> Result<(), i32> {
        /// All memory that can be given back.
        const MEMORY: c_int = 1;
        let functions = &self.functions;
        let comm: Comm = ptr::with_exposed_provenance_mut(communicator.0);
        let lacks = result::INVALID_USAGE;
        let end = match how {
            End::Finalize => functions.ncclCommFinalize,
            End::Destroy => functions.ncclCommDestroy,
            End::Abort => functions.ncclCommAbort,
            End::Resume => functions.ncclCommResume.ok_or(lacks)?,
            End::Suspend => {
                let suspend = functions.ncclCommSuspend.ok_or(lacks)?;
                // SAFETY: the communicator is live.
                return check(unsafe { suspend(comm, MEMORY) });
            }
            End::Revoke => {
                let revoke = functions.ncclCommRevoke.ok_or(lacks)?;
                // SAFETY: as above.
                return check(unsafe { revoke(comm, 0) });
            }
        };
        // SAFETY: the communicator is live, and not used behind its end.
        check(unsafe { end(comm) })
    }

    fn register(
        &self,
        communicator: Communicator,
        address: u64,
        size: u64,
        window: Option<i32>,
    ) -> Result<u64, i32> {
        let comm = ptr::with_exposed_provenance_mut(communicator.0);
        let (mut known, size) = (ptr::null_mut::<c_void>(), size as usize);
        let status = match window {
            Some(flags) => {
                let call = self.functions.ncclCommWindowRegister;
                let call = call.ok_or(result::INVALID_USAGE)?;
                // SAFETY: the communicator is live, the memory the session's; one place for the handle.
                unsafe { call(comm, pointer(address), size, &raw mut known, flags) }
            }
            None => {
                let call = self.functions.ncclCommRegister;
                let call = call.ok_or(result::INVALID_USAGE)?;
                // SAFETY: as above.
                unsafe { call(comm, pointer(address), size, &raw mut known) }
            }
        };
        check(status)?;
        Ok(known.expose_provenance() as u64)
    }

    fn deregister(&self, communicator: Communicator, known: u64, window: bool) -> Result<(), i32> {
        let comm = ptr::with_exposed_provenance_mut(communicator.0);
        let call = match window {
            true => self.functions.ncclCommWindowDeregister,
            false => self.functions.ncclCommDeregister,
        };
        let call = call.ok_or(result::INVALID_USAGE)?;
        // SAFETY: the communicator is live, and has given the handle.
        check(unsafe { call(comm, pointer(known)) })
    }

    fn text(&self) -> String {
        // SAFETY: the call takes no communicator for all.
        let text = unsafe { (self.functions.ncclGetLastError)(ptr::null_mut()) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: the library's text ends with a zero.
        let text = unsafe { CStr::from_ptr(text) };
        text.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_of_something_else_is_no_nccl() {
        assert!(matches!(
            NativeNccl::from_library("libc.so.6"),
            Err(NcclError::NotNccl { .. })
        ));
    }

    #[test]
    fn calls_wait_whatever_the_program_wants() {
        let config = [56, 0, 7 << 32, 3, 4, 5, 6];
        let changed = [56, 0, 7 << 32 | 1, 3, 0, 5, 0];
        assert_eq!(waiting(&config).as_deref(), Ok(&changed[..]));
        assert_eq!(waiting(&[]), Ok(Vec::new()));
        assert_eq!(waiting(&[89, 0, 0]), Err(result::INVALID_ARGUMENT));
        assert_eq!(waiting(&[8, 0, 0]), Err(result::INVALID_ARGUMENT));
    }
}
