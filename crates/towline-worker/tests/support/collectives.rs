//! Collectives by a library that is as slow as a test likes.

use std::collections::HashSet;

use towline_backend::nccl::{
    self, Collectives, Communicator, End, ID_BYTES, Kind, Made, result as nccl_result,
};
use towline_wire::cuda::collective::{
    Member, Operation, Origin, encode_members, encode_operations,
};
use towline_worker::{Bond, Fellows};

use super::*;

/// Operations have so long once a rank is lost.
const LOST_AFTER: Duration = Duration::from_millis(200);
/// Handles of the library, which nobody else makes.
const HANDLE: u64 = 0xdead_0000;
const DESTROY: u32 = 1;
const ABORT: u32 = 2;

/// A library whose operations end when their communicator is aborted.
struct Staged {
    api: Arc<NullCuda>,
    stage: Mutex<Stage>,
}

#[derive(Default)]
struct Stage {
    made: usize,
    /// Memory that kernels of a communicator wait for.
    flags: HashMap<usize, Vec<u64>>,
    /// Communicators whose kernels have left.
    left: HashSet<usize>,
    deregistered: Vec<u64>,
    makes_fail: bool,
    makes_wait: bool,
    /// Operations wait in the call, until kernels of their last communicator leave.
    calls_wait: bool,
    /// Aborts wait as long as so many objects live.
    aborts_wait: Option<usize>,
    /// The test is over: nobody waits.
    over: bool,
}

impl Staged {
    fn stage(&self) -> MutexGuard<'_, Stage> {
        lock(&self.stage)
    }

    fn wait_while(&self, waits: impl Fn(&Stage) -> bool) {
        let still = || {
            let stage = self.stage();
            waits(&stage) && !stage.over
        };
        while still() {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// A kernel that waits for memory.
    fn spin(&self, stream: usize, mut at: u64) {
        let (mut module, mut function) = (std::ptr::null_mut(), std::ptr::null_mut());
        let image = c"towline null image\nkernel spin_until".as_ptr().cast();
        let (none, no_values) = (std::ptr::null_mut(), std::ptr::null_mut());
        let place = &raw mut module;
        // SAFETY: one place for the module; the image is one.
        let loaded = unsafe {
            self.api
                .cuModuleLoadDataEx(place, image, 0, none, no_values)
        };
        assert_eq!(loaded, CUDA_SUCCESS);
        // SAFETY: one place for the function; the module is live.
        let found = unsafe {
            self.api
                .cuModuleEnumerateFunctions(&raw mut function, 1, module)
        };
        assert_eq!(found, CUDA_SUCCESS);
        let mut params = [(&raw mut at).cast()];
        let (places, none) = (params.as_mut_ptr(), std::ptr::null_mut());
        let stream = std::ptr::without_provenance_mut(stream);
        // SAFETY: the function has one parameter; the stream is live.
        let launched = unsafe {
            self.api
                .cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, places, none)
        };
        assert_eq!(launched, CUDA_SUCCESS);
    }

    /// Kernels of a communicator leave.
    fn let_go(&self, communicator: usize) {
        let flags = self.stage().flags.remove(&communicator);
        self.stage().left.insert(communicator);
        let (mut stream, one) = (std::ptr::null_mut(), 1_u32);
        // SAFETY: one place for the stream.
        let made = unsafe {
            self.api
                .cuStreamCreate(&raw mut stream, CU_STREAM_NON_BLOCKING)
        };
        assert_eq!(made, CUDA_SUCCESS);
        for flag in flags.into_iter().flatten() {
            let place = (&raw const one).cast();
            // SAFETY: the memory holds a number, and the place stays until it has come.
            unsafe { self.api.cuMemcpyHtoDAsync_v2(flag, place, 4, stream) };
        }
        // SAFETY: the stream is live.
        unsafe { self.api.cuStreamSynchronize(stream) };
        // SAFETY: the stream ends once.
        unsafe { self.api.cuStreamDestroy_v2(stream) };
    }
}

impl Collectives for Staged {
    fn version(&self) -> Result<i32, i32> {
        Ok(22_809)
    }

    fn id(&self) -> Result<[u8; ID_BYTES], i32> {
        Ok([1; ID_BYTES])
    }

    fn make(
        &self,
        members: &[nccl::Member<'_>],
        _enter: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Option<Made>>, i32> {
        self.wait_while(|stage| stage.makes_wait && stage.left.is_empty());
        let mut stage = self.stage();
        if stage.makes_fail || !stage.left.is_empty() {
            return Err(nccl_result::SYSTEM_ERROR);
        }
        let made = members.iter().map(|_| {
            stage.made += 1;
            Some(Made {
                communicator: Communicator(stage.made),
                rank: 0,
                ranks: 2,
            })
        });
        Ok(made.collect())
    }

    unsafe fn run(&self, operations: &[nccl::Operation]) -> Result<(), i32> {
        for operation in operations {
            let mut stage = self.stage();
            let flags = stage.flags.entry(operation.communicator.0).or_default();
            flags.push(operation.receive);
            drop(stage);
            self.spin(operation.stream, operation.receive);
        }
        let last = operations[operations.len() - 1].communicator.0;
        self.wait_while(|stage| stage.calls_wait && !stage.left.contains(&last));
        Ok(())
    }

    fn waits(&self) -> bool {
        false
    }

    fn state(&self, _communicator: Communicator) -> i32 {
        nccl_result::SUCCESS
    }

    fn end(&self, communicator: Communicator, how: End) -> Result<(), i32> {
        match how {
            End::Finalize | End::Suspend | End::Resume => {}
            End::Destroy => {
                self.wait_while(|stage| stage.flags.contains_key(&communicator.0));
            }
            End::Revoke => self.let_go(communicator.0),
            End::Abort => {
                self.let_go(communicator.0);
                let live = || self.api.live_objects();
                self.wait_while(|stage| stage.aborts_wait.is_some_and(|least| live() >= least));
            }
        }
        Ok(())
    }

    fn register(
        &self,
        _communicator: Communicator,
        address: u64,
        _size: u64,
        _window: Option<i32>,
    ) -> Result<u64, i32> {
        Ok(if address == 0 { 0 } else { HANDLE })
    }

    fn deregister(&self, _communicator: Communicator, known: u64, _: bool) -> Result<(), i32> {
        self.stage().deregistered.push(known);
        Ok(())
    }

    fn text(&self) -> String {
        "staged".into()
    }
}

/// Every bond that was ever bound.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Vec<Bond>>>);

impl Fellows for Told {
    fn bind(&self, bond: Bond) {
        lock(&self.0).push(bond);
    }

    fn part(&self, _bond: Bond) {}
}

struct Job {
    client: Client,
    library: Arc<Staged>,
    bonds: Told,
}

impl Job {
    fn new() -> Self {
        let api = Arc::new(NullCuda::new(1));
        let library = Arc::new(Staged {
            api: Arc::clone(&api),
            stage: Mutex::default(),
        });
        let opened = Arc::clone(&library);
        let engine = CudaEngine::open(api, false, &|_, _| true, 0).expect("there is a device");
        let engine = engine
            .with_collectives(Box::new(move || Ok(Arc::clone(&opened) as _)))
            .with_patience(LOST_AFTER);
        let address = "memory://cuda".parse().expect("it is well formed");
        let (counters, bonds) = (Arc::new(Counters::default()), Told::default());
        counters.bonds.keep(Box::new(bonds.clone()));
        let client = Client::serve(engine, &MemoryTransport::new(), &address, counters);
        Self {
            client: client.settle(IMAGE),
            library,
            bonds,
        }
    }

    fn start_make(&self, number: u64, origin: Origin) -> u64 {
        let member = Member {
            number,
            context: CONTEXT.0,
            origin,
            config: Vec::new(),
        };
        let words = encode_members(&[member]);
        self.client.post(&wire::CollectiveMake {
            count: words.len() as u32,
            words: List::Values(&words),
            room: 2,
        })
    }

    fn made(&self, asked: u64) -> Option<i32> {
        let (status, body) = self.client.reply_to(asked);
        assert_eq!(status, CUDA_SUCCESS);
        let reply = wire::CollectiveMakeReply::decode(&body);
        reply.expect("the body is always there").result
    }

    /// Makes a communicator of two ranks.
    fn join(&self, number: u64, id: u8) {
        let asked = self.start_make(number, join(id));
        assert_eq!(self.made(asked), Some(0));
    }

    fn split(&self, number: u64, parent: u64) -> Option<i32> {
        let asked = self.start_make(
            number,
            Origin::Split {
                parent,
                color: 0,
                key: 0,
            },
        );
        self.made(asked)
    }

    /// Runs operations, each of a communicator and a stream, that wait for ever.
    fn reduce(&self, operations: &[(u64, wire::StreamHandle)]) {
        let operations: Vec<_> = operations
            .iter()
            .map(|(communicator, stream)| Operation {
                kind: Kind::AllReduce,
                communicator: *communicator,
                stream: stream.0,
                send: 0,
                receive: self.client.allocate(4),
                count: 1,
                datatype: 2,
                reduction: 0,
                root: 0,
                factor: None,
            })
            .collect();
        for operation in &operations {
            self.client.write(DEFAULT, operation.receive, &[0; 4]);
        }
        assert_eq!(self.client.synchronize(DEFAULT), CUDA_SUCCESS);
        let words = encode_operations(&operations);
        self.client.post(&wire::CollectiveRun {
            count: words.len() as u32,
            words: List::Values(&words),
        });
        let has_run = |stage: &Stage| {
            let addresses = stage.flags.values().flatten();
            let all: Vec<_> = addresses.collect();
            operations.iter().all(|one| all.contains(&&one.receive))
        };
        wait_until(|| has_run(&self.library.stage()));
    }

    fn start_end(&self, communicator: u64, how: u32) -> u64 {
        self.client.post(&wire::CollectiveEnd { communicator, how })
    }

    fn ended(&self, asked: u64) -> Option<i32> {
        let (status, body) = self.client.reply_to(asked);
        assert_eq!(status, CUDA_SUCCESS);
        let reply = wire::CollectiveEndReply::decode(&body);
        reply.expect("the body is always there").result
    }

    fn lose_ranks(&self) {
        for bond in lock(&self.bonds.0).iter() {
            self.client.counters.bonds.lose(bond);
        }
    }

    fn bonds_ever(&self) -> usize {
        lock(&self.bonds.0).iter().collect::<HashSet<_>>().len()
    }

    fn leave(self) {
        self.library.stage().over = true;
        self.client.leave();
    }
}

fn join(id: u8) -> Origin {
    Origin::Join {
        ranks: 2,
        rank: 0,
        ids: vec![[id; ID_BYTES]],
    }
}

fn wait_until(ready: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !ready() {
        assert!(Instant::now() < end, "it did not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn abort_that_waits_holds_no_other_up() {
    let job = Job::new();
    job.library.stage().aborts_wait = Some(0);
    job.join(16, 1);
    job.join(32, 2);
    job.reduce(&[(16, A)]);
    job.reduce(&[(32, B)]);
    job.lose_ranks();
    for stream in [A, B] {
        assert_eq!(job.client.synchronize(stream), CUDA_SUCCESS);
    }
    let failed: Vec<_> = job.client.failures();
    assert_eq!(failed.len(), 2, "{failed:?}");
    job.leave();
}

#[test]
fn context_ends_though_aborts_wait_for_graphs() {
    let job = Job::new();
    job.join(16, 1);
    job.reduce(&[(16, A)]);
    let memory = job.client.allocate(4);
    let graph = one_kernel(9, params(memory, &[1]));
    assert_eq!(job.client.make_graph(70, &graph).0, CUDA_SUCCESS);
    job.library.stage().aborts_wait = Some(job.library.api.live_objects());
    job.client.post(&wire::PrimaryRelease {
        device: 0,
        context: CONTEXT,
    });
    // It is answered once the one before has ended.
    let retained = job.client.post(&wire::PrimaryRetain {
        device: 0,
        flags: 0,
        context: CONTEXT,
    });
    let status = job.client.status_of(retained);
    assert!(matches!(status, CUDA_SUCCESS | CUDA_ERROR_NOT_READY));
    job.leave();
}

#[test]
fn destroy_of_waiting_communicator_ends_with_lost_rank() {
    let job = Job::new();
    job.join(16, 1);
    job.reduce(&[(16, A)]);
    let ended = job.start_end(16, DESTROY);
    std::thread::sleep(LOST_AFTER / 2);
    job.lose_ranks();
    assert_eq!(job.ended(ended), Some(0));
    assert_eq!(job.client.synchronize(A), CUDA_SUCCESS);
    job.leave();
}

#[test]
fn abort_of_one_in_a_blocked_group_returns() {
    let job = Job::new();
    job.join(16, 1);
    job.join(32, 2);
    job.library.stage().calls_wait = true;
    job.reduce(&[(16, A), (32, B)]);
    for communicator in [16, 32] {
        let asked = job.start_end(communicator, ABORT);
        assert_eq!(job.ended(asked), Some(0));
    }
    for stream in [A, B] {
        assert_eq!(job.client.synchronize(stream), CUDA_SUCCESS);
    }
    job.leave();
}

#[test]
fn children_have_one_name_after_failed_split() {
    let job = Job::new();
    // Both ranks of one, in one session.
    job.join(16, 1);
    job.join(32, 1);
    assert_eq!(job.bonds_ever(), 1);
    job.library.stage().makes_fail = true;
    assert_eq!(job.split(48, 16), Some(nccl_result::SYSTEM_ERROR));
    job.library.stage().makes_fail = false;
    assert_eq!(job.split(64, 32), Some(0));
    assert_eq!(job.bonds_ever(), 2);
    assert_eq!(job.split(80, 16), Some(0));
    assert_eq!(job.bonds_ever(), 3);
    assert_eq!(job.split(96, 32), Some(0));
    assert_eq!(job.bonds_ever(), 3);
    job.leave();
}

#[test]
fn registrations_that_nobody_made_are_refused() {
    let job = Job::new();
    job.join(16, 1);
    let register = |address| {
        let asked = job.client.post(&wire::CollectiveRegister {
            communicator: 16,
            address,
            size: 4,
            flags: -1,
        });
        let (_, body) = job.client.reply_to(asked);
        let reply = wire::CollectiveRegisterReply::decode(&body).expect("it is always there");
        assert_eq!(reply.result, Some(0));
        reply.known.expect("it has a handle")
    };
    let deregister = |known, window| {
        let asked = job.client.post(&wire::CollectiveDeregister {
            communicator: 16,
            known,
            window,
        });
        let (_, body) = job.client.reply_to(asked);
        let reply = wire::CollectiveDeregisterReply::decode(&body);
        reply.expect("it is always there").result
    };
    let known = register(64);
    assert_ne!(known, HANDLE, "an address of the worker's");
    let refused = Some(nccl_result::INVALID_ARGUMENT);
    assert_eq!(deregister(HANDLE, 0), refused);
    assert_eq!(deregister(known, 1), refused);
    assert_eq!(deregister(known, 0), Some(0));
    assert_eq!(deregister(known, 0), refused);
    // There was nothing to make known.
    assert_eq!(register(0), 0);
    assert_eq!(job.library.stage().deregistered, [HANDLE]);
    job.leave();
}

#[test]
fn making_fails_once_rank_is_lost() {
    let job = Job::new();
    job.library.stage().makes_wait = true;
    let asked = job.start_make(16, join(1));
    wait_until(|| job.bonds_ever() == 1);
    job.lose_ranks();
    assert_eq!(job.made(asked), Some(nccl_result::REMOTE_ERROR));
    job.leave();
}

#[test]
fn split_fails_with_its_parent_once_rank_is_lost() {
    let job = Job::new();
    job.join(16, 1);
    job.library.stage().makes_wait = true;
    let origin = Origin::Split {
        parent: 16,
        color: 0,
        key: 0,
    };
    let asked = job.start_make(32, origin);
    wait_until(|| job.bonds_ever() == 2);
    job.lose_ranks();
    assert_eq!(job.made(asked), Some(nccl_result::REMOTE_ERROR));
    // The library has its parent aborted, which ends the split.
    wait_until(|| job.library.stage().left.contains(&1));
    job.leave();
}
