//! The driver over workers on devices in host memory or in software, all in this process: what comes back are bytes, and waits are
//! counted.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test program uses some of it"
)]

use std::ffi::{CStr, c_void};
use std::os::fd::OwnedFd;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use towline_backend::cuda::*;
use towline_client::cuda::Session;
use towline_cuda::Driver;
use towline_soft::{SoftCuda, SoftNccl, SoftOptions};
use towline_transport::memory::MemoryTransport;
use towline_transport::shm::ShmTransport;
use towline_transport::{Address, ConnectOptions, Transport};
use towline_worker::{
    Bond, Broker, Counters, CudaEngine, Fellows, ImageDigest, Images, Limits, NoBroker, Offer,
    Offers, RunError, SideLane, Taken, Token,
};

/// Rules of every kind of device.
#[allow(unused_macros, reason = "as above")]
macro_rules! on_every_device {
    ($($rule:ident)*) => {
        mod null {
            $(#[test]
            fn $rule() {
                super::$rule(super::Machine::new());
            })*
        }
        mod soft {
            $(#[test]
            fn $rule() {
                super::$rule(super::Machine::on_soft());
            })*
        }
        // What is right, where the server's device is NVIDIA's: `tests/gpu/goldens.sh`.
        mod served {
            $(#[test]
            #[ignore = "TOWLINE_SERVERS names a server whose device the rules are asked of"]
            fn $rule() {
                super::$rule(super::Machine::on_server());
            })*
        }
    };
}

/// Nothing here takes longer, on a busy machine either.
const PATIENCE: Duration = Duration::from_secs(20);

/// Servers with devices, and a driver over them with a primary context each; the first device's is the thread's.
pub struct Machine {
    pub driver: Driver,
    pub sessions: Vec<Arc<Session>>,
    pub contexts: Vec<CUcontext>,
    pub nulls: Vec<Arc<NullCuda>>,
    soft: Option<Arc<SoftCuda>>,
    ended: Vec<Receiver<Result<(), RunError>>>,
}

/// A transport within this process.
fn in_process(_index: usize) -> (Box<dyn Transport>, Address) {
    let address = "memory://server".parse().unwrap();
    (Box::new(MemoryTransport::new()), address)
}

/// A session's way to the others of its server.
struct Neighbour {
    owner: u64,
    offers: Arc<Offers>,
    images: Arc<Images>,
}

impl Broker for Neighbour {
    fn offer(&self, offer: Offer) -> Option<Token> {
        static TOKENS: AtomicU64 = AtomicU64::new(1);
        let mut token = [0x5a; 32];
        let number = TOKENS.fetch_add(1, Ordering::Relaxed);
        token[..8].copy_from_slice(&number.to_le_bytes());
        let token = Token(token);
        self.offers.offer(self.owner, token, offer).then_some(token)
    }

    fn take(&self, token: Token) -> Option<Taken> {
        self.offers.take(self.owner, token)
    }

    fn give_back(&self, token: Token, number: u32) {
        self.offers.give_back(self.owner, token, number);
    }

    fn withdraw(&self, token: Token) {
        self.offers.withdraw(self.owner, token);
    }

    fn image(&self, digest: &ImageDigest) -> Option<OwnedFd> {
        self.images.find(digest)
    }

    fn keep_image(&self, digest: &ImageDigest, image: OwnedFd) {
        self.images.keep(digest, image);
    }
}

/// Collectives wait so long for a rank that is gone.
pub const RANK_PATIENCE: Duration = Duration::from_millis(400);

/// The bonds of sessions.
static BONDS: Mutex<Vec<(Bond, Weak<Counters>)>> = Mutex::new(Vec::new());

/// A session that can be bound.
#[derive(Debug)]
struct Bound(Weak<Counters>);

impl Fellows for Bound {
    fn bind(&self, bond: Bond) {
        BONDS.lock().unwrap().push((bond, Weak::clone(&self.0)));
    }

    fn part(&self, bond: Bond) {
        let is = |(name, of): &(Bond, Weak<Counters>)| *name == bond && of.ptr_eq(&self.0);
        BONDS.lock().unwrap().retain(|one| !is(one));
    }
}

/// Tells every session that another one of each of its bonds is gone; how many bonds there are.
pub fn lose_bonds() -> usize {
    let bonds = BONDS.lock().unwrap().clone();
    for (bond, counters) in &bonds {
        if let Some(counters) = counters.upgrade() {
            counters.bonds.lose(bond);
        }
    }
    let mut names: Vec<Bond> = bonds.into_iter().map(|(bond, _)| bond).collect();
    names.sort_unstable();
    names.dedup();
    names.len()
}

fn serve(
    api: Arc<dyn CudaApi>,
    name: &str,
    broker: Arc<dyn Broker>,
    transport: &dyn Transport,
    address: &Address,
) -> (Session, Receiver<Result<(), RunError>>) {
    let (session, ended) = attempt(api, name, broker, transport, address, |snapshot| snapshot);
    (session.unwrap(), ended)
}

/// As [`serve`], with the snapshot as `tell` gives it on.
pub fn attempt(
    api: Arc<dyn CudaApi>,
    name: &str,
    broker: Arc<dyn Broker>,
    transport: &dyn Transport,
    address: &Address,
    tell: impl FnOnce(Vec<u8>) -> Vec<u8>,
) -> (
    Result<Session, towline_client::dial::DialError>,
    Receiver<Result<(), RunError>>,
) {
    let engine = CudaEngine::open(Arc::clone(&api), false, &|_, _| true, 0).unwrap();
    let engine = engine.with_broker(broker);
    let collectives = move || Ok(Arc::new(SoftNccl::new(Arc::clone(&api))) as _);
    let engine = engine
        .with_collectives(Box::new(collectives))
        .with_patience(RANK_PATIENCE);
    let snapshot = engine.snapshot().to_vec();
    let listener = transport.listen(address).unwrap();
    let mut pairs: Vec<_> = (0..3)
        .map(|_| {
            let ours = transport.connect(address, &ConnectOptions::default());
            (ours.unwrap(), listener.accept().unwrap())
        })
        .collect();
    let (command, lane) = pairs.remove(0);
    let (lanes, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let mut theirs = theirs.into_iter().map(SideLane::Payload);
    let (sender, ended) = channel();
    std::thread::spawn(move || {
        let limits = Limits {
            chunk_bytes: 64 << 10,
        };
        let counters = Arc::new(Counters::default());
        counters
            .bonds
            .keep(Box::new(Bound(Arc::downgrade(&counters))));
        // The test may have given up.
        let _ = sender.send(engine.run(lane, move || theirs.next(), limits, counters));
    });
    let session = Session::over_lanes(name, command, lanes, &tell(snapshot), 64 << 10);
    (session, ended)
}

impl Machine {
    /// A server with one device.
    pub fn new() -> Self {
        Self::with(&[1])
    }

    /// Servers with so many devices each.
    pub fn with(servers: &[usize]) -> Self {
        let nulls = servers.iter().map(|devices| {
            let broker: Arc<dyn Broker> = Arc::new(NoBroker);
            (Arc::new(NullCuda::new(*devices)), broker)
        });
        Self::over(nulls.collect(), servers.iter().sum(), in_process)
    }

    /// A server with one device, by connections of this transport.
    pub fn through(transport: impl Fn() -> Box<dyn Transport>) -> Self {
        let server: (_, Arc<dyn Broker>) = (Arc::new(NullCuda::new(1)), Arc::new(NoBroker));
        Self::over(vec![server], 1, |_| {
            let address = "memory://server".parse().unwrap();
            (transport(), address)
        })
    }

    /// As [`Self::with`], on this host.
    pub fn on_this_host(servers: &[usize]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let nulls = servers.iter().map(|devices| {
            let broker: Arc<dyn Broker> = Arc::new(NoBroker);
            (Arc::new(NullCuda::new(*devices)), broker)
        });
        Self::over(nulls.collect(), servers.iter().sum(), |index| {
            let address = format!("shm://{}/{index}", folder.path().display());
            (Box::new(ShmTransport::new()), address.parse().unwrap())
        })
    }

    /// Programs of their own on one server with a device; what they share is in `offers`.
    pub fn neighbours(count: u64) -> (Vec<Self>, Arc<Offers>) {
        let (null, offers) = (
            Arc::new(NullCuda::new(1)),
            Arc::new(Offers::new(2048, 1 << 16)),
        );
        let images = Arc::new(Images::in_memory(1 << 20));
        let machines =
            (0..count).map(|owner| Self::neighbour(owner, &null, &offers, &images, in_process));
        (machines.collect(), offers)
    }

    /// A program on a server's device; device code that it brings is kept in `images`.
    pub fn with_images(null: &Arc<NullCuda>, images: &Arc<Images>) -> Self {
        Self::neighbour(
            0,
            null,
            &Arc::new(Offers::new(2048, 1 << 16)),
            images,
            in_process,
        )
    }

    /// As [`Self::with_images`], on this host.
    pub fn with_images_on_this_host(null: &Arc<NullCuda>, images: &Arc<Images>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("shm://{}/0", folder.path().display());
        Self::neighbour(
            0,
            null,
            &Arc::new(Offers::new(2048, 1 << 16)),
            images,
            |_| (Box::new(ShmTransport::new()), address.parse().unwrap()),
        )
    }

    fn neighbour(
        owner: u64,
        null: &Arc<NullCuda>,
        offers: &Arc<Offers>,
        images: &Arc<Images>,
        way: impl Fn(usize) -> (Box<dyn Transport>, Address),
    ) -> Self {
        let broker: Arc<dyn Broker> = Arc::new(Neighbour {
            owner,
            offers: Arc::clone(offers),
            images: Arc::clone(images),
        });
        Self::over(vec![(Arc::clone(null), broker)], 1, way)
    }

    fn over(
        servers: Vec<(Arc<NullCuda>, Arc<dyn Broker>)>,
        devices: usize,
        way: impl Fn(usize) -> (Box<dyn Transport>, Address),
    ) -> Self {
        let nulls: Vec<_> = servers.iter().map(|(null, _)| Arc::clone(null)).collect();
        let apis = servers
            .into_iter()
            .map(|(null, broker)| (null as _, broker));
        Self {
            nulls,
            ..Self::over_any(apis.collect(), devices, way)
        }
    }

    /// A server with a device in software.
    pub fn on_soft() -> Self {
        Self::on_soft_over(in_process)
    }

    /// As [`Self::on_soft`], reached in this way.
    pub fn on_soft_over(way: impl Fn(usize) -> (Box<dyn Transport>, Address)) -> Self {
        let options = SoftOptions {
            memory_bytes: 64 << 20,
            host_threads: Some(2),
            ..SoftOptions::default()
        };
        let soft = Arc::new(SoftCuda::new(options).unwrap());
        let broker: Arc<dyn Broker> = Arc::new(NoBroker);
        let machine = Self::over_any(vec![(Arc::clone(&soft) as _, broker)], 1, way);
        Self {
            soft: Some(soft),
            ..machine
        }
    }

    fn over_any(
        servers: Vec<(Arc<dyn CudaApi>, Arc<dyn Broker>)>,
        devices: usize,
        way: impl Fn(usize) -> (Box<dyn Transport>, Address),
    ) -> Self {
        let (mut sessions, mut ended) = (Vec::new(), Vec::new());
        for (index, (api, broker)) in servers.into_iter().enumerate() {
            let (transport, address) = way(index);
            let name = format!("server{index}");
            let (session, end) = serve(api, &name, broker, &*transport, &address);
            sessions.push(Arc::new(session));
            ended.push(end);
        }
        Self::of(sessions, ended, devices)
    }

    /// The server that `TOWLINE_SERVERS` names: NVIDIA's driver, where that is there.
    pub fn on_server() -> Self {
        let address = std::env::var("TOWLINE_SERVERS").expect("TOWLINE_SERVERS names a server");
        let address: Address = address.parse().expect("TOWLINE_SERVERS is one address");
        let session = Session::connect(&address, None).expect("the server answers");
        Self::of(vec![Arc::new(session)], Vec::new(), 1)
    }

    fn of(
        sessions: Vec<Arc<Session>>,
        ended: Vec<Receiver<Result<(), RunError>>>,
        devices: usize,
    ) -> Self {
        let driver = Driver::over(sessions.clone(), None);
        // SAFETY: no pointers.
        assert_eq!(unsafe { driver.cuInit(0) }, CUDA_SUCCESS);
        let mut contexts = Vec::new();
        for device in 0..devices {
            let mut context = null_mut();
            // SAFETY: the context is a local.
            let made =
                unsafe { driver.cuDevicePrimaryCtxRetain(&raw mut context, device as CUdevice) };
            assert_eq!(made, CUDA_SUCCESS);
            contexts.push(context);
        }
        let machine = Self {
            driver,
            sessions,
            contexts,
            nulls: Vec::new(),
            soft: None,
            ended,
        };
        machine.enter(0);
        machine
    }

    /// Makes a device's context the thread's.
    pub fn enter(&self, device: usize) {
        // SAFETY: the context was made.
        let set = unsafe { self.driver.cuCtxSetCurrent(self.contexts[device]) };
        assert_eq!(set, CUDA_SUCCESS);
    }

    /// Waits that a call cost on all sessions.
    pub fn costs<T>(&self, call: impl FnOnce(&Driver) -> T) -> (T, u64) {
        let waits = || -> u64 {
            let sessions = self.sessions.iter();
            sessions.map(|session| session.meter().round_trips()).sum()
        };
        let before = waits();
        let outcome = call(&self.driver);
        (outcome, waits() - before)
    }

    pub fn allocate(&self, size: usize) -> CUdeviceptr {
        let mut address = 0;
        // SAFETY: the address is a local.
        let made = unsafe { self.driver.cuMemAlloc_v2(&raw mut address, size) };
        assert_eq!(made, CUDA_SUCCESS);
        address
    }

    /// Memory with these bytes.
    pub fn filled(&self, bytes: &[u8]) -> CUdeviceptr {
        let address = self.allocate(bytes.len());
        let from = bytes.as_ptr().cast();
        // SAFETY: the bytes are readable.
        let written = unsafe { self.driver.cuMemcpyHtoD_v2(address, from, bytes.len()) };
        assert_eq!(written, CUDA_SUCCESS);
        // Streams that keep no order with the default one may read it next.
        self.synchronise();
        address
    }

    /// The bytes of memory.
    pub fn bytes(&self, address: CUdeviceptr, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: the room is writable.
        let read = unsafe { self.driver.cuMemcpyDtoH_v2(to, address, size) };
        assert_eq!(read, CUDA_SUCCESS);
        bytes
    }

    pub fn synchronise(&self) {
        // SAFETY: no pointers.
        assert_eq!(unsafe { self.driver.cuCtxSynchronize() }, CUDA_SUCCESS);
    }

    pub fn stream(&self) -> CUstream {
        let mut stream = null_mut();
        let flags = CU_STREAM_NON_BLOCKING;
        // SAFETY: the stream is a local.
        let made = unsafe { self.driver.cuStreamCreate(&raw mut stream, flags) };
        assert_eq!(made, CUDA_SUCCESS);
        stream
    }

    /// Makes its driver the process's, for the exported functions; it ends with the process.
    pub fn into_process(self) -> &'static Driver {
        let driver = self.driver.into_process();
        driver.unwrap_or_else(|_| panic!("the process has a driver already"))
    }

    /// Ends all sessions, and sees that nothing is left on the devices.
    pub fn leave(self) {
        Self::leave_all(vec![self]);
    }

    /// As [`Self::leave`], of programs that share devices.
    pub fn leave_all(machines: Vec<Self>) {
        for machine in &machines {
            machine.end();
        }
        for null in machines.iter().flat_map(|machine| &machine.nulls) {
            assert_eq!(null.allocated_bytes(), 0, "memory is left behind");
            assert_eq!(null.live_objects(), 0, "objects are left behind");
        }
        for soft in machines.iter().flat_map(|machine| &machine.soft) {
            assert_eq!(soft.live_allocations(), 0, "memory is left behind");
        }
    }
}

/// Bytes that physical memory comes in.
pub const GRANULARITY: usize = 2 << 20;

/// The first device.
const FIRST: CUmemLocation = CUmemLocation {
    r#type: CU_MEM_LOCATION_TYPE_DEVICE,
    either: CUmemLocation_either { id: 0 },
};

impl Machine {
    /// Physical memory of the first device, which can be exported in these ways.
    pub fn physical(&self, types: CUmemAllocationHandleType) -> CUmemGenericAllocationHandle {
        let prop = CUmemAllocationProp {
            r#type: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: types,
            location: FIRST,
            win32HandleMetaData: null_mut(),
            allocFlags: CUmemAllocationProp_allocFlags {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
                reserved: [0; 4],
            },
        };
        let mut handle = 0;
        // SAFETY: both are locals.
        let made = unsafe {
            let prop = &raw const prop;
            self.driver
                .cuMemCreate(&raw mut handle, GRANULARITY, prop, 0)
        };
        assert_eq!(made, CUDA_SUCCESS);
        handle
    }

    /// Gives mapped memory's device this access.
    pub fn set_access(&self, address: CUdeviceptr, flags: CUmemAccess_flags) -> CUresult {
        let access = CUmemAccessDesc {
            location: FIRST,
            flags,
        };
        let access = &raw const access;
        // SAFETY: one descriptor, a local.
        unsafe { self.driver.cuMemSetAccess(address, GRANULARITY, access, 1) }
    }

    /// Where such memory is mapped, for reading and writing.
    pub fn mapped(&self, handle: CUmemGenericAllocationHandle) -> CUdeviceptr {
        let (driver, mut address) = (&self.driver, 0);
        // SAFETY: the address is a local.
        let reserved =
            unsafe { driver.cuMemAddressReserve(&raw mut address, GRANULARITY, 0, 0, 0) };
        assert_eq!(reserved, CUDA_SUCCESS);
        // SAFETY: no pointers.
        let mapped = unsafe { driver.cuMemMap(address, GRANULARITY, 0, handle, 0) };
        assert_eq!(mapped, CUDA_SUCCESS);
        let granted = self.set_access(address, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
        assert_eq!(granted, CUDA_SUCCESS);
        address
    }

    /// Ends all sessions.
    pub fn end(&self) {
        for session in &self.sessions {
            session.close();
        }
        for ended in &self.ended {
            // How it ended is the test's own matter; a second call finds nothing more.
            let ended = ended.recv_timeout(PATIENCE);
            assert_ne!(
                ended.err(),
                Some(RecvTimeoutError::Timeout),
                "the worker hangs"
            );
        }
    }
}

/// An image of the device in host memory, with a kernel that adds 1 to numbers.
pub const ADD_ONE: &CStr = c"towline null image\nkernel add_one";

/// A machine with that kernel.
pub struct Program {
    pub machine: Machine,
    add_one: CUfunction,
}

impl Program {
    pub fn new() -> Self {
        Self::on(Machine::new())
    }

    pub fn on(machine: Machine) -> Self {
        let (driver, mut module, mut add_one) = (&machine.driver, null_mut(), null_mut());
        // SAFETY: the image ends with a NUL; the handle is a local.
        let loaded = unsafe { driver.cuModuleLoadData(&raw mut module, ADD_ONE.as_ptr().cast()) };
        // SAFETY: as above.
        let found =
            unsafe { driver.cuModuleGetFunction(&raw mut add_one, module, c"add_one".as_ptr()) };
        assert_eq!([loaded, found], [CUDA_SUCCESS; 2]);
        let program = Self { machine, add_one };
        // The first launch asks for the driver's verdict.
        let memory = program.machine.filled(&[0; 4]);
        program.add(memory, 1, null_mut());
        program.machine.synchronise();
        assert_eq!(program.free(memory), CUDA_SUCCESS);
        program
    }

    /// Has the device add 1 to so many numbers.
    pub fn add(&self, address: CUdeviceptr, count: usize, stream: CUstream) {
        assert_eq!(self.try_add(address, count, stream), CUDA_SUCCESS);
    }

    /// As [`Self::add`], where the launch may fail.
    pub fn try_add(&self, address: CUdeviceptr, count: usize, stream: CUstream) -> CUresult {
        self.adder().add(address, count, stream)
    }

    /// A kernel for other threads to launch.
    pub fn adder(&self) -> Adder<'_> {
        Adder {
            driver: &self.machine.driver,
            add_one: self.add_one.expose_provenance(),
            context: self.machine.contexts[0].expose_provenance(),
        }
    }

    pub fn free(&self, address: CUdeviceptr) -> CUresult {
        // SAFETY: no pointers.
        unsafe { self.machine.driver.cuMemFree_v2(address) }
    }
}

/// A program's kernel, for any thread.
pub struct Adder<'a> {
    driver: &'a Driver,
    add_one: usize,
    context: usize,
}

impl Adder<'_> {
    /// Makes the program's context the thread's.
    pub fn enter(&self) {
        let context = std::ptr::with_exposed_provenance_mut(self.context);
        // SAFETY: the context was made.
        let set = unsafe { self.driver.cuCtxSetCurrent(context) };
        assert_eq!(set, CUDA_SUCCESS);
    }

    pub fn add(&self, address: CUdeviceptr, count: usize, stream: CUstream) -> CUresult {
        let (mut address, mut count) = (address, count as u32);
        let mut params: [*mut c_void; 2] = [(&raw mut address).cast(), (&raw mut count).cast()];
        let add_one = std::ptr::with_exposed_provenance_mut(self.add_one);
        let (driver, params) = (self.driver, params.as_mut_ptr());
        // SAFETY: there is a pointer for each parameter.
        unsafe { driver.cuLaunchKernel(add_one, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut()) }
    }
}

/// The number that streams which stand still wait for.
pub const OPEN: u32 = 0x0101_0101;

/// A stream that stands still until it is let go.
pub struct Held {
    pub stream: CUstream,
    gate: CUdeviceptr,
}

impl Program {
    /// A stream that stands still.
    pub fn held(&self) -> Held {
        self.held_on(self.machine.stream())
    }

    /// Has a stream stand still.
    pub fn held_on(&self, stream: CUstream) -> Held {
        let gate = self.machine.filled(&[0; 4]);
        self.spin(gate, stream);
        Held { stream, gate }
    }

    /// Has a stream stand still until all bytes of a number are 1.
    pub fn spin(&self, mut gate: CUdeviceptr, stream: CUstream) {
        let driver = &self.machine.driver;
        let (mut module, mut kernel) = (null_mut(), null_mut());
        let image = c"towline null image\nkernel spin_until";
        let mut params = [(&raw mut gate).cast()];
        // SAFETY: the image ends with a NUL, and the module is a local.
        let loaded = unsafe { driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        // SAFETY: the name ends with a NUL, and the kernel is a local.
        let found =
            unsafe { driver.cuModuleGetFunction(&raw mut kernel, module, c"spin_until".as_ptr()) };
        let params = params.as_mut_ptr();
        // SAFETY: there is a pointer for the parameter.
        let held = unsafe {
            driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, null_mut())
        };
        assert_eq!([loaded, found, held], [CUDA_SUCCESS; 3]);
    }
}

impl Held {
    /// Lets it go on without work of the program's, as a device that is done with something does.
    pub fn open(&self) {
        self.opener()();
    }

    /// Does so on any thread.
    pub fn opener(&self) -> impl FnOnce() + Send + use<> {
        let gate = self.gate as usize;
        move || {
            let gate = std::ptr::with_exposed_provenance_mut::<AtomicU32>(gate);
            // SAFETY: memory of the device in host memory is this process's, and lives until it is freed.
            unsafe { &*gate }.store(OPEN, Ordering::Release);
        }
    }

    /// Lets it go on, and waits for all that it has to do.
    pub fn let_go(self, program: &Program) {
        let (driver, other) = (&program.machine.driver, program.machine.stream());
        // SAFETY: no host memory.
        let set = unsafe { driver.cuMemsetD8Async(self.gate, 1, 4, other) };
        assert_eq!(set, CUDA_SUCCESS);
        program.machine.synchronise();
        assert_eq!(program.free(self.gate), CUDA_SUCCESS);
    }
}

/// Bytes that no shift of themselves repeats soon.
pub fn pattern(size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..size)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        })
        .collect()
}

/// A copy of nothing from nowhere.
pub fn blank() -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: 0,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: null_mut(),
        reserved0: null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: 0,
        dstHost: null_mut(),
        dstDevice: 0,
        dstArray: null_mut(),
        reserved1: null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: 0,
        Height: 0,
        Depth: 0,
    }
}
