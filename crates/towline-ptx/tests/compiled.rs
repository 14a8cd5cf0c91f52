//! What nvcc made of the kernels beside `tests/data/regenerate.sh`: every form of container, machine code and PTX of the same source.

use towline_ptx::cubin::{Cubin, Space};
use towline_ptx::fatbin::{self, Codec, Container, EntryKind, Program};
use towline_ptx::image::{self, Extent, Kind};
use towline_ptx::parameters;
use towline_ptx::ptx::{self, Module, layout};
use towline_ptx::{ComputeCapability, Error};

const DEFAULT: &[u8] = include_bytes!("data/tiny-default.fatbin");
const NONE: &[u8] = include_bytes!("data/tiny-none.fatbin");
const SPEED: &[u8] = include_bytes!("data/tiny-speed.fatbin");
const SIZE: &[u8] = include_bytes!("data/tiny-size.fatbin");
const KERNELS: &[u8] = include_bytes!("data/kernels.fatbin");
const CONCATENATED: &[u8] = include_bytes!("data/concatenated.fatbin");
const LARGE: &[u8] = include_bytes!("data/large.fatbin");

fn programs(container: &[u8]) -> Vec<Program<'_>> {
    let container = Container::parse(container).expect("a container");
    container.programs().expect("whole programs")
}

fn names(container: &[u8]) -> Vec<(EntryKind, String, Option<Codec>)> {
    let describe =
        |program: Program<'_>| (program.kind, program.arch.to_string(), program.entry.codec);
    programs(container).into_iter().map(describe).collect()
}

/// The decompressed programs of one kind.
fn images(container: &[u8], kind: EntryKind) -> Vec<Vec<u8>> {
    programs(container)
        .iter()
        .filter(|program| program.kind == kind)
        .map(|program| program.image().expect("an image"))
        .collect()
}

/// Names and places of a kernel's parameters, from machine code.
fn cubin_layout(cubin: &Cubin<'_>) -> Vec<(String, Vec<(u64, u64)>)> {
    let mut kernels: Vec<_> = cubin
        .kernels
        .iter()
        .map(|kernel| {
            let name = String::from_utf8(kernel.name.to_vec()).expect("a name");
            let place =
                |one: &towline_ptx::cubin::info::Parameter| (one.offset.into(), one.len.into());
            (name, kernel.parameters.iter().map(place).collect())
        })
        .collect();
    kernels.sort();
    kernels
}

/// The same from PTX.
fn ptx_layout(module: &Module<'_>) -> Vec<(String, Vec<(u64, u64)>)> {
    let mut kernels: Vec<_> = module
        .kernels()
        .map(|kernel| {
            let placements = layout::parameters(kernel).expect("parameters have lengths");
            let places = placements.iter().map(|one| (one.offset, one.len));
            (kernel.name.to_owned(), places.collect())
        })
        .collect();
    kernels.sort();
    kernels
}

#[test]
fn every_mode_of_compression_is_recognised() {
    let elf = |codec| (EntryKind::Elf, "90".to_owned(), codec);
    let ptx = |codec| (EntryKind::Ptx, "90".to_owned(), codec);
    assert_eq!(names(DEFAULT), [elf(None), ptx(Some(Codec::Zstd))]);
    assert_eq!(names(NONE), [elf(None), ptx(None)]);
    assert_eq!(names(SPEED), [elf(None), ptx(Some(Codec::Lz4))]);
    assert_eq!(
        names(SIZE),
        [elf(Some(Codec::Zstd)), ptx(Some(Codec::Zstd))]
    );
}

#[test]
fn what_was_compressed_is_what_was_not() {
    let machine_code = images(NONE, EntryKind::Elf);
    let text = images(NONE, EntryKind::Ptx);
    for container in [DEFAULT, SPEED, SIZE] {
        assert_eq!(images(container, EntryKind::Elf), machine_code);
        assert_eq!(images(container, EntryKind::Ptx), text);
    }
}

#[test]
fn programs_that_are_compressed_as_one_are_told_apart() {
    let mut listed = names(CONCATENATED);
    listed.sort_by_key(|(kind, arch, _)| (*kind == EntryKind::Elf, arch.clone()));
    let zstd = Some(Codec::Zstd);
    assert_eq!(
        listed,
        [
            (EntryKind::Ptx, "75".into(), zstd),
            (EntryKind::Ptx, "90".into(), zstd),
            (EntryKind::Elf, "100f".into(), zstd),
            (EntryKind::Elf, "103a".into(), zstd),
            (EntryKind::Elf, "75".into(), zstd),
            (EntryKind::Elf, "90".into(), zstd),
        ]
    );
    let container = Container::parse(CONCATENATED).expect("a container");
    assert!(container.entries().count() < listed.len());
    for program in programs(CONCATENATED) {
        let image = program.image().expect("an image");
        match program.kind {
            EntryKind::Elf => {
                let cubin = Cubin::parse(&image).expect("a cubin");
                assert_eq!(cubin.arch.number, program.arch.number);
                let extent = image::extent(&image).expect("machine code");
                let Extent::Known(Kind::Elf, len) = extent else {
                    panic!("{extent:?}");
                };
                assert_eq!(len.next_multiple_of(8), image.len() as u64);
            }
            _ => {
                let text = ptx::text(&image).expect("text");
                let target = format!("sm_{}", program.arch);
                assert_eq!(Module::parse(text).expect("a module").target, [target]);
            }
        }
    }
}

#[test]
fn every_variant_of_an_architecture_is_recognised() {
    let machine_code: Vec<_> = names(KERNELS)
        .into_iter()
        .filter_map(|(kind, arch, _)| (kind == EntryKind::Elf).then_some(arch))
        .collect();
    assert_eq!(
        machine_code,
        ["75", "80", "90", "90a", "100f", "103a", "120"]
    );
}

#[test]
fn machine_code_says_the_same_architecture_as_its_entry() {
    for program in programs(KERNELS) {
        if program.kind != EntryKind::Elf {
            continue;
        }
        let image = program.image().expect("an image");
        let cubin = Cubin::parse(&image).expect("a cubin");
        assert_eq!(cubin.arch.number, program.arch.number);
        // A cubin says nothing of families.
        let specific = |arch: towline_ptx::Arch| arch.variant == towline_ptx::Variant::Specific;
        assert_eq!(
            specific(cubin.arch),
            specific(program.arch),
            "{}",
            program.arch
        );
    }
}

#[test]
fn every_device_is_served_what_the_driver_would_choose() {
    let chosen = |major, minor| {
        fatbin::choose(programs(KERNELS), ComputeCapability::new(major, minor))
            .map(|program| format!("{:?} {}", program.kind, program.arch))
    };
    assert_eq!(chosen(7, 0), None);
    assert_eq!(chosen(7, 5).as_deref(), Some("Elf 75"));
    assert_eq!(chosen(8, 9).as_deref(), Some("Elf 80"));
    assert_eq!(chosen(9, 0).as_deref(), Some("Elf 90a"));
    assert_eq!(chosen(10, 0).as_deref(), Some("Elf 100f"));
    assert_eq!(chosen(10, 3).as_deref(), Some("Elf 103a"));
    assert_eq!(chosen(11, 0).as_deref(), Some("Ptx 100"));
    assert_eq!(chosen(12, 1).as_deref(), Some("Elf 120"));
}

#[test]
fn what_is_selected_is_a_container_of_that_entry() {
    let device = ComputeCapability::new(8, 6);
    let alone = fatbin::select(KERNELS, device)
        .expect("a container")
        .expect("an entry that fits");
    assert!(alone.len() < KERNELS.len() / 5);
    let chosen = fatbin::choose(programs(KERNELS), device).expect("an entry that fits");
    let kept = programs(&alone);
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].entry, chosen.entry);
    assert_eq!(
        image::extent(&alone),
        Ok(Extent::Known(Kind::Container, alone.len() as u64))
    );
    // Nothing is left to choose.
    assert_eq!(fatbin::select(&alone, device), Ok(Some(alone)));
}

#[test]
fn parameters_lie_where_machine_code_and_text_agree() {
    let mut compared = 0;
    for container in [SIZE, KERNELS, LARGE] {
        for text in images(container, EntryKind::Ptx) {
            let module = Module::parse(ptx::text(&text).expect("text")).expect("a module");
            for machine_code in images(container, EntryKind::Elf) {
                let cubin = Cubin::parse(&machine_code).expect("a cubin");
                assert_eq!(cubin_layout(&cubin), ptx_layout(&module));
                compared += cubin.kernels.len();
            }
        }
    }
    assert_eq!(compared, 1 + 3 * 7 * 9 + 3);
}

#[test]
fn parameters_lie_where_the_compiler_was_told() {
    for machine_code in images(KERNELS, EntryKind::Elf) {
        let cubin = Cubin::parse(&machine_code).expect("a cubin");
        let places = |name: &str| -> Vec<_> {
            let kernel = cubin.kernel(name.as_bytes()).expect("a kernel");
            let all = kernel.parameters.iter();
            all.map(|parameter| (parameter.offset, parameter.len))
                .collect()
        };
        assert_eq!(places("no_parameters"), []);
        assert_eq!(
            places("padded"),
            [
                (0, 1),
                (1, 3),
                (4, 1),
                (8, 24),
                (32, 1),
                (40, 72),
                (112, 3),
                (128, 32),
                (160, 1)
            ]
        );
        assert_eq!(places("unused"), [(0, 1), (1, 1), (4, 4), (16, 32)]);
        assert_eq!(places("large"), [(0, 4000), (4000, 4), (4008, 8)]);
        for kernel in &cubin.kernels {
            let end = kernel
                .parameters
                .last()
                .map_or(0, |last| last.offset + last.len);
            assert_eq!(kernel.parameter_bytes.unwrap_or(0), end);
        }
    }
}

#[test]
fn kernels_and_variables_are_described() {
    for machine_code in images(KERNELS, EntryKind::Elf) {
        let cubin = Cubin::parse(&machine_code).expect("a cubin");
        let reduce = cubin.kernel(b"reduce").expect("a kernel");
        assert_eq!(reduce.shared_bytes, 512);
        assert_eq!(reduce.max_threads, Some([128, 1, 1]));
        assert_eq!(reduce.barriers, Some(1));
        assert_eq!(reduce.register_limit, Some(128));
        assert!(
            reduce
                .registers
                .is_some_and(|count| (4..=128).contains(&count))
        );
        let saxpy = cubin.kernel(b"saxpy").expect("a kernel");
        assert_eq!(saxpy.shared_bytes, 0);
        assert_eq!(saxpy.max_threads, None);
        let variables: Vec<_> = cubin
            .variables
            .iter()
            .map(|variable| (variable.name, variable.space, variable.len))
            .collect();
        assert_eq!(
            variables,
            [
                (&b"coefficients"[..], Space::Constant, 68),
                (b"counter", Space::Global, 4),
                (b"table", Space::Global, 96),
                (b"shared_with_host", Space::Managed, 8),
            ]
        );
    }
}

#[test]
fn large_parameters_recursion_and_clusters_are_described() {
    let machine_code = images(LARGE, EntryKind::Elf).remove(0);
    let cubin = Cubin::parse(&machine_code).expect("a cubin");
    let big = cubin.kernel(b"big").expect("a kernel");
    let lengths: Vec<_> = big
        .parameters
        .iter()
        .map(|parameter| parameter.len)
        .collect();
    assert_eq!(lengths, [1, 12_000, 20_000, 4, 8]);
    assert_eq!(big.parameters_at, Some(0x210));
    let clustered = cubin.kernel(b"clustered").expect("a kernel");
    assert_eq!(clustered.cluster, Some([2, 1, 1]));
    let recursive = cubin.kernel(b"recursive").expect("a kernel");
    assert_eq!(recursive.stack_bytes, None);
    assert_eq!(recursive.frame_bytes, Some(80));
    // A function that is no kernel is none.
    assert_eq!(cubin.kernels.len(), 3);
}

#[test]
fn text_prints_as_text_that_reads_the_same() {
    for container in [SIZE, KERNELS, LARGE] {
        for text in images(container, EntryKind::Ptx) {
            let module = Module::parse(ptx::text(&text).expect("text")).expect("a module");
            let printed = module.to_string();
            assert_eq!(Module::parse(&printed).as_ref(), Ok(&module));
        }
    }
}

#[test]
fn the_end_of_machine_code_is_found_without_reading_past_it() {
    for machine_code in images(KERNELS, EntryKind::Elf) {
        let mut seen = 0;
        let len = loop {
            match image::extent(&machine_code[..seen]).expect("a cubin") {
                Extent::Known(kind, len) => {
                    assert_eq!(kind, Kind::Elf);
                    break len;
                }
                Extent::Unknown(wanted) => seen = usize::try_from(wanted).expect("small"),
            }
        };
        assert_eq!(len, machine_code.len() as u64);
    }
}

#[test]
fn no_cut_of_an_image_is_one() {
    let machine_code = images(SIZE, EntryKind::Elf).remove(0);
    let whole = Cubin::parse(&machine_code);
    for len in 0..machine_code.len() {
        // What is said before its segments, which lie last, does not depend on them.
        let cut = Cubin::parse(&machine_code[..len]);
        assert!(cut.is_err() || cut == whole);
    }
    for len in 0..KERNELS.len() {
        let refused = fatbin::select(&KERNELS[..len], ComputeCapability::new(9, 0));
        assert!(matches!(refused, Err(Error::Truncated { .. })));
    }
}

#[test]
fn parameters_alone_are_those_of_the_whole_image() {
    for container in [DEFAULT, NONE, SPEED, SIZE, KERNELS, CONCATENATED, LARGE] {
        for program in programs(container) {
            let image = program.image().expect("an image");
            let expected = match program.kind {
                EntryKind::Elf => cubin_layout(&Cubin::parse(&image).expect("a cubin")),
                _ => {
                    let text = ptx::text(&image).expect("text");
                    ptx_layout(&Module::parse(text).expect("a module"))
                }
            };
            let kernels = parameters::of_program(&program).expect("an image");
            let kernels = kernels.expect("machine code or PTX");
            assert!(kernels.len() >= expected.len() && !expected.is_empty());
            for (name, places) in expected {
                let found = kernels.get(name.as_bytes()).expect("the kernel is there");
                let found = found.as_ref().expect("its parameters can be read").iter();
                let found: Vec<_> = found
                    .map(|one| (one.offset.into(), one.len.into()))
                    .collect();
                assert_eq!(found, places, "{name}");
            }
        }
    }
}
