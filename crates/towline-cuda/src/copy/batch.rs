//! Copies in batches. The copies of a batch have no order among themselves, so the stream's will do.

use towline_backend::cuda::*;

use super::Mode;
use super::boxes::{BoxCopy, Memory, Side};
use crate::driver::{Driver, read};

/// The attributes of the copies of a batch, each from an index on.
pub(super) struct Attributes<'a> {
    attributes: &'a [CUmemcpyAttributes],
    from: &'a [usize],
}

/// How a copy may read its source.
fn mode(order: CUmemcpySrcAccessOrder) -> Result<Mode, CUresult> {
    match order {
        CU_MEMCPY_SRC_ACCESS_ORDER_STREAM | CU_MEMCPY_SRC_ACCESS_ORDER_ANY => Ok(Mode::Async),
        CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL => Ok(Mode::Captured),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whether indices say of each operation of a batch which entry of a list is its: the first operation's is the first entry, and each later
/// entry begins behind those before.
pub(crate) fn cover(from: &[usize], count: usize) -> bool {
    let rising = from.is_sorted_by(|one, next| one < next);
    let inside = from.last().is_some_and(|last| *last < count);
    rising && inside && from.first() == Some(&0)
}

impl<'a> Attributes<'a> {
    /// Attributes of a batch of `count` copies: the first are the first copy's, and each later ones begin behind those before.
    pub(super) fn new(
        attributes: &'a [CUmemcpyAttributes],
        from: &'a [usize],
        count: usize,
    ) -> Option<Self> {
        cover(from, count).then_some(Self { attributes, from })
    }

    fn of(&self, copy: usize) -> Option<&CUmemcpyAttributes> {
        let behind = self.from.partition_point(|from| *from <= copy);
        self.attributes.get(behind.checked_sub(1)?)
    }
}

/// Which copy of a batch failed, and how; `None` where it is no single one's fault.
pub(super) type Failure = (Option<usize>, CUresult);

impl Driver {
    /// Refuses the default stream, a thread without a context, and a stream that is captured; unlike with other calls, this costs the capture
    /// nothing (seen with driver 580.159).
    fn outside(&self, stream: CUstream) -> Result<(), CUresult> {
        if stream.addr() <= CU_STREAM_LEGACY as usize || self.current().is_err() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        match self.enqueue_on(stream)? {
            (_, _, None) => Ok(()),
            _ => Err(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
        }
    }

    /// Copies ranges, with attributes each from an index on.
    pub(super) fn copy_batch(
        &self,
        call: &'static str,
        (targets, sources, sizes): (&[CUdeviceptr], &[CUdeviceptr], &[usize]),
        (attributes, from): (&[CUmemcpyAttributes], &[usize]),
        stream: CUstream,
    ) -> Result<(), Failure> {
        let nobody = (None, CUDA_ERROR_INVALID_VALUE);
        let attributes = Attributes::new(attributes, from, targets.len()).ok_or(nobody)?;
        let mut orders = attributes.attributes.iter().map(|it| it.srcAccessOrder);
        if orders.any(|order| mode(order).is_err()) {
            return Err(nobody);
        }
        self.outside(stream).map_err(|status| (None, status))?;
        // Copies before one that is refused are made (seen with driver 580.159).
        for (index, ((target, source), size)) in targets.iter().zip(sources).zip(sizes).enumerate()
        {
            let order = attributes.of(index).map_or(0, |found| found.srcAccessOrder);
            let refused = *target == 0 || *source == 0 || *size == 0;
            let mode = mode(order).ok().filter(|_| !refused);
            let mode = mode.ok_or((Some(index), CUDA_ERROR_INVALID_VALUE))?;
            self.anywhere(call, *target, *source, *size, stream, mode)
                .map_err(|status| (Some(index), status))?;
        }
        Ok(())
    }

    /// The copy that an operation of a batch of boxes is. Extents are in elements: the array's, or bytes where none is an array.
    fn operation(&self, op: &CUDA_MEMCPY3D_BATCH_OP) -> Result<(BoxCopy, Mode), CUresult> {
        let (from, from_element) = self.operand(&op.src)?;
        let (to, to_element) = self.operand(&op.dst)?;
        let element = match (from_element, to_element) {
            (Some(from), Some(to)) if from != to => return Err(CUDA_ERROR_INVALID_VALUE),
            (Some(element), _) | (None, Some(element)) => element,
            (None, None) => 1,
        };
        let bytes = |elements: usize| {
            elements
                .checked_mul(element)
                .ok_or(CUDA_ERROR_INVALID_VALUE)
        };
        let scaled = |side: Side| {
            Ok::<Side, CUresult>(Side {
                start: [bytes(side.start[0])?, side.start[1], side.start[2]],
                pitch: bytes(side.pitch)?,
                ..side
            })
        };
        let CUextent3D {
            width,
            height,
            depth,
        } = op.extent;
        if width == 0 || height == 0 || depth == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let copy = BoxCopy {
            from: scaled(from)?,
            to: scaled(to)?,
            size: [bytes(width)?, height, depth],
            contexts: None,
        };
        Ok((copy, mode(op.srcAccessOrder)?))
    }

    /// A side of an operation in elements, and an array's bytes of an element.
    fn operand(&self, operand: &CUmemcpy3DOperand) -> Result<(Side, Option<usize>), CUresult> {
        match operand.r#type {
            CU_MEMCPY_OPERAND_TYPE_POINTER => {
                // SAFETY: the type says that this is it.
                let pointer = unsafe { operand.op.ptr };
                let side = Side {
                    memory: self.memory_at(pointer.ptr),
                    start: [0; 3],
                    pitch: pointer.rowLength,
                    height: pointer.layerHeight,
                };
                Ok((side, None))
            }
            CU_MEMCPY_OPERAND_TYPE_ARRAY => {
                // SAFETY: the type says that this is it.
                let array = unsafe { operand.op.array };
                let number = array.array.addr() as u64;
                let CUoffset3D { x, y, z } = array.offset;
                let side = Side {
                    memory: Memory::Array(number),
                    start: [x, y, z],
                    pitch: 0,
                    height: 0,
                };
                let element = read(&self.arrays).get(number)?.element();
                Ok((side, Some(element.ok_or(CUDA_ERROR_NOT_SUPPORTED)?)))
            }
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Copies boxes.
    pub(super) fn copy_boxes(
        &self,
        call: &'static str,
        ops: &[CUDA_MEMCPY3D_BATCH_OP],
        flags: u64,
        stream: CUstream,
    ) -> Result<(), Failure> {
        if flags != 0 || ops.is_empty() {
            return Err((None, CUDA_ERROR_INVALID_VALUE));
        }
        self.outside(stream).map_err(|status| (None, status))?;
        let mut copies = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            let copy = self.operation(op);
            copies.push(copy.map_err(|status| (Some(index), status))?);
        }
        for (index, (copy, mode)) in copies.iter().enumerate() {
            self.copy_box(call, copy, stream, *mode)
                .map_err(|status| (Some(index), status))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(order: CUmemcpySrcAccessOrder) -> CUmemcpyAttributes {
        let nowhere = CUmemLocation {
            r#type: 0,
            either: CUmemLocation_either { id: 0 },
        };
        CUmemcpyAttributes {
            srcAccessOrder: order,
            srcLocHint: nowhere,
            dstLocHint: nowhere,
            flags: 0,
        }
    }

    #[test]
    fn attributes_hold_from_their_index_to_the_next() {
        let list = [1, 2, 3].map(attributes);
        let found = Attributes::new(&list, &[0, 6, 7], 10).expect("the list is in order");
        let order = |copy| found.of(copy).map(|found| found.srcAccessOrder);
        assert_eq!([order(0), order(5)], [Some(1); 2]);
        assert_eq!([order(6), order(7), order(9)], [Some(2), Some(3), Some(3)]);
    }

    #[test]
    fn attributes_out_of_order_are_refused() {
        let list = [1, 1].map(attributes);
        for from in [&[0, 0], &[1, 2], &[3, 0], &[0, 10]] {
            assert!(Attributes::new(&list, from, 10).is_none(), "{from:?}");
        }
        assert!(Attributes::new(&[], &[], 10).is_none());
    }
}
