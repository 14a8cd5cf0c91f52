//! How threads wait: natively they look until the device is through, or sleep where the program asks for that. One test, since the
//! process's environment says how long threads look.

mod support;

use std::ptr::null_mut;
use std::time::Duration;

use support::Machine;
use towline_backend::cuda::*;

/// Looks at a thread that waits, and how far they are apart.
const LOOKS: usize = 16;
const APART: Duration = Duration::from_millis(1);

fn ok(status: CUresult) {
    assert_eq!(status, CUDA_SUCCESS);
}

/// Whether a thread of this process sleeps: it does not run, and does not wait for a processor either.
fn sleeps(thread: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
    let (_, state) = stat.rsplit_once(") ").unwrap();
    state.starts_with('S')
}

/// Whether this thread sleeps during `wait`, which is for work of the stream.
fn sleeps_during(
    machine: &Machine,
    kernel: CUfunction,
    event: CUevent,
    wait: impl FnOnce(&dyn CudaApi, CUstream),
) -> bool {
    let gate = machine.filled(&[0; 4]);
    let (stream, other) = (machine.stream(), machine.stream());
    let mut address = gate;
    let mut params = [(&raw mut address).cast()];
    let driver = &machine.driver;
    // SAFETY: the parameter has the kernel's size.
    ok(unsafe {
        let params = params.as_mut_ptr();
        driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut())
    });
    // SAFETY: event and stream live.
    ok(unsafe { driver.cuEventRecord(event, stream) });
    let addresses = [machine.contexts[0], other.cast()].map(|object| object.expose_provenance());
    // SAFETY: it has no requirements.
    let waiting = unsafe { libc::gettid() };
    std::thread::scope(|scope| {
        let watching = scope.spawn(move || {
            let [context, other] = addresses.map(std::ptr::with_exposed_provenance_mut);
            let asleep = (0..LOOKS).filter(|_| {
                std::thread::sleep(APART);
                sleeps(waiting)
            });
            let asleep = asleep.count();
            // SAFETY: the context lives.
            ok(unsafe { driver.cuCtxSetCurrent(context) });
            // SAFETY: no host memory.
            ok(unsafe { driver.cuMemsetD8Async(gate, 1, 4, other.cast()) });
            asleep
        });
        wait(driver, stream);
        let asleep = watching.join().unwrap();
        assert!(
            !(LOOKS / 4..LOOKS * 3 / 4).contains(&asleep),
            "{asleep} of {LOOKS}"
        );
        asleep > LOOKS / 2
    })
}

#[test]
fn threads_sleep_while_they_wait_where_context_or_event_ask_for_it() {
    // SAFETY: the only test of this process, before anything else runs.
    unsafe { std::env::set_var("TOWLINE_SPIN_US", "1000") };
    let machine = Machine::new();
    let driver = &machine.driver;
    let (mut module, mut kernel) = (null_mut(), null_mut());
    let image = c"towline null image\nkernel spin_until";
    // SAFETY: the image and the name end with a NUL, and the rest are locals; here and below.
    ok(unsafe { driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast()) });
    // SAFETY: as above.
    ok(unsafe { driver.cuModuleGetFunction(&raw mut kernel, module, c"spin_until".as_ptr()) });
    let [plain, sleepy] = [CU_EVENT_DEFAULT, CU_EVENT_BLOCKING_SYNC].map(|flags| {
        let mut event = null_mut();
        // SAFETY: as above.
        ok(unsafe { driver.cuEventCreate(&raw mut event, flags) });
        event
    });
    // SAFETY: stream and events live; here and below.
    let for_stream =
        |driver: &dyn CudaApi, stream| ok(unsafe { driver.cuStreamSynchronize(stream) });
    // SAFETY: as above.
    let for_all = |driver: &dyn CudaApi, _| ok(unsafe { driver.cuCtxSynchronize() });
    let for_event = |event| {
        // SAFETY: as above.
        move |driver: &dyn CudaApi, _| ok(unsafe { driver.cuEventSynchronize(event) })
    };

    assert!(!sleeps_during(&machine, kernel, plain, for_stream));
    assert!(!sleeps_during(&machine, kernel, plain, for_all));
    assert!(!sleeps_during(&machine, kernel, plain, for_event(plain)));
    assert!(sleeps_during(&machine, kernel, sleepy, for_event(sleepy)));
    // SAFETY: no memory.
    ok(unsafe { driver.cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC) });
    assert!(sleeps_during(&machine, kernel, plain, for_stream));
    assert!(sleeps_during(&machine, kernel, plain, for_all));
    assert!(sleeps_during(&machine, kernel, plain, for_event(plain)));
    machine.leave();
}
