//! No bytes make a decoder panic, and what it says of whole ones does not depend on what is behind them.

use proptest::prelude::*;
use towline_ptx::ComputeCapability;
use towline_ptx::cubin::Cubin;
use towline_ptx::fatbin::{self, Container};
use towline_ptx::image;
use towline_ptx::ir::Program;
use towline_ptx::ptx::{self, Module, layout};

const SIZE: &[u8] = include_bytes!("data/tiny-size.fatbin");
const CONCATENATED: &[u8] = include_bytes!("data/concatenated.fatbin");
const SPEED: &[u8] = include_bytes!("data/tiny-speed.fatbin");

/// An image with some of its bytes changed.
fn damaged(image: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let places = 0..image.len();
    prop::collection::vec((places, any::<u8>()), 0..16).prop_map(move |changes| {
        let mut image = image.clone();
        for (place, byte) in changes {
            image[place] = byte;
        }
        image
    })
}

fn decompressed(container: &[u8], index: usize) -> Vec<u8> {
    let container = Container::parse(container).expect("a container");
    let programs = container.programs().expect("whole programs");
    programs[index].image().expect("an image")
}

fn read_container(bytes: &[u8]) {
    let _ = image::extent(bytes);
    for container in fatbin::containers(bytes).flatten() {
        for entry in container.entries().flatten() {
            let programs = entry.programs().unwrap_or_default();
            for program in programs.iter().take(4) {
                let _ = program.image();
            }
        }
    }
    let _ = fatbin::select(bytes, ComputeCapability::new(9, 0));
}

fn read_text(bytes: &[u8]) {
    let Ok(text) = ptx::text(bytes) else {
        return;
    };
    let Ok(module) = Module::parse(text) else {
        return;
    };
    for kernel in module.kernels() {
        let _ = layout::parameters(kernel);
    }
    let _ = Program::link(std::slice::from_ref(&module));
    let printed = module.to_string();
    assert_eq!(Module::parse(&printed).as_ref(), Ok(&module), "{printed}");
}

/// Words that a module is made of, in any order.
fn word_salad() -> impl Strategy<Value = String> {
    let words = prop::sample::select(vec![
        ".version",
        "8.0",
        ".target",
        "sm_90",
        ".entry",
        ".func",
        ".visible",
        ".extern",
        ".param",
        ".reg",
        ".b32",
        ".u64",
        ".align",
        "4",
        "0x10",
        "name",
        "%r1",
        "%p<3>",
        "(",
        ")",
        "{",
        "}",
        "[",
        "]",
        ",",
        ";",
        ":",
        "+",
        "-",
        "!",
        "@",
        "|",
        "?",
        "=",
        ".loc",
        ".pragma",
        "\"text\"",
        "ld",
        ".global",
        "ret",
        ".section",
        ".debug",
        ".callprototype",
        "_",
        ".ptr",
    ]);
    prop::collection::vec(words, 0..60).prop_map(|words| {
        format!(
            ".version 8.0 .target sm_90 .func f() {{ {} }}",
            words.join(" ")
        )
    })
}

proptest! {
    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        read_container(&bytes);
        let _ = Cubin::parse(&bytes);
        read_text(&bytes);
    }

    #[test]
    fn no_damage_to_a_container_makes_a_decoder_panic(bytes in prop_oneof![damaged(SIZE.to_vec()), damaged(SPEED.to_vec()), damaged(CONCATENATED.to_vec())]) {
        read_container(&bytes);
    }

    #[test]
    fn no_damage_to_machine_code_makes_a_decoder_panic(bytes in damaged(decompressed(SIZE, 0))) {
        let _ = image::extent(&bytes);
        let _ = Cubin::parse(&bytes);
    }

    #[test]
    fn no_damage_to_text_makes_a_decoder_panic(bytes in damaged(decompressed(SIZE, 1))) {
        read_text(&bytes);
    }

    #[test]
    fn no_order_of_words_makes_a_parser_panic(text in word_salad()) {
        read_text(text.as_bytes());
    }

    #[test]
    fn what_is_behind_an_image_does_not_matter(tail in prop::collection::vec(any::<u8>(), 0..64)) {
        let code = decompressed(SIZE, 0);
        let followed = [code.as_slice(), &tail].concat();
        prop_assert_eq!(image::extent(&followed), image::extent(&code));
        let container = [SIZE, &tail].concat();
        prop_assert_eq!(image::extent(&container), image::extent(SIZE));
        let device = ComputeCapability::new(9, 0);
        prop_assert_eq!(fatbin::select(&container, device), fatbin::select(SIZE, device));
    }
}
