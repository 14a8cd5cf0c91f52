//! Arrays and copies to, from and between them.

use super::*;

pub(super) fn described(sides: [usize; 3], format: u32, channels: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let [Width, Height, Depth] = sides;
    CUDA_ARRAY3D_DESCRIPTOR {
        Width,
        Height,
        Depth,
        Format: format,
        NumChannels: channels,
        Flags: 0,
    }
}

pub(super) fn array(cuda: &SoftCuda, descriptor: CUDA_ARRAY3D_DESCRIPTOR) -> CUarray {
    let mut array = null_mut();
    // SAFETY: both are locals.
    check(unsafe { cuda.cuArray3DCreate_v2(&raw mut array, &raw const descriptor) });
    array
}

pub(super) fn mipmap(
    cuda: &SoftCuda,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: u32,
) -> Result<CUmipmappedArray, CUresult> {
    let mut mipmap = null_mut();
    // SAFETY: both are locals.
    match unsafe { cuda.cuMipmappedArrayCreate(&raw mut mipmap, &raw const descriptor, levels) } {
        CUDA_SUCCESS => Ok(mipmap),
        status => Err(status),
    }
}

pub(super) fn level(cuda: &SoftCuda, mipmap: CUmipmappedArray, level: u32) -> CUarray {
    let mut array = null_mut();
    // SAFETY: the array is live; one place for its level.
    check(unsafe { cuda.cuMipmappedArrayGetLevel(&raw mut array, mipmap, level) });
    array
}

pub(super) fn blank() -> CUDA_MEMCPY3D {
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
        Height: 1,
        Depth: 1,
    }
}

/// Memory of the device with these contents.
pub(super) fn filled(cuda: &SoftCuda, bytes: &[u8]) -> CUdeviceptr {
    let memory = allocate(cuda, bytes.len());
    let from = bytes.as_ptr().cast();
    // SAFETY: as many bytes as are read.
    check(unsafe { cuda.cuMemcpyHtoDAsync_v2(memory, from, bytes.len(), null_mut()) });
    memory
}

pub(super) fn bytes_at(cuda: &SoftCuda, memory: CUdeviceptr, count: usize) -> Vec<u8> {
    let mut bytes = vec![0_u8; count];
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: as many bytes as are written.
    check(unsafe { cuda.cuMemcpyDtoHAsync_v2(to, memory, count, null_mut()) });
    // SAFETY: the default stream.
    check(unsafe { cuda.cuStreamSynchronize(null_mut()) });
    bytes
}

/// Writes a whole array: rows of so many bytes, rows and slices.
pub(super) fn write_array(cuda: &SoftCuda, array: CUarray, size: [usize; 3], bytes: &[u8]) {
    let memory = filled(cuda, bytes);
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, memory);
    (copy.srcPitch, copy.srcHeight) = (size[0], size[1]);
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
    [copy.WidthInBytes, copy.Height, copy.Depth] = size;
    // SAFETY: no memory of the host's.
    check(unsafe { cuda.cuMemcpy3DAsync_v2(&raw const copy, null_mut()) });
    // SAFETY: the memory is no more used when the copy is over.
    check(unsafe { cuda.cuMemFree_v2(memory) });
}

pub(super) fn read_array(cuda: &SoftCuda, array: CUarray, size: [usize; 3]) -> Vec<u8> {
    let count = size.iter().product();
    let memory = allocate(cuda, count);
    let mut copy = blank();
    (copy.dstMemoryType, copy.dstDevice) = (CU_MEMORYTYPE_DEVICE, memory);
    (copy.dstPitch, copy.dstHeight) = (size[0], size[1]);
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
    [copy.WidthInBytes, copy.Height, copy.Depth] = size;
    // SAFETY: no memory of the host's.
    check(unsafe { cuda.cuMemcpy3DAsync_v2(&raw const copy, null_mut()) });
    let bytes = bytes_at(cuda, memory, count);
    // SAFETY: as above.
    check(unsafe { cuda.cuMemFree_v2(memory) });
    bytes
}

pub(super) fn pattern(count: usize) -> Vec<u8> {
    (0..count)
        .map(|at| (at * 31 + at / 251 * 7) as u8)
        .collect()
}

#[test]
fn boxes_go_to_from_and_between_arrays() {
    let cuda = devices(SoftOptions::default());
    let floats = described([37, 11, 5], CU_AD_FORMAT_FLOAT, 2);
    let size = [37 * 8, 11, 5];
    let (one, two) = (array(&cuda, floats), array(&cuda, floats));
    let content = pattern(size.iter().product());
    write_array(&cuda, one, size, &content);
    assert!(read_array(&cuda, one, size) == content);
    write_array(&cuda, two, size, &vec![0; content.len()]);
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, one);
    (copy.srcXInBytes, copy.srcY, copy.srcZ) = (16, 2, 1);
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, two);
    (copy.dstXInBytes, copy.dstY, copy.dstZ) = (8, 3, 2);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (80, 4, 3);
    // SAFETY: no memory of the host's, for this and the others.
    check(unsafe { cuda.cuMemcpy3DAsync_v2(&raw const copy, null_mut()) });
    let mut model = vec![0; content.len()];
    for (z, y) in (0..3).flat_map(|z| (0..4).map(move |y| (z, y))) {
        let from = ((1 + z) * 11 + 2 + y) * size[0] + 16;
        let to = ((2 + z) * 11 + 3 + y) * size[0] + 8;
        model[to..to + 80].copy_from_slice(&content[from..from + 80]);
    }
    assert!(read_array(&cuda, two, size) == model);
    let refused = [
        CUDA_MEMCPY3D { dstZ: 3, ..copy },
        CUDA_MEMCPY3D {
            WidthInBytes: 37 * 8,
            ..copy
        },
        CUDA_MEMCPY3D { srcLOD: 1, ..copy },
    ];
    for copy in refused {
        // SAFETY: as above.
        let status = unsafe { cuda.cuMemcpy3DAsync_v2(&raw const copy, null_mut()) };
        assert_eq!(status, CUDA_ERROR_INVALID_VALUE);
    }
    (copy.dstZ, copy.dstArray) = (0, std::ptr::without_provenance_mut(0x1234));
    // SAFETY: as above.
    let status = unsafe { cuda.cuMemcpy3DAsync_v2(&raw const copy, null_mut()) };
    assert_eq!(status, CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn a_graph_copies_into_an_array_each_time() {
    let cuda = devices(SoftOptions::default());
    let bytes = described([64, 0, 0], CU_AD_FORMAT_UNSIGNED_INT8, 1);
    let line = array(&cuda, bytes);
    let memory = filled(&cuda, &pattern(64));
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcDevice) = (CU_MEMORYTYPE_DEVICE, memory);
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, line);
    copy.WidthInBytes = 64;
    let (mut graph, mut node, mut exec) = (null_mut(), null_mut(), null_mut());
    // SAFETY: places are locals, handles are live, for this and the others.
    check(unsafe { cuda.cuGraphCreate(&raw mut graph, 0) });
    let none = std::ptr::null();
    let mut context = null_mut();
    // SAFETY: as above.
    check(unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut context, 0) });
    let (place, told) = (&raw mut node, &raw const copy);
    // SAFETY: as above.
    check(unsafe { cuda.cuGraphAddMemcpyNode(place, graph, none, 0, told, context) });
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS {
        flags: 0,
        hUploadStream: null_mut(),
        hErrNode_out: null_mut(),
        result_out: 0,
    };
    let told = &raw mut params;
    // SAFETY: as above.
    check(unsafe { cuda.cuGraphInstantiateWithParams(&raw mut exec, graph, told) });
    for fill in [3, 4] {
        // SAFETY: as above.
        check(unsafe { cuda.cuMemsetD8Async(memory, fill, 32, null_mut()) });
        // SAFETY: as above.
        check(unsafe { cuda.cuGraphLaunch(exec, null_mut()) });
        let expected = [&[fill; 32][..], &pattern(64)[32..]].concat();
        assert_eq!(read_array(&cuda, line, [64, 1, 1]), expected);
    }
}

#[test]
fn parts_of_arrays_end_with_the_whole() {
    let cuda = devices(SoftOptions::default());
    let before = cuda.live_allocations();
    let volume = described([20, 12, 6], CU_AD_FORMAT_HALF, 1);
    // More levels than there can be are those that there can be.
    let whole = mipmap(&cuda, volume, 99).expect("room");
    let mut none = null_mut();
    // SAFETY: one place for the level.
    let sixth = unsafe { cuda.cuMipmappedArrayGetLevel(&raw mut none, whole, 5) };
    assert_eq!(sixth, CUDA_ERROR_INVALID_VALUE);
    let last = level(&cuda, whole, 3);
    let mut told = volume;
    // SAFETY: one place for the answer, for this and the others.
    check(unsafe { cuda.cuArray3DGetDescriptor_v2(&raw mut told, last) });
    assert_eq!([told.Width, told.Height, told.Depth], [2, 1, 1]);
    write_array(&cuda, last, [4, 1, 1], &[1, 2, 3, 4]);
    assert_eq!(read_array(&cuda, last, [4, 1, 1]), [1, 2, 3, 4]);
    // SAFETY: the driver judges handles, for this and the others.
    let part = unsafe { cuda.cuArrayDestroy(last) };
    assert_eq!(part, CUDA_ERROR_INVALID_HANDLE);
    // SAFETY: as above.
    check(unsafe { cuda.cuMipmappedArrayDestroy(whole) });
    // SAFETY: as above.
    let gone = unsafe { cuda.cuArray3DGetDescriptor_v2(&raw mut told, last) };
    assert_eq!(gone, CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cuda.live_allocations(), before);
}

#[test]
fn arrays_count_as_memory_and_end_with_their_context() {
    let cuda = devices(SoftOptions::default());
    let (mut free, mut total) = (0, 0);
    let plate = described([1024, 1024, 0], CU_AD_FORMAT_FLOAT, 4);
    array(&cuda, plate);
    // SAFETY: two places for the answers, for this and the other.
    check(unsafe { cuda.cuMemGetInfo_v2(&raw mut free, &raw mut total) });
    assert_eq!(total - free, 16 << 20);
    let mut none = null_mut();
    let large = described([2048, 2048, 0], CU_AD_FORMAT_FLOAT, 4);
    // SAFETY: both are locals.
    let made = unsafe { cuda.cuArray3DCreate_v2(&raw mut none, &raw const large) };
    assert_eq!(made, CUDA_ERROR_OUT_OF_MEMORY);
    // SAFETY: the context is retained once.
    check(unsafe { cuda.cuDevicePrimaryCtxRelease_v2(0) });
    assert_eq!(cuda.live_allocations(), 0);
}

#[test]
fn arrays_of_two_devices_are_copied_between() {
    let cuda = devices(SoftOptions {
        devices: 2,
        ..SoftOptions::default()
    });
    let plate = described([8, 4, 0], CU_AD_FORMAT_UNSIGNED_INT16, 1);
    let here = array(&cuda, plate);
    let (mut first, mut second) = (null_mut(), null_mut());
    // SAFETY: places are locals, devices are there, for this and the others.
    check(unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut first, 0) });
    // SAFETY: as above.
    check(unsafe { cuda.cuDevicePrimaryCtxRetain(&raw mut second, 1) });
    write_array(&cuda, here, [16, 4, 1], &pattern(64));
    // SAFETY: the context is live.
    check(unsafe { cuda.cuCtxSetCurrent(second) });
    let there = array(&cuda, plate);
    let mut copy = CUDA_MEMCPY3D_PEER {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CU_MEMORYTYPE_ARRAY,
        srcHost: std::ptr::null(),
        srcDevice: 0,
        srcArray: here,
        srcContext: first,
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CU_MEMORYTYPE_ARRAY,
        dstHost: null_mut(),
        dstDevice: 0,
        dstArray: there,
        dstContext: second,
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: 16,
        Height: 4,
        Depth: 1,
    };
    // SAFETY: no memory of the host's.
    check(unsafe { cuda.cuMemcpy3DPeerAsync(&raw const copy, null_mut()) });
    assert_eq!(read_array(&cuda, there, [16, 4, 1]), pattern(64));
    copy.dstContext = std::ptr::without_provenance_mut(0x1234);
    // SAFETY: as above.
    let nowhere = unsafe { cuda.cuMemcpy3DPeerAsync(&raw const copy, null_mut()) };
    assert_eq!(nowhere, CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn the_widest_texture_that_is_advertised_works() {
    let cuda = devices(SoftOptions::default());
    let mut most = 0;
    let which = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH;
    // SAFETY: one place for the answer.
    check(unsafe { cuda.cuDeviceGetAttribute(&raw mut most, which, 0) });
    let most = most as usize;
    let line = array(
        &cuda,
        described([most, 0, 0], CU_AD_FORMAT_UNSIGNED_INT8, 1),
    );
    write_array(&cuda, line, [most, 1, 1], &pattern(most));
    assert!(read_array(&cuda, line, [most, 1, 1]) == pattern(most));
    let wider = described([most + 1, 0, 0], CU_AD_FORMAT_UNSIGNED_INT8, 1);
    let mut none = null_mut();
    // SAFETY: both are locals.
    let made = unsafe { cuda.cuArray3DCreate_v2(&raw mut none, &raw const wider) };
    assert_eq!(made, CUDA_ERROR_INVALID_VALUE);
}
