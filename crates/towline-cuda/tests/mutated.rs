//! Whole programs in sessions whose messages are changed on their way, in either direction. Whatever a peer says, the process lives, every
//! call returns once the connection has ended, nothing beside the memory that a call was lent is written, and nothing of it is sent.
//!
//! `TOWLINE_FUZZ_SECONDS` makes it last, `TOWLINE_FUZZ_SEED` begins elsewhere. A seed that fails becomes one of [`SEEDS`].
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

#[allow(unused_macros, reason = "the rules of every device are elsewhere")]
mod support;

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use towline_backend::cuda::*;
use towline_cuda::Driver;
use towline_soft::{SoftCuda, SoftOptions};
use towline_test::guarded::{Guarded, SECRET};
use towline_test::tamper::{Mutator, TamperedTransport, Victim};
use towline_transport::Address;
use towline_worker::{NoBroker, RunError};

/// Seeds that have found something.
const SEEDS: [u64; 0] = [];
/// A session that stands still for so long is cut: a peer that does not answer cannot be told from a long kernel.
const STALL: Duration = Duration::from_millis(400);
/// Nothing takes longer once the connection is cut.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long each direction runs unless the environment says otherwise.
const USUAL: Duration = Duration::from_secs(20);

/// A copy that travels on the command lane.
const SMALL: usize = 100;
/// A copy that travels on the payload lanes.
const LARGE: usize = 300 << 10;

const IMAGE: &CStr = c".version 7.0\n.target sm_70\n.address_size 64\n\
    .visible .global .align 4 .u32 counter = 5;\n\
    .visible .entry add(.param .u64 place, .param .u32 count, .param .u32 value) {\n\
    .reg .pred %p<2>; .reg .b64 %rd<5>; .reg .b32 %r<6>;\n\
    ld.param.u64 %rd1, [place]; ld.param.u32 %r1, [count]; ld.param.u32 %r2, [value];\n\
    mov.u32 %r3, %tid.x; setp.ge.u32 %p1, %r3, %r1; @%p1 bra done;\n\
    mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd1, %rd2;\n\
    ld.global.u32 %r4, [%rd3]; add.s32 %r5, %r4, %r2; st.global.u32 [%rd3], %r5;\n\
    done: ret; }\n";

/// Panics of any thread.
static PANICS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn called(data: *mut c_void) {
    // SAFETY: the program gave this a counter that outlives its session.
    unsafe { &*data.cast::<AtomicU64>() }.fetch_add(1, Ordering::Relaxed);
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// What a program does with a device: statuses are the server's word, so that none is looked at but where something depends on it.
struct Program<'a> {
    driver: &'a Driver,
    first: CUdeviceptr,
    second: CUdeviceptr,
}

impl Program<'_> {
    fn out<T: std::marker::Copy + Default>(ask: impl FnOnce(*mut T) -> CUresult) -> (CUresult, T) {
        let place = Guarded::new(size_of::<T>());
        let room = place.place::<T>();
        // SAFETY: the memory is as large, and aligned since it ends with a page.
        unsafe { room.write(T::default()) };
        let status = ask(room);
        // SAFETY: as above.
        (status, unsafe { room.read() })
    }

    fn handle<T>(ask: impl FnOnce(*mut *mut T) -> CUresult) -> *mut T {
        let (status, bits) = Self::out::<usize>(|place| ask(place.cast()));
        match status {
            CUDA_SUCCESS => std::ptr::without_provenance_mut(bits),
            _ => null_mut(),
        }
    }

    fn launch(&self, function: CUfunction, stream: CUstream) -> CUresult {
        let place = Guarded::filled(&self.first.to_ne_bytes());
        let count = Guarded::filled(&16_u32.to_ne_bytes());
        let value = Guarded::filled(&1_u32.to_ne_bytes());
        let list = [place.memory(), count.memory(), value.memory()];
        let list = Guarded::filled(
            &list
                .map(|one| one.expose_provenance().to_ne_bytes())
                .concat(),
        );
        // SAFETY: there are as many parameters, of these sizes.
        unsafe {
            let (params, none) = (list.place(), null_mut());
            self.driver
                .cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, none)
        }
    }

    fn copies(&self, stream: CUstream) {
        let driver = self.driver;
        for size in [SMALL, LARGE] {
            let source = Guarded::filled(&vec![7; size]);
            let target = Guarded::new(size);
            // SAFETY: both are as large.
            unsafe {
                driver.cuMemcpyHtoD_v2(self.first, source.memory(), size);
                driver.cuMemcpyDtoD_v2(self.second, self.first, size);
                driver.cuMemcpyDtoH_v2(target.memory(), self.second, size);
            }
            // What a stream still needs when the server has gone is not freed before the driver says so.
            let later = Guarded::new(size);
            // SAFETY: as above.
            unsafe {
                driver.cuMemcpyHtoDAsync_v2(self.first, source.memory(), size, stream);
                driver.cuMemcpyDtoHAsync_v2(later.memory(), self.first, size, stream);
                driver.cuStreamSynchronize(stream);
            }
        }
        let rows = Guarded::filled(&[9; 16 * 24]);
        // SAFETY: zeros are a copy of nothing.
        let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = rows.memory().cast_const();
        copy.srcPitch = 24;
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = self.first;
        copy.dstPitch = 64;
        copy.WidthInBytes = 24;
        copy.Height = 16;
        // SAFETY: the rows are as many, and the structure a local.
        unsafe { driver.cuMemcpy2D_v2(&raw const copy) };
        std::mem::swap(&mut copy.srcMemoryType, &mut copy.dstMemoryType);
        std::mem::swap(&mut copy.srcPitch, &mut copy.dstPitch);
        (copy.srcDevice, copy.dstHost) = (self.first, rows.memory());
        // SAFETY: as above.
        unsafe { driver.cuMemcpy2D_v2(&raw const copy) };
    }

    fn kernels(&self, stream: CUstream) {
        let driver = self.driver;
        // SAFETY: the image is a string.
        let module =
            Self::handle(|place| unsafe { driver.cuModuleLoadData(place, IMAGE.as_ptr().cast()) });
        // SAFETY: the name is a string.
        let add = Self::handle(|place| unsafe {
            driver.cuModuleGetFunction(place, module, c"add".as_ptr())
        });
        // SAFETY: the places have room.
        unsafe {
            Self::out::<usize>(|place| driver.cuFuncGetParamInfo(add, 1, place, null_mut()));
            Self::out::<i32>(|place| driver.cuFuncGetAttribute(place, 0, add));
            Self::out::<u64>(|place| {
                driver.cuModuleGetGlobal_v2(place, null_mut(), module, c"counter".as_ptr())
            });
            Self::out::<i32>(|place| {
                driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(place, add, 32, 0)
            });
        }
        self.launch(add, null_mut());
        self.launch(add, stream);
        // SAFETY: the handles are the driver's own to judge.
        unsafe {
            driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
            self.launch(add, stream);
            let graph = Self::handle(|place| driver.cuStreamEndCapture(stream, place));
            let exec = Self::handle(|place| driver.cuGraphInstantiateWithFlags(place, graph, 0));
            driver.cuGraphLaunch(exec, stream);
            driver.cuStreamSynchronize(stream);
            driver.cuGraphExecDestroy(exec);
            driver.cuGraphDestroy(graph);
            driver.cuModuleUnload(module);
        }
    }

    fn host_memory(&self, stream: CUstream) {
        let driver = self.driver;
        // SAFETY: the place has room.
        let pinned =
            Self::handle::<c_void>(|place| unsafe { driver.cuMemHostAlloc(place, 4096, 0) });
        if !pinned.is_null() {
            // SAFETY: the driver has given as much memory, which is written before it is read.
            unsafe {
                pinned.cast::<u8>().write_bytes(3, 4096);
                driver.cuMemcpyHtoDAsync_v2(self.first, pinned, 4096, stream);
                driver.cuMemcpyDtoHAsync_v2(pinned, self.first, 4096, stream);
                driver.cuStreamSynchronize(stream);
                driver.cuMemFreeHost(pinned);
            }
        }
        let data = std::ptr::from_ref(&CALLS).cast_mut().cast();
        // SAFETY: the function and its data outlive the session.
        unsafe {
            driver.cuLaunchHostFunc(stream, Some(called), data);
            driver.cuStreamSynchronize(stream);
        }
    }

    fn questions(driver: &Driver) {
        let name = Guarded::new(24);
        // SAFETY: the places have room.
        unsafe {
            Self::out::<i32>(|place| driver.cuDeviceGetCount(place));
            driver.cuDeviceGetName(name.place(), 24, 0);
            Self::out::<i32>(|place| driver.cuDeviceGetAttribute(place, 1, 0));
            Self::out::<usize>(|place| driver.cuDeviceTotalMem_v2(place, 0));
            Self::out::<[u8; 16]>(|place| driver.cuDeviceGetUuid_v2(place.cast(), 0));
            Self::out::<[usize; 2]>(|place| {
                let place = place.cast::<usize>();
                driver.cuMemGetInfo_v2(place, place.add(1))
            });
        }
    }
}

fn program(driver: &Driver) {
    // SAFETY: the places have room, and handles are the driver's own to judge.
    unsafe {
        if driver.cuInit(0) != CUDA_SUCCESS {
            return;
        }
        let context = Program::handle(|place| driver.cuDevicePrimaryCtxRetain(place, 0));
        driver.cuCtxSetCurrent(context);
        Program::questions(driver);
        let allocate = || Program::out::<u64>(|place| driver.cuMemAlloc_v2(place, 2 * LARGE)).1;
        let program = Program {
            driver,
            first: allocate(),
            second: allocate(),
        };
        let stream = Program::handle(|place| driver.cuStreamCreate(place, CU_STREAM_NON_BLOCKING));
        let event = Program::handle(|place| driver.cuEventCreate(place, 0));
        driver.cuMemsetD8_v2(program.first, 1, LARGE);
        driver.cuEventRecord(event, stream);
        program.copies(stream);
        program.kernels(stream);
        program.host_memory(stream);
        driver.cuEventRecord(event, stream);
        driver.cuEventSynchronize(event);
        Program::out::<f32>(|place| driver.cuEventElapsedTime_v2(place, event, event));
        driver.cuEventDestroy_v2(event);
        driver.cuStreamDestroy_v2(stream);
        driver.cuMemFree_v2(program.first);
        driver.cuMemFree_v2(program.second);
        driver.cuDevicePrimaryCtxRelease_v2(0);
    }
}

/// Waits for something, and says whether it came; a sender that panicked ends the test.
fn comes<T>(from: &Receiver<T>, within: Duration, what: &str) -> bool {
    match from.recv_timeout(within) {
        Ok(_) => true,
        Err(RecvTimeoutError::Timeout) => false,
        Err(RecvTimeoutError::Disconnected) => panic!("{what} panicked"),
    }
}

/// Runs the program in a session that `seed` describes.
fn session(victim: Victim, seed: u64, soft: &Arc<SoftCuda>) {
    let panics = PANICS.load(Ordering::Relaxed);
    let transport = Arc::new(TamperedTransport::new(victim, Mutator::new(seed)));
    let traffic = transport.traffic();
    let address: Address = "memory://server".parse().unwrap();
    let tell = |mut snapshot: Vec<u8>| {
        if victim == Victim::Client && seed.is_multiple_of(8) {
            let mut mutator = Mutator::new(seed);
            (0..1 + seed % 3).for_each(|_| mutator.renumber(&mut snapshot));
        }
        snapshot
    };
    let (api, broker) = (Arc::clone(soft), Arc::new(NoBroker));
    let (session, ended) = support::attempt(api, "server", broker, &*transport, &address, tell);
    let (sender, done) = channel();
    let client = std::thread::spawn(move || {
        if let Ok(session) = session {
            let session = Arc::new(session);
            let driver = Driver::over(vec![Arc::clone(&session)], None);
            program(&driver);
            drop(driver);
            session.close();
        }
        // The test may have given up.
        let _ = sender.send(());
    });
    let mut over = comes(&done, STALL, "the client");
    transport.cut();
    over = over || comes(&done, PATIENCE, "the client");
    assert!(
        over,
        "seed {seed}: a call has not returned {PATIENCE:?} after its connection was cut"
    );
    client.join().expect("the client does not panic");
    let ended: &Receiver<Result<(), RunError>> = &ended;
    assert!(
        comes(ended, PATIENCE, "the worker"),
        "seed {seed}: the worker hangs"
    );
    assert!(
        !traffic.holds(SECRET),
        "seed {seed}: memory that was not lent has been sent"
    );
    assert_eq!(
        PANICS.load(Ordering::Relaxed),
        panics,
        "seed {seed}: a thread panicked"
    );
}

fn sessions(victim: Victim) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        hook(info);
    }));
    let number = |variable: &str| -> Option<u64> {
        let value = std::env::var(variable).ok()?;
        Some(value.parse().expect("it must be a number"))
    };
    let options = SoftOptions {
        memory_bytes: 256 << 20,
        host_threads: Some(2),
        ..SoftOptions::default()
    };
    let soft = Arc::new(SoftCuda::new(options).unwrap());
    let until = number("TOWLINE_FUZZ_SECONDS").map_or(USUAL, Duration::from_secs);
    let (began, first) = (Instant::now(), number("TOWLINE_FUZZ_SEED").unwrap_or(1));
    let mut count = 0_u64;
    for seed in SEEDS.into_iter().chain(first..) {
        if began.elapsed() >= until {
            break;
        }
        session(victim, seed, &soft);
        count += 1;
    }
    println!("{count} sessions");
    assert!(count > 10, "the sessions take too long to test anything");
}

#[test]
fn mutated_servers_neither_crash_nor_read_nor_hang_a_program() {
    sessions(Victim::Client);
}

#[test]
fn mutated_clients_neither_crash_nor_hang_a_worker() {
    sessions(Victim::Server);
}
