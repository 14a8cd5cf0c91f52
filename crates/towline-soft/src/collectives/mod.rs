//! Collectives between devices in software, of one process or several: our own reference of what NCCL does between GPUs.
//!
//! Ranks talk over TCP, each with each. Data goes by the shortest way there is to write down: what is reduced is reduced by one rank, in the
//! order of the ranks, so that all get the same bits.

mod mesh;
mod number;

use std::collections::HashMap;
use std::ffi::c_void;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use towline_backend::cuda::*;
use towline_backend::nccl::{
    Collectives, Communicator, End, Factor, ID_BYTES, Kind, Made, Member, Operation, Origin, result,
};

use mesh::Mesh;
use number::Reduction;

/// The version that it says it is: of an NCCL that has all of these calls.
const VERSION: i32 = 22_809;

/// The library: communicators of this process.
pub struct SoftNccl {
    api: Arc<dyn CudaApi>,
    known: Mutex<HashMap<usize, Arc<Rank>>>,
    next: AtomicUsize,
    text: Mutex<String>,
}

/// A communicator: one rank of it.
struct Rank {
    mesh: Mesh,
    /// The context that it was made in.
    context: usize,
    failed: AtomicI32,
    ended: AtomicBool,
}

/// A message between ranks: the other rank, and bytes.
type Message<'a> = (usize, &'a [u8]);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// NCCL's result for a failure between ranks.
fn of_system(error: &io::Error) -> i32 {
    match error.kind() {
        io::ErrorKind::InvalidInput => result::INVALID_USAGE,
        io::ErrorKind::OutOfMemory => result::SYSTEM_ERROR,
        _ => result::REMOTE_ERROR,
    }
}

fn check(status: CUresult) -> Result<(), i32> {
    match status {
        CUDA_SUCCESS => Ok(()),
        _ => Err(result::CUDA_ERROR),
    }
}

impl SoftNccl {
    /// Collectives between devices of this driver and others.
    pub fn new(api: Arc<dyn CudaApi>) -> Self {
        Self {
            api,
            known: Mutex::default(),
            next: AtomicUsize::new(1),
            text: Mutex::default(),
        }
    }

    fn find(&self, communicator: Communicator) -> Result<Arc<Rank>, i32> {
        let found = lock(&self.known).get(&communicator.0).cloned();
        found.ok_or(result::INVALID_ARGUMENT)
    }

    /// Notes what went wrong between ranks.
    fn note(&self, error: &io::Error) -> i32 {
        *lock(&self.text) = match error.kind() {
            io::ErrorKind::InvalidInput => "ranks do not agree on what they send".into(),
            _ => format!("another rank cannot be reached: {error}"),
        };
        of_system(error)
    }

    fn keep(&self, mesh: Mesh, context: usize) -> Made {
        let (rank, ranks) = (mesh.rank as i32, mesh.ranks as i32);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let kept = Rank {
            mesh,
            context,
            failed: AtomicI32::new(result::SUCCESS),
            ended: AtomicBool::new(false),
        };
        lock(&self.known).insert(number, Arc::new(kept));
        Made {
            communicator: Communicator(number),
            rank,
            ranks,
        }
    }

    fn make_one(&self, origin: Origin<'_>, context: usize) -> Result<Option<Made>, i32> {
        let between = |error: io::Error| self.note(&error);
        let mesh = match origin {
            Origin::Join { ranks, rank, ids } => {
                let id = ids.first().ok_or(result::INVALID_ARGUMENT)?;
                let (ranks, rank) = (usize::try_from(ranks), usize::try_from(rank));
                let (Ok(ranks), Ok(rank)) = (ranks, rank) else {
                    return Err(result::INVALID_ARGUMENT);
                };
                if rank >= ranks {
                    return Err(result::INVALID_ARGUMENT);
                }
                Mesh::join(id, rank, ranks).map_err(between)?
            }
            Origin::Split { parent, color, key } => {
                let parent = self.find(parent)?;
                let all = parent.share_out([color, key]).map_err(between)?;
                let mut ranks: Vec<usize> = (0..all.len()).collect();
                ranks.retain(|rank| all[*rank][0] == color);
                ranks.sort_by_key(|rank| (all[*rank][1], *rank));
                // Every rank takes part in what the parent does; one without a color stops here.
                match color {
                    ..0 => return Ok(None),
                    _ => parent.join_among(&ranks).map_err(between)?,
                }
            }
            Origin::Shrink {
                parent, excluded, ..
            } => {
                let parent = self.find(parent)?;
                let stays = |rank: &usize| !excluded.contains(&(*rank as i32));
                let ranks: Vec<usize> = (0..parent.mesh.ranks).filter(stays).collect();
                if !ranks.contains(&parent.mesh.rank) {
                    return Err(result::INVALID_ARGUMENT);
                }
                parent.join_among(&ranks).map_err(between)?
            }
        };
        Ok(Some(self.keep(mesh, context)))
    }

    /// Memory of the device.
    fn read(&self, stream: usize, address: u64, bytes: usize) -> Result<Vec<u8>, i32> {
        let (mut data, api, stream) = (vec![0; bytes], &self.api, stream as CUstream);
        if bytes > 0 {
            let place = data.as_mut_ptr().cast::<c_void>();
            // SAFETY: as many bytes as there are at the place, which stays until they have come; the driver checks the device's side.
            check(unsafe { api.cuMemcpyDtoHAsync_v2(place, address, bytes, stream) })?;
            // SAFETY: the stream is live.
            check(unsafe { api.cuStreamSynchronize(stream) })?;
        }
        Ok(data)
    }

    /// Data of an operation's rank, multiplied if the rank has a factor, and the way to reduce it.
    fn reducible(&self, operation: &Operation, bytes: usize) -> Result<(Vec<u8>, Reduction), i32> {
        let data = self.read(operation.stream, operation.send, bytes)?;
        let datatype = operation.datatype;
        let factor = match operation.factor {
            None => {
                let reduction = Reduction::of(operation.reduction);
                return Ok((data, reduction.ok_or(result::INVALID_ARGUMENT)?));
            }
            Some(Factor::At(address)) => {
                let size = number::size_of_type(datatype)?;
                self.read(operation.stream, address, size)?
            }
            Some(Factor::Bits(bits)) => bits.to_le_bytes().to_vec(),
        };
        Ok((number::scale(datatype, data, &factor)?, Reduction::Sum))
    }

    fn write(&self, stream: usize, address: u64, data: &[u8]) -> Result<(), i32> {
        if data.is_empty() {
            return Ok(());
        }
        let (api, stream) = (&self.api, stream as CUstream);
        let place = data.as_ptr().cast::<c_void>();
        // SAFETY: as above.
        check(unsafe { api.cuMemcpyHtoDAsync_v2(address, place, data.len(), stream) })?;
        // SAFETY: the stream is live.
        check(unsafe { api.cuStreamSynchronize(stream) })
    }

    /// Carries out what one rank has in a group.
    fn run_rank(&self, rank: &Rank, operations: &[Operation]) -> Result<(), i32> {
        // SAFETY: the context is the communicator's, which the session keeps.
        check(unsafe { self.api.cuCtxSetCurrent(rank.context as CUcontext) })?;
        for operation in operations {
            // SAFETY: `run` asks for live streams. Another may have to come to where its operation is.
            check(unsafe { self.api.cuStreamSynchronize(operation.stream as CUstream) })?;
        }
        let is_message = |kind| matches!(kind, Kind::Send | Kind::Recv);
        let (messages, others): (Vec<_>, Vec<_>) = operations
            .iter()
            .partition(|operation| is_message(operation.kind));
        others
            .into_iter()
            .try_for_each(|operation| self.collect(rank, operation))?;
        self.pass(rank, &messages)
    }

    /// Messages of a group: all at once.
    fn pass(&self, rank: &Rank, messages: &[&Operation]) -> Result<(), i32> {
        let (mut sent, mut awaited) = (Vec::new(), Vec::new());
        for message in messages {
            let bytes = bytes_of(message)?;
            let other = rank.peer(message.root)?;
            match message.kind {
                Kind::Send => sent.push((other, self.read(message.stream, message.send, bytes)?)),
                _ => awaited.push((other, bytes, message)),
            }
        }
        let outgoing: Vec<Message<'_>> = sent.iter().map(|(to, data)| (*to, &data[..])).collect();
        let incoming: Vec<_> = awaited
            .iter()
            .map(|(from, bytes, _)| (*from, *bytes))
            .collect();
        let come = rank.exchange(self, &outgoing, &incoming)?;
        let mut come = awaited.iter().zip(&come);
        come.try_for_each(|((_, _, message), data)| {
            self.write(message.stream, message.receive, data)
        })
    }

    fn collect(&self, rank: &Rank, operation: &Operation) -> Result<(), i32> {
        let one = bytes_of(operation)?;
        let (own, ranks) = (rank.mesh.rank, rank.mesh.ranks);
        let all = one.checked_mul(ranks).ok_or(result::INVALID_ARGUMENT)?;
        let everyone = 0..ranks;
        let root = match operation.kind {
            Kind::Reduce | Kind::Broadcast | Kind::Gather | Kind::Scatter => {
                rank.peer(operation.root)?
            }
            _ => 0,
        };
        let from_all: Vec<_> = everyone.clone().map(|from| (from, one)).collect();
        match operation.kind {
            Kind::AllReduce | Kind::Reduce => {
                let (data, reduction) = self.reducible(operation, one)?;
                let awaited = if own == root { &from_all[..] } else { &[] };
                let parts = rank.exchange(self, &[(root, &data)], awaited)?;
                let reduced = match own == root {
                    true => number::reduce(operation.datatype, reduction, &parts)?,
                    false => Vec::new(),
                };
                if operation.kind == Kind::Reduce {
                    return self.write(operation.stream, operation.receive, &reduced);
                }
                let outgoing: Vec<Message<'_>> = match own == root {
                    true => everyone.map(|to| (to, &reduced[..])).collect(),
                    false => Vec::new(),
                };
                let come = rank.exchange(self, &outgoing, &[(root, one)])?;
                self.write(operation.stream, operation.receive, &come[0])
            }
            Kind::Broadcast => {
                let data = match own == root {
                    true => self.read(operation.stream, operation.send, one)?,
                    false => Vec::new(),
                };
                let outgoing: Vec<Message<'_>> = match own == root {
                    true => everyone.map(|to| (to, &data[..])).collect(),
                    false => Vec::new(),
                };
                let come = rank.exchange(self, &outgoing, &[(root, one)])?;
                self.write(operation.stream, operation.receive, &come[0])
            }
            Kind::ReduceScatter => {
                let (data, reduction) = self.reducible(operation, all)?;
                let outgoing = parts(&data, one, ranks);
                let come = rank.exchange(self, &outgoing, &from_all)?;
                let reduced = number::reduce(operation.datatype, reduction, &come)?;
                self.write(operation.stream, operation.receive, &reduced)
            }
            Kind::AllGather => {
                let data = self.read(operation.stream, operation.send, one)?;
                let outgoing: Vec<Message<'_>> = everyone.map(|to| (to, &data[..])).collect();
                let come = rank.exchange(self, &outgoing, &from_all)?;
                self.write(operation.stream, operation.receive, &come.concat())
            }
            Kind::AllToAll => {
                let data = self.read(operation.stream, operation.send, all)?;
                let outgoing = parts(&data, one, ranks);
                let come = rank.exchange(self, &outgoing, &from_all)?;
                self.write(operation.stream, operation.receive, &come.concat())
            }
            Kind::Gather => {
                let data = self.read(operation.stream, operation.send, one)?;
                let awaited = if own == root { &from_all[..] } else { &[] };
                let come = rank.exchange(self, &[(root, &data)], awaited)?;
                self.write(operation.stream, operation.receive, &come.concat())
            }
            Kind::Scatter => {
                let data = match own == root {
                    true => self.read(operation.stream, operation.send, all)?,
                    false => Vec::new(),
                };
                let outgoing = match own == root {
                    true => parts(&data, one, ranks),
                    false => Vec::new(),
                };
                let come = rank.exchange(self, &outgoing, &[(root, one)])?;
                self.write(operation.stream, operation.receive, &come[0])
            }
            Kind::Send | Kind::Recv => self.pass(rank, &[operation]),
        }
    }
}

/// The part of each rank.
fn parts(data: &[u8], one: usize, ranks: usize) -> Vec<Message<'_>> {
    (0..ranks)
        .map(|to| (to, &data[to * one..(to + 1) * one]))
        .collect()
}

fn bytes_of(operation: &Operation) -> Result<usize, i32> {
    let size = number::size_of_type(operation.datatype)?;
    let count = usize::try_from(operation.count).ok();
    let bytes = count.and_then(|count| count.checked_mul(size));
    bytes.ok_or(result::INVALID_ARGUMENT)
}

impl Rank {
    fn peer(&self, rank: i32) -> Result<usize, i32> {
        let rank = usize::try_from(rank)
            .ok()
            .filter(|rank| *rank < self.mesh.ranks);
        rank.ok_or(result::INVALID_ARGUMENT)
    }

    fn exchange(
        &self,
        library: &SoftNccl,
        outgoing: &[Message<'_>],
        incoming: &[(usize, usize)],
    ) -> Result<Vec<Vec<u8>>, i32> {
        let come = self.mesh.exchange(outgoing, incoming);
        come.map_err(|error| library.note(&error))
    }

    /// Gives every rank two numbers of each.
    fn share_out(&self, numbers: [i32; 2]) -> io::Result<Vec<[i32; 2]>> {
        let data = numbers.map(i32::to_le_bytes).concat();
        let everyone = 0..self.mesh.ranks;
        let outgoing: Vec<Message<'_>> = everyone.clone().map(|to| (to, &data[..])).collect();
        let incoming: Vec<_> = everyone.map(|from| (from, data.len())).collect();
        let come = self.mesh.exchange(&outgoing, &incoming)?;
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, i32::from_le_bytes);
        Ok(come
            .iter()
            .map(|data| [number(&data[..4]), number(&data[4..])])
            .collect())
    }

    /// Makes connections among some ranks, which know of it all.
    fn join_among(&self, ranks: &[usize]) -> io::Result<Mesh> {
        let own = ranks.iter().position(|rank| *rank == self.mesh.rank);
        let own = own.ok_or(io::ErrorKind::InvalidInput)?;
        let id = match own {
            0 => {
                let id = mesh::make_id()?;
                let outgoing: Vec<Message<'_>> =
                    ranks[1..].iter().map(|to| (*to, &id[..])).collect();
                self.mesh.exchange(&outgoing, &[])?;
                id
            }
            _ => {
                let come = self.mesh.exchange(&[], &[(ranks[0], ID_BYTES)])?;
                come[0][..]
                    .try_into()
                    .map_err(|_| io::ErrorKind::InvalidData)?
            }
        };
        Mesh::join(&id, own, ranks.len())
    }
}

impl Collectives for SoftNccl {
    fn version(&self) -> Result<i32, i32> {
        Ok(VERSION)
    }

    fn id(&self) -> Result<[u8; ID_BYTES], i32> {
        mesh::make_id().map_err(|error| self.note(&error))
    }

    fn make(
        &self,
        members: &[Member<'_>],
        enter: &dyn Fn(usize) -> bool,
    ) -> Result<Vec<Option<Made>>, i32> {
        let mut contexts = Vec::new();
        for number in 0..members.len() {
            let mut context: CUcontext = std::ptr::null_mut();
            if !enter(number) {
                return Err(result::CUDA_ERROR);
            }
            // SAFETY: one place for the context.
            check(unsafe { self.api.cuCtxGetCurrent(&raw mut context) })?;
            contexts.push(context.addr());
        }
        std::thread::scope(|scope| {
            let together = members.iter().zip(contexts);
            let threads: Vec<_> = together
                .map(|(member, context)| scope.spawn(move || self.make_one(member.origin, context)))
                .collect();
            let made = threads.into_iter().map(|thread| {
                let made = thread.join();
                made.unwrap_or(Err(result::INTERNAL_ERROR))
            });
            made.collect()
        })
    }

    unsafe fn run(&self, operations: &[Operation]) -> Result<(), i32> {
        let mut by_rank: Vec<(Arc<Rank>, Vec<Operation>)> = Vec::new();
        for operation in operations {
            let rank = self.find(operation.communicator)?;
            match by_rank
                .iter_mut()
                .find(|(known, _)| Arc::ptr_eq(known, &rank))
            {
                Some((_, operations)) => operations.push(*operation),
                None => by_rank.push((rank, vec![*operation])),
            }
        }
        std::thread::scope(|scope| {
            let run = |(rank, operations): &(Arc<Rank>, Vec<Operation>)| {
                if rank.ended.load(Ordering::Acquire) {
                    return Ok(());
                }
                match rank.failed.load(Ordering::Acquire) {
                    result::SUCCESS => {}
                    failed => return Err(failed),
                }
                let outcome = self.run_rank(rank, operations);
                if let Err(failed) = outcome {
                    rank.failed.store(failed, Ordering::Release);
                    // Others may wait for this one, and not for the rank that failed it.
                    rank.mesh.close();
                }
                outcome
            };
            let threads: Vec<_> = by_rank
                .iter()
                .map(|of| scope.spawn(move || run(of)))
                .collect();
            threads.into_iter().try_for_each(|thread| {
                let ended = thread.join();
                ended.unwrap_or(Err(result::INTERNAL_ERROR))
            })
        })
    }

    fn waits(&self) -> bool {
        true
    }

    fn state(&self, communicator: Communicator) -> i32 {
        let rank = self.find(communicator);
        rank.map_or_else(|failed| failed, |rank| rank.failed.load(Ordering::Acquire))
    }

    fn end(&self, communicator: Communicator, how: End) -> Result<(), i32> {
        let rank = self.find(communicator)?;
        match how {
            End::Finalize | End::Suspend | End::Resume => return Ok(()),
            End::Revoke => {
                rank.mesh.close();
                return Ok(());
            }
            End::Destroy | End::Abort => {}
        }
        rank.ended.store(true, Ordering::Release);
        lock(&self.known).remove(&communicator.0);
        rank.mesh.close();
        Ok(())
    }

    fn register(
        &self,
        communicator: Communicator,
        address: u64,
        _size: u64,
        _window: Option<i32>,
    ) -> Result<u64, i32> {
        self.find(communicator).map(|_| address)
    }

    fn deregister(
        &self,
        communicator: Communicator,
        _known: u64,
        _window: bool,
    ) -> Result<(), i32> {
        self.find(communicator).map(drop)
    }

    fn text(&self) -> String {
        lock(&self.text).clone()
    }
}
