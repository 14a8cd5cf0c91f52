//! Kernels that read and write through textures and surfaces, in both tiers.

use super::arrays::{array, described, filled, level, mipmap, pattern, read_array, write_array};
use super::*;
use crate::texture::tests::{Noise, by_the_book};
use crate::texture::{Edge, Sampler};

const TIERS: [SoftTier; 2] = [SoftTier::Interpreter, SoftTier::Jit];

fn on(tier: SoftTier) -> SoftCuda {
    devices(SoftOptions {
        tier,
        ..SoftOptions::default()
    })
}

pub(super) fn over(array: CUarray) -> CUDA_RESOURCE_DESC {
    CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_ARRAY,
        res: CUDA_RESOURCE_DESC_res {
            array: CUDA_RESOURCE_DESC_res_array { hArray: array },
        },
        flags: 0,
    }
}

fn over_levels(mipmap: CUmipmappedArray) -> CUDA_RESOURCE_DESC {
    CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
        res: CUDA_RESOURCE_DESC_res {
            mipmap: CUDA_RESOURCE_DESC_res_mipmap {
                hMipmappedArray: mipmap,
            },
        },
        flags: 0,
    }
}

fn over_memory(devPtr: CUdeviceptr, format: u32, bytes: usize) -> CUDA_RESOURCE_DESC {
    let linear = CUDA_RESOURCE_DESC_res_linear {
        devPtr,
        format,
        numChannels: 1,
        sizeInBytes: bytes,
    };
    CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_LINEAR,
        res: CUDA_RESOURCE_DESC_res { linear },
        flags: 0,
    }
}

fn over_rows(
    devPtr: CUdeviceptr,
    format: u32,
    [width, height, pitch]: [usize; 3],
) -> CUDA_RESOURCE_DESC {
    let pitch2D = CUDA_RESOURCE_DESC_res_pitch2D {
        devPtr,
        format,
        numChannels: 1,
        width,
        height,
        pitchInBytes: pitch,
    };
    CUDA_RESOURCE_DESC {
        resType: CU_RESOURCE_TYPE_PITCH2D,
        res: CUDA_RESOURCE_DESC_res { pitch2D },
        flags: 0,
    }
}

pub(super) const PLAIN: CUDA_TEXTURE_DESC = CUDA_TEXTURE_DESC {
    addressMode: [CU_TR_ADDRESS_MODE_CLAMP; 3],
    filterMode: CU_TR_FILTER_MODE_POINT,
    flags: 0,
    maxAnisotropy: 0,
    mipmapFilterMode: CU_TR_FILTER_MODE_POINT,
    mipmapLevelBias: 0.0,
    minMipmapLevelClamp: 0.0,
    maxMipmapLevelClamp: 99.0,
    borderColor: [0.0; 4],
    reserved: [0; 12],
};

fn texture(
    cuda: &SoftCuda,
    resource: &CUDA_RESOURCE_DESC,
    told: &CUDA_TEXTURE_DESC,
) -> Result<CUtexObject, CUresult> {
    let mut object = 0;
    let none = std::ptr::null();
    // SAFETY: places and descriptions are live.
    match unsafe { cuda.cuTexObjectCreate(&raw mut object, resource, told, none) } {
        CUDA_SUCCESS => Ok(object),
        status => Err(status),
    }
}

fn surface(cuda: &SoftCuda, array: CUarray) -> Result<CUsurfObject, CUresult> {
    let mut object = 0;
    let resource = over(array);
    // SAFETY: the place and the description are live.
    match unsafe { cuda.cuSurfObjectCreate(&raw mut object, &raw const resource) } {
        CUDA_SUCCESS => Ok(object),
        status => Err(status),
    }
}

/// A kernel each of whose threads has a handle `h`, words `a0` on, and leaves `x0` to `x3`.
fn program(body: &str, inputs: usize) -> String {
    let loads: String = (0..inputs)
        .map(|place| format!(" ld.global.b32 a{place}, [f+{}];\n", 4 * place))
        .collect();
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n\
         .visible .entry run(.param .u64 handle, .param .u64 from, .param .u64 to)\n{{ .reg .b64 h, f, t, o, w<4>;\n \
         .reg .b32 i, n, c, a<12>, x<4>; .reg .b16 s<4>; .reg .pred p;\n \
         ld.param.u64 h, [handle]; ld.param.u64 f, [from]; ld.param.u64 t, [to];\n \
         mov.u32 i, %tid.x; mov.u32 n, %ntid.x; mov.u32 c, %ctaid.x; mad.lo.u32 i, n, c, i;\n \
         mul.wide.u32 o, i, {}; add.u64 f, f, o; mul.wide.u32 o, i, 16; add.u64 t, t, o;\n\
         {loads} mov.b32 x0, 0; mov.b32 x1, 0; mov.b32 x2, 0; mov.b32 x3, 0;\n {body}\n \
         st.global.v4.b32 [t], {{x0, x1, x2, x3}}; ret; }}\0",
        4 * inputs
    )
}

/// Results of a thread for each list of words, or the launch's error.
fn attempt(
    cuda: &SoftCuda,
    body: &str,
    handle: u64,
    words: &[Vec<u32>],
) -> Result<Vec<[u32; 4]>, CUresult> {
    let inputs = words.first().map_or(0, Vec::len);
    let text = program(body, inputs);
    let image = CStr::from_bytes_with_nul(text.as_bytes()).expect("text");
    let run = function(cuda, module(cuda, image).expect("a module"), c"run");
    let bytes: Vec<u8> = words
        .iter()
        .flatten()
        .flat_map(|one| one.to_le_bytes())
        .collect();
    let from = filled(cuda, if bytes.is_empty() { &[0] } else { &bytes });
    let to = allocate(cuda, words.len() * 16);
    let threads = words.len() as u32;
    let block = if threads > 128 { 100 } else { threads };
    assert_eq!(threads % block, 0);
    let shape = (threads.div_ceil(block), block);
    check(launch(
        cuda,
        run,
        shape,
        null_mut(),
        &mut [handle, from, to],
    ));
    // SAFETY: the default stream.
    match unsafe { cuda.cuStreamSynchronize(null_mut()) } {
        CUDA_SUCCESS => {}
        status => return Err(status),
    }
    let left = super::arrays::bytes_at(cuda, to, words.len() * 16);
    let word = |at: usize| u32::from_le_bytes(left[at..at + 4].try_into().expect("four"));
    let all = (0..words.len()).map(|at| std::array::from_fn(|part| word(at * 16 + 4 * part)));
    Ok(all.collect())
}

fn read(cuda: &SoftCuda, body: &str, handle: u64, words: &[Vec<u32>]) -> Vec<[u32; 4]> {
    attempt(cuda, body, handle, words).expect("the launch succeeds")
}

const RESULTS: &str = "{x0, x1, x2, x3}";

#[test]
fn kernels_read_arrays_of_each_geometry_by_the_book() {
    let layered = CUDA_ARRAY3D_LAYERED;
    for (geometry, sides, flags, used, vector) in [
        ("1d", [21, 0, 0], 0, 1, "{a0}"),
        ("2d", [21, 9, 0], 0, 2, "{a0, a1}"),
        ("3d", [10, 9, 4], 0, 3, "{a0, a1, a2, a2}"),
        ("a1d", [21, 0, 3], layered, 1, "{a0, a1}"),
        ("a2d", [21, 9, 3], layered, 2, "{a0, a1, a2, a2}"),
    ] {
        for tier in TIERS {
            let cuda = on(tier);
            let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
                Flags: flags,
                ..described(sides, CU_AD_FORMAT_UNSIGNED_INT8, 4)
            };
            let array = array(&cuda, descriptor);
            let [w, h, d] = sides.map(|side: usize| side.max(1));
            let bytes = pattern(w * h * d * 4);
            write_array(&cuda, array, [w * 4, h, d], &bytes);
            let mut noise = Noise(3);
            for (linear, normalized, mode, edge) in [
                (false, false, CU_TR_ADDRESS_MODE_CLAMP, Edge::Clamp),
                (true, false, CU_TR_ADDRESS_MODE_BORDER, Edge::Border),
                (true, true, CU_TR_ADDRESS_MODE_WRAP, Edge::Wrap),
                (true, true, CU_TR_ADDRESS_MODE_MIRROR, Edge::Mirror),
            ] {
                let told = CUDA_TEXTURE_DESC {
                    addressMode: [mode; 3],
                    filterMode: linear.into(),
                    flags: if normalized {
                        CU_TRSF_NORMALIZED_COORDINATES
                    } else {
                        0
                    },
                    borderColor: [0.25, 0.5, 0.75, 1.0],
                    ..PLAIN
                };
                let object = texture(&cuda, &over(array), &told).expect("a texture");
                let is_layered = flags != 0;
                let words: Vec<Vec<u32>> = (0..300)
                    .map(|number| {
                        let layer = is_layered.then_some(number % 5);
                        let at = (0..used).map(|side| {
                            let most = if normalized {
                                1.0
                            } else {
                                [w, h, d][side] as f32
                            };
                            noise.within(-most, 2.0 * most).to_bits()
                        });
                        layer.into_iter().chain(at).collect()
                    })
                    .collect();
                let body = format!("tex.{geometry}.v4.f32.f32 {RESULTS}, [h, {vector}];");
                let found = read(&cuda, &body, object, &words);
                let sampler = Sampler {
                    edges: [edge; 3],
                    linear,
                    normalized,
                    border: [0.25, 0.5, 0.75, 1.0],
                    ..Sampler::default()
                };
                for (words, found) in words.iter().zip(found) {
                    let layer = is_layered.then(|| i64::from(words[0]).min(d as i64 - 1));
                    let at: Vec<f32> = words[usize::from(is_layered)..]
                        .iter()
                        .map(|word| f32::from_bits(*word))
                        .collect();
                    let texel = |[x, y, z]: [i64; 3]| {
                        let z = layer.unwrap_or(z) as usize;
                        let place = ((z * h + y as usize) * w + x as usize) * 4;
                        std::array::from_fn(|channel| f64::from(bytes[place + channel]) / 255.0)
                    };
                    let sides = [w as u32, h as u32, d as u32];
                    let expected = by_the_book(&sampler, &sides[..used], &at, &texel);
                    for (a, b) in found.iter().zip(expected) {
                        let a = f64::from(f32::from_bits(*a));
                        assert!(
                            (a - b).abs() < 1e-5,
                            "{tier:?} {geometry} {told:?} {at:?}: {a}, not {b}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn results_have_the_type_of_the_instruction() {
    for tier in TIERS {
        let cuda = on(tier);
        let bytes = described([4, 0, 0], CU_AD_FORMAT_SIGNED_INT8, 2);
        let line = array(&cuda, bytes);
        write_array(&cuda, line, [8, 1, 1], &[0x80, 0x7f, 1, 0xff, 2, 3, 4, 5]);
        let words: Vec<Vec<u32>> = (-1..5).map(|at: i32| vec![at as u32]).collect();
        let whole = CUDA_TEXTURE_DESC {
            flags: CU_TRSF_READ_AS_INTEGER,
            ..PLAIN
        };
        let object = texture(&cuda, &over(line), &whole).expect("a texture");
        let body = format!("tex.1d.v4.s32.s32 {RESULTS}, [h, {{a0}}];");
        let found = read(&cuda, &body, object, &words);
        let signed = |one: i32, other: i32| [one as u32, other as u32, 0, 1];
        let expected = [
            [0; 4],
            signed(-128, 127),
            signed(1, -1),
            signed(2, 3),
            signed(4, 5),
            [0; 4],
        ];
        assert_eq!(found, expected);
        let object = texture(&cuda, &over(line), &PLAIN).expect("a texture");
        let places: Vec<Vec<u32>> = [0.5_f32, 1.5].map(|at| vec![at.to_bits()]).into();
        let body = "tex.1d.v2.f16x2.f32 {x0, x1}, [h, {a0}];";
        let found = read(&cuda, body, object, &places);
        // 1, 1/127, -1/127 as halves.
        assert_eq!(
            found,
            [
                [0x3c00_bc00, 0x3c00_0000, 0, 0],
                [0xa008_2008, 0x3c00_0000, 0, 0]
            ]
        );
        let body = "tex.1d.v4.f16.f32 {s0, s1, s2, s3}, [h, {a0}];\n cvt.u32.u16 x0, s0; cvt.u32.u16 x1, s3;";
        assert_eq!(
            read(&cuda, body, object, &places)[0],
            [0xbc00, 0x3c00, 0, 0]
        );
    }
}

#[test]
fn memory_textures_are_zero_beyond_their_end() {
    for tier in TIERS {
        let cuda = on(tier);
        let bytes: Vec<u8> = (0..64_u32)
            .flat_map(|one| (one + 1).to_le_bytes())
            .collect();
        let memory = filled(&cuda, &bytes);
        let line = over_memory(memory, CU_AD_FORMAT_UNSIGNED_INT32, 40);
        let object = texture(&cuda, &line, &PLAIN).expect("a texture");
        let words: Vec<Vec<u32>> = [0, 9, 10, u32::MAX].map(|at| vec![at]).into();
        let body = format!("tex.1d.v4.u32.s32 {RESULTS}, [h, {{a0}}];");
        let found = read(&cuda, &body, object, &words);
        assert_eq!(
            found.iter().map(|one| one[0]).collect::<Vec<_>>(),
            [1, 10, 0, 0]
        );
        let rows = over_rows(memory, CU_AD_FORMAT_UNSIGNED_INT32, [5, 3, 64]);
        let object = texture(&cuda, &rows, &PLAIN).expect("a texture");
        let at = |x: f32, y: f32| vec![x.to_bits(), y.to_bits()];
        let words = [at(0.5, 0.5), at(4.9, 2.1), at(7.0, -1.0), at(2.0, 1.0)];
        let body = format!("tex.2d.v4.u32.f32 {RESULTS}, [h, {{a0, a1}}];");
        let found = read(&cuda, &body, object, &words);
        assert_eq!(
            found.iter().map(|one| one[0]).collect::<Vec<_>>(),
            [1, 37, 5, 19]
        );
    }
}

#[test]
fn levels_cubes_and_gathers_are_read_by_kernels() {
    for tier in TIERS {
        let cuda = on(tier);
        let plate = described([8, 8, 0], CU_AD_FORMAT_FLOAT, 1);
        let whole = mipmap(&cuda, plate, 3).expect("room");
        for number in 0..3_usize {
            let side = 8 >> number;
            let bytes: Vec<u8> = (0..side * side)
                .flat_map(|_| (number as f32).to_le_bytes())
                .collect();
            write_array(
                &cuda,
                level(&cuda, whole, number as u32),
                [side * 4, side, 1],
                &bytes,
            );
        }
        let told = CUDA_TEXTURE_DESC {
            flags: CU_TRSF_NORMALIZED_COORDINATES,
            mipmapFilterMode: CU_TR_FILTER_MODE_LINEAR,
            ..PLAIN
        };
        let object = texture(&cuda, &over_levels(whole), &told).expect("a texture");
        let half = 0.5_f32.to_bits();
        let words = [vec![half, half, 1.5_f32.to_bits()]];
        let body = format!("tex.level.2d.v4.f32.f32 {RESULTS}, [h, {{a0, a1}}], a2;");
        assert_eq!(
            f32::from_bits(read(&cuda, &body, object, &words)[0][0]),
            1.5
        );
        let step = (2.0_f32 / 8.0).to_bits();
        let words = [vec![half, half, step, 0, 0, step]];
        let body =
            format!("tex.grad.2d.v4.f32.f32 {RESULTS}, [h, {{a0, a1}}], {{a2, a3}}, {{a4, a5}};");
        assert_eq!(
            f32::from_bits(read(&cuda, &body, object, &words)[0][0]),
            1.0
        );
        let body = "txq.num_mipmap_levels.b32 x0, [h]; txq.width.b32 x1, [h]; txq.level.height.b32 x2, [h], 1; \
                    txq.channel_data_type.b32 x3, [h];";
        assert_eq!(read(&cuda, body, object, &[vec![]])[0], [3, 8, 4, 0x10de]);

        let cube = CUDA_ARRAY3D_DESCRIPTOR {
            Flags: CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED,
            ..described([2, 2, 12], CU_AD_FORMAT_FLOAT, 1)
        };
        let cube = array(&cuda, cube);
        let bytes: Vec<u8> = (0..48).flat_map(|at| (at as f32).to_le_bytes()).collect();
        write_array(&cuda, cube, [8, 2, 12], &bytes);
        let object = texture(&cuda, &over(cube), &told).expect("a texture");
        // The second cube's -y: s = x, t = -z.
        let way = [0.5_f32, -1.0, 0.5].map(f32::to_bits);
        let words = [vec![1, way[0], way[1], way[2]]];
        let body = format!("tex.acube.v4.f32.f32 {RESULTS}, [h, {{a0, a1, a2, a3}}];");
        assert_eq!(
            f32::from_bits(read(&cuda, &body, object, &words)[0][0]),
            37.0
        );

        let plate = array(&cuda, described([4, 4, 0], CU_AD_FORMAT_UNSIGNED_INT16, 2));
        let bytes: Vec<u8> = (0..32_u16).flat_map(|at| at.to_le_bytes()).collect();
        write_array(&cuda, plate, [16, 4, 1], &bytes);
        let told = CUDA_TEXTURE_DESC {
            flags: CU_TRSF_READ_AS_INTEGER,
            ..PLAIN
        };
        let object = texture(&cuda, &over(plate), &told).expect("a texture");
        let words = [vec![2.0_f32.to_bits(), 2.0_f32.to_bits()]];
        let body = format!("tld4.g.2d.v4.u32.f32 {RESULTS}, [h, {{a0, a1}}];");
        assert_eq!(read(&cuda, &body, object, &words)[0], [19, 21, 13, 11]);
        let body = format!("tex.2d.v4.u32.f32 {RESULTS}, [h, {{a0, a1}}], {{-1, 1}};");
        assert_eq!(read(&cuda, &body, object, &words)[0], [26, 27, 0, 1]);
    }
}

#[test]
fn surfaces_are_loaded_stored_and_reduced() {
    for tier in TIERS {
        let cuda = on(tier);
        let plate = CUDA_ARRAY3D_DESCRIPTOR {
            Flags: CUDA_ARRAY3D_SURFACE_LDST,
            ..described([8, 4, 0], CU_AD_FORMAT_UNSIGNED_INT32, 1)
        };
        let plate = array(&cuda, plate);
        write_array(&cuda, plate, [32, 4, 1], &[0; 128]);
        let object = surface(&cuda, plate).expect("a surface");
        let words: Vec<Vec<u32>> = (0..32).map(|at| vec![at % 8 * 4, at / 8, at * 5]).collect();
        read(
            &cuda,
            "sust.b.2d.b32.trap [h, {a0, a1}], a2;",
            object,
            &words,
        );
        let body = "suld.b.2d.b32.trap x0, [h, {a0, a1}];";
        for (words, found) in words.iter().zip(read(&cuda, body, object, &words)) {
            assert_eq!(found[0], words[2]);
        }
        // Elements 30 and 31 at once.
        let body = "suld.b.2d.v2.b32.trap {x0, x1}, [h, {a0, a1}]; suq.width.b32 x2, [h]; suq.height.b32 x3, [h];";
        assert_eq!(
            read(&cuda, body, object, &[vec![24, 3]])[0],
            [150, 155, 8, 4]
        );
        // Beyond the edges.
        let beyond = [vec![(-4_i32) as u32, 9]];
        let body = "suld.b.2d.b32.zero x0, [h, {a0, a1}]; suld.b.2d.b32.clamp x1, [h, {a0, a1}]; \
                    sust.b.2d.b32.zero [h, {a0, a1}], 77;";
        assert_eq!(read(&cuda, body, object, &beyond)[0], [0, 120, 0, 0]);
        read(
            &cuda,
            "sust.b.2d.b32.clamp [h, {a0, a1}], 78;",
            object,
            &beyond,
        );
        let all = vec![vec![0, 0]; 500];
        read(
            &cuda,
            "sured.b.add.2d.u32.trap [h, {a0, a1}], 3; sured.b.max.2d.s32.trap [h, {4, 0}], 9;",
            object,
            &all,
        );
        let bytes = read_array(&cuda, plate, [32, 4, 1]);
        let word =
            |at: usize| u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().expect("four"));
        assert_eq!([word(0), word(1), word(24)], [1500, 9, 78]);
        assert_eq!(
            attempt(
                &cuda,
                "suld.b.2d.b32.trap x0, [h, {a0, a1}];",
                object,
                &beyond
            ),
            Err(CUDA_ERROR_LAUNCH_FAILED)
        );
    }
}

#[test]
fn formatted_stores_convert_to_the_surface() {
    for tier in TIERS {
        let cuda = on(tier);
        let volume = CUDA_ARRAY3D_DESCRIPTOR {
            Flags: CUDA_ARRAY3D_SURFACE_LDST,
            ..described([4, 3, 2], CU_AD_FORMAT_HALF, 2)
        };
        let halves = array(&cuda, volume);
        let object = surface(&cuda, halves).expect("a surface");
        write_array(&cuda, halves, [16, 3, 2], &[0; 96]);
        let words = [vec![3, 2, 1, 1.5_f32.to_bits(), (-2.0_f32).to_bits()]];
        read(
            &cuda,
            "sust.p.3d.v2.b32.trap [h, {a0, a1, a2, a2}], {a3, a4};",
            object,
            &words,
        );
        assert_eq!(
            read_array(&cuda, halves, [16, 3, 2])[92..],
            [0, 0x3e, 0, 0xc0]
        );
        let layers = CUDA_ARRAY3D_DESCRIPTOR {
            Flags: CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_LAYERED,
            ..described([4, 0, 3], CU_AD_FORMAT_UNSIGNED_INT8, 1)
        };
        let bytes = array(&cuda, layers);
        let object = surface(&cuda, bytes).expect("a surface");
        write_array(&cuda, bytes, [4, 1, 3], &[0; 12]);
        let words = [vec![2, 1, 300]];
        read(
            &cuda,
            "sust.p.a1d.b32.trap [h, {a0, a1}], a2; cvt.u16.u32 s0, a2; sust.b.a1d.b8.trap [h, {0, 3}], s0;",
            object,
            &words,
        );
        assert_eq!(
            read_array(&cuda, bytes, [4, 1, 3]),
            [0, 0, 0, 44, 0, 0, 0, 0, 0, 255, 0, 0]
        );
    }
}

#[test]
fn ended_objects_serve_earlier_launches_alone() {
    for tier in TIERS {
        let cuda = on(tier);
        let line = array(&cuda, described([4, 0, 0], CU_AD_FORMAT_FLOAT, 1));
        write_array(&cuda, line, [16, 1, 1], &[0; 16]);
        let object = texture(&cuda, &over(line), &PLAIN).expect("a texture");
        let (busy, flag) = (stream(&cuda), allocate(&cuda, 4));
        let text = program(
            &format!(
                "again: ld.volatile.global.u32 c, [f]; setp.eq.u32 p, c, 0; @p bra again;\n \
                                     tex.1d.v4.f32.f32 {RESULTS}, [h, {{a0}}];"
            ),
            1,
        );
        let image = CStr::from_bytes_with_nul(text.as_bytes()).expect("text");
        let run = function(&cuda, module(&cuda, image).expect("a module"), c"run");
        let to = allocate(&cuda, 16);
        check(launch(&cuda, run, (1, 1), busy, &mut [object, flag, to]));
        // SAFETY: the driver judges handles, for this and the others.
        check(unsafe { cuda.cuTexObjectDestroy(object) });
        // SAFETY: as above.
        let again = unsafe { cuda.cuTexObjectDestroy(object) };
        assert_eq!(again, CUDA_ERROR_INVALID_VALUE);
        let helper = stream(&cuda);
        // SAFETY: the driver checks addresses.
        check(unsafe { cuda.cuMemsetD32Async(flag, 1, 1, helper) });
        // SAFETY: the stream is live.
        check(unsafe { cuda.cuStreamSynchronize(busy) });
        let body = format!("tex.1d.v4.f32.f32 {RESULTS}, [h, {{a0}}];");
        let gone = attempt(&cuda, &body, object, &[vec![0]]);
        assert_eq!(gone, Err(CUDA_ERROR_ILLEGAL_ADDRESS));
    }
}

#[test]
fn textures_and_surfaces_that_cannot_be_are_refused() {
    let cuda = devices(SoftOptions::default());
    let words = array(&cuda, described([4, 4, 0], CU_AD_FORMAT_UNSIGNED_INT32, 1));
    let bytes = array(&cuda, described([4, 4, 0], CU_AD_FORMAT_UNSIGNED_INT8, 1));
    let memory = allocate(&cuda, 4096);
    let linear = CUDA_TEXTURE_DESC {
        filterMode: CU_TR_FILTER_MODE_LINEAR,
        ..PLAIN
    };
    let whole = CUDA_TEXTURE_DESC {
        flags: CU_TRSF_READ_AS_INTEGER,
        ..linear
    };
    let colour = CUDA_TEXTURE_DESC {
        flags: CU_TRSF_SRGB,
        ..PLAIN
    };
    let (u8s, u32s) = (CU_AD_FORMAT_UNSIGNED_INT8, CU_AD_FORMAT_UNSIGNED_INT32);
    let refused = [
        (over(words), linear),
        (over(bytes), whole),
        (over(words), colour),
        (over(bytes), CUDA_TEXTURE_DESC { flags: 4, ..PLAIN }),
        (
            over(bytes),
            CUDA_TEXTURE_DESC {
                maxAnisotropy: 17,
                ..PLAIN
            },
        ),
        (
            over(bytes),
            CUDA_TEXTURE_DESC {
                filterMode: 2,
                ..PLAIN
            },
        ),
        (
            over(bytes),
            CUDA_TEXTURE_DESC {
                addressMode: [0, 4, 0],
                ..PLAIN
            },
        ),
        (over_memory(memory + 4, u32s, 64), PLAIN),
        (over_memory(memory, u32s, 3), PLAIN),
        (over_memory(memory, u32s, 8192), PLAIN),
        (over_memory(memory, CU_AD_FORMAT_BC1_UNORM, 64), PLAIN),
        (over_rows(memory, u8s, [16, 4, 20]), PLAIN),
        (over_rows(memory, u8s, [64, 4, 32]), PLAIN),
        (over_rows(memory, u8s, [64, 200, 64]), PLAIN),
    ];
    for (number, (resource, told)) in refused.iter().enumerate() {
        let made = texture(&cuda, resource, told);
        assert_eq!(made, Err(CUDA_ERROR_INVALID_VALUE), "{number}");
    }
    assert!(texture(&cuda, &over(bytes), &linear).is_ok());
    assert!(texture(&cuda, &over_memory(memory, u8s, 64), &whole).is_ok());
    let nobody = over(std::ptr::without_provenance_mut(0x1234));
    assert_eq!(
        texture(&cuda, &nobody, &PLAIN),
        Err(CUDA_ERROR_INVALID_HANDLE)
    );
    assert_eq!(surface(&cuda, bytes), Err(CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn a_view_shows_some_layers_as_another_format() {
    let cuda = devices(SoftOptions::default());
    let layers = CUDA_ARRAY3D_DESCRIPTOR {
        Flags: CUDA_ARRAY3D_LAYERED,
        ..described([2, 2, 4], CU_AD_FORMAT_FLOAT, 1)
    };
    let layers = array(&cuda, layers);
    write_array(&cuda, layers, [8, 2, 4], &pattern(64));
    let mut view = CUDA_RESOURCE_VIEW_DESC {
        format: CU_RES_VIEW_FORMAT_UINT_4X8,
        width: 2,
        height: 2,
        depth: 0,
        firstMipmapLevel: 0,
        lastMipmapLevel: 0,
        firstLayer: 2,
        lastLayer: 3,
        reserved: [0; 16],
    };
    let told = CUDA_TEXTURE_DESC {
        flags: CU_TRSF_READ_AS_INTEGER,
        ..PLAIN
    };
    let resource = over(layers);
    let mut object = 0;
    let mut make = |view: &CUDA_RESOURCE_VIEW_DESC| {
        // SAFETY: places and descriptions are live.
        unsafe {
            cuda.cuTexObjectCreate(&raw mut object, &raw const resource, &raw const told, view)
        }
    };
    check(make(&view));
    view.lastLayer = 4;
    assert_eq!(make(&view), CUDA_ERROR_INVALID_VALUE);
    (view.lastLayer, view.format) = (3, CU_RES_VIEW_FORMAT_UINT_2X8);
    assert_eq!(make(&view), CUDA_ERROR_INVALID_VALUE);
    let body = format!("tex.a2d.v4.u32.s32 {RESULTS}, [h, {{a0, a1, a2, a2}}]; ");
    let found = read(&cuda, &body, object, &[vec![0, 1, 0], vec![9, 1, 1]]);
    let bytes = pattern(64)
        .iter()
        .map(|byte| u32::from(*byte))
        .collect::<Vec<_>>();
    assert_eq!(found[0], bytes[36..40]);
    assert_eq!(found[1], bytes[60..64]);
}

/// A kernel that reads through a texture reference and writes through a surface reference.
const REFERENCES: &CStr = c".version 8.0\n.target sm_75\n.address_size 64\n.global .texref photo;\n.global .surfref paper;\n\
.visible .global .align 4 .b32 other;\n.visible .entry run(.param .u64 to) { .reg .b64 t, o; .reg .b32 i; .reg .f32 x<4>, f;\n \
mov.u32 i, %tid.x; ld.param.u64 t, [to]; mul.wide.u32 o, i, 4; add.u64 t, t, o; cvt.rn.f32.u32 f, i; mul.f32 f, f, 0f3F000000;\n \
tex.1d.v4.f32.f32 {x0, x1, x2, x3}, [photo, {f}]; st.global.f32 [t], x0; shl.b32 i, i, 2;\n \
sust.b.1d.b32.zero [paper, {i}], x0; ret; }";

#[test]
fn kernels_read_and_write_what_references_are_bound_to() {
    for tier in TIERS {
        let cuda = on(tier);
        let program = module(&cuda, REFERENCES).expect("a module");
        let run = function(&cuda, program, c"run");
        let (mut photo, mut paper) = (null_mut(), null_mut());
        // SAFETY: places are locals, names end with NULs, handles are the driver's to judge, for this and the others.
        check(unsafe { cuda.cuModuleGetTexRef(&raw mut photo, program, c"photo".as_ptr()) });
        // SAFETY: as above.
        check(unsafe { cuda.cuModuleGetSurfRef(&raw mut paper, program, c"paper".as_ptr()) });
        let mut none = null_mut();
        // SAFETY: as above.
        let other = unsafe { cuda.cuModuleGetTexRef(&raw mut none, program, c"other".as_ptr()) };
        assert_eq!(other, CUDA_ERROR_NOT_FOUND);
        let line = described([4, 0, 0], CU_AD_FORMAT_FLOAT, 1);
        let from = array(&cuda, line);
        let bytes: Vec<u8> = (1..5).flat_map(|at| (at as f32).to_le_bytes()).collect();
        write_array(&cuda, from, [16, 1, 1], &bytes);
        let onto = array(
            &cuda,
            CUDA_ARRAY3D_DESCRIPTOR {
                Flags: CUDA_ARRAY3D_SURFACE_LDST,
                ..line
            },
        );
        // SAFETY: as above.
        check(unsafe { cuda.cuSurfRefSetArray(paper, onto, 0) });
        // SAFETY: as above.
        check(unsafe { cuda.cuTexRefSetArray(photo, from, CU_TRSA_OVERRIDE_FORMAT) });
        // SAFETY: as above.
        check(unsafe { cuda.cuTexRefSetFilterMode(photo, CU_TR_FILTER_MODE_LINEAR) });
        let to = allocate(&cuda, 32);
        let results = || {
            check(launch(&cuda, run, (1, 8), null_mut(), &mut [to]));
            let words = download(&cuda, to, 8, null_mut());
            words.into_iter().map(f32::from_bits).collect::<Vec<_>>()
        };
        let expected = [1.0, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0];
        assert_eq!(results(), expected);
        let written = read_array(&cuda, onto, [16, 1, 1]);
        assert_eq!(written[8..12], 1.5_f32.to_le_bytes());
        // Bound to memory behind an alignment: the program adds the offset to its coordinates.
        let memory = filled(&cuda, &[&[0; 8][..], &bytes].concat());
        let mut offset = 0;
        let place = &raw mut offset;
        // SAFETY: as above.
        check(unsafe { cuda.cuTexRefSetFormat(photo, CU_AD_FORMAT_FLOAT, 1) });
        // SAFETY: as above.
        check(unsafe { cuda.cuTexRefSetAddress_v2(place, photo, memory + 8, 16) });
        assert_eq!(offset, 8);
        assert_eq!(results(), [0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 2.0, 2.0]);
        // SAFETY: as above.
        check(unsafe { cuda.cuModuleUnload(program) });
        // SAFETY: as above.
        let gone = unsafe { cuda.cuTexRefSetFlags(photo, 0) };
        assert_eq!(gone, CUDA_ERROR_INVALID_HANDLE);
    }
}

#[test]
fn a_sampler_apart_says_how_a_texture_is_read() {
    for tier in TIERS {
        let cuda = on(tier);
        let line = array(&cuda, described([4, 0, 0], CU_AD_FORMAT_FLOAT, 1));
        let bytes: Vec<u8> = (1..5).flat_map(|at| (at as f32).to_le_bytes()).collect();
        write_array(&cuda, line, [16, 1, 1], &bytes);
        let object = texture(&cuda, &over(line), &PLAIN).expect("a texture");
        let text = program(
            &format!("tex.1d.v4.f32.f32 {RESULTS}, [h, how, {{a0}}];"),
            1,
        );
        let text = text.replace(
            ".visible .entry",
            ".global .samplerref how = {addr_mode_0 = wrap, filter_mode = linear};\n.visible .entry",
        );
        let image = CStr::from_bytes_with_nul(text.as_bytes()).expect("text");
        let run = function(&cuda, module(&cuda, image).expect("a module"), c"run");
        let from = filled(&cuda, &1.0_f32.to_le_bytes());
        let to = allocate(&cuda, 16);
        check(launch(
            &cuda,
            run,
            (1, 1),
            null_mut(),
            &mut [object, from, to],
        ));
        // Between the last and the first.
        assert_eq!(f32::from_bits(download(&cuda, to, 1, null_mut())[0]), 2.5);
    }
}
