//! NCCL's functions, as the program calls them.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_backend::nccl::{Factor, ID_BYTES, result};
use towline_client::raw::Out;
use towline_wire::cuda::collective::{CONFIG_WORDS, Kind, Operation, Origin};

use super::communicator::{Communicator, of_cuda};
use super::group::{self, Enqueued, Later, Making, Place};
use super::types::{
    ncclComm_t, ncclConfig_t, ncclDataType_t, ncclRedOp_t, ncclResult_t, ncclScalarResidence_t,
    ncclSimInfo_t, ncclUniqueId, ncclWindow_t,
};
use crate::driver::{Acting, process};

/// Marks a configuration that was initialised.
const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// The words of a configuration that have the version that its program was built for, and say whether calls wait.
const VERSION_WORD: usize = 1;
const BLOCKING_WORD: usize = 2;
/// Stands for what a configuration leaves open.
const UNDEFINED: i32 = i32::MIN;
/// A rank of this color gets no communicator.
const NO_COLOR: i32 = -1;

fn code(outcome: Result<(), i32>) -> ncclResult_t {
    outcome.err().unwrap_or(result::SUCCESS)
}

/// A configuration as the program gave it.
#[derive(Default)]
struct Config {
    /// None where the program gave none.
    words: Vec<u64>,
    blocking: Option<bool>,
    version: i32,
}

impl Config {
    /// Whether calls wait. A communicator that is made of another without a configuration is as the other.
    fn blocks(&self, parent: bool) -> bool {
        self.blocking.unwrap_or(match self.words.is_empty() {
            true => parent,
            false => true,
        })
    }
}

/// Reads a configuration.
///
/// # Safety
/// It is NULL, or as large as it says.
unsafe fn config(given: *const ncclConfig_t) -> Result<Config, i32> {
    if given.is_null() {
        return Ok(Config::default());
    }
    let first = given.cast::<u64>();
    // SAFETY: it is as large as it says; the size comes first.
    let size = unsafe { first.read_unaligned() };
    let count = (size / 8) as usize;
    if count <= BLOCKING_WORD || count > CONFIG_WORDS {
        return Err(result::INVALID_ARGUMENT);
    }
    let words = (0..count).map(|at| {
        // SAFETY: it has so many words.
        unsafe { first.wrapping_add(at).read_unaligned() }
    });
    let words: Vec<u64> = words.collect();
    if words[VERSION_WORD] as u32 != CONFIG_MAGIC {
        return Err(result::INVALID_ARGUMENT);
    }
    let blocking = match words[BLOCKING_WORD] as u32 as i32 {
        0 => Some(false),
        1 => Some(true),
        UNDEFINED => None,
        _ => return Err(result::INVALID_ARGUMENT),
    };
    Ok(Config {
        version: (words[VERSION_WORD] >> 32) as u32 as i32,
        words,
        blocking,
    })
}

/// Refuses a configuration of a later NCCL than the server's.
fn expect_known(acting: &Acting<'_>, config: &Config) -> Result<(), i32> {
    let version = process().collective_version(acting)?;
    if config.version <= version {
        return Ok(());
    }
    let text = format!(
        "the program was built for NCCL {}, and the server has {}: give `towline serve` a later one by --nccl",
        described(config.version),
        described(version)
    );
    log::error!("{text}");
    process().note_collective_text(text);
    Err(result::INVALID_USAGE)
}

/// A version as people write it.
fn described(version: i32) -> String {
    let (major, rest) = (version / 10_000, version % 10_000);
    format!("{major}.{}.{}", rest / 100, rest % 100)
}

/// Begins to make a communicator that ranks join under ids.
fn join(
    place: *mut ncclComm_t,
    ranks: c_int,
    rank: c_int,
    ids: Vec<[u8; ID_BYTES]>,
    config: Config,
) -> Result<(), i32> {
    if place.is_null() || ids.is_empty() || ranks < 1 || rank < 0 || rank >= ranks {
        return Err(result::INVALID_ARGUMENT);
    }
    let driver = process();
    let context = driver.collective_context();
    let context = context.map_err(|_| result::CUDA_ERROR)?;
    let acting = driver.acting_in(Arc::clone(&context));
    let acting = acting.map_err(|_| result::CUDA_ERROR)?;
    expect_known(&acting, &config)?;
    let communicator = driver.new_communicator(context, config.blocks(true));
    let place = Place(place);
    place.set(communicator.number);
    group::make(Making {
        communicator,
        parent: None,
        origin: Origin::Join { ranks, rank, ids },
        config: config.words,
        place,
    });
    Ok(())
}

/// Begins to make one of the ranks of another.
fn derive(
    parent: ncclComm_t,
    place: *mut ncclComm_t,
    config: Config,
    origin: impl FnOnce(u64) -> Origin,
) -> Result<(), i32> {
    let driver = process();
    let parent = driver.communicator(parent.cast())?;
    parent.expect_ready()?;
    if place.is_null() {
        return Err(result::INVALID_ARGUMENT);
    }
    let acting = driver.acting_with(&parent)?;
    expect_known(&acting, &config)?;
    let blocking = config.blocks(parent.blocking);
    let communicator = driver.new_communicator(Arc::clone(&parent.context), blocking);
    let origin = origin(parent.number);
    let place = Place(place);
    place.set(match origin {
        Origin::Split {
            color: NO_COLOR, ..
        } => 0,
        _ => communicator.number,
    });
    group::make(Making {
        communicator,
        parent: Some(parent),
        origin,
        config: config.words,
        place,
    });
    Ok(())
}

/// Enqueues an operation, or keeps it for its group.
fn enqueue(
    kind: Kind,
    (send, receive): (*const c_void, *mut c_void),
    count: usize,
    datatype: ncclDataType_t,
    reduction: ncclRedOp_t,
    root: c_int,
    communicator: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    group::within(|| {
        let communicator = process().communicator(communicator.cast())?;
        communicator.expect_ready()?;
        let (_, ranks) = communicator.facts()?;
        let is_rooted = !matches!(
            kind,
            Kind::AllReduce | Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll
        );
        if is_rooted && !(0..ranks).contains(&root) || group::size_of_type(datatype) == 0 {
            return Err(result::INVALID_ARGUMENT);
        }
        let factor = communicator.factor(reduction, datatype)?;
        group::enqueue(Enqueued {
            communicator,
            stream,
            operation: Operation {
                kind,
                communicator: 0,
                stream: 0,
                send: send.addr() as u64,
                receive: receive.addr() as u64,
                count: count as u64,
                datatype,
                reduction,
                root,
                factor,
            },
        });
        Ok(())
    })
}

/// Asks a communicator's server.
fn ask<'a, R: Request<'a>, T>(
    communicator: &Communicator,
    call: &'static str,
    request: &R,
    read: impl FnOnce(&[u8]) -> Option<(i32, T)>,
) -> Result<T, i32> {
    let acting = process().acting_with(communicator)?;
    let body = acting.call_for(call, request).map_err(of_cuda(&acting))?;
    let (status, answer) = read(&body).ok_or_else(|| of_cuda(&acting)(acting.malformed()))?;
    match status {
        result::SUCCESS => Ok(answer),
        failed => Err(process().note_collective_failure(acting.session, acting.actor, failed)),
    }
}

fn end(communicator: &Communicator, call: &'static str, how: u32) -> Result<(), i32> {
    let request = wire::CollectiveEnd {
        communicator: communicator.number,
        how,
    };
    ask(communicator, call, &request, |body| {
        let reply = wire::CollectiveEndReply::decode(body).ok()?;
        Some((reply.result?, ()))
    })
}

/// Has a call made for a communicator that may wait for its other ranks: at the end of the group, with those of the others.
fn later(
    place: Option<Place>,
    call: impl FnOnce() -> Result<u64, i32> + Send + 'static,
) -> Result<(), i32> {
    keep(place, false, call)
}

/// As [`later`]; `ends` says whether it is made though the group fails.
fn keep(
    place: Option<Place>,
    ends: bool,
    call: impl FnOnce() -> Result<u64, i32> + Send + 'static,
) -> Result<(), i32> {
    group::later(Later {
        call: Box::new(call),
        place,
        ends,
    });
    Ok(())
}

/// Ends a communicator's life here and there. That its server is lost is no failure: nothing of it is left there either.
fn end_for_good(handle: ncclComm_t, call: &'static str, how: u32) -> ncclResult_t {
    if handle.is_null() {
        return result::SUCCESS;
    }
    group::within(|| {
        let communicator = process().communicator(handle.cast())?;
        process().forget_communicator(communicator.number);
        let state = communicator.state();
        if !matches!(state, result::SUCCESS | result::IN_PROGRESS) {
            return Ok(());
        }
        keep(None, true, move || {
            if state == result::SUCCESS {
                return match end(&communicator, call, how) {
                    Ok(()) | Err(result::REMOTE_ERROR) => Ok(0),
                    Err(failed) => Err(failed),
                };
            }
            // Its server may not have heard of it: who makes it ends it then.
            communicator.give_up();
            let _ = end(&communicator, call, group::ABORT);
            Ok(0)
        })
    })
}

fn register(
    communicator: &Communicator,
    address: u64,
    size: usize,
    flags: c_int,
) -> Result<u64, i32> {
    let request = wire::CollectiveRegister {
        communicator: communicator.number,
        address,
        size: size as u64,
        flags,
    };
    ask(communicator, "ncclCommRegister", &request, |body| {
        let reply = wire::CollectiveRegisterReply::decode(body).ok()?;
        Some((reply.result?, reply.known?))
    })
}

fn deregister(handle: ncclComm_t, known: u64, window: u32) -> Result<(), i32> {
    let communicator = process().communicator(handle.cast())?;
    let request = wire::CollectiveDeregister {
        communicator: communicator.number,
        known,
        window,
    };
    ask(&communicator, "ncclCommDeregister", &request, |body| {
        let reply = wire::CollectiveDeregisterReply::decode(body).ok()?;
        Some((reply.result?, ()))
    })
}

/// Tells a fact of a communicator that its program has.
fn tell(
    handle: ncclComm_t,
    place: Out<c_int>,
    fact: impl FnOnce(&Communicator) -> Result<c_int, i32>,
) -> ncclResult_t {
    code((|| {
        let communicator = process().communicator(handle.cast())?;
        if !place.wanted() {
            return Err(result::INVALID_ARGUMENT);
        }
        place.set(fact(&communicator)?);
        Ok(())
    })())
}

pub(crate) unsafe fn ncclGetVersion(version: *mut c_int) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let version = unsafe { Out::new(version) };
    code((|| {
        if !version.wanted() {
            return Err(result::INVALID_ARGUMENT);
        }
        let driver = process();
        let context = driver.collective_context();
        let acting = context.and_then(|context| driver.acting_in(context));
        let acting = acting.map_err(|_| result::CUDA_ERROR)?;
        version.set(driver.collective_version(&acting)?);
        Ok(())
    })())
}

pub(crate) unsafe fn ncclGetUniqueId(uniqueId: *mut ncclUniqueId) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let uniqueId = unsafe { Out::new(uniqueId) };
    code((|| {
        if !uniqueId.wanted() {
            return Err(result::INVALID_ARGUMENT);
        }
        let driver = process();
        let context = driver.collective_context();
        let acting = context.and_then(|context| driver.acting_in(context));
        let acting = acting.map_err(|_| result::CUDA_ERROR)?;
        driver.collective_version(&acting)?;
        let body = acting.call_for("ncclGetUniqueId", &wire::CollectiveId {});
        let body = body.map_err(of_cuda(&acting))?;
        let reply = wire::CollectiveIdReply::decode(&body).ok();
        let parts = reply.and_then(|reply| Some((reply.result?, reply.name)));
        let (status, name) = parts.ok_or_else(|| of_cuda(&acting)(acting.malformed()))?;
        if status != result::SUCCESS {
            return Err(status);
        }
        let name = name.and_then(|name| <[u8; ID_BYTES]>::try_from(name).ok());
        let name = name.ok_or_else(|| of_cuda(&acting)(acting.malformed()))?;
        uniqueId.set(ncclUniqueId {
            internal: name.map(|byte| byte as c_char),
        });
        Ok(())
    })())
}

fn bytes(id: &ncclUniqueId) -> [u8; ID_BYTES] {
    id.internal.map(|byte| byte as u8)
}

pub(crate) unsafe fn ncclCommInitRank(
    comm: *mut ncclComm_t,
    nranks: c_int,
    commId: ncclUniqueId,
    rank: c_int,
) -> ncclResult_t {
    group::within(|| join(comm, nranks, rank, vec![bytes(&commId)], Config::default()))
}

pub(crate) unsafe fn ncclCommInitRankConfig(
    comm: *mut ncclComm_t,
    nranks: c_int,
    commId: ncclUniqueId,
    rank: c_int,
    given: *mut ncclConfig_t,
) -> ncclResult_t {
    group::within(|| {
        // SAFETY: the program's contract.
        let config = unsafe { config(given) }?;
        join(comm, nranks, rank, vec![bytes(&commId)], config)
    })
}

pub(crate) unsafe fn ncclCommInitRankScalable(
    newcomm: *mut ncclComm_t,
    nranks: c_int,
    myrank: c_int,
    nId: c_int,
    commIds: *mut ncclUniqueId,
    given: *mut ncclConfig_t,
) -> ncclResult_t {
    group::within(|| {
        if nId < 1 || nId > nranks || commIds.is_null() {
            return Err(result::INVALID_ARGUMENT);
        }
        // SAFETY: the program's contract: there are so many ids.
        let ids = unsafe { std::slice::from_raw_parts(commIds, nId as usize) };
        // SAFETY: the program's contract.
        let config = unsafe { config(given) }?;
        join(
            newcomm,
            nranks,
            myrank,
            ids.iter().map(bytes).collect(),
            config,
        )
    })
}

pub(crate) unsafe fn ncclCommInitAll(
    comm: *mut ncclComm_t,
    ndev: c_int,
    devlist: *const c_int,
) -> ncclResult_t {
    let driver = process();
    if comm.is_null() || ndev < 0 {
        return result::INVALID_ARGUMENT;
    }
    let mut id = ncclUniqueId {
        internal: [0; ID_BYTES],
    };
    // SAFETY: one place for the id.
    let status = unsafe { ncclGetUniqueId(&raw mut id) };
    if status != result::SUCCESS {
        return status;
    }
    group::within(|| {
        let mut chosen = Vec::new();
        for rank in 0..ndev {
            let device = match devlist.is_null() {
                true => rank,
                // SAFETY: the program's contract: as many devices as it says.
                false => unsafe { devlist.wrapping_add(rank as usize).read() },
            };
            if chosen.contains(&device) {
                return Err(result::INVALID_USAGE);
            }
            chosen.push(device);
            let context = driver.primary(device);
            let context = context.map_err(|_| result::INVALID_ARGUMENT)?;
            let communicator = driver.new_communicator(context, true);
            let place = Place(comm.wrapping_add(rank as usize).cast());
            place.set(communicator.number);
            group::make(Making {
                communicator,
                parent: None,
                origin: Origin::Join {
                    ranks: ndev,
                    rank,
                    ids: vec![bytes(&id)],
                },
                config: Vec::new(),
                place,
            });
        }
        Ok(())
    })
}

pub(crate) unsafe fn ncclCommSplit(
    comm: ncclComm_t,
    color: c_int,
    key: c_int,
    newcomm: *mut ncclComm_t,
    given: *mut ncclConfig_t,
) -> ncclResult_t {
    group::within(|| {
        if color < NO_COLOR {
            return Err(result::INVALID_ARGUMENT);
        }
        // SAFETY: the program's contract.
        let config = unsafe { config(given) }?;
        derive(comm, newcomm, config, |parent| Origin::Split {
            parent,
            color,
            key,
        })
    })
}

pub(crate) unsafe fn ncclCommShrink(
    comm: ncclComm_t,
    excludeRanksList: *mut c_int,
    excludeRanksCount: c_int,
    newcomm: *mut ncclComm_t,
    given: *mut ncclConfig_t,
    shrinkFlags: c_int,
) -> ncclResult_t {
    group::within(|| {
        if excludeRanksList.is_null() || excludeRanksCount <= 0 {
            return Err(result::INVALID_ARGUMENT);
        }
        let count = excludeRanksCount as usize;
        // SAFETY: the program's contract: there are so many ranks.
        let excluded = unsafe { std::slice::from_raw_parts(excludeRanksList, count) }.to_vec();
        // SAFETY: the program's contract.
        let config = unsafe { config(given) }?;
        derive(comm, newcomm, config, |parent| Origin::Shrink {
            parent,
            excluded,
            flags: shrinkFlags,
        })
    })
}

pub(crate) fn ncclCommFinalize(comm: ncclComm_t) -> ncclResult_t {
    group::within(|| {
        let communicator = process().communicator(comm.cast())?;
        communicator.expect_ready()?;
        let blocking = communicator.blocking;
        communicator.finalized(result::IN_PROGRESS);
        let unfinished = Arc::clone(&communicator);
        let finalize = move || {
            let outcome = end(&communicator, "ncclCommFinalize", 0);
            communicator.finalized(code(outcome));
            outcome.map(|()| 0)
        };
        keep(None, true, move || {
            if blocking {
                return finalize();
            }
            // Its state tells.
            let named = towline_client::threads::named("towline-nccl");
            let spawned = named.spawn(move || _ = finalize());
            if spawned.is_err() {
                unfinished.finalized(result::SYSTEM_ERROR);
                return Err(result::SYSTEM_ERROR);
            }
            Err(result::IN_PROGRESS)
        })
    })
}

/// Has a communicator stop for a while or for good.
fn stop(handle: ncclComm_t, call: &'static str, how: u32) -> ncclResult_t {
    group::within(|| {
        let communicator = process().communicator(handle.cast())?;
        communicator.expect_ready()?;
        later(None, move || end(&communicator, call, how).map(|()| 0))
    })
}

/// The only memory that there is to give back.
const SUSPEND_MEMORY: c_int = 1;

pub(crate) fn ncclCommSuspend(comm: ncclComm_t, flags: c_int) -> ncclResult_t {
    match flags {
        SUSPEND_MEMORY => stop(comm, "ncclCommSuspend", 3),
        _ => result::INVALID_ARGUMENT,
    }
}

pub(crate) fn ncclCommResume(comm: ncclComm_t) -> ncclResult_t {
    stop(comm, "ncclCommResume", 4)
}

pub(crate) fn ncclCommRevoke(comm: ncclComm_t, revokeFlags: c_int) -> ncclResult_t {
    match revokeFlags {
        0 => stop(comm, "ncclCommRevoke", 5),
        _ => result::INVALID_ARGUMENT,
    }
}

pub(crate) fn ncclCommDestroy(comm: ncclComm_t) -> ncclResult_t {
    end_for_good(comm, "ncclCommDestroy", 1)
}

pub(crate) fn ncclCommAbort(comm: ncclComm_t) -> ncclResult_t {
    end_for_good(comm, "ncclCommAbort", 2)
}

pub(crate) unsafe fn ncclCommGetAsyncError(
    comm: ncclComm_t,
    asyncError: *mut c_int,
) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let asyncError = unsafe { Out::new(asyncError) };
    tell(comm, asyncError, |communicator| {
        match communicator.state() {
            result::SUCCESS if communicator.is_parent() => return Ok(result::IN_PROGRESS),
            result::SUCCESS => match communicator.finalization() {
                None | Some(result::SUCCESS) => {}
                Some(state) => return Ok(state),
            },
            state => return Ok(state),
        }
        let request = wire::CollectiveState {
            communicator: communicator.number,
        };
        let asked = ask(communicator, "ncclCommGetAsyncError", &request, |body| {
            let reply = wire::CollectiveStateReply::decode(body).ok()?;
            Some((reply.result?, ()))
        });
        Ok(asked.err().unwrap_or(result::SUCCESS))
    })
}

pub(crate) unsafe fn ncclCommCount(comm: ncclComm_t, count: *mut c_int) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let count = unsafe { Out::new(count) };
    tell(comm, count, |communicator| Ok(communicator.facts()?.1))
}

pub(crate) unsafe fn ncclCommUserRank(comm: ncclComm_t, rank: *mut c_int) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let rank = unsafe { Out::new(rank) };
    tell(comm, rank, |communicator| Ok(communicator.facts()?.0))
}

pub(crate) unsafe fn ncclCommCuDevice(comm: ncclComm_t, device: *mut c_int) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let device = unsafe { Out::new(device) };
    tell(comm, device, |communicator| Ok(communicator.context.device))
}

pub(crate) unsafe fn ncclCommRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let handle = unsafe { Out::new(handle) };
    code((|| {
        let communicator = process().communicator(comm.cast())?;
        communicator.expect_ready()?;
        let known = register(&communicator, buff.addr() as u64, size, -1)?;
        handle.set(std::ptr::without_provenance_mut(known as usize));
        Ok(())
    })())
}

pub(crate) fn ncclCommDeregister(comm: ncclComm_t, handle: *mut c_void) -> ncclResult_t {
    code(deregister(comm, handle.addr() as u64, 0))
}

pub(crate) unsafe fn ncclCommWindowRegister(
    comm: ncclComm_t,
    buff: *mut c_void,
    size: usize,
    win: *mut ncclWindow_t,
    winFlags: c_int,
) -> ncclResult_t {
    group::within(|| {
        let communicator = process().communicator(comm.cast())?;
        communicator.expect_ready()?;
        if win.is_null() {
            return Err(result::INVALID_ARGUMENT);
        }
        let (address, flags) = (buff.addr() as u64, winFlags.max(0));
        later(Some(Place(win.cast())), move || {
            register(&communicator, address, size, flags)
        })
    })
}

pub(crate) fn ncclCommWindowDeregister(comm: ncclComm_t, win: ncclWindow_t) -> ncclResult_t {
    code(deregister(comm, win.addr() as u64, 1))
}

pub(crate) unsafe fn ncclMemAlloc(ptr: *mut *mut c_void, size: usize) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let ptr = unsafe { Out::new(ptr) };
    code((|| {
        if !ptr.wanted() || size == 0 {
            return Err(result::INVALID_ARGUMENT);
        }
        let address = process().allocate_for_collectives(size);
        let address = address.map_err(|_| result::CUDA_ERROR)?;
        ptr.set(std::ptr::with_exposed_provenance_mut(address as usize));
        Ok(())
    })())
}

pub(crate) fn ncclMemFree(ptr: *mut c_void) -> ncclResult_t {
    if ptr.is_null() {
        return result::SUCCESS;
    }
    let freed = process().free_for_collectives(ptr.addr() as u64);
    code(freed.map_err(|_| result::CUDA_ERROR))
}

pub(crate) unsafe fn ncclRedOpCreatePreMulSum(
    op: *mut ncclRedOp_t,
    scalar: *mut c_void,
    datatype: ncclDataType_t,
    residence: ncclScalarResidence_t,
    comm: ncclComm_t,
) -> ncclResult_t {
    // SAFETY: the program's contract: NULL, or a place of its own.
    let op = unsafe { Out::new(op) };
    code((|| {
        let communicator = process().communicator(comm.cast())?;
        communicator.expect_ready()?;
        let size = group::size_of_type(datatype);
        if !op.wanted() || scalar.is_null() || size == 0 || !(0..=1).contains(&residence) {
            return Err(result::INVALID_ARGUMENT);
        }
        let factor = match residence {
            0 => Factor::At(scalar.addr() as u64),
            _ => {
                let mut bits = [0; 8];
                for (at, byte) in bits.iter_mut().enumerate().take(size as usize) {
                    // SAFETY: the program's contract: the scalar has its type's bytes.
                    *byte = unsafe { scalar.cast::<u8>().wrapping_add(at).read() };
                }
                Factor::Bits(u64::from_le_bytes(bits))
            }
        };
        op.set(communicator.keep_reduction(datatype, factor));
        Ok(())
    })())
}

pub(crate) fn ncclRedOpDestroy(op: ncclRedOp_t, comm: ncclComm_t) -> ncclResult_t {
    code((|| {
        let communicator = process().communicator(comm.cast())?;
        communicator.drop_reduction(op)
    })())
}

pub(crate) fn ncclReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    root: c_int,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(
        Kind::Reduce,
        buffers,
        count,
        datatype,
        op,
        root,
        comm,
        stream,
    )
}

pub(crate) fn ncclBcast(
    buff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    ncclBroadcast(buff.cast_const(), buff, count, datatype, root, comm, stream)
}

pub(crate) fn ncclBroadcast(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(
        Kind::Broadcast,
        buffers,
        count,
        datatype,
        0,
        root,
        comm,
        stream,
    )
}

pub(crate) fn ncclAllReduce(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(
        Kind::AllReduce,
        buffers,
        count,
        datatype,
        op,
        0,
        comm,
        stream,
    )
}

pub(crate) fn ncclReduceScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    recvcount: usize,
    datatype: ncclDataType_t,
    op: ncclRedOp_t,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(
        Kind::ReduceScatter,
        buffers,
        recvcount,
        datatype,
        op,
        0,
        comm,
        stream,
    )
}

pub(crate) fn ncclAllGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    sendcount: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(
        Kind::AllGather,
        buffers,
        sendcount,
        datatype,
        0,
        0,
        comm,
        stream,
    )
}

pub(crate) fn ncclSend(
    sendbuff: *const c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, std::ptr::null_mut());
    enqueue(Kind::Send, buffers, count, datatype, 0, peer, comm, stream)
}

pub(crate) fn ncclRecv(
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    peer: c_int,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (std::ptr::null(), recvbuff);
    enqueue(Kind::Recv, buffers, count, datatype, 0, peer, comm, stream)
}

pub(crate) fn ncclAlltoAll(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(Kind::AllToAll, buffers, count, datatype, 0, 0, comm, stream)
}

pub(crate) fn ncclGather(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(
        Kind::Gather,
        buffers,
        count,
        datatype,
        0,
        root,
        comm,
        stream,
    )
}

pub(crate) fn ncclScatter(
    sendbuff: *const c_void,
    recvbuff: *mut c_void,
    count: usize,
    datatype: ncclDataType_t,
    root: c_int,
    comm: ncclComm_t,
    stream: CUstream,
) -> ncclResult_t {
    let buffers = (sendbuff, recvbuff);
    enqueue(
        Kind::Scatter,
        buffers,
        count,
        datatype,
        0,
        root,
        comm,
        stream,
    )
}

pub(crate) fn ncclGroupStart() -> ncclResult_t {
    group::start();
    result::SUCCESS
}

pub(crate) fn ncclGroupEnd() -> ncclResult_t {
    code(group::end())
}

/// Nothing here can tell how long the server's library would take: the group is dropped, as NCCL drops it, and the call refused.
pub(crate) fn ncclGroupSimulateEnd(_simInfo: *mut ncclSimInfo_t) -> ncclResult_t {
    group::drop_open();
    result::INVALID_USAGE
}

/// The server's library reads its settings once.
pub(crate) fn ncclResetDebugInit() {}

pub(crate) fn ncclGetErrorString(status: ncclResult_t) -> *const c_char {
    let text = match status {
        0 => c"no error",
        1 => c"a CUDA call failed",
        2 => c"a call of the system failed",
        3 => c"an error inside NCCL",
        4 => c"an argument is invalid",
        5 => c"the call is not allowed now, or not supported",
        6 => c"another rank failed, or cannot be reached",
        7 => c"the operation is in progress",
        8 => c"the operation has taken too long",
        _ => c"an unknown result",
    };
    text.as_ptr()
}

/// As NCCL: the last failure, whatever the communicator.
pub(crate) fn ncclGetLastError(_comm: ncclComm_t) -> *const c_char {
    thread_local! {
        static TEXT: RefCell<CString> = RefCell::default();
    }
    TEXT.with_borrow_mut(|kept| {
        *kept = process().collective_text();
        kept.as_ptr()
    })
}
