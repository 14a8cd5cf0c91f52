//! Arrays, textures, surfaces, descriptions of tensors, texture references.

#![allow(non_snake_case, reason = "fields of the C API are named as there")]

mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use support::{Machine, blank, pattern};
use towline_backend::cuda::*;

static FLOATS: CUDA_ARRAY3D_DESCRIPTOR = CUDA_ARRAY3D_DESCRIPTOR {
    Width: 37,
    Height: 11,
    Depth: 5,
    Format: CU_AD_FORMAT_FLOAT,
    NumChannels: 2,
    Flags: 0,
};
/// Bytes of a row, and of all of it.
const ROW: usize = 37 * 8;
const ALL: usize = ROW * 11 * 5;

fn array(machine: &Machine, descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> CUarray {
    let mut array = null_mut();
    // SAFETY: both are locals.
    let cost = machine.costs(|driver| unsafe {
        driver.cuArray3DCreate_v2(&raw mut array, std::ptr::from_ref(descriptor))
    });
    assert_eq!(cost, (CUDA_SUCCESS, 1));
    array
}

fn destroy(machine: &Machine, array: CUarray) {
    // SAFETY: the array lives.
    let cost = machine.costs(|driver| unsafe { driver.cuArrayDestroy(array) });
    assert_eq!(cost, (CUDA_SUCCESS, 1));
}

/// All of [`FLOATS`], from or to host memory without gaps.
fn whole() -> CUDA_MEMCPY3D {
    let mut copy = blank();
    (copy.WidthInBytes, copy.Height, copy.Depth) = (ROW, 11, 5);
    copy
}

fn write_all(machine: &Machine, array: CUarray, bytes: &[u8]) {
    let mut copy = whole();
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, bytes.as_ptr().cast());
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
    // SAFETY: the bytes are as many as the array has.
    let written = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    assert_eq!(written, CUDA_SUCCESS);
}

fn read_all(machine: &Machine, array: CUarray) -> Vec<u8> {
    let mut bytes = vec![0; ALL];
    let mut copy = whole();
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, bytes.as_mut_ptr().cast());
    // SAFETY: the room is as large as the array.
    let read = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    assert_eq!(read, CUDA_SUCCESS);
    bytes
}

#[test]
fn an_array_holds_what_was_copied_to_it_in_any_way() {
    let machine = Machine::new();
    let (one, two) = (array(&machine, &FLOATS), array(&machine, &FLOATS));
    let content = pattern(ALL, 1);
    write_all(&machine, one, &content);
    assert!(read_all(&machine, one) == content);

    // To the other array, without the first row of each slice, and not its first column.
    let zeros = vec![0; ALL];
    write_all(&machine, two, &zeros);
    let mut copy = whole();
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, one);
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, two);
    (copy.WidthInBytes, copy.Height) = (ROW - 8, 10);
    (copy.dstXInBytes, copy.dstY) = (8, 1);
    // SAFETY: no host memory.
    let across = machine.costs(|driver| unsafe { driver.cuMemcpy3D_v2(&raw const copy) });
    assert_eq!(across, (CUDA_SUCCESS, 0));
    let mut model = zeros;
    for (slice, row) in (0..5).flat_map(|slice| (0..10).map(move |row| (slice, row))) {
        let from = (slice * 11 + row) * ROW;
        let to = (slice * 11 + row + 1) * ROW + 8;
        model[to..to + ROW - 8].copy_from_slice(&content[from..from + ROW - 8]);
    }
    assert!(read_all(&machine, two) == model);

    // A rectangle of its first slice into memory with a pitch.
    let memory = machine.filled(&[9; 512 * 4]);
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, one);
    (copy.srcXInBytes, copy.srcY, copy.srcZ) = (16, 3, 4);
    (copy.dstMemoryType, copy.dstDevice, copy.dstPitch) = (CU_MEMORYTYPE_DEVICE, memory, 512);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (80, 4, 1);
    // SAFETY: no host memory.
    let out = unsafe { machine.driver.cuMemcpy3D_v2(&raw const copy) };
    assert_eq!(out, CUDA_SUCCESS);
    let rows = machine.bytes(memory, 512 * 4);
    for row in 0..4 {
        let from = (4 * 11 + 3 + row) * ROW + 16;
        assert_eq!(rows[row * 512..][..80], content[from..from + 80]);
        assert_eq!(rows[row * 512 + 80..][..432], [9; 432]);
    }
    destroy(&machine, one);
    destroy(&machine, two);
    machine.leave();
}

#[test]
fn runs_of_bytes_go_to_and_from_arrays_of_one_dimension() {
    let machine = Machine::new();
    let line = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 1000,
        Height: 0,
        Depth: 0,
        Format: CU_AD_FORMAT_UNSIGNED_INT16,
        NumChannels: 1,
        Flags: 0,
    };
    let (one, two) = (array(&machine, &line), array(&machine, &line));
    let content = pattern(2000, 1);
    let memory = machine.filled(&pattern(600, 2));
    let driver = &machine.driver;
    let from = content.as_ptr().cast::<c_void>();
    // SAFETY: the bytes are readable.
    let in_host = unsafe { driver.cuMemcpyHtoA_v2(one, 0, from, 2000) };
    // SAFETY: no host memory, for this and the others.
    let in_device = unsafe { driver.cuMemcpyDtoA_v2(one, 100, memory, 600) };
    // SAFETY: as above.
    let across = unsafe { driver.cuMemcpyAtoA_v2(two, 40, one, 90, 1500) };
    // SAFETY: as above.
    let out_device = unsafe { driver.cuMemcpyAtoD_v2(memory, two, 50, 200) };
    let mut back = vec![0_u8; 1500];
    let to = back.as_mut_ptr().cast();
    // SAFETY: the room is writable.
    let out_host = unsafe { driver.cuMemcpyAtoH_v2(to, two, 40, 1500) };
    let all = [in_host, in_device, across, out_device, out_host];
    assert_eq!(all, [CUDA_SUCCESS; 5]);
    let mut model = content.clone();
    model[100..700].copy_from_slice(&pattern(600, 2));
    assert!(back == model[90..1590]);
    assert!(machine.bytes(memory, 200) == model[100..300]);
    // SAFETY: refused before anything is read.
    let beyond = unsafe { driver.cuMemcpyHtoA_v2(one, 2, from, 2000) };
    assert_eq!(beyond, CUDA_ERROR_INVALID_VALUE);
    // Parts of elements are bytes like others (seen with driver 580.159).
    // SAFETY: the bytes are readable and the room is writable, for this and the next.
    let into = unsafe { driver.cuMemcpyHtoA_v2(one, 1, from, 4) };
    // SAFETY: as above.
    let out = unsafe { driver.cuMemcpyAtoH_v2(to, one, 0, 7) };
    assert_eq!([into, out], [CUDA_SUCCESS; 2]);
    model[1..5].copy_from_slice(&content[..4]);
    assert_eq!(back[..7], model[..7]);
    machine.leave();
}

#[test]
fn a_large_pageable_source_of_an_array_may_change_when_the_call_returns() {
    let machine = Machine::new();
    let large = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 3000,
        Height: 700,
        Depth: 0,
        Format: CU_AD_FORMAT_SIGNED_INT32,
        NumChannels: 1,
        Flags: 0,
    };
    let array = array(&machine, &large);
    let stream = machine.stream();
    let mut source = pattern(12_000 * 700, 1);
    let wanted = source.clone();
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, source.as_ptr().cast());
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, array);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (12_000, 700, 1);
    // SAFETY: the source is readable.
    let issued = unsafe { machine.driver.cuMemcpy3DAsync_v2(&raw const copy, stream) };
    assert_eq!(issued, CUDA_SUCCESS);
    source.fill(0xee);
    let mut back = vec![0; 12_000 * 700];
    (copy.srcMemoryType, copy.srcArray) = (CU_MEMORYTYPE_ARRAY, array);
    (copy.dstMemoryType, copy.dstHost) = (CU_MEMORYTYPE_HOST, back.as_mut_ptr().cast());
    // SAFETY: the room is writable; it is pageable, so the call waits.
    let read = unsafe { machine.driver.cuMemcpy3DAsync_v2(&raw const copy, stream) };
    assert_eq!(read, CUDA_SUCCESS);
    assert!(back == wanted);
    machine.leave();
}

#[test]
fn what_an_array_is_is_answered_without_asking_and_parts_are_the_same_each_time() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let (mut mipmap, mut level, mut again) = (null_mut(), null_mut(), null_mut());
    // SAFETY: all are locals, for this and the others.
    let made = unsafe { driver.cuMipmappedArrayCreate(&raw mut mipmap, &raw const FLOATS, 4) };
    assert_eq!(made, CUDA_SUCCESS);
    let mut told = FLOATS;
    let cost = machine.costs(|driver| {
        // SAFETY: as above.
        let found = unsafe { driver.cuMipmappedArrayGetLevel(&raw mut level, mipmap, 2) };
        // SAFETY: as above.
        let once_more = unsafe { driver.cuMipmappedArrayGetLevel(&raw mut again, mipmap, 2) };
        // SAFETY: as above.
        let described = unsafe { driver.cuArray3DGetDescriptor_v2(&raw mut told, level) };
        [found, once_more, described]
    });
    assert_eq!(cost, ([CUDA_SUCCESS; 3], 0));
    assert_eq!(level, again);
    let expected = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 9,
        Height: 2,
        Depth: 1,
        ..FLOATS
    };
    assert_eq!(told, expected);
    // The driver has it so too.
    let content = pattern(9 * 8 * 2, 1);
    let mut copy = blank();
    (copy.srcMemoryType, copy.srcHost) = (CU_MEMORYTYPE_HOST, content.as_ptr().cast());
    (copy.dstMemoryType, copy.dstArray) = (CU_MEMORYTYPE_ARRAY, level);
    (copy.WidthInBytes, copy.Height, copy.Depth) = (9 * 8, 2, 1);
    // SAFETY: the content is readable.
    let written = unsafe { driver.cuMemcpy3D_v2(&raw const copy) };
    assert_eq!(written, CUDA_SUCCESS);
    machine.synchronise();
    // SAFETY: as above.
    let beyond = unsafe { driver.cuMipmappedArrayGetLevel(&raw mut again, mipmap, 4) };
    assert_eq!(beyond, CUDA_ERROR_INVALID_VALUE);
    // SAFETY: refused, since it is a part.
    let part = unsafe { driver.cuArrayDestroy(level) };
    assert_eq!(part, CUDA_ERROR_INVALID_HANDLE);
    // SAFETY: the array lives.
    let destroyed = unsafe { driver.cuMipmappedArrayDestroy(mipmap) };
    assert_eq!(destroyed, CUDA_SUCCESS);
    // SAFETY: as above.
    let gone = unsafe { driver.cuArray3DGetDescriptor_v2(&raw mut told, level) };
    assert_eq!(gone, CUDA_ERROR_INVALID_HANDLE);
    machine.leave();
}

#[test]
fn planes_sparse_properties_and_memory_are_the_drivers_answers() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let video = CUDA_ARRAY3D_DESCRIPTOR {
        Width: 64,
        Height: 32,
        Depth: 0,
        Format: CU_AD_FORMAT_NV12,
        NumChannels: 3,
        Flags: 0,
    };
    let video = array(&machine, &video);
    let (mut plane, mut told) = (null_mut(), FLOATS);
    // SAFETY: all are locals, for this and the others.
    let found = unsafe { driver.cuArrayGetPlane(&raw mut plane, video, 1) };
    assert_eq!(found, CUDA_SUCCESS);
    // SAFETY: as above.
    let described = unsafe { driver.cuArray3DGetDescriptor_v2(&raw mut told, plane) };
    assert_eq!(described, CUDA_SUCCESS);
    assert_eq!((told.Width, told.Height, told.NumChannels), (32, 16, 2));
    // SAFETY: as above.
    let third = unsafe { driver.cuArrayGetPlane(&raw mut plane, video, 2) };
    assert_eq!(third, CUDA_ERROR_INVALID_VALUE);
    let floats = array(&machine, &FLOATS);
    let mut needs = CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: 0,
        alignment: 0,
        reserved: [0; 4],
    };
    // SAFETY: as above.
    let asked = unsafe { driver.cuArrayGetMemoryRequirements(&raw mut needs, floats, 0) };
    assert_eq!((asked, needs.size), (CUDA_SUCCESS, ALL));
    let mut sparse = CUDA_ARRAY_SPARSE_PROPERTIES {
        tileExtent: CUDA_ARRAY_SPARSE_PROPERTIES_tileExtent {
            width: 0,
            height: 0,
            depth: 0,
        },
        miptailFirstLevel: 0,
        miptailSize: 0,
        flags: 0,
        reserved: [0; 4],
    };
    // SAFETY: as above.
    let asked = unsafe { driver.cuArrayGetSparseProperties(&raw mut sparse, floats) };
    assert_eq!(asked, CUDA_ERROR_INVALID_VALUE);
    machine.leave();
}

#[test]
fn an_array_that_cannot_be_is_refused_and_leaves_no_handle() {
    let machine = Machine::new();
    let mut array = null_mut();
    let odd = CUDA_ARRAY3D_DESCRIPTOR {
        NumChannels: 3,
        ..FLOATS
    };
    // SAFETY: both are locals.
    let made = unsafe {
        machine
            .driver
            .cuArray3DCreate_v2(&raw mut array, &raw const odd)
    };
    assert_eq!((made, array), (CUDA_ERROR_INVALID_VALUE, null_mut()));
    // SAFETY: NULL is refused.
    let none = unsafe { machine.driver.cuArrayCreate_v2(&raw mut array, null()) };
    assert_eq!(none, CUDA_ERROR_INVALID_VALUE);
    let nobody: CUarray = std::ptr::without_provenance_mut(0x1234);
    // SAFETY: nobody has this handle.
    let cost = machine.costs(|driver| unsafe { driver.cuArrayDestroy(nobody) });
    assert_eq!(cost, (CUDA_ERROR_INVALID_HANDLE, 0));
    machine.leave();
}

static TEXTURE: CUDA_TEXTURE_DESC = CUDA_TEXTURE_DESC {
    addressMode: [CU_TR_ADDRESS_MODE_CLAMP; 3],
    filterMode: CU_TR_FILTER_MODE_LINEAR,
    flags: CU_TRSF_NORMALIZED_COORDINATES,
    maxAnisotropy: 4,
    mipmapFilterMode: CU_TR_FILTER_MODE_POINT,
    mipmapLevelBias: 0.5,
    minMipmapLevelClamp: 1.0,
    maxMipmapLevelClamp: 7.25,
    borderColor: [0.1, 0.2, 0.3, 0.4],
    reserved: [0; 12],
};

fn over(array: CUarray) -> CUDA_RESOURCE_DESC {
    let array = CUDA_RESOURCE_DESC_res_array { hArray: array };
    CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_ARRAY,
        res: CUDA_RESOURCE_DESC_res { array },
        flags: 0,
    }
}

fn over_memory(devPtr: CUdeviceptr, sizeInBytes: usize) -> CUDA_RESOURCE_DESC {
    let linear = CUDA_RESOURCE_DESC_res_linear {
        devPtr,
        format: CU_AD_FORMAT_UNSIGNED_INT32,
        numChannels: 1,
        sizeInBytes,
    };
    CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_LINEAR,
        res: CUDA_RESOURCE_DESC_res { linear },
        flags: 0,
    }
}

/// The kernel that reads through a texture.
fn fetch(machine: &Machine) -> CUfunction {
    let (mut module, mut function) = (null_mut(), null_mut());
    let image = c"towline null image\nkernel fetch\nreference picture\n";
    let driver = &machine.driver;
    // SAFETY: the image is text with a NUL.
    let loaded = unsafe { driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
    assert_eq!(loaded, CUDA_SUCCESS);
    // SAFETY: all are locals.
    let found = unsafe { driver.cuModuleGetFunction(&raw mut function, module, c"fetch".as_ptr()) };
    assert_eq!(found, CUDA_SUCCESS);
    function
}

fn run(machine: &Machine, function: CUfunction, object: u64, to: CUdeviceptr, count: u32) {
    let (mut object, mut to, mut count) = (object, to, count);
    let mut params: [*mut c_void; 3] = [
        (&raw mut object).cast(),
        (&raw mut to).cast(),
        (&raw mut count).cast(),
    ];
    let (params, none) = (params.as_mut_ptr(), null_mut());
    // SAFETY: the function has three parameters of these sizes.
    let launched = unsafe {
        machine
            .driver
            .cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, none, params, null_mut())
    };
    assert_eq!(launched, CUDA_SUCCESS);
}

#[test]
fn a_kernel_reads_through_textures_and_surfaces() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let storable = CUDA_ARRAY3D_DESCRIPTOR {
        Flags: CUDA_ARRAY3D_SURFACE_LDST,
        ..FLOATS
    };
    let array = array(&machine, &storable);
    let content = pattern(ALL, 1);
    write_all(&machine, array, &content);
    let memory = machine.filled(&pattern(400, 2));
    let (mut texture, mut buffer, mut surface) = (0, 0, 0);
    let (resource, linear) = (over(array), over_memory(memory, 400));
    let made = machine.costs(|driver| {
        // SAFETY: all are locals, for this and the others.
        let one = unsafe {
            driver.cuTexObjectCreate(
                &raw mut texture,
                &raw const resource,
                &raw const TEXTURE,
                null(),
            )
        };
        // SAFETY: as above.
        let two = unsafe {
            driver.cuTexObjectCreate(
                &raw mut buffer,
                &raw const linear,
                &raw const TEXTURE,
                null(),
            )
        };
        // SAFETY: as above.
        let three = unsafe { driver.cuSurfObjectCreate(&raw mut surface, &raw const resource) };
        [one, two, three]
    });
    assert_eq!(made, ([CUDA_SUCCESS; 3], 3));
    let function = fetch(&machine);
    let result = machine.filled(&[0; 3000]);
    run(&machine, function, texture, result, 1000);
    run(&machine, function, buffer, result + 1000, 400);
    run(&machine, function, surface, result + 2000, 1000);
    let ended = machine.costs(|driver| {
        // SAFETY: each lives, for this and the others.
        let one = unsafe { driver.cuTexObjectDestroy(texture) };
        // SAFETY: as above.
        let two = unsafe { driver.cuTexObjectDestroy(buffer) };
        // SAFETY: as above.
        let three = unsafe { driver.cuSurfObjectDestroy(surface) };
        [one, two, three]
    });
    assert_eq!(ended, ([CUDA_SUCCESS; 3], 0));
    let bytes = machine.bytes(result, 3000);
    assert!(bytes[..1000] == content[..1000]);
    assert!(bytes[1000..1400] == pattern(400, 2));
    assert!(bytes[2000..] == content[..1000]);
    // SAFETY: gone, which is no mistake (seen with driver 580.159).
    let twice = unsafe { driver.cuTexObjectDestroy(texture) };
    assert_eq!(twice, CUDA_SUCCESS);
    destroy(&machine, array);
    machine.leave();
}

#[test]
fn what_a_texture_is_is_told_as_it_was_given() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let array = array(&machine, &FLOATS);
    let view = CUDA_RESOURCE_VIEW_DESC {
        format: CU_RES_VIEW_FORMAT_FLOAT_2X32,
        width: 37,
        height: 11,
        depth: 5,
        firstMipmapLevel: 0,
        lastMipmapLevel: 0,
        firstLayer: 0,
        lastLayer: 0,
        reserved: [0; 16],
    };
    let mut object = 0;
    let resource = over(array);
    // SAFETY: all are locals, for this and the others.
    let made = unsafe {
        driver.cuTexObjectCreate(
            &raw mut object,
            &raw const resource,
            &raw const TEXTURE,
            &raw const view,
        )
    };
    assert_eq!(made, CUDA_SUCCESS);
    let (mut told_resource, mut told_texture, mut told_view) = (over_memory(0, 0), TEXTURE, view);
    told_texture.maxAnisotropy = 99;
    told_view.width = 0;
    let asked = machine.costs(|driver| {
        // SAFETY: as above.
        let one = unsafe { driver.cuTexObjectGetResourceDesc(&raw mut told_resource, object) };
        // SAFETY: as above.
        let two = unsafe { driver.cuTexObjectGetTextureDesc(&raw mut told_texture, object) };
        // SAFETY: as above.
        let three = unsafe { driver.cuTexObjectGetResourceViewDesc(&raw mut told_view, object) };
        [one, two, three]
    });
    assert_eq!(asked, ([CUDA_SUCCESS; 3], 0));
    assert_eq!(told_resource.resType, CU_RESOURCE_TYPE_ARRAY);
    // SAFETY: the kind says that this is it.
    assert_eq!(unsafe { told_resource.res.array }.hArray, array);
    assert_eq!(told_view, view);
    assert_eq!(format!("{told_texture:?}"), format!("{TEXTURE:?}"));
    let mut surface = 0;
    // The driver refuses a surface over an array that was not made for it.
    // SAFETY: as above.
    let refused = unsafe { driver.cuSurfObjectCreate(&raw mut surface, &raw const resource) };
    assert_eq!(refused, CUDA_ERROR_INVALID_VALUE);
    machine.leave();
}

#[test]
fn a_tensor_is_described_by_the_driver_and_asked_for_once() {
    let machine = Machine::new();
    let dims = [64_u64, 32, 16];
    let strides = [128_u64, 4096];
    let (area, steps) = ([16_u32, 8, 4], [1_u32, 2, 3]);
    let address: *mut c_void = std::ptr::without_provenance_mut(0x7000_1000);
    let encode = |api: &dyn CudaApi, area: &[u32; 3]| {
        let mut map = CUtensorMap { opaque: [0; 16] };
        // SAFETY: the lists are as long as the rank asks for.
        let status = unsafe {
            api.cuTensorMapEncodeTiled(
                &raw mut map,
                CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                3,
                address,
                dims.as_ptr(),
                strides.as_ptr(),
                area.as_ptr(),
                steps.as_ptr(),
                0,
                CU_TENSOR_MAP_SWIZZLE_64B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                0,
            )
        };
        (status, map.opaque)
    };
    let native = encode(&*machine.nulls[0], &area);
    assert_eq!(native.0, CUDA_SUCCESS);
    let first = machine.costs(|driver| encode(driver, &area));
    assert_eq!(first, (native, 1));
    let again = machine.costs(|driver| encode(driver, &area));
    assert_eq!(again, (native, 0));
    let (other, waits) = machine.costs(|driver| encode(driver, &[16, 8, 5]));
    assert_eq!((other.0, waits), (CUDA_SUCCESS, 1));
    assert_ne!(other.1, native.1);
    let refused = machine.costs(|driver| encode(driver, &[16, 8, 500]));
    assert_eq!(refused, ((CUDA_ERROR_INVALID_VALUE, [0; 16]), 1));

    let moved = |api: &dyn CudaApi| {
        let mut map = CUtensorMap { opaque: native.1 };
        let address = std::ptr::without_provenance_mut(0x7000_2000);
        // SAFETY: the map is a local.
        let status = unsafe { api.cuTensorMapReplaceAddress(&raw mut map, address) };
        (status, map.opaque)
    };
    let wanted = moved(&*machine.nulls[0]);
    assert_eq!(machine.costs(|driver| moved(driver)), (wanted, 1));
    assert_eq!(machine.costs(|driver| moved(driver)), (wanted, 0));
    machine.leave();
}

#[test]
fn tensors_for_images_pass_every_argument_on() {
    let machine = Machine::new();
    let dims = [64_u64, 32, 16, 8];
    let strides = [128_u64, 4096, 65536];
    let (lower, upper, steps) = ([-1_i32, -2], [1_i32, 2], [1_u32, 1, 2, 1]);
    let address: *mut c_void = std::ptr::without_provenance_mut(0x7000_1000);
    let columns = |api: &dyn CudaApi, map: *mut CUtensorMap, rank| {
        // SAFETY: the lists are as long as the rank asks for, or more.
        unsafe {
            api.cuTensorMapEncodeIm2col(
                map,
                6,
                rank,
                address,
                dims.as_ptr(),
                strides.as_ptr(),
                lower.as_ptr(),
                upper.as_ptr(),
                64,
                128,
                steps.as_ptr(),
                0,
                3,
                2,
                1,
            )
        }
    };
    let wide = |api: &dyn CudaApi, map: *mut CUtensorMap, rank| {
        // SAFETY: as above.
        unsafe {
            api.cuTensorMapEncodeIm2colWide(
                map,
                6,
                rank,
                address,
                dims.as_ptr(),
                strides.as_ptr(),
                -3,
                5,
                64,
                128,
                steps.as_ptr(),
                0,
                1,
                3,
                2,
                1,
            )
        }
    };
    type Encode<'a> = &'a dyn Fn(&dyn CudaApi, *mut CUtensorMap, u32) -> CUresult;
    for encode in [&columns as Encode<'_>, &wide] {
        let (mut native, mut ours) = (
            CUtensorMap { opaque: [0; 16] },
            CUtensorMap { opaque: [1; 16] },
        );
        let wanted = encode(&*machine.nulls[0], &raw mut native, 4);
        let got = encode(&machine.driver, &raw mut ours, 4);
        assert_eq!((got, ours.opaque), (wanted, native.opaque));
        assert_eq!(wanted, CUDA_SUCCESS);
        for rank in [0, 2, 6, u32::MAX] {
            let refused = machine.costs(|driver| encode(driver, &raw mut ours, rank));
            assert_eq!(refused, (CUDA_ERROR_INVALID_VALUE, 0));
        }
        assert_eq!(
            encode(&machine.driver, null_mut(), 4),
            CUDA_ERROR_INVALID_VALUE
        );
    }
    machine.leave();
}

#[test]
fn texture_references_keep_what_they_were_set_to() {
    let machine = Machine::new();
    let driver = &machine.driver;
    let array = array(&machine, &FLOATS);
    let memory = machine.filled(&[0; 1024]);
    let (mut reference, mut bound) = (null_mut(), null_mut());
    // SAFETY: all pointers here and below are to locals.
    let created = unsafe { driver.cuTexRefCreate(&raw mut reference) };
    assert_eq!(created, CUDA_SUCCESS);
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetArray(reference, array, CU_TRSA_OVERRIDE_FORMAT) };
    // SAFETY: as above.
    let get = unsafe { driver.cuTexRefGetArray(&raw mut bound, reference) };
    assert_eq!(([set, get], bound), ([CUDA_SUCCESS; 2], array));
    let (mut offset, mut address) = (0, 0);
    let at = memory + 64;
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetAddress_v2(&raw mut offset, reference, at, 900) };
    // SAFETY: as above.
    let get = unsafe { driver.cuTexRefGetAddress_v2(&raw mut address, reference) };
    assert_eq!([set, get], [CUDA_SUCCESS; 2]);
    assert_eq!((offset, address), ((at % 512) as usize, at));
    // Bound to memory, it is bound to no array.
    // SAFETY: as above.
    let get = unsafe { driver.cuTexRefGetArray(&raw mut bound, reference) };
    assert_eq!(get, CUDA_ERROR_INVALID_VALUE);
    let (mut format, mut channels) = (0, 0);
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetFormat(reference, CU_AD_FORMAT_HALF, 4) };
    // SAFETY: as above.
    let get = unsafe { driver.cuTexRefGetFormat(&raw mut format, &raw mut channels, reference) };
    assert_eq!([set, get], [CUDA_SUCCESS; 2]);
    assert_eq!((format, channels), (CU_AD_FORMAT_HALF, 4));
    let mut mode = 0;
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetAddressMode(reference, 2, CU_TR_ADDRESS_MODE_BORDER) };
    // SAFETY: as above.
    let get = unsafe { driver.cuTexRefGetAddressMode(&raw mut mode, reference, 2) };
    assert_eq!([set, get], [CUDA_SUCCESS; 2]);
    assert_eq!(mode, CU_TR_ADDRESS_MODE_BORDER);
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetAddressMode(reference, 3, 0) };
    assert_eq!(set, CUDA_ERROR_INVALID_VALUE);
    let (mut least, mut most) = (0.0, 0.0);
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetMipmapLevelClamp(reference, -1.5, 2.25) };
    // SAFETY: as above.
    let get =
        unsafe { driver.cuTexRefGetMipmapLevelClamp(&raw mut least, &raw mut most, reference) };
    assert_eq!([set, get], [CUDA_SUCCESS; 2]);
    assert_eq!((least, most), (-1.5, 2.25));
    let (mut color, mut told) = ([0.25_f32, 0.5, 0.75, 1.0], [0.0_f32; 4]);
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetBorderColor(reference, color.as_mut_ptr()) };
    // SAFETY: as above.
    let get = unsafe { driver.cuTexRefGetBorderColor(told.as_mut_ptr(), reference) };
    assert_eq!(([set, get], told), ([CUDA_SUCCESS; 2], color));
    let mut flags = 0;
    // SAFETY: as above.
    let set = unsafe { driver.cuTexRefSetFlags(reference, CU_TRSF_READ_AS_INTEGER) };
    // SAFETY: as above.
    let get = unsafe { driver.cuTexRefGetFlags(&raw mut flags, reference) };
    assert_eq!(
        ([set, get], flags),
        ([CUDA_SUCCESS; 2], CU_TRSF_READ_AS_INTEGER)
    );
    // SAFETY: as above.
    assert_eq!(unsafe { driver.cuTexRefDestroy(reference) }, CUDA_SUCCESS);
    machine.leave();
}
