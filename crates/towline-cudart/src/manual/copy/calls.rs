//! The C functions of copies and fills, each that waits beside the one that does not.

use std::ffi::c_void;

use super::{When, at, row, rows};
use crate::describe::Piece;
use crate::get;
use crate::runtime::{Runtime, status};
use crate::types::*;

impl Runtime {
    pub unsafe fn cudaMemcpy(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| self.copy(dst, src, count, kind, When::Now))
    }

    pub unsafe fn cudaMemcpyAsync(
        &self,
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.copy(dst, src, count, kind, When::In(stream)))
    }

    pub unsafe fn cudaMemcpy2D(
        &self,
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            self.copy_rows(
                dst,
                dpitch,
                src,
                spitch,
                rows(width, height),
                kind,
                When::Now,
            )
        })
    }

    pub unsafe fn cudaMemcpy2DAsync(
        &self,
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| {
            self.copy_rows(
                dst,
                dpitch,
                src,
                spitch,
                rows(width, height),
                kind,
                When::In(stream),
            )
        })
    }

    pub unsafe fn cudaMemcpy3D(&self, p: *const cudaMemcpy3DParms) -> cudaError_t {
        status(|| {
            let parms = get!(p);
            self.copy_box(&self.piece(&parms)?, parms.kind, When::Now)
        })
    }

    pub unsafe fn cudaMemcpy3DAsync(
        &self,
        p: *const cudaMemcpy3DParms,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| {
            let parms = get!(p);
            self.copy_box(&self.piece(&parms)?, parms.kind, When::In(stream))
        })
    }

    pub unsafe fn cudaMemcpy3DPeer(&self, p: *const cudaMemcpy3DPeerParms) -> cudaError_t {
        status(|| self.copy_peer_box(p, When::Now))
    }

    pub unsafe fn cudaMemcpy3DPeerAsync(
        &self,
        p: *const cudaMemcpy3DPeerParms,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.copy_peer_box(p, When::In(stream)))
    }

    pub unsafe fn cudaMemcpyPeer(
        &self,
        dst: *mut c_void,
        dstDevice: i32,
        src: *const c_void,
        srcDevice: i32,
        count: usize,
    ) -> cudaError_t {
        status(|| self.copy_peer((dst, dstDevice), (src, srcDevice), count, When::Now))
    }

    pub unsafe fn cudaMemcpyPeerAsync(
        &self,
        dst: *mut c_void,
        dstDevice: i32,
        src: *const c_void,
        srcDevice: i32,
        count: usize,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.copy_peer((dst, dstDevice), (src, srcDevice), count, When::In(stream)))
    }

    pub unsafe fn cudaMemcpyToSymbol(
        &self,
        symbol: *const c_void,
        src: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            let dst = self.in_symbol(symbol, offset, count)?;
            self.copy(dst, src, count, kind, When::Now)
        })
    }

    pub unsafe fn cudaMemcpyToSymbolAsync(
        &self,
        symbol: *const c_void,
        src: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| {
            let dst = self.in_symbol(symbol, offset, count)?;
            self.copy(dst, src, count, kind, When::In(stream))
        })
    }

    pub unsafe fn cudaMemcpyFromSymbol(
        &self,
        dst: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            let src = self.in_symbol(symbol, offset, count)?;
            self.copy(dst, src, count, kind, When::Now)
        })
    }

    pub unsafe fn cudaMemcpyFromSymbolAsync(
        &self,
        dst: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| {
            let src = self.in_symbol(symbol, offset, count)?;
            self.copy(dst, src, count, kind, When::In(stream))
        })
    }

    pub unsafe fn cudaMemcpyToArray(
        &self,
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| self.fill_array(dst, (wOffset, hOffset), src, count, kind, When::Now))
    }

    pub unsafe fn cudaMemcpyToArrayAsync(
        &self,
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.fill_array(dst, (wOffset, hOffset), src, count, kind, When::In(stream)))
    }

    pub unsafe fn cudaMemcpyFromArray(
        &self,
        dst: *mut c_void,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| self.out_of_array(dst, src, (wOffset, hOffset), count, kind, When::Now))
    }

    pub unsafe fn cudaMemcpyFromArrayAsync(
        &self,
        dst: *mut c_void,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.out_of_array(dst, src, (wOffset, hOffset), count, kind, When::In(stream)))
    }

    pub unsafe fn cudaMemcpy2DToArray(
        &self,
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            self.rows_to_array(
                dst,
                at(wOffset, hOffset),
                src,
                spitch,
                rows(width, height),
                kind,
                When::Now,
            )
        })
    }

    pub unsafe fn cudaMemcpy2DToArrayAsync(
        &self,
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| {
            self.rows_to_array(
                dst,
                at(wOffset, hOffset),
                src,
                spitch,
                rows(width, height),
                kind,
                When::In(stream),
            )
        })
    }

    pub unsafe fn cudaMemcpy2DFromArray(
        &self,
        dst: *mut c_void,
        dpitch: usize,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            self.rows_from_array(
                dst,
                dpitch,
                src,
                at(wOffset, hOffset),
                rows(width, height),
                kind,
                When::Now,
            )
        })
    }

    pub unsafe fn cudaMemcpy2DFromArrayAsync(
        &self,
        dst: *mut c_void,
        dpitch: usize,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| {
            self.rows_from_array(
                dst,
                dpitch,
                src,
                at(wOffset, hOffset),
                rows(width, height),
                kind,
                When::In(stream),
            )
        })
    }

    pub unsafe fn cudaMemset(&self, devPtr: *mut c_void, value: i32, count: usize) -> cudaError_t {
        status(|| self.fill(devPtr, value, count, When::Now))
    }

    pub unsafe fn cudaMemsetAsync(
        &self,
        devPtr: *mut c_void,
        value: i32,
        count: usize,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.fill(devPtr, value, count, When::In(stream)))
    }

    pub unsafe fn cudaMemset2D(
        &self,
        devPtr: *mut c_void,
        pitch: usize,
        value: i32,
        width: usize,
        height: usize,
    ) -> cudaError_t {
        status(|| self.fill_rows(devPtr, pitch, value, (width, height), When::Now))
    }

    pub unsafe fn cudaMemset2DAsync(
        &self,
        devPtr: *mut c_void,
        pitch: usize,
        value: i32,
        width: usize,
        height: usize,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.fill_rows(devPtr, pitch, value, (width, height), When::In(stream)))
    }

    pub unsafe fn cudaMemset3D(
        &self,
        pitchedDevPtr: cudaPitchedPtr,
        value: i32,
        extent: cudaExtent,
    ) -> cudaError_t {
        status(|| self.fill_box(pitchedDevPtr, value, extent, When::Now))
    }

    pub unsafe fn cudaMemset3DAsync(
        &self,
        pitchedDevPtr: cudaPitchedPtr,
        value: i32,
        extent: cudaExtent,
        stream: cudaStream_t,
    ) -> cudaError_t {
        status(|| self.fill_box(pitchedDevPtr, value, extent, When::In(stream)))
    }

    pub unsafe fn cudaMemcpyArrayToArray(
        &self,
        dst: cudaArray_t,
        wOffsetDst: usize,
        hOffsetDst: usize,
        src: cudaArray_const_t,
        wOffsetSrc: usize,
        hOffsetSrc: usize,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            // Bytes in a row of both: rows of different width cannot be told apart here.
            let target = self.array_end(dst)?;
            let start = (wOffsetSrc, hOffsetSrc);
            self.copy_runs(src, start, count, |source, source_at, done, len| {
                let target_at = at(
                    if done == 0 { wOffsetDst } else { 0 },
                    hOffsetDst + (source_at.y - hOffsetSrc),
                );
                let piece = Piece {
                    source,
                    source_at,
                    target,
                    target_at,
                    extent: row(len),
                    bytes: true,
                };
                self.copy_box(&piece, kind, When::Now)
            })
        })
    }

    pub unsafe fn cudaMemcpy2DArrayToArray(
        &self,
        dst: cudaArray_t,
        wOffsetDst: usize,
        hOffsetDst: usize,
        src: cudaArray_const_t,
        wOffsetSrc: usize,
        hOffsetSrc: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t {
        status(|| {
            let piece = Piece {
                source: self.array_end(src)?,
                source_at: at(wOffsetSrc, hOffsetSrc),
                target: self.array_end(dst)?,
                target_at: at(wOffsetDst, hOffsetDst),
                extent: rows(width, height),
                bytes: true,
            };
            self.copy_box(&piece, kind, When::Now)
        })
    }
}
