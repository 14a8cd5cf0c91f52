//! Copies and fills. The client composes them from the session's transfers: host memory never travels as a pointer.

extern "C" {
    /// Copies between any two addresses.
    #[call(
        id = 0x0501,
        local,
        manual(client),
        since = "4.0",
        per_thread = "cuMemcpy_ptds@7.0"
    )]
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) -> CUresult;

    /// Copies between the memories of two contexts.
    #[call(
        id = 0x0502,
        local,
        manual(client),
        since = "4.0",
        per_thread = "cuMemcpyPeer_ptds@7.0"
    )]
    fn cuMemcpyPeer(
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyHtoD_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0503, local, since = "2.0")]
    fn cuMemcpyHtoD(
        dstDevice: CUdeviceptr_v1,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies from host to device.
    #[call(
        id = 0x0504,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyHtoD_v2_ptds@7.0"
    )]
    fn cuMemcpyHtoD_v2(
        dstDevice: CUdeviceptr,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyDtoH_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0505, local, since = "2.0")]
    fn cuMemcpyDtoH(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcDevice: CUdeviceptr_v1,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies from device to host.
    #[call(
        id = 0x0506,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyDtoH_v2_ptds@7.0"
    )]
    fn cuMemcpyDtoH_v2(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyDtoD_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0507, local, since = "2.0")]
    fn cuMemcpyDtoD(
        dstDevice: CUdeviceptr_v1,
        srcDevice: CUdeviceptr_v1,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies on the device.
    #[call(
        id = 0x0508,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyDtoD_v2_ptds@7.0"
    )]
    fn cuMemcpyDtoD_v2(
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyDtoA_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0509, local, since = "2.0")]
    fn cuMemcpyDtoA(
        dstArray: CUarray,
        dstOffset: u32,
        srcDevice: CUdeviceptr_v1,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies from device memory to an array.
    #[call(
        id = 0x050a,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyDtoA_v2_ptds@7.0"
    )]
    fn cuMemcpyDtoA_v2(
        dstArray: CUarray,
        dstOffset: usize,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyAtoD_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x050b, local, since = "2.0")]
    fn cuMemcpyAtoD(
        dstDevice: CUdeviceptr_v1,
        srcArray: CUarray,
        srcOffset: u32,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies from an array to device memory.
    #[call(
        id = 0x050c,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyAtoD_v2_ptds@7.0"
    )]
    fn cuMemcpyAtoD_v2(
        dstDevice: CUdeviceptr,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyHtoA_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x050d, local, since = "2.0")]
    fn cuMemcpyHtoA(
        dstArray: CUarray,
        dstOffset: u32,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies from host to an array.
    #[call(
        id = 0x050e,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyHtoA_v2_ptds@7.0"
    )]
    fn cuMemcpyHtoA_v2(
        dstArray: CUarray,
        dstOffset: usize,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyAtoH_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x050f, local, since = "2.0")]
    fn cuMemcpyAtoH(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcArray: CUarray,
        srcOffset: u32,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies from an array to the host.
    #[call(
        id = 0x0510,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyAtoH_v2_ptds@7.0"
    )]
    fn cuMemcpyAtoH_v2(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpyAtoA_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0511, local, since = "2.0")]
    fn cuMemcpyAtoA(
        dstArray: CUarray,
        dstOffset: u32,
        srcArray: CUarray,
        srcOffset: u32,
        ByteCount: u32,
    ) -> CUresult;

    /// Copies between arrays.
    #[call(
        id = 0x0512,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyAtoA_v2_ptds@7.0"
    )]
    fn cuMemcpyAtoA_v2(
        dstArray: CUarray,
        dstOffset: usize,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
    ) -> CUresult;

    /// `cuMemcpy2D_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0513, local, since = "2.0")]
    fn cuMemcpy2D(#[input] pCopy: *const CUDA_MEMCPY2D_v1) -> CUresult;

    /// Copies a rectangle.
    #[call(
        id = 0x0514,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpy2D_v2_ptds@7.0"
    )]
    fn cuMemcpy2D_v2(#[input] pCopy: *const CUDA_MEMCPY2D) -> CUresult;

    /// `cuMemcpy2DUnaligned_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0515, local, since = "2.0")]
    fn cuMemcpy2DUnaligned(#[input] pCopy: *const CUDA_MEMCPY2D_v1) -> CUresult;

    /// Copies a rectangle, whatever its pitches.
    #[call(
        id = 0x0516,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpy2DUnaligned_v2_ptds@7.0"
    )]
    fn cuMemcpy2DUnaligned_v2(#[input] pCopy: *const CUDA_MEMCPY2D) -> CUresult;

    /// `cuMemcpy3D_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0517, local, since = "2.0")]
    fn cuMemcpy3D(#[input] pCopy: *const CUDA_MEMCPY3D_v1) -> CUresult;

    /// Copies a box.
    #[call(
        id = 0x0518,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpy3D_v2_ptds@7.0"
    )]
    fn cuMemcpy3D_v2(#[input] pCopy: *const CUDA_MEMCPY3D) -> CUresult;

    /// Copies a box between two contexts.
    #[call(
        id = 0x0519,
        local,
        manual(client),
        since = "4.0",
        per_thread = "cuMemcpy3DPeer_ptds@7.0"
    )]
    fn cuMemcpy3DPeer(#[input] pCopy: *const CUDA_MEMCPY3D_PEER) -> CUresult;

    /// Copies between any two addresses, in stream order.
    #[call(
        id = 0x051a,
        local,
        manual(client),
        since = "4.0",
        per_thread = "cuMemcpyAsync_ptsz@7.0"
    )]
    fn cuMemcpyAsync(
        dst: CUdeviceptr,
        src: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies between the memories of two contexts, in stream order.
    #[call(
        id = 0x051b,
        local,
        manual(client),
        since = "4.0",
        per_thread = "cuMemcpyPeerAsync_ptsz@7.0"
    )]
    fn cuMemcpyPeerAsync(
        dstDevice: CUdeviceptr,
        dstContext: CUcontext,
        srcDevice: CUdeviceptr,
        srcContext: CUcontext,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// `cuMemcpyHtoDAsync_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x051c, local, since = "2.0")]
    fn cuMemcpyHtoDAsync(
        dstDevice: CUdeviceptr_v1,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: u32,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies from host to device, in stream order.
    #[call(
        id = 0x051d,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyHtoDAsync_v2_ptsz@7.0"
    )]
    fn cuMemcpyHtoDAsync_v2(
        dstDevice: CUdeviceptr,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// `cuMemcpyDtoHAsync_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x051e, local, since = "2.0")]
    fn cuMemcpyDtoHAsync(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcDevice: CUdeviceptr_v1,
        ByteCount: u32,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies from device to host, in stream order.
    #[call(
        id = 0x051f,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyDtoHAsync_v2_ptsz@7.0"
    )]
    fn cuMemcpyDtoHAsync_v2(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// `cuMemcpyDtoDAsync_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0520, local, since = "3.0")]
    fn cuMemcpyDtoDAsync(
        dstDevice: CUdeviceptr_v1,
        srcDevice: CUdeviceptr_v1,
        ByteCount: u32,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies on the device, in stream order.
    #[call(
        id = 0x0521,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyDtoDAsync_v2_ptsz@7.0"
    )]
    fn cuMemcpyDtoDAsync_v2(
        dstDevice: CUdeviceptr,
        srcDevice: CUdeviceptr,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// `cuMemcpyHtoAAsync_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0522, local, since = "2.0")]
    fn cuMemcpyHtoAAsync(
        dstArray: CUarray,
        dstOffset: u32,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: u32,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies from host to an array, in stream order.
    #[call(
        id = 0x0523,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyHtoAAsync_v2_ptsz@7.0"
    )]
    fn cuMemcpyHtoAAsync_v2(
        dstArray: CUarray,
        dstOffset: usize,
        #[input(bytes = ByteCount, bulk)] srcHost: *const c_void,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// `cuMemcpyAtoHAsync_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0524, local, since = "2.0")]
    fn cuMemcpyAtoHAsync(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcArray: CUarray,
        srcOffset: u32,
        ByteCount: u32,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies from an array to the host, in stream order.
    #[call(
        id = 0x0525,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpyAtoHAsync_v2_ptsz@7.0"
    )]
    fn cuMemcpyAtoHAsync_v2(
        #[out(bytes = ByteCount, bulk)] dstHost: *mut c_void,
        srcArray: CUarray,
        srcOffset: usize,
        ByteCount: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// `cuMemcpy2DAsync_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0526, local, since = "2.0")]
    fn cuMemcpy2DAsync(#[input] pCopy: *const CUDA_MEMCPY2D_v1, hStream: CUstream) -> CUresult;

    /// Copies a rectangle, in stream order.
    #[call(
        id = 0x0527,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpy2DAsync_v2_ptsz@7.0"
    )]
    fn cuMemcpy2DAsync_v2(#[input] pCopy: *const CUDA_MEMCPY2D, hStream: CUstream) -> CUresult;

    /// `cuMemcpy3DAsync_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0528, local, since = "2.0")]
    fn cuMemcpy3DAsync(#[input] pCopy: *const CUDA_MEMCPY3D_v1, hStream: CUstream) -> CUresult;

    /// Copies a box, in stream order.
    #[call(
        id = 0x0529,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemcpy3DAsync_v2_ptsz@7.0"
    )]
    fn cuMemcpy3DAsync_v2(#[input] pCopy: *const CUDA_MEMCPY3D, hStream: CUstream) -> CUresult;

    /// Copies a box between two contexts, in stream order.
    #[call(
        id = 0x052a,
        local,
        manual(client),
        since = "4.0",
        per_thread = "cuMemcpy3DPeerAsync_ptsz@7.0"
    )]
    fn cuMemcpy3DPeerAsync(
        #[input] pCopy: *const CUDA_MEMCPY3D_PEER,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies several ranges, in stream order; before CUDA 13, telling which one failed.
    #[call(
        id = 0x052b,
        local,
        manual(client),
        since = "12.8",
        per_thread = "cuMemcpyBatchAsync_ptsz@12.8"
    )]
    fn cuMemcpyBatchAsync(
        #[input(len = count, nullable)] dsts: *mut CUdeviceptr,
        #[input(len = count, nullable)] srcs: *mut CUdeviceptr,
        #[input(len = count, nullable)] sizes: *mut usize,
        count: usize,
        #[input(len = numAttrs, nullable)] attrs: *mut CUmemcpyAttributes,
        #[input(len = numAttrs, nullable)] attrsIdxs: *mut usize,
        numAttrs: usize,
        #[out(nullable)] failIdx: *mut usize,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies several ranges, in stream order.
    #[call(
        id = 0x052c,
        local,
        manual(client),
        since = "13.0",
        per_thread = "cuMemcpyBatchAsync_v2_ptsz@13.0"
    )]
    fn cuMemcpyBatchAsync_v2(
        #[input(len = count)] dsts: *mut CUdeviceptr,
        #[input(len = count)] srcs: *mut CUdeviceptr,
        #[input(len = count)] sizes: *mut usize,
        count: usize,
        #[input(len = numAttrs)] attrs: *mut CUmemcpyAttributes,
        #[input(len = numAttrs)] attrsIdxs: *mut usize,
        numAttrs: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies several boxes, in stream order; before CUDA 13, telling which one failed.
    #[call(
        id = 0x052d,
        local,
        manual(client),
        since = "12.8",
        per_thread = "cuMemcpy3DBatchAsync_ptsz@12.8"
    )]
    fn cuMemcpy3DBatchAsync(
        numOps: usize,
        #[input(len = numOps, nullable)] opList: *mut CUDA_MEMCPY3D_BATCH_OP,
        #[out(nullable)] failIdx: *mut usize,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies several boxes, in stream order.
    #[call(
        id = 0x052e,
        local,
        manual(client),
        since = "13.0",
        per_thread = "cuMemcpy3DBatchAsync_v2_ptsz@13.0"
    )]
    fn cuMemcpy3DBatchAsync_v2(
        numOps: usize,
        #[input(len = numOps)] opList: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies a range as its attributes say, in stream order.
    #[call(
        id = 0x052f,
        local,
        manual(client),
        since = "13.2",
        per_thread = "cuMemcpyWithAttributesAsync_ptsz@13.2"
    )]
    fn cuMemcpyWithAttributesAsync(
        dst: CUdeviceptr,
        src: CUdeviceptr,
        size: usize,
        #[input] attr: *mut CUmemcpyAttributes,
        hStream: CUstream,
    ) -> CUresult;

    /// Copies a box as its attributes say, in stream order.
    #[call(
        id = 0x0530,
        local,
        manual(client),
        since = "13.2",
        per_thread = "cuMemcpy3DWithAttributesAsync_ptsz@13.2"
    )]
    fn cuMemcpy3DWithAttributesAsync(
        #[input] op: *mut CUDA_MEMCPY3D_BATCH_OP,
        flags: u64,
        hStream: CUstream,
    ) -> CUresult;

    /// `cuMemsetD8_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0531, local, since = "2.0")]
    fn cuMemsetD8(dstDevice: CUdeviceptr_v1, uc: u8, N: u32) -> CUresult;

    /// Fills memory with a byte.
    #[call(
        id = 0x0532,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD8_v2_ptds@7.0"
    )]
    fn cuMemsetD8_v2(dstDevice: CUdeviceptr, uc: u8, N: usize) -> CUresult;

    /// `cuMemsetD16_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0533, local, since = "2.0")]
    fn cuMemsetD16(dstDevice: CUdeviceptr_v1, us: u16, N: u32) -> CUresult;

    /// Fills memory with a 16-bit value.
    #[call(
        id = 0x0534,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD16_v2_ptds@7.0"
    )]
    fn cuMemsetD16_v2(dstDevice: CUdeviceptr, us: u16, N: usize) -> CUresult;

    /// `cuMemsetD32_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0535, local, since = "2.0")]
    fn cuMemsetD32(dstDevice: CUdeviceptr_v1, ui: u32, N: u32) -> CUresult;

    /// Fills memory with a 32-bit value.
    #[call(
        id = 0x0536,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD32_v2_ptds@7.0"
    )]
    fn cuMemsetD32_v2(dstDevice: CUdeviceptr, ui: u32, N: usize) -> CUresult;

    /// `cuMemsetD2D8_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0537, local, since = "2.0")]
    fn cuMemsetD2D8(
        dstDevice: CUdeviceptr_v1,
        dstPitch: u32,
        uc: u8,
        Width: u32,
        Height: u32,
    ) -> CUresult;

    /// Fills a rectangle with a byte.
    #[call(
        id = 0x0538,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD2D8_v2_ptds@7.0"
    )]
    fn cuMemsetD2D8_v2(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: u8,
        Width: usize,
        Height: usize,
    ) -> CUresult;

    /// `cuMemsetD2D16_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x0539, local, since = "2.0")]
    fn cuMemsetD2D16(
        dstDevice: CUdeviceptr_v1,
        dstPitch: u32,
        us: u16,
        Width: u32,
        Height: u32,
    ) -> CUresult;

    /// Fills a rectangle with a 16-bit value.
    #[call(
        id = 0x053a,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD2D16_v2_ptds@7.0"
    )]
    fn cuMemsetD2D16_v2(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: u16,
        Width: usize,
        Height: usize,
    ) -> CUresult;

    /// `cuMemsetD2D32_v2` as it was before CUDA 3.2, with 32-bit sizes and addresses.
    #[call(id = 0x053b, local, since = "2.0")]
    fn cuMemsetD2D32(
        dstDevice: CUdeviceptr_v1,
        dstPitch: u32,
        ui: u32,
        Width: u32,
        Height: u32,
    ) -> CUresult;

    /// Fills a rectangle with a 32-bit value.
    #[call(
        id = 0x053c,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD2D32_v2_ptds@7.0"
    )]
    fn cuMemsetD2D32_v2(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: u32,
        Width: usize,
        Height: usize,
    ) -> CUresult;

    /// Fills memory with a byte, in stream order.
    #[call(
        id = 0x053d,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD8Async_ptsz@7.0"
    )]
    fn cuMemsetD8Async(dstDevice: CUdeviceptr, uc: u8, N: usize, hStream: CUstream) -> CUresult;

    /// Fills memory with a 16-bit value, in stream order.
    #[call(
        id = 0x053e,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD16Async_ptsz@7.0"
    )]
    fn cuMemsetD16Async(dstDevice: CUdeviceptr, us: u16, N: usize, hStream: CUstream) -> CUresult;

    /// Fills memory with a 32-bit value, in stream order.
    #[call(
        id = 0x053f,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD32Async_ptsz@7.0"
    )]
    fn cuMemsetD32Async(dstDevice: CUdeviceptr, ui: u32, N: usize, hStream: CUstream) -> CUresult;

    /// Fills a rectangle with a byte, in stream order.
    #[call(
        id = 0x0540,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD2D8Async_ptsz@7.0"
    )]
    fn cuMemsetD2D8Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        uc: u8,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// Fills a rectangle with a 16-bit value, in stream order.
    #[call(
        id = 0x0541,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD2D16Async_ptsz@7.0"
    )]
    fn cuMemsetD2D16Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        us: u16,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult;

    /// Fills a rectangle with a 32-bit value, in stream order.
    #[call(
        id = 0x0542,
        local,
        manual(client),
        since = "3.2",
        per_thread = "cuMemsetD2D32Async_ptsz@7.0"
    )]
    fn cuMemsetD2D32Async(
        dstDevice: CUdeviceptr,
        dstPitch: usize,
        ui: u32,
        Width: usize,
        Height: usize,
        hStream: CUstream,
    ) -> CUresult;
}
