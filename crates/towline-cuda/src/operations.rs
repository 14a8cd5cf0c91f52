//! Values in memory that streams and graphs wait for and write.

use towline_backend::cuda as wire;
use towline_backend::cuda::*;

use crate::driver::{Driver, read};
use crate::graph::Content;
use crate::memory::{Kind, Range};

/// Words of an operation: the API's union.
pub(crate) const WORDS: usize = 6;
/// Most operations of a call or a node, as the API has it.
const LIMIT: usize = 256;
/// Bits of a wait's flags that say what is compared.
const CONDITION: u32 = 3;

/// The words of operations.
pub(crate) fn words(list: &[CUstreamBatchMemOpParams]) -> Result<Vec<u64>, CUresult> {
    if list.len() > LIMIT {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let mut words = Vec::with_capacity(list.len() * WORDS);
    for operation in list {
        // SAFETY: the words of the union, which the application has filled as far as they count.
        words.extend(unsafe { operation.pad });
    }
    Ok(words)
}

/// An operation on one value.
fn one(kind: CUstreamBatchMemOpType, address: CUdeviceptr, value: u64, flags: u32) -> [u64; WORDS] {
    [u64::from(kind), address, value, u64::from(flags), 0, 0]
}

impl Driver {
    /// Refuses operations that the device has not, and that are on no memory: a capture asks for none (seen with driver 580.159).
    pub(crate) fn check_operations(
        &self,
        context: u64,
        words: &[u64],
        on_memory: bool,
    ) -> Result<(), CUresult> {
        let device = self.device(self.context(context)?.device)?;
        let has = |attribute| match device.attribute(attribute) {
            0 => Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => Ok(()),
        };
        let place = |address: u64, bytes: u64| {
            let ranges = read(&self.memory);
            let may_be_on = |range: &Range| match range.kind {
                // Neither is memory of pools and graphs (seen with driver 580.159).
                Kind::Managed => false,
                Kind::Allocated(_) => self.is_reached(address),
                kind => kind.is_device() && !range.of_pool && !range.of_graph,
            };
            let known = !on_memory
                || ranges.find(address).is_some_and(|(start, range)| {
                    may_be_on(range) && address - start + bytes <= range.size as u64
                });
            match known && address.is_multiple_of(bytes) {
                true => Ok(()),
                false => Err(CUDA_ERROR_INVALID_VALUE),
            }
        };
        // The device has a copy, which the host's writes reach at the next piece of work: a wait for one would never end.
        let is_copy = |address| {
            let ranges = read(&self.memory);
            let found = ranges.find(address);
            on_memory && found.is_some_and(|(_, range)| matches!(range.kind, Kind::Twin))
        };
        for [kind, address, _, flags, ..] in words.as_chunks::<WORDS>().0 {
            let (kind, flags) = (*kind as u32, *flags as u32);
            match kind {
                CU_STREAM_MEM_OP_WAIT_VALUE_64 | CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
                    has(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS)?;
                    place(*address, 8)?;
                }
                CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_32 => {
                    place(*address, 4)?;
                }
                CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => {
                    has(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)?;
                }
                // The server's driver judges these; an old one has them not.
                CU_STREAM_MEM_OP_BARRIER | CU_STREAM_MEM_OP_ATOMIC_REDUCTION => {}
                _ => return Err(CUDA_ERROR_INVALID_VALUE),
            }
            match kind {
                CU_STREAM_MEM_OP_WAIT_VALUE_32 | CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
                    if is_copy(*address) {
                        log::warn!(
                            "a stream cannot wait for what the host writes to registered memory ({address:#x})"
                        );
                        return Err(CUDA_ERROR_NOT_SUPPORTED);
                    }
                    if flags & CU_STREAM_WAIT_VALUE_FLUSH != 0 {
                        has(CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES)?;
                    }
                    if flags & !(CU_STREAM_WAIT_VALUE_FLUSH | CONDITION) != 0 {
                        return Err(CUDA_ERROR_INVALID_VALUE);
                    }
                    if flags & CONDITION == CU_STREAM_WAIT_VALUE_NOR {
                        has(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR)?;
                    }
                }
                // The calls' second version has no flags for writes, not even the one to leave out the barrier.
                CU_STREAM_MEM_OP_WRITE_VALUE_32 | CU_STREAM_MEM_OP_WRITE_VALUE_64 if flags != 0 => {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Has a stream wait for a value, or write one.
    pub(crate) fn operate_on(
        &self,
        stream: CUstream,
        kind: CUstreamBatchMemOpType,
        address: CUdeviceptr,
        value: u64,
        flags: u32,
    ) -> Result<(), CUresult> {
        self.operate(stream, &one(kind, address, value, flags))
    }

    /// Has a stream carry out operations. Those that wait do so on the device: nothing of the session's does.
    pub(crate) fn operate(&self, stream: CUstream, words: &[u64]) -> Result<(), CUresult> {
        let (acting, handle, captured) = self.enqueue_on(stream)?;
        let context = acting.context.number;
        if words.is_empty() {
            return Ok(());
        }
        if captured.is_none() {
            for [_, address, ..] in words.as_chunks::<WORDS>().0 {
                self.promote_at(&acting, *address)?;
            }
        }
        self.check_operations(context, words, captured.is_none())?;
        if let Some(captured) = captured {
            return captured.add(Content::Operations {
                context,
                flags: 0,
                words: words.to_vec(),
            });
        }
        let _posting = acting.context.mirrored.posting();
        self.before_work(&acting, handle)?;
        acting.post(&wire::StreamOperations {
            stream: handle,
            flags: 0,
            words: words.len() as u32,
            operations: wire::List::Values(words),
        })?;
        acting.touch(handle);
        Ok(())
    }
}
