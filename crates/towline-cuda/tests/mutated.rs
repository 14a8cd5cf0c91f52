//! Whole programs in sessions whose messages are changed on their way ([`towline_test::mutated`]). A seed that fails becomes one of
//! [`SEEDS`].
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

use towline_backend::cuda::*;
use towline_cuda::Driver;
use towline_soft::{SoftCuda, SoftOptions};
use towline_test::guarded::Guarded;
use towline_test::mutated::{Begun, Told, sessions};
use towline_test::tamper::{TamperedTransport, Victim};
use towline_transport::memory::MemoryTransport;
use towline_transport::shm::ShmTransport;
use towline_transport::{Address, Transport};
use towline_worker::NoBroker;

/// Seeds that have found something.
const SEEDS: [u64; 0] = [];
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

    /// Managed memory. The host does not touch it: where a page of it cannot be had any more the process ends, as it should.
    fn managed_memory(&self, stream: CUstream) {
        let driver = self.driver;
        // SAFETY: the place has room.
        let (status, address) = Self::out::<u64>(|place| unsafe {
            driver.cuMemAllocManaged(place, 4096, CU_MEM_ATTACH_GLOBAL)
        });
        if status != CUDA_SUCCESS {
            return;
        }
        let target = Guarded::new(100);
        // SAFETY: the target is as large.
        unsafe {
            driver.cuMemsetD8Async(address, 2, 100, stream);
            driver.cuStreamSynchronize(stream);
            driver.cuMemcpyDtoH_v2(target.memory(), address, 100);
            driver.cuMemcpyDtoD_v2(self.first, address, 100);
            driver.cuMemFree_v2(address);
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
        program.managed_memory(stream);
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

/// Sessions on a device in software, over connections of this kind.
fn on_soft(victim: Victim, network: impl Fn(u64) -> (Box<dyn Transport>, Address)) {
    let options = SoftOptions {
        memory_bytes: 256 << 20,
        host_threads: Some(2),
        ..SoftOptions::default()
    };
    let soft = Arc::new(SoftCuda::new(options).unwrap());
    let address = std::cell::RefCell::new(None);
    let made = |seed| {
        let (transport, at) = network(seed);
        *address.borrow_mut() = Some(at);
        transport
    };
    let begin = |transport: &Arc<TamperedTransport>, told: Told<'_>| {
        let (api, broker) = (Arc::clone(&soft), Arc::new(NoBroker));
        let at = address.borrow_mut().take().expect("one for each network");
        let (session, worker) = support::attempt(api, "server", broker, &**transport, &at, told);
        let program = Box::new(move || {
            if let Ok(session) = session {
                let session = Arc::new(session);
                let driver = Driver::over(vec![Arc::clone(&session)], None);
                program(&driver);
                drop(driver);
                session.close();
            }
        });
        Begun { program, worker }
    };
    sessions(victim, &SEEDS, made, begin);
}

fn in_process(_: u64) -> (Box<dyn Transport>, Address) {
    let address = "memory://server".parse().unwrap();
    (Box::new(MemoryTransport::new()), address)
}

#[test]
fn mutated_servers_neither_crash_nor_read_nor_hang_a_program() {
    on_soft(Victim::Client, in_process);
}

#[test]
fn mutated_clients_neither_crash_nor_hang_a_worker() {
    on_soft(Victim::Server, in_process);
}

#[test]
fn mutated_servers_of_this_host_neither_crash_nor_hang_a_program() {
    let folder = tempfile::tempdir().unwrap();
    on_soft(Victim::Client, |seed| {
        let address = format!("shm://{}/{seed}", folder.path().display());
        (Box::new(ShmTransport::new()), address.parse().unwrap())
    });
}
