//! Copies and fills.

extern "C" {
    /// Copies memory.
    #[call(by = self.copy(dst, src, count, kind, Now), ptds)]
    fn cudaMemcpy(
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies memory in stream order.
    #[call(by = self.copy(dst, src, count, kind, In(stream)), ptsz)]
    fn cudaMemcpyAsync(
        dst: *mut c_void,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies rows.
    #[call(by = self.copy_rows((dst, dpitch), (src, spitch), rows(width, height), kind, Now), ptds)]
    fn cudaMemcpy2D(
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies rows in stream order.
    #[call(by = self.copy_rows((dst, dpitch), (src, spitch), rows(width, height), kind, In(stream)), ptsz)]
    fn cudaMemcpy2DAsync(
        dst: *mut c_void,
        dpitch: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies a box.
    #[call(by = self.copy_box_of(p, Now), ptds)]
    fn cudaMemcpy3D(p: *const cudaMemcpy3DParms) -> cudaError_t;

    /// Copies a box in stream order.
    #[call(by = self.copy_box_of(p, In(stream)), ptsz)]
    fn cudaMemcpy3DAsync(p: *const cudaMemcpy3DParms, stream: cudaStream_t) -> cudaError_t;

    /// Copies a box between devices.
    #[call(by = self.copy_peer_box(p, Now), ptds)]
    fn cudaMemcpy3DPeer(p: *const cudaMemcpy3DPeerParms) -> cudaError_t;

    /// Copies a box between devices in stream order.
    #[call(by = self.copy_peer_box(p, In(stream)), ptsz)]
    fn cudaMemcpy3DPeerAsync(p: *const cudaMemcpy3DPeerParms, stream: cudaStream_t) -> cudaError_t;

    /// Copies memory between devices.
    #[call(by = self.copy_peer((dst, dstDevice), (src, srcDevice), count, Now))]
    fn cudaMemcpyPeer(
        dst: *mut c_void,
        dstDevice: i32,
        src: *const c_void,
        srcDevice: i32,
        count: usize,
    ) -> cudaError_t;

    /// Copies memory between devices in stream order.
    #[call(by = self.copy_peer((dst, dstDevice), (src, srcDevice), count, In(stream)))]
    fn cudaMemcpyPeerAsync(
        dst: *mut c_void,
        dstDevice: i32,
        src: *const c_void,
        srcDevice: i32,
        count: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies to a variable of the device.
    #[call(by = self.copy(self.symbol_to_write(symbol, offset, count, kind)?, src, count, kind, Now), ptds)]
    fn cudaMemcpyToSymbol(
        symbol: *const c_void,
        src: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies to a variable of the device in stream order.
    #[call(by = self.copy(self.symbol_to_write(symbol, offset, count, kind)?, src, count, kind, In(stream)), ptsz)]
    fn cudaMemcpyToSymbolAsync(
        symbol: *const c_void,
        src: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies from a variable of the device.
    #[call(by = self.copy(dst, self.symbol_to_read(symbol, offset, count, kind)?, count, kind, Now), ptds)]
    fn cudaMemcpyFromSymbol(
        dst: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies from a variable of the device in stream order.
    #[call(by = self.copy(dst, self.symbol_to_read(symbol, offset, count, kind)?, count, kind, In(stream)), ptsz)]
    fn cudaMemcpyFromSymbolAsync(
        dst: *mut c_void,
        symbol: *const c_void,
        count: usize,
        offset: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies bytes into an array.
    #[call(by = self.fill_array(dst, (wOffset, hOffset), src, count, kind, Now), ptds)]
    fn cudaMemcpyToArray(
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies bytes into an array in stream order.
    #[call(by = self.fill_array(dst, (wOffset, hOffset), src, count, kind, In(stream)), ptsz)]
    fn cudaMemcpyToArrayAsync(
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies bytes out of an array.
    #[call(by = self.out_of_array(dst, src, (wOffset, hOffset), count, kind, Now), ptds)]
    fn cudaMemcpyFromArray(
        dst: *mut c_void,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies bytes out of an array in stream order.
    #[call(by = self.out_of_array(dst, src, (wOffset, hOffset), count, kind, In(stream)), ptsz)]
    fn cudaMemcpyFromArrayAsync(
        dst: *mut c_void,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        count: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies bytes between arrays.
    #[call(ptds)]
    fn cudaMemcpyArrayToArray(
        dst: cudaArray_t,
        wOffsetDst: usize,
        hOffsetDst: usize,
        src: cudaArray_const_t,
        wOffsetSrc: usize,
        hOffsetSrc: usize,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies rows into an array.
    #[call(by = self.rows_to_array(dst, at(wOffset, hOffset), (src, spitch), rows(width, height), kind, Now), ptds)]
    fn cudaMemcpy2DToArray(
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies rows into an array in stream order.
    #[call(by = self.rows_to_array(dst, at(wOffset, hOffset), (src, spitch), rows(width, height), kind, In(stream)), ptsz)]
    fn cudaMemcpy2DToArrayAsync(
        dst: cudaArray_t,
        wOffset: usize,
        hOffset: usize,
        src: *const c_void,
        spitch: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies rows out of an array.
    #[call(by = self.rows_from_array((dst, dpitch), src, at(wOffset, hOffset), rows(width, height), kind, Now), ptds)]
    fn cudaMemcpy2DFromArray(
        dst: *mut c_void,
        dpitch: usize,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies rows out of an array in stream order.
    #[call(by = self.rows_from_array((dst, dpitch), src, at(wOffset, hOffset), rows(width, height), kind, In(stream)), ptsz)]
    fn cudaMemcpy2DFromArrayAsync(
        dst: *mut c_void,
        dpitch: usize,
        src: cudaArray_const_t,
        wOffset: usize,
        hOffset: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies rows between arrays.
    #[call(ptds)]
    fn cudaMemcpy2DArrayToArray(
        dst: cudaArray_t,
        wOffsetDst: usize,
        hOffsetDst: usize,
        src: cudaArray_const_t,
        wOffsetSrc: usize,
        hOffsetSrc: usize,
        width: usize,
        height: usize,
        kind: cudaMemcpyKind,
    ) -> cudaError_t;

    /// Copies several ranges in stream order.
    #[call(driver = "cuMemcpyBatchAsync_v2", only = 13, ptsz)]
    fn cudaMemcpyBatchAsync(
        dsts: *const *mut c_void,
        srcs: *const *const c_void,
        sizes: *const usize,
        count: usize,
        attrs: *mut cudaMemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies several ranges in stream order, and tells which failed.
    #[call(
        driver = "cuMemcpyBatchAsync",
        only = 12,
        symbol = "cudaMemcpyBatchAsync",
        ptsz
    )]
    fn cudaMemcpyBatchAsync_v1(
        dsts: *mut *mut c_void,
        srcs: *mut *mut c_void,
        sizes: *mut usize,
        count: usize,
        attrs: *mut cudaMemcpyAttributes,
        attrsIdxs: *mut usize,
        numAttrs: usize,
        failIdx: *mut usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies several boxes in stream order.
    #[call(driver = "cuMemcpy3DBatchAsync_v2", only = 13, ptsz)]
    fn cudaMemcpy3DBatchAsync(
        numOps: usize,
        opList: *mut cudaMemcpy3DBatchOp,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies several boxes in stream order, and tells which failed.
    #[call(
        driver = "cuMemcpy3DBatchAsync",
        only = 12,
        symbol = "cudaMemcpy3DBatchAsync",
        ptsz
    )]
    fn cudaMemcpy3DBatchAsync_v1(
        numOps: usize,
        opList: *mut cudaMemcpy3DBatchOp,
        failIdx: *mut usize,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies memory in stream order, with attributes.
    #[call(driver = "cuMemcpyWithAttributesAsync", only = 13, ptsz)]
    fn cudaMemcpyWithAttributesAsync(
        dst: *mut c_void,
        src: *const c_void,
        size: usize,
        attr: *mut cudaMemcpyAttributes,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Copies a box in stream order, with attributes.
    #[call(driver = "cuMemcpy3DWithAttributesAsync", only = 13, ptsz)]
    fn cudaMemcpy3DWithAttributesAsync(
        op: *mut cudaMemcpy3DBatchOp,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Fills memory with a byte.
    #[call(by = self.fill(devPtr, value, count, Now), ptds)]
    fn cudaMemset(devPtr: *mut c_void, value: i32, count: usize) -> cudaError_t;

    /// Fills memory with a byte in stream order.
    #[call(by = self.fill(devPtr, value, count, In(stream)), ptsz)]
    fn cudaMemsetAsync(
        devPtr: *mut c_void,
        value: i32,
        count: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Fills rows with a byte.
    #[call(by = self.fill_rows(devPtr, pitch, value, (width, height), Now), ptds)]
    fn cudaMemset2D(
        devPtr: *mut c_void,
        pitch: usize,
        value: i32,
        width: usize,
        height: usize,
    ) -> cudaError_t;

    /// Fills rows with a byte in stream order.
    #[call(by = self.fill_rows(devPtr, pitch, value, (width, height), In(stream)), ptsz)]
    fn cudaMemset2DAsync(
        devPtr: *mut c_void,
        pitch: usize,
        value: i32,
        width: usize,
        height: usize,
        stream: cudaStream_t,
    ) -> cudaError_t;

    /// Fills a box with a byte.
    #[call(by = self.fill_box(pitchedDevPtr, value, extent, Now), ptds)]
    fn cudaMemset3D(pitchedDevPtr: cudaPitchedPtr, value: i32, extent: cudaExtent) -> cudaError_t;

    /// Fills a box with a byte in stream order.
    #[call(by = self.fill_box(pitchedDevPtr, value, extent, In(stream)), ptsz)]
    fn cudaMemset3DAsync(
        pitchedDevPtr: cudaPitchedPtr,
        value: i32,
        extent: cudaExtent,
        stream: cudaStream_t,
    ) -> cudaError_t;
}
