//! NCCL between devices of several servers, by a library of our own behind it: ranks in threads, and in groups of one thread.

mod support;

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use support::Machine;
use towline_backend::cuda::*;
use towline_cuda::Driver;

type Comm = *mut c_void;

#[derive(Clone, Copy)]
#[repr(C)]
struct Id([c_char; 128]);

unsafe extern "C" {
    fn towline_ncclGetVersion(version: *mut c_int) -> c_int;
    fn towline_ncclGetUniqueId(id: *mut Id) -> c_int;
    fn towline_ncclCommInitRank(comm: *mut Comm, ranks: c_int, id: Id, rank: c_int) -> c_int;
    fn towline_ncclCommInitAll(comms: *mut Comm, ranks: c_int, devices: *const c_int) -> c_int;
    fn towline_ncclCommSplit(
        comm: Comm,
        color: c_int,
        key: c_int,
        new: *mut Comm,
        config: *mut c_void,
    ) -> c_int;
    fn towline_ncclCommInitRankConfig(
        comm: *mut Comm,
        ranks: c_int,
        id: Id,
        rank: c_int,
        config: *mut c_void,
    ) -> c_int;
    fn towline_ncclMemAlloc(address: *mut *mut c_void, size: usize) -> c_int;
    fn towline_ncclMemFree(address: *mut c_void) -> c_int;
    fn towline_ncclCommFinalize(comm: Comm) -> c_int;
    fn towline_ncclCommDestroy(comm: Comm) -> c_int;
    fn towline_ncclCommAbort(comm: Comm) -> c_int;
    fn towline_ncclCommGetAsyncError(comm: Comm, state: *mut c_int) -> c_int;
    fn towline_ncclCommCount(comm: Comm, count: *mut c_int) -> c_int;
    fn towline_ncclCommUserRank(comm: Comm, rank: *mut c_int) -> c_int;
    fn towline_ncclCommCuDevice(comm: Comm, device: *mut c_int) -> c_int;
    fn towline_ncclAllReduce(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        reduction: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclReduce(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        reduction: c_int,
        root: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclReduceScatter(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        reduction: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclBroadcast(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        root: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclAllGather(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclAlltoAll(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclGather(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        root: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclScatter(
        send: *const c_void,
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        root: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclSend(
        send: *const c_void,
        count: usize,
        datatype: c_int,
        peer: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclRecv(
        receive: *mut c_void,
        count: usize,
        datatype: c_int,
        peer: c_int,
        comm: Comm,
        stream: CUstream,
    ) -> c_int;
    fn towline_ncclRedOpCreatePreMulSum(
        reduction: *mut c_int,
        scalar: *mut c_void,
        datatype: c_int,
        residence: c_int,
        comm: Comm,
    ) -> c_int;
    fn towline_ncclRedOpDestroy(reduction: c_int, comm: Comm) -> c_int;
    fn towline_ncclGroupStart() -> c_int;
    fn towline_ncclGroupEnd() -> c_int;
    fn towline_ncclGetLastError(comm: Comm) -> *const c_char;
}

const SUCCESS: c_int = 0;
const INVALID_ARGUMENT: c_int = 4;
const INVALID_USAGE: c_int = 5;
const REMOTE_ERROR: c_int = 6;
const IN_PROGRESS: c_int = 7;
const INT32: c_int = 2;
const SUM: c_int = 0;
const LARGEST: c_int = 2;

/// Servers of two, one and one device.
const DEVICES: usize = 4;

struct Place {
    driver: &'static Driver,
    contexts: [usize; DEVICES],
}

fn place() -> &'static Place {
    static PLACE: OnceLock<Place> = OnceLock::new();
    PLACE.get_or_init(|| {
        let machine = Machine::with(&[2, 1, 1]);
        let contexts = machine.contexts.iter().map(|context| context.addr());
        let contexts: Vec<_> = contexts.collect();
        let driver = machine.into_process();
        Place {
            driver,
            contexts: contexts.try_into().expect("a context for each device"),
        }
    })
}

/// A rank: a device that is the thread's, a stream of it, and a communicator.
struct Rank {
    number: usize,
    comm: Comm,
    stream: CUstream,
}

impl Rank {
    fn enter(device: usize) -> CUstream {
        let Place { driver, contexts } = place();
        // SAFETY: the context lives as long as the process.
        let set =
            unsafe { driver.cuCtxSetCurrent(std::ptr::without_provenance_mut(contexts[device])) };
        assert_eq!(set, CUDA_SUCCESS);
        let mut stream = null_mut();
        // SAFETY: the stream is a local.
        let made = unsafe { driver.cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING) };
        assert_eq!(made, CUDA_SUCCESS);
        stream
    }

    fn memory(&self, values: &[i32]) -> Memory {
        Memory::with(values)
    }

    fn settle(&self) {
        assert_eq!(self.wait(self.stream), CUDA_SUCCESS);
    }

    fn wait(&self, stream: CUstream) -> CUresult {
        // SAFETY: the stream lives.
        unsafe { place().driver.cuStreamSynchronize(stream) }
    }
}

/// Numbers on a device.
struct Memory(u64, usize);

impl Memory {
    fn with(values: &[i32]) -> Self {
        let (driver, mut address) = (place().driver, 0);
        // SAFETY: the address is a local.
        let made = unsafe { driver.cuMemAlloc_v2(&raw mut address, values.len().max(1) * 4) };
        assert_eq!(made, CUDA_SUCCESS);
        // SAFETY: the values are readable.
        let put =
            unsafe { driver.cuMemcpyHtoD_v2(address, values.as_ptr().cast(), values.len() * 4) };
        assert_eq!(put, CUDA_SUCCESS);
        Self(address, values.len())
    }

    fn at(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.0 as usize)
    }

    fn values(&self) -> Vec<i32> {
        let mut values = vec![0; self.1];
        // SAFETY: the room is writable.
        let got = unsafe {
            place()
                .driver
                .cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), self.0, self.1 * 4)
        };
        assert_eq!(got, CUDA_SUCCESS);
        values
    }
}

/// Every wait of the process may tell of a collective that failed: tests of such have it for themselves.
static PROCESS: RwLock<()> = RwLock::new(());

/// Runs a rank on each of these devices, in threads.
fn ranks(devices: &[usize], run: impl Fn(&Rank) + Sync) {
    let _others = PROCESS.read().unwrap_or_else(PoisonError::into_inner);
    run_ranks(devices, run);
}

/// As [`ranks`], beside no other test.
fn ranks_alone(devices: &[usize], run: impl Fn(&Rank) + Sync) {
    let _alone = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    run_ranks(devices, run);
}

fn run_ranks(devices: &[usize], run: impl Fn(&Rank) + Sync) {
    let mut id = Id([0; 128]);
    Rank::enter(devices[0]);
    // SAFETY: the id is a local.
    assert_eq!(unsafe { towline_ncclGetUniqueId(&raw mut id) }, SUCCESS);
    std::thread::scope(|scope| {
        for (number, device) in devices.iter().enumerate() {
            let run = &run;
            scope.spawn(move || {
                let stream = Rank::enter(*device);
                let (mut comm, all) = (null_mut(), devices.len() as c_int);
                // SAFETY: the communicator is a local.
                let made =
                    unsafe { towline_ncclCommInitRank(&raw mut comm, all, id, number as c_int) };
                assert_eq!(made, SUCCESS);
                let rank = Rank {
                    number,
                    comm,
                    stream,
                };
                run(&rank);
                // SAFETY: the communicator is not used any more.
                unsafe { towline_ncclCommDestroy(comm) };
            });
        }
    });
}

const SPREADS: [&[usize]; 4] = [&[0], &[0, 1], &[0, 2], &[0, 1, 2, 3]];

#[test]
fn every_collective_gives_what_it_says() {
    for devices in SPREADS {
        let all = devices.len() as i32;
        ranks(devices, |rank| {
            let (own, comm, stream) = (rank.number as i32, rank.comm, rank.stream);
            let root = all - 1;
            let is_root = own == root;
            let mine = rank.memory(&[own + 1, 10 * (own + 1)]);
            let out = rank.memory(&[-1; 2]);
            let wide = rank.memory(&vec![-1; 2 * all as usize]);
            let parts: Vec<_> = (0..2 * all).map(|at| at + 100 * own).collect();
            let parts = rank.memory(&parts);
            let total: i32 = (1..=all).sum();

            // SAFETY: in this and the others: memory of the rank's device, as large as the counts say.
            let done =
                unsafe { towline_ncclAllReduce(mine.at(), out.at(), 2, INT32, SUM, comm, stream) };
            assert_eq!(done, SUCCESS);
            rank.settle();
            assert_eq!(out.values(), [total, 10 * total]);

            // SAFETY: as above.
            let done = unsafe {
                towline_ncclReduce(mine.at(), out.at(), 2, INT32, LARGEST, root, comm, stream)
            };
            assert_eq!(done, SUCCESS);
            rank.settle();
            let expected = if is_root {
                [all, 10 * all]
            } else {
                [total, 10 * total]
            };
            assert_eq!(out.values(), expected);

            // SAFETY: as above.
            let done =
                unsafe { towline_ncclBroadcast(mine.at(), out.at(), 2, INT32, root, comm, stream) };
            assert_eq!(done, SUCCESS);
            rank.settle();
            assert_eq!(out.values(), [all, 10 * all]);

            // SAFETY: as above.
            let done =
                unsafe { towline_ncclAllGather(mine.at(), wide.at(), 2, INT32, comm, stream) };
            assert_eq!(done, SUCCESS);
            rank.settle();
            let gathered: Vec<_> = (1..=all).flat_map(|it| [it, 10 * it]).collect();
            assert_eq!(wide.values(), gathered);

            // SAFETY: as above.
            let done = unsafe {
                towline_ncclReduceScatter(parts.at(), out.at(), 2, INT32, SUM, comm, stream)
            };
            assert_eq!(done, SUCCESS);
            rank.settle();
            let part = |at: i32| (0..all).map(|from| at + 100 * from).sum::<i32>();
            assert_eq!(out.values(), [part(2 * own), part(2 * own + 1)]);

            // SAFETY: as above.
            let done =
                unsafe { towline_ncclAlltoAll(parts.at(), wide.at(), 2, INT32, comm, stream) };
            assert_eq!(done, SUCCESS);
            rank.settle();
            let from_all: Vec<_> = (0..all)
                .flat_map(|from| [2 * own + 100 * from, 2 * own + 1 + 100 * from])
                .collect();
            assert_eq!(wide.values(), from_all);

            // SAFETY: as above.
            let done =
                unsafe { towline_ncclGather(mine.at(), wide.at(), 2, INT32, root, comm, stream) };
            assert_eq!(done, SUCCESS);
            rank.settle();
            assert_eq!(wide.values(), if is_root { gathered } else { from_all });

            // SAFETY: as above.
            let done =
                unsafe { towline_ncclScatter(parts.at(), out.at(), 2, INT32, root, comm, stream) };
            assert_eq!(done, SUCCESS);
            rank.settle();
            assert_eq!(
                out.values(),
                [2 * own + 100 * root, 2 * own + 1 + 100 * root]
            );
        });
    }
}

#[test]
fn messages_of_a_group_pass_in_a_ring() {
    ranks(SPREADS[3], |rank| {
        let own = rank.number as i32;
        let (next, before) = ((own + 1) % 4, (own + 3) % 4);
        let data: Vec<_> = (0..1 << 16).map(|at| at * (own + 1)).collect();
        let (mine, theirs) = (rank.memory(&data), rank.memory(&vec![0; 1 << 16]));
        // SAFETY: no arguments.
        unsafe { towline_ncclGroupStart() };
        // SAFETY: memory of the rank's device, as large as the count says.
        let sent =
            unsafe { towline_ncclSend(mine.at(), 1 << 16, INT32, next, rank.comm, rank.stream) };
        // SAFETY: as above.
        let received = unsafe {
            towline_ncclRecv(theirs.at(), 1 << 16, INT32, before, rank.comm, rank.stream)
        };
        // SAFETY: no arguments.
        let ended = unsafe { towline_ncclGroupEnd() };
        assert_eq!([sent, received, ended], [SUCCESS; 3]);
        rank.settle();
        let expected: Vec<_> = (0..1 << 16).map(|at| at * (before + 1)).collect();
        assert_eq!(theirs.values(), expected);
    });
}

#[test]
fn work_of_a_stream_keeps_its_order_with_collectives() {
    ranks(SPREADS[3], |rank| {
        let (driver, stream) = (place().driver, rank.stream);
        let (mine, out) = (rank.memory(&[0; 256]), rank.memory(&[0; 256]));
        for round in 1..=20_u8 {
            // SAFETY: memory of the rank's device.
            let filled = unsafe { driver.cuMemsetD8Async(mine.0, round, 1024, stream) };
            assert_eq!(filled, CUDA_SUCCESS);
            // SAFETY: as above.
            let reduced = unsafe {
                towline_ncclAllReduce(mine.at(), out.at(), 256, INT32, LARGEST, rank.comm, stream)
            };
            assert_eq!(reduced, SUCCESS);
            // The copy behind it waits for it, and the next fill for that.
            // SAFETY: as above.
            let copied = unsafe { driver.cuMemcpyDtoDAsync_v2(mine.0, out.0, 1024, stream) };
            assert_eq!(copied, CUDA_SUCCESS);
            let mut values = [0; 256];
            let (to, from) = (values.as_mut_ptr().cast(), mine.0);
            // SAFETY: the room is writable, and waited for below.
            let read = unsafe { driver.cuMemcpyDtoHAsync_v2(to, from, 1024, stream) };
            assert_eq!(read, CUDA_SUCCESS);
            rank.settle();
            assert_eq!(values, [i32::from_le_bytes([round; 4]); 256]);
        }
    });
}

#[test]
fn one_thread_has_several_ranks() {
    let devices: [c_int; 4] = [0, 1, 2, 3];
    let mut comms = [null_mut(); 4];
    Rank::enter(0);
    // SAFETY: as many places and devices as it says.
    let made = unsafe { towline_ncclCommInitAll(comms.as_mut_ptr(), 4, devices.as_ptr()) };
    assert_eq!(made, SUCCESS);
    let mut all = Vec::new();
    for (device, comm) in comms.into_iter().enumerate() {
        let stream = Rank::enter(device);
        let (mut rank, mut count, mut ordinal) = (-1, -1, -1);
        // SAFETY: in this and the others: the place is a local.
        let told_rank = unsafe { towline_ncclCommUserRank(comm, &raw mut rank) };
        // SAFETY: as above.
        let told_count = unsafe { towline_ncclCommCount(comm, &raw mut count) };
        // SAFETY: as above.
        let told_device = unsafe { towline_ncclCommCuDevice(comm, &raw mut ordinal) };
        assert_eq!([told_rank, told_count, told_device], [SUCCESS; 3]);
        assert_eq!(
            [rank, count, ordinal],
            [device as c_int, 4, device as c_int]
        );
        let mine = Memory::with(&[device as i32; 3]);
        all.push((comm, stream, mine));
    }
    // SAFETY: no arguments.
    unsafe { towline_ncclGroupStart() };
    for (comm, stream, mine) in &all {
        // SAFETY: memory of the rank's device, as large as the count says.
        let queued =
            unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 3, INT32, SUM, *comm, *stream) };
        assert_eq!(queued, SUCCESS);
    }
    // SAFETY: no arguments.
    assert_eq!(unsafe { towline_ncclGroupEnd() }, SUCCESS);
    for (device, (comm, stream, mine)) in all.iter().enumerate() {
        Rank::enter(device);
        // SAFETY: the stream lives.
        let status = unsafe { place().driver.cuStreamSynchronize(*stream) };
        assert_eq!(status, CUDA_SUCCESS);
        assert_eq!(mine.values(), [6; 3]);
        // SAFETY: the communicator is not used any more.
        assert_eq!(unsafe { towline_ncclCommDestroy(*comm) }, SUCCESS);
    }
}

#[test]
fn a_split_gives_each_color_its_ranks() {
    ranks(SPREADS[3], |rank| {
        let own = rank.number as c_int;
        let mut half = null_mut();
        let color = if own == 3 { -1 } else { own % 2 };
        // SAFETY: the communicator is a local.
        let split =
            unsafe { towline_ncclCommSplit(rank.comm, color, -own, &raw mut half, null_mut()) };
        assert_eq!(split, SUCCESS);
        assert_eq!(half.is_null(), own == 3);
        if half.is_null() {
            return;
        }
        let (mut number, mut count) = (-1, -1);
        // SAFETY: the places are locals.
        unsafe { towline_ncclCommUserRank(half, &raw mut number) };
        // SAFETY: as above.
        unsafe { towline_ncclCommCount(half, &raw mut count) };
        let expected = if own == 1 { (0, 1) } else { (1 - own / 2, 2) };
        assert_eq!((number, count), expected);
        let mine = rank.memory(&[own + 1]);
        // SAFETY: memory of the rank's device.
        unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, SUM, half, rank.stream) };
        rank.settle();
        assert_eq!(mine.values(), [if own == 1 { 2 } else { 4 }]);
        // SAFETY: the communicator is not used any more.
        assert_eq!(unsafe { towline_ncclCommDestroy(half) }, SUCCESS);
    });
}

#[test]
fn a_reduction_of_ones_own_multiplies_first() {
    ranks(SPREADS[2], |rank| {
        let (mut reduction, mut scalar) = (0, 3_i32);
        // SAFETY: the number and the scalar are locals.
        let made = unsafe {
            let scalar = (&raw mut scalar).cast();
            towline_ncclRedOpCreatePreMulSum(&raw mut reduction, scalar, INT32, 1, rank.comm)
        };
        assert_eq!(made, SUCCESS);
        let mine = rank.memory(&[5]);
        let (comm, stream) = (rank.comm, rank.stream);
        // SAFETY: memory of the rank's device.
        unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, reduction, comm, stream) };
        rank.settle();
        assert_eq!(mine.values(), [30]);
        // SAFETY: the group is this thread's.
        unsafe { towline_ncclGroupStart() };
        // SAFETY: as above.
        unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, reduction, comm, stream) };
        // The group's operations have what they need.
        // SAFETY: the communicator lives.
        let ended = unsafe { towline_ncclRedOpDestroy(reduction, comm) };
        assert_eq!(ended, SUCCESS);
        // SAFETY: the group is this thread's.
        assert_eq!(unsafe { towline_ncclGroupEnd() }, SUCCESS);
        rank.settle();
        assert_eq!(mine.values(), [180]);
        // SAFETY: memory of the rank's device.
        let done = unsafe {
            towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, reduction, comm, stream)
        };
        assert_eq!(done, INVALID_ARGUMENT);
        // SAFETY: as above.
        assert_ne!(unsafe { towline_ncclRedOpDestroy(SUM, comm) }, SUCCESS);
    });
}

#[test]
fn a_rank_that_aborts_fails_the_others() {
    ranks_alone(SPREADS[3], |rank| {
        if rank.number == 2 {
            // SAFETY: the communicator is not used any more.
            assert_eq!(unsafe { towline_ncclCommAbort(rank.comm) }, SUCCESS);
            return;
        }
        let mine = rank.memory(&[1]);
        let (comm, stream) = (rank.comm, rank.stream);
        // SAFETY: memory of the rank's device.
        unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, SUM, comm, stream) };
        // The data has not come.
        assert_eq!(rank.wait(stream), CUDA_ERROR_EXTERNAL_DEVICE);
        let mut state = SUCCESS;
        // SAFETY: the place is a local.
        let told = unsafe { towline_ncclCommGetAsyncError(comm, &raw mut state) };
        assert_eq!((told, state), (SUCCESS, REMOTE_ERROR));
        // SAFETY: the communicator lives.
        let text = unsafe { towline_ncclGetLastError(null_mut()) };
        // SAFETY: the text ends with a zero.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        assert!(text.to_string_lossy().contains("rank"), "{text:?}");
    });
}

/// The state of a communicator.
fn state_of(comm: Comm) -> c_int {
    let mut state = -1;
    // SAFETY: the state is a local.
    let told = unsafe { towline_ncclCommGetAsyncError(comm, &raw mut state) };
    assert_eq!(told, SUCCESS);
    state
}

/// Waits until it is set, by a thread that may have failed.
fn wait_for(flag: &AtomicBool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !flag.load(Ordering::Acquire) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn collectives_of_a_lost_rank_fail() {
    let (gone, done) = (AtomicBool::new(false), AtomicBool::new(false));
    ranks_alone(&[0, 2], |rank| {
        let (comm, stream) = (rank.comm, rank.stream);
        let mut split = null_mut();
        // SAFETY: a local.
        let made = unsafe { towline_ncclCommSplit(comm, 0, 0, &raw mut split, null_mut()) };
        assert_eq!(made, SUCCESS);
        if rank.number == 1 {
            // It never comes again, and its server says that it is gone.
            assert_eq!(
                support::lose_bonds(),
                2,
                "the communicator's, and the part's"
            );
            gone.store(true, Ordering::Release);
            wait_for(&done);
            // SAFETY: it is not used any more.
            unsafe { towline_ncclCommAbort(split) };
            return;
        }
        wait_for(&gone);
        // Before there is anything to wait for, nobody notices.
        std::thread::sleep(2 * support::RANK_PATIENCE);
        assert_eq!(state_of(comm), SUCCESS);
        let mine = rank.memory(&[1]);
        let reduce = |comm| {
            // SAFETY: the memory holds one number.
            let enqueued =
                unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, SUM, comm, stream) };
            assert_eq!(enqueued, SUCCESS);
            rank.wait(stream)
        };
        assert_eq!(reduce(comm), CUDA_ERROR_EXTERNAL_DEVICE);
        assert_eq!(state_of(comm), REMOTE_ERROR);
        assert_eq!(reduce(comm), CUDA_ERROR_EXTERNAL_DEVICE, "at once");
        let mut other = null_mut();
        // SAFETY: a local.
        let made = unsafe { towline_ncclCommSplit(comm, 0, 0, &raw mut other, null_mut()) };
        assert_eq!(made, REMOTE_ERROR);
        // SAFETY: it is not used any more.
        assert_eq!(unsafe { towline_ncclCommAbort(comm) }, SUCCESS);
        assert_eq!(state_of(split), SUCCESS, "nothing waits there");
        // SAFETY: as above.
        assert_eq!(unsafe { towline_ncclCommAbort(split) }, SUCCESS);
        done.store(true, Ordering::Release);
    });
}

#[test]
fn a_communicator_in_the_making_can_be_aborted() {
    let _alone = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    let stream = Rank::enter(0);
    let mut id = Id([0; 128]);
    // SAFETY: the id is a local.
    assert_eq!(unsafe { towline_ncclGetUniqueId(&raw mut id) }, SUCCESS);
    // A configuration of NCCL 2.14: its size, magic and version, and that calls do not wait.
    let (mut config, mut comm) = ([24_u64, 0xcafe_beef | 21_400 << 32, 0], null_mut());
    let given = config.as_mut_ptr().cast();
    // SAFETY: the communicator and the configuration are locals.
    let made = unsafe { towline_ncclCommInitRankConfig(&raw mut comm, 2, id, 0, given) };
    assert_eq!(made, IN_PROGRESS);
    let mut state = SUCCESS;
    // SAFETY: the place is a local.
    let told = unsafe { towline_ncclCommGetAsyncError(comm, &raw mut state) };
    assert_eq!((told, state), (SUCCESS, IN_PROGRESS));
    // SAFETY: the communicator is not used any more.
    assert_eq!(unsafe { towline_ncclCommAbort(comm) }, SUCCESS);
    // The other rank comes too late, and learns so at the latest when it wants data.
    let mut other = null_mut();
    // SAFETY: the communicator is a local.
    let made = unsafe { towline_ncclCommInitRank(&raw mut other, 2, id, 1) };
    if made == SUCCESS {
        let mine = Memory::with(&[1]);
        // SAFETY: memory of the device.
        unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, SUM, other, stream) };
        // SAFETY: the stream lives.
        let waited = unsafe { place().driver.cuStreamSynchronize(stream) };
        assert_eq!(waited, CUDA_ERROR_EXTERNAL_DEVICE);
        // SAFETY: the communicator is not used any more.
        assert_eq!(unsafe { towline_ncclCommAbort(other) }, SUCCESS);
    }
}

#[test]
fn abort_in_a_failed_group_is_done() {
    ranks_alone(SPREADS[2], |rank| {
        let (comm, stream, mine) = (rank.comm, rank.stream, rank.memory(&[1]));
        let reduce = |comm| {
            // SAFETY: memory of the rank's device.
            unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, SUM, comm, stream) }
        };
        if rank.number == 0 {
            assert_eq!(reduce(comm), SUCCESS);
            // Not if the other had not gone.
            assert_eq!(rank.wait(stream), CUDA_ERROR_EXTERNAL_DEVICE);
            return;
        }
        // SAFETY: no arguments.
        unsafe { towline_ncclGroupStart() };
        // SAFETY: the communicator is not used any more.
        assert_eq!(unsafe { towline_ncclCommAbort(comm) }, SUCCESS);
        assert_eq!(reduce(null_mut()), INVALID_ARGUMENT);
        // SAFETY: as above.
        assert_eq!(unsafe { towline_ncclGroupEnd() }, INVALID_ARGUMENT);
    });
}

#[test]
fn finalization_of_a_communicator_that_does_not_block_is_told() {
    let _others = PROCESS.read().unwrap_or_else(PoisonError::into_inner);
    Rank::enter(0);
    let mut id = Id([0; 128]);
    // SAFETY: the id is a local.
    assert_eq!(unsafe { towline_ncclGetUniqueId(&raw mut id) }, SUCCESS);
    let (mut config, mut comm) = ([24_u64, 0xcafe_beef | 21_400 << 32, 0], null_mut());
    let given = config.as_mut_ptr().cast();
    // SAFETY: the communicator and the configuration are locals.
    let made = unsafe { towline_ncclCommInitRankConfig(&raw mut comm, 1, id, 0, given) };
    assert_eq!(made, IN_PROGRESS);
    let settle = || {
        let deadline = Instant::now() + Duration::from_secs(20);
        while state_of(comm) == IN_PROGRESS && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(state_of(comm), SUCCESS);
    };
    settle();
    // SAFETY: the communicator lives.
    assert_eq!(unsafe { towline_ncclCommFinalize(comm) }, IN_PROGRESS);
    settle();
    // SAFETY: as above.
    assert_eq!(unsafe { towline_ncclCommFinalize(comm) }, INVALID_ARGUMENT);
    // SAFETY: the communicator is not used any more.
    assert_eq!(unsafe { towline_ncclCommDestroy(comm) }, SUCCESS);
}

/// Edges of a graph.
fn edges(graph: CUgraph) -> usize {
    let mut count = 0;
    // SAFETY: the graph lives; the count is a local.
    let told = unsafe {
        place()
            .driver
            .cuGraphGetEdges(graph, null_mut(), null_mut(), &raw mut count)
    };
    assert_eq!(told, CUDA_SUCCESS);
    count
}

#[test]
fn captured_collectives_keep_their_order_between_streams() {
    ranks(SPREADS[0], |rank| {
        let (driver, comm, first) = (place().driver, rank.comm, rank.stream);
        let (mut second, mut event, mut graph) = (null_mut(), null_mut(), null_mut());
        let mine = rank.memory(&[1]);
        let reduce = |stream| {
            // SAFETY: memory of the rank's device.
            let done =
                unsafe { towline_ncclAllReduce(mine.at(), mine.at(), 1, INT32, SUM, comm, stream) };
            assert_eq!(done, SUCCESS);
        };
        let join = |from, to, event| {
            // SAFETY: streams and event live.
            let recorded = unsafe { driver.cuEventRecord(event, from) };
            // SAFETY: as above.
            let waits = unsafe { driver.cuStreamWaitEvent(to, event, 0) };
            assert_eq!((recorded, waits), (CUDA_SUCCESS, CUDA_SUCCESS));
        };
        let flags = CU_STREAM_NON_BLOCKING;
        // SAFETY: the stream is a local.
        unsafe { driver.cuStreamCreate(&raw mut second, flags) };
        // SAFETY: the event is a local.
        unsafe { driver.cuEventCreate(&raw mut event, 0) };
        let mode = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives.
        let begun = unsafe { driver.cuStreamBeginCapture_v2(first, mode) };
        assert_eq!(begun, CUDA_SUCCESS);
        join(first, second, event);
        // One after the other, though their streams do not wait for each other.
        reduce(second);
        reduce(first);
        // One node that both streams stand behind.
        // SAFETY: the group is this thread's.
        unsafe { towline_ncclGroupStart() };
        reduce(first);
        reduce(second);
        // SAFETY: as above.
        assert_eq!(unsafe { towline_ncclGroupEnd() }, SUCCESS);
        reduce(second);
        join(second, first, event);
        // SAFETY: the stream lives; the graph is a local.
        let ended = unsafe { driver.cuStreamEndCapture(first, &raw mut graph) };
        assert_eq!(ended, CUDA_SUCCESS);
        // Four nodes: 1 to 2, both to the group, which has one edge from 2 and one from 1, and that to the last.
        assert_eq!(edges(graph), 4);
        let mut exec = null_mut();
        // SAFETY: the communicator is not used any more, but by the graph.
        assert_eq!(unsafe { towline_ncclCommDestroy(comm) }, SUCCESS);
        // SAFETY: the graph lives.
        let made = unsafe { driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0) };
        assert_ne!(made, CUDA_SUCCESS);
        // The session goes on.
        assert_eq!(mine.values(), [1]);
        // SAFETY: the graph lives.
        unsafe { driver.cuGraphDestroy(graph) };
    });
}

#[test]
fn a_context_ends_with_its_communicators() {
    let _alone = PROCESS.write().unwrap_or_else(PoisonError::into_inner);
    let driver = place().driver;
    let (mut context, mut comm, mut id) = (null_mut(), null_mut(), Id([0; 128]));
    // SAFETY: the context is a local.
    let made = unsafe { driver.cuCtxCreate_v2(&raw mut context, 0, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    // SAFETY: the id is a local.
    assert_eq!(unsafe { towline_ncclGetUniqueId(&raw mut id) }, SUCCESS);
    // SAFETY: the communicator is a local.
    let made = unsafe { towline_ncclCommInitRank(&raw mut comm, 1, id, 0) };
    assert_eq!(made, SUCCESS);
    let free = || {
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are locals.
        unsafe { driver.cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        free
    };
    let before = free();
    let mut held = 0;
    // SAFETY: the address is a local.
    unsafe { driver.cuMemAlloc_v2(&raw mut held, 64 << 20) };
    // SAFETY: nothing of the context is used any more.
    assert_eq!(unsafe { driver.cuCtxDestroy_v2(context) }, CUDA_SUCCESS);
    Rank::enter(0);
    // Its end waits for nothing that does not come, and gives its memory back.
    for _ in 0..500 {
        if free() >= before {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("the context's memory is still held");
}

#[test]
fn memory_for_collectives_is_allocated_and_freed() {
    ranks(SPREADS[1], |rank| {
        let mut at = null_mut();
        // SAFETY: the address is a local.
        assert_eq!(unsafe { towline_ncclMemAlloc(&raw mut at, 4) }, SUCCESS);
        let (comm, stream, mine) = (rank.comm, rank.stream, rank.memory(&[1]));
        // SAFETY: memory of the rank's device.
        unsafe { towline_ncclAllReduce(mine.at(), at, 1, INT32, SUM, comm, stream) };
        rank.settle();
        let mut value = [0];
        let room = value.as_mut_ptr().cast();
        // SAFETY: the room is a local.
        let got = unsafe { place().driver.cuMemcpyDtoH_v2(room, at.addr() as u64, 4) };
        assert_eq!((got, value), (CUDA_SUCCESS, [2]));
        // SAFETY: the memory is not used any more.
        assert_eq!(unsafe { towline_ncclMemFree(at) }, SUCCESS);
        // SAFETY: it is no memory.
        assert_ne!(unsafe { towline_ncclMemFree(at) }, SUCCESS);
    });
}

#[test]
fn invalid_arguments_are_refused_before_they_leave() {
    let mut version = 0;
    Rank::enter(0);
    // SAFETY: the version is a local.
    assert_eq!(unsafe { towline_ncclGetVersion(&raw mut version) }, SUCCESS);
    assert!(version > 22_000);
    ranks(SPREADS[0], |rank| {
        let mine = rank.memory(&[7]);
        let call = |datatype, reduction, comm| {
            // SAFETY: memory of the rank's device; what is refused touches none.
            unsafe {
                towline_ncclAllReduce(
                    mine.at(),
                    mine.at(),
                    1,
                    datatype,
                    reduction,
                    comm,
                    rank.stream,
                )
            }
        };
        assert_eq!(call(99, SUM, rank.comm), INVALID_ARGUMENT);
        assert_eq!(call(INT32, -1, rank.comm), INVALID_ARGUMENT);
        assert_eq!(call(INT32, SUM, null_mut()), INVALID_ARGUMENT);
        assert_eq!(call(INT32, SUM, mine.at()), INVALID_ARGUMENT);
        // SAFETY: memory of the rank's device.
        let beyond = unsafe {
            towline_ncclBroadcast(mine.at(), mine.at(), 1, INT32, 1, rank.comm, rank.stream)
        };
        assert_eq!(beyond, INVALID_ARGUMENT);
        // A failure in a group is the group's, and nothing of it is done.
        // SAFETY: no arguments.
        unsafe { towline_ncclGroupStart() };
        assert_eq!(call(INT32, SUM, rank.comm), SUCCESS);
        assert_eq!(call(99, SUM, rank.comm), INVALID_ARGUMENT);
        // SAFETY: as above.
        assert_eq!(unsafe { towline_ncclGroupEnd() }, INVALID_ARGUMENT);
        // SAFETY: as above.
        assert_eq!(unsafe { towline_ncclGroupEnd() }, INVALID_USAGE);
        assert_eq!(call(INT32, SUM, rank.comm), SUCCESS);
        rank.settle();
        assert_eq!(mine.values(), [7]);
    });
}
