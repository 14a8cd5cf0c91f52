//! What calls cost, against a server that answers at once: waits are counted, and messages that should not be there.

use std::ffi::c_void;
use std::io::IoSlice;
use std::ptr::{null, null_mut};
use std::sync::{Arc, Mutex};

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_cuda::Driver;
use towline_session::Outbox;
use towline_transport::memory::MemoryTransport;
use towline_transport::{Address, ConnectOptions, Connection, Transport};
use towline_wire::cuda::facts::{Function, ModuleFacts, Parameter};
use towline_wire::cuda::snapshot::{Device, Snapshot};
use towline_wire::frame::FrameReader;
use towline_wire::push::Push;

/// Where the server says that memory is.
const ADDRESS: u64 = 0x7000_0000_0000;
/// Where it reserves addresses.
const RESERVED: u64 = 0x4000_0000_0000;
/// What it says is in device memory.
const CONTENT: u8 = 0x5a;

type Heard = Arc<Mutex<Vec<u16>>>;

fn encoded<'a, M: Message<'a>>(message: &M) -> Vec<u8> {
    let mut out = Vec::new();
    message.encode(&mut out);
    out
}

/// Answers whatever waits, and ends every recording at once.
fn serve(command: &dyn Connection, heard: &Heard) {
    let (mut reader, outbox) = (FrameReader::new(), Outbox::new());
    let push = |push: Push<'_>| {
        outbox.post(push.id(), |out| push.encode(out));
        let _ = outbox.flush(|| 0, |bytes| command.send(&[IoSlice::new(bytes)]));
    };
    let after = || wire::List::Values(&[]);
    let mut given = 0;
    loop {
        while let Some(message) = reader.next().expect("the client frames well") {
            heard.lock().unwrap().push(message.id);
            let body = match message.id {
                id if id == wire::MemoryAlloc::ID => {
                    given += 1;
                    encoded(&wire::MemoryAllocReply {
                        address: Some(ADDRESS + ((given - 1) << 30)),
                    })
                }
                id if id == wire::AddressReserve::ID => encoded(&wire::AddressReserveReply {
                    address: Some(RESERVED),
                }),
                id if id == <wire::ModuleLoad<'_> as Request<'_>>::ID => {
                    let facts = ModuleFacts {
                        functions: vec![Function {
                            name: b"add".into(),
                            parameters: vec![Parameter { offset: 0, size: 8 }],
                            attributes: vec![(0, 1024)],
                        }],
                    };
                    encoded(&wire::ModuleLoadReply {
                        facts: Some(&facts.encode()),
                        log: None,
                        info: None,
                        wall: None,
                        missing: None,
                    })
                }
                id if id == wire::Read::ID => {
                    let read = wire::Read::decode(message.body).expect("it encodes well");
                    push(Push::Data {
                        payload: read.payload,
                        bytes: &vec![CONTENT; read.size as usize],
                    });
                    continue;
                }
                id if id == wire::EventRecord::ID => {
                    let record = wire::EventRecord::decode(message.body).expect("it encodes well");
                    push(Push::Event {
                        event: record.record,
                        status: 0,
                        after: after(),
                        times: None,
                    });
                    continue;
                }
                id if WAITING.contains(&id) => Vec::new(),
                _ => continue,
            };
            push(Push::Reply {
                to: message.number,
                status: 0,
                after: after(),
                body: &body,
            });
        }
        match command.recv(reader.space()) {
            Ok(count @ 1..) => reader.filled(count),
            _ => return,
        }
    }
}

/// Requests that an empty reply answers.
const WAITING: [u16; 11] = [
    wire::PhysicalCreate::ID,
    wire::PhysicalUnmap::ID,
    <wire::SetAccess<'_> as Request<'_>>::ID,
    wire::PrimaryRetain::ID,
    wire::PrimaryReset::ID,
    wire::FuncSetAttribute::ID,
    <wire::LaunchFirst<'_> as Request<'_>>::ID,
    wire::SynchronizeStream::ID,
    wire::SynchronizeContext::ID,
    wire::SynchronizeEvent::ID,
    wire::MemoryFree::ID,
];

struct Bench {
    driver: Driver,
    session: Arc<Session>,
    heard: Heard,
}

impl Bench {
    /// A driver whose primary context is the thread's.
    fn new() -> Self {
        let transport = MemoryTransport::new();
        let address: Address = "memory://server".parse().unwrap();
        let listener = transport.listen(&address).unwrap();
        let connect = || {
            let ours = transport.connect(&address, &ConnectOptions::default());
            (ours.unwrap(), listener.accept().unwrap())
        };
        let ((command, theirs), (lane, _their_lane)) = (connect(), connect());
        let heard = Heard::default();
        let hearing = Arc::clone(&heard);
        std::thread::spawn(move || {
            serve(&*theirs, &hearing);
            drop(_their_lane);
        });
        let device = Device {
            name: b"Test".into(),
            total_bytes: 1 << 30,
            attributes: (1..=8).map(|attribute| (attribute, 1024)).collect(),
            ..Device::default()
        };
        let snapshot = Snapshot {
            driver_version: 13_000,
            genuine: false,
            devices: vec![device],
        };
        let session =
            Session::over_lanes("test", command, vec![lane], &snapshot.encode(), 1 << 20).unwrap();
        let session = Arc::new(session);
        let driver = Driver::over(vec![Arc::clone(&session)], None);
        let bench = Self {
            driver,
            session,
            heard,
        };
        let mut context = null_mut();
        // SAFETY: no pointers.
        assert_eq!(unsafe { bench.driver.cuInit(0) }, CUDA_SUCCESS);
        // SAFETY: the context is a local.
        let made = unsafe { bench.driver.cuDevicePrimaryCtxRetain(&raw mut context, 0) };
        assert_eq!(made, CUDA_SUCCESS);
        // SAFETY: the context was just made.
        let set = unsafe { bench.driver.cuCtxSetCurrent(context) };
        assert_eq!(set, CUDA_SUCCESS);
        bench
    }

    /// Waits that a call cost.
    fn costs(&self, call: impl FnOnce(&Driver) -> CUresult) -> (CUresult, u64) {
        let before = self.session.meter().round_trips();
        let status = call(&self.driver);
        (status, self.session.meter().round_trips() - before)
    }

    fn allocated(&self) -> CUdeviceptr {
        let mut address = 0;
        // SAFETY: the address is a local.
        let cost = self.costs(|driver| unsafe { driver.cuMemAlloc_v2(&raw mut address, 1 << 16) });
        assert_eq!(cost, (CUDA_SUCCESS, 1));
        address
    }

    fn function(&self) -> CUfunction {
        let (mut module, mut function) = (null_mut(), null_mut());
        let image = c".version 8.0".as_ptr().cast();
        // SAFETY: the image is text with a NUL.
        let load = self.costs(|driver| unsafe { driver.cuModuleLoadData(&raw mut module, image) });
        assert_eq!(load, (CUDA_SUCCESS, 1));
        // SAFETY: all are locals.
        let find = self.costs(|driver| unsafe {
            driver.cuModuleGetFunction(&raw mut function, module, c"add".as_ptr())
        });
        assert_eq!(find, (CUDA_SUCCESS, 0));
        function
    }

    fn heard(&self, id: u16) -> usize {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|other| **other == id).count()
    }
}

fn launch(driver: &Driver, function: CUfunction) -> CUresult {
    launch_with(driver, function, 0)
}

fn launch_with(driver: &Driver, function: CUfunction, shared_bytes: u32) -> CUresult {
    let mut value = 7_u64;
    let mut params: [*mut c_void; 1] = [(&raw mut value).cast()];
    let params = params.as_mut_ptr();
    // SAFETY: the function has one parameter of this size.
    unsafe {
        driver.cuLaunchKernel(
            function,
            1,
            1,
            1,
            32,
            1,
            1,
            shared_bytes,
            null_mut(),
            params,
            null_mut(),
        )
    }
}

#[test]
fn a_thousand_launches_and_a_synchronisation_cost_one_round_trip() {
    let bench = Bench::new();
    let function = bench.function();
    let first = bench.costs(|driver| launch(driver, function));
    assert_eq!(first, (CUDA_SUCCESS, 1));
    let rest = bench.costs(|driver| {
        let failed = (0..1000)
            .map(|_| launch(driver, function))
            .find(|status| *status != 0);
        // SAFETY: has no pointers.
        failed.unwrap_or_else(|| unsafe { driver.cuCtxSynchronize() })
    });
    assert_eq!(rest, (CUDA_SUCCESS, 1));
    assert_eq!(bench.heard(<wire::Launch<'_> as Request<'_>>::ID), 1000);
    // Once for the retain, which is nobody's, and once for the thread in its context.
    assert_eq!(bench.heard(wire::Act::ID), 2);
}

#[test]
fn dynamic_shared_memory_is_limited_without_the_drivers_word() {
    let bench = Bench::new();
    let (driver, function) = (&bench.driver, bench.function());
    let mut most = 0;
    let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: the place is a local.
    let told = unsafe { driver.cuFuncGetAttribute(&raw mut most, attribute, function) };
    assert_eq!((told, most), (CUDA_SUCCESS, 1024));
    let launches = [1024, 1025].map(|bytes| launch_with(driver, function, bytes));
    assert_eq!(launches, [CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE]);
}

#[test]
fn what_is_known_to_be_done_is_not_waited_for_again() {
    let bench = Bench::new();
    let function = bench.function();
    assert_eq!(launch(&bench.driver, function), CUDA_SUCCESS);
    // SAFETY: has no pointers.
    let synchronise = |driver: &Driver| unsafe { driver.cuCtxSynchronize() };
    assert_eq!(bench.costs(synchronise), (CUDA_SUCCESS, 1));
    assert_eq!(bench.costs(synchronise), (CUDA_SUCCESS, 0));
    let address = bench.allocated();
    let (mut back, to) = ([0_u8; 4], null_mut());
    let item = bench.costs(|driver| {
        let launched = launch(driver, function);
        let target = back.as_mut_ptr().cast();
        // SAFETY: the memory is writable.
        let read = unsafe { driver.cuMemcpyDtoHAsync_v2(target, address, 4, to) };
        // SAFETY: the default stream is always there.
        launched | read | unsafe { driver.cuStreamSynchronize(to) }
    });
    assert_eq!(item, (CUDA_SUCCESS, 1));
}

#[test]
fn a_small_read_into_pinned_memory_and_a_wait_for_its_stream_are_one_request() {
    let bench = Bench::new();
    let address = bench.allocated();
    let (mut pinned, stream) = (null_mut(), null_mut());
    // SAFETY: the place is a local.
    let made = unsafe { bench.driver.cuMemHostAlloc(&raw mut pinned, 4096, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    // SAFETY: the memory is pinned and large enough.
    let read = |driver: &Driver| unsafe { driver.cuMemcpyDtoHAsync_v2(pinned, address, 8, stream) };
    // SAFETY: the default stream is always there.
    let synchronise = |driver: &Driver| unsafe { driver.cuStreamSynchronize(stream) };
    assert_eq!(bench.costs(read), (CUDA_SUCCESS, 0));
    assert_eq!(bench.costs(synchronise), (CUDA_SUCCESS, 1));
    // SAFETY: the memory is pinned, and the read is over.
    assert_eq!(unsafe { pinned.cast::<[u8; 8]>().read() }, [CONTENT; 8]);
    assert_eq!(bench.heard(wire::SynchronizeStream::ID), 0);
    // What comes between is posted behind the read.
    assert_eq!(bench.costs(read), (CUDA_SUCCESS, 0));
    let function = bench.function();
    assert_eq!(launch(&bench.driver, function), CUDA_SUCCESS);
    assert_eq!(bench.costs(synchronise), (CUDA_SUCCESS, 1));
    assert_eq!(bench.heard(wire::SynchronizeStream::ID), 1);
    assert_eq!(bench.heard(wire::Read::ID), 2);
    // Memory is not given back before its data has come.
    assert_eq!(bench.costs(read), (CUDA_SUCCESS, 0));
    // SAFETY: the memory is ours.
    let freed = unsafe { bench.driver.cuMemFreeHost(pinned) };
    assert_eq!(freed, CUDA_SUCCESS);
    assert_eq!(bench.heard(wire::Read::ID), 3);
}

#[test]
fn copies_to_the_device_are_not_told_of_where_all_streams_keep_order() {
    let bench = Bench::new();
    let address = bench.allocated();
    let write = |driver: &Driver| {
        // SAFETY: the bytes are readable.
        unsafe { driver.cuMemcpyHtoD_v2(address, [1_u8; 64].as_ptr().cast(), 64) }
    };
    let fill = |stream: CUstream| {
        // SAFETY: the memory is there.
        let filled = unsafe { bench.driver.cuMemsetD8Async(address, 0, 64, stream) };
        assert_eq!(filled, CUDA_SUCCESS);
    };
    let make = |flags: u32| {
        let mut stream = null_mut();
        // SAFETY: the place is a local.
        let made = unsafe { bench.driver.cuStreamCreate(&raw mut stream, flags) };
        assert_eq!(made, CUDA_SUCCESS);
        stream
    };
    let ordered = make(0);
    for _ in 0..10 {
        assert_eq!(bench.costs(write), (CUDA_SUCCESS, 0));
        fill(null_mut());
        fill(ordered);
    }
    let apart = make(CU_STREAM_NON_BLOCKING);
    for _ in 0..10 {
        assert_eq!(bench.costs(write), (CUDA_SUCCESS, 0));
        fill(apart);
        fill(apart);
        fill(ordered);
    }
    // SAFETY: has no pointers.
    let all = bench.costs(|driver| unsafe { driver.cuCtxSynchronize() });
    assert_eq!(all, (CUDA_SUCCESS, 1));
    fill(apart);
    assert_eq!(bench.heard(wire::EventRecord::ID), 10);
    assert_eq!(bench.heard(wire::StreamWaitEvent::ID), 10);
}

#[test]
fn a_stream_is_idle_once_its_last_event_has_passed() {
    let bench = Bench::new();
    let function = bench.function();
    assert_eq!(launch(&bench.driver, function), CUDA_SUCCESS);
    let mut event = null_mut();
    // SAFETY: the event is a local.
    let made = unsafe { bench.driver.cuEventCreate(&raw mut event, 0) };
    assert_eq!(made, CUDA_SUCCESS);
    // SAFETY: the event lives.
    let recorded = unsafe { bench.driver.cuEventRecord(event, null_mut()) };
    assert_eq!(recorded, CUDA_SUCCESS);
    // SAFETY: the event lives. The server answers in time, so this ends.
    while unsafe { bench.driver.cuEventQuery(event) } == CUDA_ERROR_NOT_READY {}
    // SAFETY: the default stream is always there.
    let asked = bench.costs(|driver| unsafe { driver.cuStreamQuery(null_mut()) });
    assert_eq!(asked, (CUDA_SUCCESS, 0));
    assert_eq!(launch(&bench.driver, function), CUDA_SUCCESS);
    // SAFETY: as above.
    let asked = bench.costs(|driver| unsafe { driver.cuStreamQuery(null_mut()) });
    assert_eq!(asked, (CUDA_ERROR_NOT_READY, 0));
}

#[test]
fn shared_memory_that_was_granted_once_is_not_asked_for_again() {
    let bench = Bench::new();
    let function = bench.function();
    let attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    // SAFETY: has no pointers.
    let allow =
        |driver: &Driver, bytes| unsafe { driver.cuFuncSetAttribute(function, attribute, bytes) };
    assert_eq!(
        bench.costs(|driver| allow(driver, 100_000)),
        (CUDA_SUCCESS, 1)
    );
    assert_eq!(launch_with(&bench.driver, function, 100_000), CUDA_SUCCESS);
    assert_eq!(
        bench.costs(|driver| allow(driver, 60_000)),
        (CUDA_SUCCESS, 0)
    );
    let refused = bench.costs(|driver| launch_with(driver, function, 100_000));
    assert_eq!(refused, (CUDA_ERROR_INVALID_VALUE, 0));
    assert_eq!(
        bench.costs(|driver| allow(driver, 100_000)),
        (CUDA_SUCCESS, 0)
    );
    let launched = bench.costs(|driver| launch_with(driver, function, 100_000));
    assert_eq!(launched, (CUDA_SUCCESS, 0));
}

#[test]
fn a_small_write_costs_no_round_trip_and_a_read_one() {
    let bench = Bench::new();
    let address = bench.allocated();
    let data = [1_u8; 4096];
    // SAFETY: the data is readable.
    let written = bench.costs(|driver| unsafe {
        driver.cuMemcpyHtoD_v2(address, data.as_ptr().cast(), data.len())
    });
    assert_eq!(written, (CUDA_SUCCESS, 0));
    let mut back = [0_u8; 4096];
    // SAFETY: the memory is writable.
    let read = bench.costs(|driver| unsafe {
        driver.cuMemcpyDtoH_v2(back.as_mut_ptr().cast(), address, back.len())
    });
    assert_eq!(read, (CUDA_SUCCESS, 1));
    assert_eq!(back, [CONTENT; 4096]);
}

#[test]
fn streams_and_events_are_made_recorded_and_asked_without_a_round_trip() {
    let bench = Bench::new();
    let (mut stream, mut event) = (null_mut(), null_mut());
    let cost = bench.costs(|driver| {
        // SAFETY: the stream is a local.
        let made = unsafe { driver.cuStreamCreate(&raw mut stream, 1) };
        // SAFETY: the event is a local.
        let made = made | unsafe { driver.cuEventCreate(&raw mut event, 0) };
        // SAFETY: the stream lives.
        let asked = unsafe { driver.cuStreamQuery(stream) };
        // SAFETY: the event lives.
        let asked = asked | unsafe { driver.cuEventQuery(event) };
        // SAFETY: both live.
        made | asked | unsafe { driver.cuEventRecord(event, stream) }
    });
    assert_eq!(cost, (CUDA_SUCCESS, 0));
    let asked = bench.costs(|driver| {
        // SAFETY: the event lives. The server answers in time, so this ends.
        let passed = || unsafe { driver.cuEventQuery(event) };
        std::iter::repeat_with(passed)
            .find(|status| *status != CUDA_ERROR_NOT_READY)
            .unwrap_or(CUDA_ERROR_UNKNOWN)
    });
    assert_eq!(asked, (CUDA_SUCCESS, 0));
}

#[test]
fn what_any_device_refuses_never_leaves() {
    let bench = Bench::new();
    let function = bench.function();
    // SAFETY: nothing is read.
    let refused = bench.costs(|driver| unsafe {
        driver.cuLaunchKernel(
            function,
            0,
            1,
            1,
            32,
            1,
            1,
            0,
            null_mut(),
            null_mut(),
            null_mut(),
        )
    });
    assert_eq!(refused, (CUDA_ERROR_INVALID_VALUE, 0));
    // SAFETY: nothing is read.
    let refused = bench.costs(|driver| unsafe { driver.cuMemcpyHtoD_v2(ADDRESS, null(), 8) });
    assert_eq!(refused, (CUDA_ERROR_INVALID_VALUE, 0));
}

#[test]
fn memory_that_was_freed_while_nothing_ran_is_given_again_without_a_wait() {
    let bench = Bench::new();
    let (mut first, mut second, mut third) = (0, 0, 0);
    // SAFETY: the addresses are locals, here and below.
    let made = bench.costs(|driver| unsafe { driver.cuMemAlloc_v2(&raw mut first, 4 << 20) });
    assert_eq!(made, (CUDA_SUCCESS, 1));
    // SAFETY: the memory is ours, here and below.
    let freed = bench.costs(|driver| unsafe { driver.cuMemFree_v2(first) });
    assert_eq!(freed, (CUDA_SUCCESS, 0));
    // SAFETY: as above.
    let twice = unsafe { bench.driver.cuMemFree_v2(first) };
    assert_eq!(twice, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: as above.
    let again = bench.costs(|driver| unsafe { driver.cuMemAlloc_v2(&raw mut second, 3 << 20) });
    assert_eq!((again, second), ((CUDA_SUCCESS, 0), first));
    let (mut base, mut size) = (0, 0);
    // SAFETY: the places are locals.
    let range = unsafe {
        bench
            .driver
            .cuMemGetAddressRange_v2(&raw mut base, &raw mut size, second + 1)
    };
    assert_eq!((range, base, size), (CUDA_SUCCESS, second, 3 << 20));
    // SAFETY: as above.
    let beside = bench.costs(|driver| unsafe { driver.cuMemAlloc_v2(&raw mut third, 3 << 20) });
    assert_eq!(beside, (CUDA_SUCCESS, 1));
}

#[test]
fn a_free_waits_for_what_is_under_way() {
    let bench = Bench::new();
    let address = bench.allocated();
    // SAFETY: the memory is ours.
    let filled = bench.costs(|driver| unsafe { driver.cuMemsetD8Async(address, 1, 8, null_mut()) });
    assert_eq!(filled, (CUDA_SUCCESS, 0));
    // SAFETY: as above.
    let freed = bench.costs(|driver| unsafe { driver.cuMemFree_v2(address) });
    assert_eq!(freed, (CUDA_SUCCESS, 1));
    assert_eq!(bench.heard(wire::MemoryFree::ID), 0);
}

#[test]
fn what_is_kept_is_bounded_and_ends_with_its_context() {
    let bench = Bench::new();
    let (mut large, mut small) = (0, 0);
    // SAFETY: the address is a local, here and below.
    let made = unsafe { bench.driver.cuMemAlloc_v2(&raw mut large, 256 << 20) };
    assert_eq!(made, CUDA_SUCCESS);
    // SAFETY: the memory is ours, here and below.
    let freed = bench.costs(|driver| unsafe { driver.cuMemFree_v2(large) });
    assert_eq!(
        (freed, bench.heard(wire::MemoryFree::ID)),
        ((CUDA_SUCCESS, 1), 1)
    );
    // SAFETY: as above.
    let made = unsafe { bench.driver.cuMemAlloc_v2(&raw mut small, 1 << 20) };
    // SAFETY: as above.
    let freed = unsafe { bench.driver.cuMemFree_v2(small) };
    // SAFETY: no pointers.
    let reset = unsafe { bench.driver.cuDevicePrimaryCtxReset_v2(0) };
    assert_eq!([made, freed, reset], [CUDA_SUCCESS; 3]);
    let mut context = null_mut();
    // SAFETY: the context is a local.
    let retained = unsafe { bench.driver.cuDevicePrimaryCtxRetain(&raw mut context, 0) };
    // SAFETY: the context was just made.
    let current = unsafe { bench.driver.cuCtxSetCurrent(context) };
    assert_eq!([retained, current], [CUDA_SUCCESS; 2]);
    // SAFETY: as above.
    let anew = bench.costs(|driver| unsafe { driver.cuMemAlloc_v2(&raw mut small, 1 << 20) });
    assert_eq!(anew, (CUDA_SUCCESS, 1));
}

#[test]
fn physical_memory_is_mapped_where_addresses_were_reserved_and_nowhere_else() {
    const PIECE: usize = 2 << 20;
    let bench = Bench::new();
    let driver = &bench.driver;
    let location = CUmemLocation {
        r#type: CU_MEM_LOCATION_TYPE_DEVICE,
        either: CUmemLocation_either { id: 0 },
    };
    let prop = CUmemAllocationProp {
        r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: 0,
        location,
        win32HandleMetaData: null_mut(),
        allocFlags: CUmemAllocationProp_allocFlags {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    };
    let (mut memory, mut start) = (0, 0);
    // SAFETY: the places are locals.
    let uneven = unsafe { driver.cuMemCreate(&raw mut memory, PIECE + 1, &raw const prop, 0) };
    // SAFETY: as above.
    let made = unsafe { driver.cuMemCreate(&raw mut memory, PIECE, &raw const prop, 0) };
    // SAFETY: as above.
    let reserved = unsafe { driver.cuMemAddressReserve(&raw mut start, 2 * PIECE, 0, 0, 0) };
    assert_eq!(
        [uneven, made, reserved],
        [CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUDA_SUCCESS]
    );
    // SAFETY: the memory is ours.
    let map = |at| unsafe { driver.cuMemMap(at, PIECE, 0, memory, 0) };
    let second = start + PIECE as u64;
    assert_eq!(bench.costs(|_| map(second)), (CUDA_SUCCESS, 0));
    // Twice at one place, and beyond the reservation.
    assert_eq!(map(second), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(map(second + PIECE as u64), CUDA_ERROR_INVALID_VALUE);
    let access = CUmemAccessDesc {
        location,
        flags: CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: one descriptor.
    let granted = unsafe { driver.cuMemSetAccess(second, PIECE, &raw const access, 1) };
    assert_eq!(granted, CUDA_SUCCESS);
    let written = bench.costs(|driver| {
        let bytes = [7_u8; 8];
        // SAFETY: both ranges are as long.
        unsafe { driver.cuMemcpyHtoD_v2(second, bytes.as_ptr().cast(), bytes.len()) }
    });
    assert_eq!(written, (CUDA_SUCCESS, 0));
    // SAFETY: the memory is ours; it stays while it is mapped.
    let released = unsafe { driver.cuMemRelease(memory) };
    assert_eq!(released, CUDA_SUCCESS);
    assert_eq!(bench.heard(wire::PhysicalRelease::ID), 0);
    // SAFETY: the addresses are ours, and in use.
    let early = unsafe { driver.cuMemAddressFree(start, 2 * PIECE) };
    assert_eq!(early, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: as above.
    let part = unsafe { driver.cuMemUnmap(second, PIECE / 2) };
    // The copy is waited for, and the call itself.
    // SAFETY: as above.
    let (unmapped, waits) = bench.costs(|driver| unsafe { driver.cuMemUnmap(second, PIECE) });
    assert_eq!(waits, 2);
    // SAFETY: nothing is mapped any more.
    let freed = unsafe { driver.cuMemAddressFree(start, 2 * PIECE) };
    assert_eq!(
        [part, unmapped, freed],
        [CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, CUDA_SUCCESS]
    );
    // SAFETY: has no pointers. What was posted is there when a wait ends, once something is to be waited for.
    let forgotten = unsafe { driver.cuMemRelease(memory) };
    assert_eq!(forgotten, CUDA_ERROR_INVALID_VALUE);
    bench.allocated();
    assert_eq!(bench.heard(wire::PhysicalRelease::ID), 1);
}

#[test]
fn a_devices_pools_are_named_once_and_their_values_have_their_width() {
    let bench = Bench::new();
    let driver = &bench.driver;
    let (mut pool, mut again) = (null_mut(), null_mut());
    let asked = bench.costs(|driver| {
        // SAFETY: the place is a local.
        let first = unsafe { driver.cuDeviceGetDefaultMemPool(&raw mut pool, 0) };
        // SAFETY: as above.
        first | unsafe { driver.cuDeviceGetMemPool(&raw mut again, 0) }
    });
    assert_eq!(asked, (CUDA_SUCCESS, 0));
    assert_eq!(pool, again);
    let mut threshold = u64::MAX;
    let value = (&raw mut threshold).cast();
    let set = bench.costs(|driver| {
        // SAFETY: the value is as wide as this attribute's.
        unsafe { driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value) }
    });
    assert_eq!(set, (CUDA_SUCCESS, 0));
    // SAFETY: as above. It cannot be set.
    let refused =
        unsafe { driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, value) };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    let stranger = std::ptr::without_provenance_mut(0x1234);
    // SAFETY: as above. Nobody knows this pool.
    let unknown =
        unsafe { driver.cuMemPoolSetAttribute(stranger, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, value) };
    assert_eq!(unknown, CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn contexts_stack_up_by_thread() {
    let bench = Bench::new();
    let driver = &bench.driver;
    let (mut mine, mut popped) = (null_mut(), null_mut());
    // SAFETY: the pointer is to a local.
    let current = unsafe { driver.cuCtxGetCurrent(&raw mut mine) };
    assert_eq!(current, CUDA_SUCCESS);
    // SAFETY: the context lives.
    let pushed = unsafe { driver.cuCtxPushCurrent_v2(mine) };
    assert_eq!(pushed, CUDA_SUCCESS);
    // SAFETY: the pointer is to a local.
    let mut pop = || unsafe { driver.cuCtxPopCurrent_v2(&raw mut popped) };
    let pops = [pop(), pop(), pop()];
    assert_eq!(
        pops,
        [CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_INVALID_CONTEXT]
    );
    assert_eq!(popped, mine);
    // SAFETY: no pointers.
    let waited = unsafe { driver.cuCtxSynchronize() };
    assert_eq!(waited, CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn a_stream_that_was_created_needs_no_context_on_the_thread() {
    let bench = Bench::new();
    let driver = &bench.driver;
    let mut stream = null_mut();
    // SAFETY: the stream is a local.
    let made = unsafe { driver.cuStreamCreate(&raw mut stream, 1) };
    // SAFETY: NULL takes the context away.
    let left = unsafe { driver.cuCtxSetCurrent(null_mut()) };
    assert_eq!((made, left), (CUDA_SUCCESS, CUDA_SUCCESS));
    // SAFETY: the stream lives.
    let own = unsafe { driver.cuStreamSynchronize(stream) };
    // SAFETY: the default stream is the current context's, and there is none.
    let default = unsafe { driver.cuStreamSynchronize(null_mut()) };
    assert_eq!((own, default), (CUDA_SUCCESS, CUDA_ERROR_INVALID_CONTEXT));
}

#[test]
fn nothing_answers_before_the_driver_is_initialised() {
    let driver = Driver::over(Vec::new(), None);
    let mut count = 0;
    // SAFETY: the count is a local.
    let asked = unsafe { driver.cuDeviceGetCount(&raw mut count) };
    // SAFETY: has no pointers.
    let started = unsafe { driver.cuInit(0) };
    assert_eq!(
        (asked, started),
        (CUDA_ERROR_NOT_INITIALIZED, CUDA_ERROR_NO_DEVICE)
    );
}
