//! What is translated, and what is not; how code is kept.

mod quads;

use std::sync::Arc;

use super::{Cache, Compiled, Refusal};
use crate::image::{Image, Kernel};
use crate::measure::{Shape, Subject};
use crate::memory::Arena;

fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_75\n.address_size 64\n.extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .func (.reg .b32 x) down(.reg .b32 a) {{ .reg .pred p; setp.eq.u32 p, a, 0; @p bra end; sub.u32 a, a, 1; call (x), down, (a);\n\
         end: ret; }}\n\
         .visible .entry k(.param .u64 out) {{ .shared .b32 s[64]; .reg .b64 d<4>; .reg .b32 t, a<4>; .reg .pred p;\n\
         ld.param.u64 d0, [out]; mov.u32 t, %tid.x; {body} ret; }}"
    )
}

fn loaded(text: &str) -> Kernel {
    let arena = Arc::new(Arena::reserve(1 << 20).expect("memory"));
    let image = Arc::new(Image::load(text.to_owned(), &arena, 0).expect("a module"));
    let id = image.program.kernel("k").expect("a kernel");
    image.kernel(id).expect("it runs here")
}

fn refusal(body: &str) -> Refusal {
    Compiled::new(&loaded(&kernel(body))).expect_err("not translated")
}

#[test]
fn what_is_not_translated_says_why() {
    assert_eq!(
        refusal("activemask.b32 a0;"),
        Refusal::Instruction("activemask")
    );
    assert_eq!(refusal("ld.volatile.shared.u32 a0, [s];"), Refusal::InStep);
    assert_eq!(
        refusal("call (a0), down, (t);"),
        Refusal::Call("`down` calls itself".into())
    );
    let printing = "{ .param .b64 f; .param .b64 a; .param .b32 r; call (r), vprintf, (f, a); }";
    assert_eq!(
        refusal(printing),
        Refusal::Call("a call of `vprintf`".into())
    );
    let indirect =
        "call (a0), d0, (t), proto; proto: .callprototype (.reg .b32 _) _ (.reg .b32 _);";
    assert_eq!(
        refusal(indirect),
        Refusal::Call("a call of what an address points to".into())
    );
}

#[test]
fn code_can_be_written_or_executed_and_never_both() {
    let code = Compiled::new(&loaded(&kernel("st.global.u32 [d0], t;"))).expect("code");
    assert!(code.code_bytes > 0);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the list of mappings");
    let both = maps.lines().find(|line| line.contains(" rwx"));
    assert_eq!(both, None);
}

#[test]
fn a_module_that_is_loaded_again_is_not_compiled_again() {
    let cache = Cache::default();
    let text = kernel("st.global.u32 [d0], t;");
    let first = cache.get(&loaded(&text)).expect("code");
    let again = cache.get(&loaded(&text)).expect("code");
    assert!(Arc::ptr_eq(&first, &again));
    let other = cache.get(&loaded(&kernel("st.global.u32 [d0+4], t;")));
    assert!(!Arc::ptr_eq(&first, &other.expect("code")));
}

#[test]
fn what_a_block_leaves_at_a_barrier_is_no_other_blocks() {
    // In the first block the first warp arrives and does not wait; in the second the second waits for it in vain.
    let text = kernel(
        "mov.u32 a0, %ctaid.x; shr.u32 a1, t, 5; setp.ne.u32 p, a0, a1; @p exit; setp.eq.u32 p, a0, 1; @p bra wait;\n\
         bar.arrive 1, 64; exit; wait: bar.sync 1, 64;",
    );
    let mut subject = Subject::new(&text, "k").expect("a module");
    subject.compile().expect("code");
    for compiled in [false, true] {
        let shape = Shape {
            grid: [2, 1, 1],
            block: [64, 1, 1],
            host_threads: 1,
            compiled,
        };
        let outcome = subject.launch(shape, &[0; 8]).expect_err("a deadlock");
        assert!(outcome.contains("wait for each other"), "{outcome}");
    }
}

#[test]
fn variables_are_found_where_each_copy_of_the_module_has_them() {
    // The same code serves two images, whose variables lie elsewhere.
    let text = kernel("").replace(".visible .entry", ".global .b32 here;\n.visible .entry");
    let text = text.replace(
        "mov.u32 t, %tid.x;",
        "mov.u32 t, 7; st.global.u32 [here], t;",
    );
    let cache = Cache::default();
    let arena = Arc::new(Arena::reserve(1 << 20).expect("memory"));
    let images = [0, 1].map(|_| Arc::new(Image::load(text.clone(), &arena, 0).expect("a module")));
    let codes = images.each_ref().map(|image| {
        let id = image.program.kernel("k").expect("a kernel");
        let kernel = image.kernel(id).expect("it runs here");
        let code = cache.get(&kernel).expect("code");
        crate::measure::run_once(kernel, Arc::clone(&code), &arena).expect("no fault");
        code
    });
    assert!(Arc::ptr_eq(&codes[0], &codes[1]));
    for image in images {
        let (address, len) = image.global("here").expect("a variable");
        let mut bytes = [0; 4];
        assert!(
            arena
                .range(address, len)
                .expect("memory")
                .read(address, &mut bytes)
        );
        assert_eq!(bytes, [7, 0, 0, 0]);
    }
}

/// What a kernel of 40 threads, which takes memory of so many bytes, leaves there in both tiers, or how it fails.
fn in_both_tiers(body: &str, bytes: usize) -> [Result<Vec<u8>, String>; 2] {
    of_threads([40, 1, 1], body, &vec![7; bytes])
}

/// The same for a block of any threads, with these bytes in its memory.
fn of_threads(block: [u32; 3], body: &str, bytes: &[u8]) -> [Result<Vec<u8>, String>; 2] {
    let mut subject = Subject::new(&kernel(body), "k").expect("a module");
    subject.compile().expect("code");
    [false, true].map(|compiled| {
        let memory = subject.memory(bytes).expect("memory");
        let shape = Shape {
            grid: [1, 1, 1],
            block,
            host_threads: 1,
            compiled,
        };
        let mut left = vec![0; bytes.len()];
        let outcome = subject.launch(shape, &memory.to_le_bytes());
        let outcome = outcome.and_then(|_| subject.read(memory, &mut left));
        subject.free(memory);
        outcome.map(|()| left)
    })
}

#[test]
fn of_accesses_that_are_checked_together_the_one_that_fails_is_named() {
    let around = "mul.wide.u32 d1, t, 16; add.u64 d2, d0, d1; ld.global.u32 a0, [d2+8]; ld.global.u32 a1, [d2]; add.u32 a0, a0, a1;\n\
                  ld.global.u32 a1, [d2+12]; add.u32 a0, a0, a1; st.global.u32 [d2+4], a0;";
    let [interpreted, compiled] = in_both_tiers(around, 16 * 40);
    assert!(interpreted.is_ok(), "{interpreted:?}");
    assert_eq!(interpreted, compiled);
    // The last thread's third load lies outside.
    let [interpreted, compiled] = in_both_tiers(around, 16 * 40 - 4);
    let told = compiled.expect_err("a fault");
    assert!(told.contains("thread (39, 0, 0)"), "{told}");
    assert!(told.contains("line 9, column 1"), "{told}");
    assert_eq!(interpreted, Err(told));
}

#[test]
fn of_a_load_and_a_store_that_are_checked_together_the_store_is_named() {
    let beside = "mov.u32 a3, s; ld.shared.u32 a0, [a3+252]; st.shared.u32 [a3+256], a0;";
    let [interpreted, compiled] = in_both_tiers(beside, 4);
    assert!(compiled.is_err());
    assert_eq!(interpreted, compiled);
}

#[test]
fn what_is_written_on_one_way_only_lasts_over_stops() {
    // Threads take either way between meetings, and what they keep is looked at only behind the next but one.
    let body = "mul.wide.u32 d1, t, 4; add.u64 d1, d0, d1; mov.u32 a0, t; mov.u32 a1, 0; and.b32 a2, t, 3;\n\
        loop: setp.eq.u32 p, a2, 1; @p bra other; add.u32 a0, a0, 5; other: bar.warp.sync -1; shfl.sync.bfly.b32 a3, a2, 1, 31, -1;\n\
        bar.sync 0; add.u32 a1, a1, 1; setp.lt.u32 p, a1, 9; @p bra loop; add.u32 a0, a0, a3; st.global.u32 [d1], a0;";
    let [interpreted, compiled] = in_both_tiers(body, 160);
    assert!(interpreted.is_ok(), "{interpreted:?}");
    assert_eq!(interpreted, compiled);
}

#[test]
fn kernels_with_many_stops_in_loops_have_one_region() {
    // From each stop all others can be reached, and none lies between.
    let ways: String = (0..40)
        .map(|way| format!("setp.eq.u32 p, a2, {way}; @p bra w{way};\n"))
        .collect();
    let stops: String = (0..40)
        .map(|way| {
            format!(
                "w{way}: shfl.sync.down.b32 a3, a0, 1, 31, -1; add.u32 a0, a3, {way}; bra loop;\n"
            )
        })
        .collect();
    let body = format!(
        "mul.wide.u32 d1, t, 4; add.u64 d1, d0, d1; mov.u32 a0, t; mov.u32 a2, -1;\n\
         loop: add.u32 a2, a2, 1; {ways} st.global.u32 [d1], a0; exit; {stops}"
    );
    let [interpreted, compiled] = in_both_tiers(&body, 160);
    assert!(interpreted.is_ok(), "{interpreted:?}");
    assert_eq!(interpreted, compiled);
}

#[test]
fn a_branch_may_go_to_the_next_instruction() {
    let body = "mul.wide.u32 d1, t, 4; add.u64 d1, d0, d1; bra here; here: st.global.u32 [d1], t; setp.lt.u32 p, t, 3; @p bra there;\n\
                there: st.global.u32 [d1], t;";
    let [interpreted, compiled] = in_both_tiers(body, 160);
    assert!(interpreted.is_ok(), "{interpreted:?}");
    assert_eq!(interpreted, compiled);
}

#[test]
fn a_block_that_polls_and_meets_lets_others_start() {
    // The first block waits for the second, and exchanges what it has seen before it looks again.
    let text = kernel(
        "mov.u32 a0, %ctaid.x; setp.ne.u32 p, a0, 0; @p bra tell; look: ld.volatile.global.u32 a1, [d0];\n\
         shfl.sync.idx.b32 a1, a1, 0, 31, -1; setp.eq.u32 p, a1, 0; @p bra look; st.global.u32 [d0+4], a1; exit;\n\
         tell: st.volatile.global.u32 [d0], 3;",
    );
    for compiled in [false, true] {
        let mut subject = Subject::new(&text, "k").expect("a module");
        subject.compile().expect("code");
        let memory = subject.memory(&[0; 8]).expect("memory");
        let shape = Shape {
            grid: [2, 1, 1],
            block: [32, 1, 1],
            host_threads: 1,
            compiled,
        };
        let outcome = subject.launch(shape, &memory.to_le_bytes());
        outcome.expect("no fault");
        let mut left = [0; 8];
        subject.read(memory, &mut left).expect("memory");
        assert_eq!(left, [3, 0, 0, 0, 3, 0, 0, 0], "compiled: {compiled}");
    }
}

#[test]
fn long_chains_of_functions_are_not_translated() {
    let functions: String = (1..200)
        .map(|number| format!(".func f{number}() {{ call f{}; ret; }}\n", number - 1))
        .collect();
    let text = kernel("call f199;").replace(
        ".visible .entry",
        &format!(".func f0() {{ ret; }}\n{functions}.visible .entry"),
    );
    assert_eq!(
        Compiled::new(&loaded(&text)).expect_err("too long"),
        Refusal::Large
    );
}
