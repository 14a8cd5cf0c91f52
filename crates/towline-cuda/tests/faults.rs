//! Links that fail at every point of every kind of transfer: right bytes or an error, and right bytes where the link comes back, through the
//! whole driver.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]
#![allow(non_snake_case, reason = "fields of the C API are named as there")]

mod support;

use std::ffi::{CString, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};

use support::{Machine, Program, blank, pattern};
use towline_backend::cuda::*;
use towline_test::faults::{Run, Target};

/// Beyond what travels on the command lane: several chunks, and the last is no whole one.
const BULK: usize = 300_001;
/// Cases of a campaign among all tests; `every_point` runs all.
const SOME: usize = 60;

/// A driver over one session, and what its calls claim.
struct Session {
    run: Arc<Run>,
    machine: Machine,
}

impl Session {
    fn new(run: &Arc<Run>) -> Self {
        let machine = Machine::through(|| run.transport());
        if run.has_control {
            machine.sessions[0].expect_explanation();
        }
        Self {
            run: Arc::clone(run),
            machine,
        }
    }

    /// Everything made so far is there, and the link fails from here on.
    fn arm(&self) {
        self.machine.synchronise();
        self.run.arm();
    }

    fn write(&self, address: CUdeviceptr, data: &[u8]) {
        let (driver, from) = (&self.machine.driver, data.as_ptr().cast());
        // SAFETY: the data is readable.
        let status = unsafe { driver.cuMemcpyHtoD_v2(address, from, data.len()) };
        self.run.post("cuMemcpyHtoD", status);
    }

    fn read(&self, address: CUdeviceptr, right: &[u8]) {
        let target = Target::for_bytes(right);
        let (driver, to) = (&self.machine.driver, target.start().cast());
        // SAFETY: the target is writable.
        let status = unsafe { driver.cuMemcpyDtoH_v2(to, address, target.size()) };
        self.run.claim("cuMemcpyDtoH", status, &[&target]);
    }

    /// Begins a read that a wait for the stream ends; whether it could.
    fn start_read(&self, address: CUdeviceptr, target: &Arc<Target>, stream: CUstream) -> bool {
        let (driver, to) = (&self.machine.driver, target.start().cast());
        // SAFETY: the target is writable, and lives longer than the session.
        let status = unsafe { driver.cuMemcpyDtoHAsync_v2(to, address, target.size(), stream) };
        self.run.post("cuMemcpyDtoHAsync", status);
        status == CUDA_SUCCESS
    }

    fn synchronise(&self, stream: CUstream, targets: &[&Arc<Target>]) {
        // SAFETY: the stream lives.
        let status = unsafe { self.machine.driver.cuStreamSynchronize(stream) };
        self.run.claim("cuStreamSynchronize", status, targets);
    }

    fn context_synchronise(&self, targets: &[&Arc<Target>]) {
        // SAFETY: no pointers.
        let status = unsafe { self.machine.driver.cuCtxSynchronize() };
        self.run.claim("cuCtxSynchronize", status, targets);
    }

    fn end(self) {
        self.machine.end();
    }
}

/// Blocking copies, on the command lane and on lanes of their own.
fn copies(run: &Arc<Run>) {
    let session = Session::new(run);
    let (one, two) = (
        session.machine.allocate(BULK),
        session.machine.allocate(BULK),
    );
    session.arm();
    let data = pattern(BULK, 1);
    session.write(one, &data[..100]);
    session.write(one + 100, &data[100..60_000]);
    session.read(one, &data[..100]);
    session.read(one, &data[..60_000]);
    session.write(one, &data);
    // SAFETY: no host memory.
    let status = unsafe { session.machine.driver.cuMemcpyDtoD_v2(two, one, BULK) };
    run.post("cuMemcpyDtoD", status);
    session.read(two, &data);
    session.context_synchronise(&[]);
    session.read(one, &data);
    session.end();
}

/// Copies that do not block, of memory of either kind, and each way to learn that they are done.
fn copies_that_do_not_block(run: &Arc<Run>) {
    let session = Session::new(run);
    let driver = &session.machine.driver;
    let (memory, stream) = (session.machine.allocate(BULK), session.machine.stream());
    let (mut event, mut pinned) = (null_mut(), null_mut());
    // SAFETY: the handles are locals.
    let made = unsafe {
        [
            driver.cuEventCreate(&raw mut event, CU_EVENT_DISABLE_TIMING),
            driver.cuMemAllocHost_v2(&raw mut pinned, BULK),
        ]
    };
    assert_eq!(made, [CUDA_SUCCESS; 2]);
    let data = pattern(BULK, 2);
    // SAFETY: the pinned memory is as long, and nothing else uses it.
    unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), pinned.cast::<u8>(), BULK) };
    session.arm();
    // SAFETY: the pinned memory is left alone until the stream is through.
    let status = unsafe { driver.cuMemcpyHtoDAsync_v2(memory, pinned, BULK, stream) };
    run.post("cuMemcpyHtoDAsync", status);
    let targets: Vec<_> = (0..4).map(|_| Target::for_bytes(&data)).collect();
    let small = Target::for_bytes(&data[..4000]);
    // By the stream.
    if session.start_read(memory, &targets[0], stream) {
        session.synchronise(stream, &[&targets[0]]);
    }
    // By an event that is asked for, and one that is awaited.
    for (target, polls) in [(&targets[1], true), (&targets[2], false)] {
        if !session.start_read(memory, target, stream) {
            continue;
        }
        // SAFETY: event and stream live.
        let recorded = unsafe { driver.cuEventRecord(event, stream) };
        run.post("cuEventRecord", recorded);
        if recorded != CUDA_SUCCESS {
            continue;
        }
        if !polls {
            // SAFETY: the event lives.
            let status = unsafe { driver.cuEventSynchronize(event) };
            run.claim("cuEventSynchronize", status, &[target]);
            continue;
        }
        let status = loop {
            // SAFETY: the event lives.
            match unsafe { driver.cuEventQuery(event) } {
                CUDA_ERROR_NOT_READY => std::thread::yield_now(),
                status => break status,
            }
        };
        run.claim("cuEventQuery", status, &[target]);
    }
    // By the context, and by asking the stream; the small one waits to be posted.
    let small = session.start_read(memory, &small, stream).then_some(small);
    session.context_synchronise(&small.iter().collect::<Vec<_>>());
    if session.start_read(memory, &targets[3], stream) {
        let status = loop {
            // SAFETY: the stream lives.
            match unsafe { driver.cuStreamQuery(stream) } {
                CUDA_ERROR_NOT_READY => std::thread::yield_now(),
                status => break status,
            }
        };
        run.claim("cuStreamQuery", status, &[&targets[3]]);
    }
    session.end();
}

/// Reads into pinned memory, which must be right whenever a wait succeeds.
fn pinned_memory(run: &Arc<Run>) {
    let session = Session::new(run);
    let driver = &session.machine.driver;
    let (memory, stream) = (session.machine.allocate(BULK), session.machine.stream());
    let mut pinned = null_mut();
    // SAFETY: the place is a local.
    let made = unsafe { driver.cuMemAllocHost_v2(&raw mut pinned, BULK) };
    assert_eq!(made, CUDA_SUCCESS);
    session.arm();
    for round in 0..3 {
        let data = pattern(BULK, 3 + round);
        session.write(memory, &data);
        // SAFETY: the pinned memory is left alone until the stream is through.
        let started = unsafe { driver.cuMemcpyDtoHAsync_v2(pinned, memory, BULK, stream) };
        run.post("cuMemcpyDtoHAsync", started);
        // SAFETY: the stream lives.
        let status = unsafe { driver.cuStreamSynchronize(stream) };
        run.claim("cuStreamSynchronize", status, &[]);
        // SAFETY: pinned memory stays as long as the driver; the stream is through with it.
        let bytes = unsafe { std::slice::from_raw_parts(pinned.cast::<u8>(), BULK) };
        if [started, status] == [CUDA_SUCCESS; 2] && *bytes != *data {
            run.complain(format!(
                "round {round} succeeds, and pinned bytes are wrong"
            ));
        }
    }
    session.end();
}

/// Boxes with pitches on both sides, and an array of three dimensions.
fn boxes_and_arrays(run: &Arc<Run>) {
    const ROW: usize = 640;
    const SIZE: [usize; 3] = [ROW, 60, 5];
    const ALL: usize = SIZE[0] * SIZE[1] * SIZE[2];
    let session = Session::new(run);
    let driver = &session.machine.driver;
    let memory = session.machine.filled(&vec![7; 1024 * 64 * 6]);
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: ROW / 8,
        Height: SIZE[1],
        Depth: SIZE[2],
        Format: CU_AD_FORMAT_FLOAT,
        NumChannels: 2,
        Flags: 0,
    };
    let mut array = null_mut();
    // SAFETY: both are locals.
    let made = unsafe { driver.cuArray3DCreate_v2(&raw mut array, &raw const descriptor) };
    assert_eq!(made, CUDA_SUCCESS);
    session.arm();
    let data = pattern(ALL, 6);
    let mut whole = blank();
    (whole.WidthInBytes, whole.Height, whole.Depth) = (SIZE[0], SIZE[1], SIZE[2]);
    for in_array in [false, true] {
        let mut write = whole;
        (write.srcMemoryType, write.srcHost) = (CU_MEMORYTYPE_HOST, data.as_ptr().cast());
        if in_array {
            (write.dstMemoryType, write.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
        } else {
            (write.dstMemoryType, write.dstDevice) = (CU_MEMORYTYPE_DEVICE, memory);
            (write.dstPitch, write.dstHeight) = (1024, 64);
            (write.dstXInBytes, write.dstY, write.dstZ) = (16, 2, 1);
        }
        // SAFETY: the data is as long as the box.
        let status = unsafe { driver.cuMemcpy3D_v2(&raw const write) };
        run.post("cuMemcpy3D", status);
        // To rows of 700 bytes, whose ends stay as they are.
        let before = pattern(700 * SIZE[1] * SIZE[2], 7);
        let mut right = before.clone();
        for (row, bytes) in data.chunks(ROW).enumerate() {
            right[row * 700..row * 700 + ROW].copy_from_slice(bytes);
        }
        let target = Target::from(before, &right);
        let mut read = whole;
        (read.srcMemoryType, read.srcDevice, read.srcArray) =
            (write.dstMemoryType, write.dstDevice, write.dstArray);
        (read.srcPitch, read.srcHeight) = (write.dstPitch, write.dstHeight);
        (read.srcXInBytes, read.srcY, read.srcZ) = (write.dstXInBytes, write.dstY, write.dstZ);
        (read.dstMemoryType, read.dstHost) = (CU_MEMORYTYPE_HOST, target.start().cast());
        (read.dstPitch, read.dstHeight) = (700, SIZE[1]);
        // SAFETY: the target has room for the rows.
        let status = unsafe { driver.cuMemcpy3D_v2(&raw const read) };
        run.claim("cuMemcpy3D", status, &[&target]);
    }
    session.end();
}

/// What a function of the application is to look at, and who waits for it.
struct Told {
    run: Arc<Run>,
    target: Arc<Target>,
    told: Sender<()>,
}

impl Told {
    fn boxed(run: &Arc<Run>, target: &Arc<Target>, told: &Sender<()>) -> *mut c_void {
        let told = Self {
            run: Arc::clone(run),
            target: Arc::clone(target),
            told: told.clone(),
        };
        Box::into_raw(Box::new(told)).cast()
    }
}

/// A host function: it runs only where all before it was done.
extern "C" fn look(told: *mut c_void) {
    // SAFETY: the pointer was made from this box, and the function is called at most once.
    let told = unsafe { Box::from_raw(told.cast::<Told>()) };
    told.run.ended("the host function", true, &[&told.target]);
    // The program may have given up.
    let _ = told.told.send(());
}

extern "C" fn called_back(_: CUstream, status: CUresult, told: *mut c_void) {
    // SAFETY: the pointer was made from this box, and the callback is called once.
    let told = unsafe { Box::from_raw(told.cast::<Told>()) };
    let done = status == CUDA_SUCCESS;
    told.run.ended("the callback", done, &[&told.target]);
    // The program may have given up.
    let _ = told.told.send(());
}

/// Functions of the application behind copies.
fn functions_of_the_application(run: &Arc<Run>) {
    let session = Session::new(run);
    let driver = &session.machine.driver;
    let data = pattern(BULK, 8);
    let (memory, stream) = (session.machine.filled(&data), session.machine.stream());
    session.arm();
    let targets: Vec<_> = (0..2).map(|_| Target::for_bytes(&data)).collect();
    let (told, telling) = channel();
    if session.start_read(memory, &targets[0], stream) {
        let data = Told::boxed(run, &targets[0], &told);
        // SAFETY: the function's data lives until it has run; where it does not run it stays.
        let status = unsafe { driver.cuLaunchHostFunc(stream, Some(look), data) };
        run.post("cuLaunchHostFunc", status);
    }
    if session.start_read(memory, &targets[1], stream) {
        let data = Told::boxed(run, &targets[1], &told);
        // SAFETY: as above.
        let status = unsafe { driver.cuStreamAddCallback(stream, Some(called_back), data, 0) };
        run.post("cuStreamAddCallback", status);
    }
    session.synchronise(stream, &[]);
    session.read(memory, &data);
    // What has been told is judged; what was not run with the session is no claim.
    telling.try_iter().for_each(drop);
    session.end();
}

/// A graph that writes, computes and reads, launched several times.
fn graphs(run: &Arc<Run>) {
    const COUNT: usize = 80_000;
    let session = Session::new(run);
    let program = Program::on(session.machine);
    let driver = &program.machine.driver;
    let (memory, stream) = (
        program.machine.allocate(COUNT * 4),
        program.machine.stream(),
    );
    let (mut source, mut target) = (null_mut(), null_mut());
    // SAFETY: the places are locals.
    let made = unsafe {
        [
            driver.cuMemAllocHost_v2(&raw mut source, COUNT * 4),
            driver.cuMemAllocHost_v2(&raw mut target, COUNT * 4),
        ]
    };
    assert_eq!(made, [CUDA_SUCCESS; 2]);
    let (mut graph, mut exec) = (null_mut(), null_mut());
    // SAFETY: the memory is left alone while a launch is under way; the handles are locals.
    let captured = unsafe {
        let begun = driver.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
        let written = driver.cuMemcpyHtoDAsync_v2(memory, source, COUNT * 4, stream);
        program.add(memory, COUNT, stream);
        let read = driver.cuMemcpyDtoHAsync_v2(target, memory, COUNT * 4, stream);
        let ended = driver.cuStreamEndCapture(stream, &raw mut graph);
        let made = driver.cuGraphInstantiateWithFlags(&raw mut exec, graph, 0);
        [begun, written, read, ended, made]
    };
    assert_eq!(captured, [CUDA_SUCCESS; 5]);
    program.machine.synchronise();
    run.arm();
    for round in 0..3_u32 {
        // SAFETY: no launch is under way.
        let words = unsafe { std::slice::from_raw_parts_mut(source.cast::<u32>(), COUNT) };
        words
            .iter_mut()
            .zip(round * 1000..)
            .for_each(|(word, value)| *word = value);
        // SAFETY: the graph lives.
        let launched = unsafe { driver.cuGraphLaunch(exec, stream) };
        run.post("cuGraphLaunch", launched);
        // SAFETY: the stream lives.
        let status = unsafe { driver.cuStreamSynchronize(stream) };
        run.claim("cuStreamSynchronize", status, &[]);
        // SAFETY: pinned memory stays as long as the driver; the stream is through with it.
        let words = unsafe { std::slice::from_raw_parts(target.cast::<u32>(), COUNT) };
        let right = words.iter().zip(round * 1000 + 1..).all(|(a, b)| *a == b);
        if [launched, status] == [CUDA_SUCCESS; 2] && !right {
            run.complain(format!("launch {round} succeeds, and its bytes are wrong"));
        }
    }
    program.machine.end();
}

/// Registered memory that a kernel changes: the wait behind it shows the host what the kernel left, or fails.
fn registered_memory(run: &Arc<Run>) {
    const COUNT: usize = 1000;
    let session = Session::new(run);
    let program = Program::on(session.machine);
    let driver = &program.machine.driver;
    let stream = program.machine.stream();
    let words: Vec<AtomicU32> = (0..COUNT).map(|_| AtomicU32::new(0)).collect();
    let start: *mut c_void = words.as_ptr().cast_mut().cast();
    start.expose_provenance();
    let mut device = 0;
    // SAFETY: the words live until the session has ended; the place is a local.
    let made = unsafe {
        [
            driver.cuMemHostRegister_v2(start, COUNT * 4, CU_MEMHOSTREGISTER_DEVICEMAP),
            driver.cuMemHostGetDevicePointer_v2(&raw mut device, start, 0),
        ]
    };
    assert_eq!(made, [CUDA_SUCCESS; 2]);
    program.add(device, COUNT, stream);
    program.machine.synchronise();
    run.arm();
    for round in 2..5 {
        let launched = program.try_add(device, COUNT, stream);
        run.post("cuLaunchKernel", launched);
        // SAFETY: the stream lives.
        let status = unsafe { driver.cuStreamSynchronize(stream) };
        run.claim("cuStreamSynchronize", status, &[]);
        let right = words
            .iter()
            .all(|word| word.load(Ordering::Relaxed) == round);
        if [launched, status] == [CUDA_SUCCESS; 2] && !right {
            run.complain(format!(
                "round {round} succeeds, and registered words are wrong"
            ));
        }
    }
    program.machine.end();
}

/// Device code that travels on payload lanes: what was loaded computes, or is not there.
fn images(run: &Arc<Run>) {
    let session = Session::new(run);
    let driver = &session.machine.driver;
    let memory = session.machine.filled(&41_u32.to_ne_bytes());
    let mut text = String::from("towline null image\nkernel add_one\n");
    text.extend(std::iter::repeat_n("nothing but words\n", 20_000));
    let image = CString::new(text).unwrap();
    session.arm();
    let (mut module, mut add_one) = (null_mut(), null_mut());
    // SAFETY: the image is a string; the handles are locals.
    let loaded = unsafe { driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
    run.claim("cuModuleLoadData", loaded, &[]);
    let mut status = loaded;
    if status == CUDA_SUCCESS {
        let (mut address, mut count) = (memory, 1_u32);
        let mut params = [(&raw mut address).cast(), (&raw mut count).cast()];
        // SAFETY: the module lives, and the parameters are those of the kernel.
        status = unsafe {
            driver.cuModuleGetFunction(&raw mut add_one, module, c"add_one".as_ptr());
            let (list, none) = (params.as_mut_ptr(), null_mut());
            driver.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, null_mut(), list, none)
        };
        run.post("cuLaunchKernel", status);
    }
    // Without the launch the memory is as it was; the session may still live, since an error before may be the module's own.
    if status == CUDA_SUCCESS {
        session.read(memory, &42_u32.to_ne_bytes());
    }
    session.context_synchronise(&[]);
    session.end();
}

macro_rules! campaigns {
    ($($program:ident)*) => {
        mod some_points {
            $(#[test]
            fn $program() {
                towline_test::faults::check(super::$program, super::SOME);
            })*
        }
        mod some_points_of_links_that_come_back {
            $(#[test]
            fn $program() {
                towline_test::faults::check_healed(super::$program, super::SOME);
            })*
        }
        mod every_point {
            $(#[test]
            #[ignore = "takes minutes"]
            fn $program() {
                towline_test::faults::check(super::$program, usize::MAX);
            })*
        }
        mod every_point_of_links_that_come_back {
            $(#[test]
            #[ignore = "takes minutes"]
            fn $program() {
                towline_test::faults::check_healed(super::$program, usize::MAX);
            })*
        }
    };
}

campaigns! {
    copies
    copies_that_do_not_block
    pinned_memory
    boxes_and_arrays
    functions_of_the_application
    graphs
    registered_memory
    images
}
