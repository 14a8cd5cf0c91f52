//! Kernels carried out: control flow, threads that meet, memory, what goes wrong.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use super::*;
use crate::fault::{Fault, FaultKind};
use crate::image::Image;
use crate::memory::Purpose;

thread_local! {
    /// Launches of this thread's test compile their kernels.
    static COMPILES: Cell<bool> = const { Cell::new(false) };
}

/// What a test of compiled kernels runs.
fn compiled(kernel: &Kernel) -> Option<Arc<Compiled>> {
    let code = COMPILES.get().then(|| Compiled::new(kernel));
    code.map(|code| Arc::new(code.expect("all of it is translated")))
}

/// The tests of kernels that can be compiled once more, with them compiled.
macro_rules! also_compiled {
    ($($name:ident,)*) => {
        mod compiled_too {
            $(#[test]
            fn $name() {
                super::COMPILES.set(true);
                super::$name();
            })*
        }
    };
}

also_compiled! {
    a_lane_that_holds_a_lock_is_not_starved,
    atomic_sums_of_many_blocks_are_exact,
    ballots_do_not_wait_for_lanes_that_have_ended,
    barriers_hold_a_whole_block,
    blocks_that_wait_for_all_others_find_them,
    carries_and_packed_values_travel_between_instructions,
    copies_to_shared_memory_are_there_after_the_wait,
    dynamic_shared_memory_is_behind_the_static,
    every_way_to_fail_has_its_kind,
    loops_run_as_often_as_each_lane_wants,
    outcomes_of_pairs_may_be_what_guards_them,
    parts_of_words_are_computed_with_and_put_in_their_place,
    shuffles_wait_for_lanes_that_come_by_another_way,
    spaces_have_generic_addresses,
    tables_of_targets_are_branched_into,
    threads_that_wait_for_each_other_in_vain_are_told,
    wild_accesses_name_thread_address_and_instruction,
}

mod launches;
mod matrices;
mod mbarriers;

/// A device with one module.
struct Bench {
    arena: Arc<Arena>,
    image: Arc<Image>,
    printed: Arc<Mutex<Vec<u8>>>,
}

/// How to launch.
struct Shape {
    grid: u32,
    block: u32,
    dynamic_bytes: u32,
    host_threads: usize,
    resident_blocks: u64,
    time_limit: Option<Duration>,
}

const ONE_WARP: Shape = Shape {
    grid: 1,
    block: 32,
    dynamic_bytes: 0,
    host_threads: 1,
    resident_blocks: 64,
    time_limit: None,
};

impl Bench {
    fn new(text: &str) -> Self {
        let arena = Arc::new(Arena::reserve(64 << 20).expect("memory"));
        let text = format!(".version 8.0\n.target sm_75\n.address_size 64\n{text}");
        let image = Image::load(text, &arena, 0).expect("a module");
        Self {
            arena,
            image: Arc::new(image),
            printed: Arc::default(),
        }
    }

    fn words(&self, words: &[u32]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let len = bytes.len() as u64;
        let address = self.arena.allocate(len, 0, Purpose::Device);
        let address = address.expect("room");
        let span = self.arena.range(address, len).expect("allocated");
        assert!(span.write(address, &bytes));
        address
    }

    fn read(&self, address: u64, count: usize) -> Vec<u32> {
        let mut bytes = vec![0; count * 4];
        let span = self.arena.span(address).expect("allocated");
        assert!(span.read(address, &mut bytes));
        let words = bytes.as_chunks::<4>().0;
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    }

    fn launch(&self, shape: Shape, parameters: &[u64]) -> Result<(), Box<Fault>> {
        let id = self.image.program.kernel("k").expect("a kernel");
        let kernel = self.image.kernel(id).expect("it runs here");
        let printed = Arc::clone(&self.printed);
        let print: Print = Arc::new(move |text| {
            let mut printed = printed.lock().unwrap_or_else(PoisonError::into_inner);
            printed.extend_from_slice(text);
        });
        let workspace = self.words(&[0; 4]);
        run(&Arc::new(Launch {
            shared_bytes: kernel.dynamic_start() + shape.dynamic_bytes,
            dynamic_bytes: shape.dynamic_bytes,
            code: compiled(&kernel),
            kernel,
            arena: Arc::clone(&self.arena),
            textures: Default::default(),
            device: 0,
            grid: [shape.grid, 1, 1],
            block: [shape.block, 1, 1],
            parameters: parameters
                .iter()
                .flat_map(|one| one.to_le_bytes())
                .collect(),
            resident_blocks: shape.resident_blocks,
            workspace,
            number: 1,
            host_threads: shape.host_threads,
            heap_bytes: 1 << 20,
            memory_limit: LAUNCH_LIMIT,
            started: Instant::now(),
            deadline: shape.time_limit.map(|limit| Instant::now() + limit),
            executed: AtomicU64::new(0),
            cancelled: Arc::new(AtomicBool::new(false)),
            print,
        }))
    }

    fn text(&self) -> String {
        let printed = self.printed.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&printed).into_owned()
    }
}

/// What `body` leaves in the 32 words that `out` points to, a word per thread in `r`, from `%tid.x` in `t`.
fn per_lane(body: &str) -> Vec<u32> {
    let bench = Bench::new(&kernel(body));
    let out = bench.words(&[0; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    bench.read(out, 32)
}

fn kernel(body: &str) -> String {
    format!(
        ".visible .entry k(.param .u64 block) {{\n.reg .b64 out, at; .reg .b32 t, r, a<9>; .reg .pred p<9>; .reg .f32 f<9>;\n\
         .reg .b64 d<9>; ld.param.u64 out, [block]; mov.u32 t, %tid.x; mul.wide.u32 at, t, 4; add.s64 at, at, out;\n\
         {body}\nst.global.u32 [at], r; ret; }}"
    )
}

#[test]
fn hints_for_caches_change_nothing() {
    let bench = Bench::new(&kernel(
        "createpolicy.fractional.L2::evict_first.L2::evict_unchanged.b64 d0, 0f3f000000; createpolicy.range.global.L2::evict_last.b64 d1, [out], 64, 128;\n\
         createpolicy.cvt.L2.b64 d2, d0; createpolicy.fractional.L2::evict_last.b64 d3; mul.wide.u32 d4, t, 4; add.u64 d4, d4, out;\n\
         cp.async.bulk.prefetch.L2.global [out], 64; cp.async.bulk.prefetch.L2.global.L2::cache_hint [out], 64, d3;\n\
         ld.global.L2::cache_hint.u32 r, [d4], d0; add.u32 r, r, 1;",
    ));
    let out = bench.words(&[7; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    assert_eq!(bench.read(out, 32), [8; 32]);
}

#[test]
fn ignored_sources_are_not_read() {
    let bench = Bench::new(&kernel(
        ".shared .align 16 .b8 s[512]; mov.u32 a0, s; shl.b32 a1, t, 4; add.u32 a0, a0, a1; mov.u32 a2, 9;\n\
         st.shared.v4.u32 [a0], {a2, a2, a2, a2}; setp.ge.u32 p0, t, 16; mov.u64 d0, 64; selp.u64 d0, d0, out, p0;\n\
         cp.async.cg.shared.global [a0], [d0], 16, p0; cp.async.wait_all; ld.shared.u32 r, [a0+4];",
    ));
    let out = bench.words(&[5; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    let expected: Vec<u32> = (0..32).map(|lane| if lane < 16 { 5 } else { 0 }).collect();
    assert_eq!(bench.read(out, 32), expected);
}

#[test]
fn copies_to_shared_memory_are_there_after_the_wait() {
    let bench = Bench::new(&kernel(
        ".shared .align 16 .b8 s[512]; mov.u32 a0, s; shl.b32 a1, t, 4; add.u32 a0, a0, a1; and.b32 a1, t, 7;\n\
         mul.wide.u32 d0, a1, 16; add.s64 d0, d0, out;\n\
         cp.async.cg.shared.global.L2::128B [a0], [d0+128], 16, 16; cp.async.commit_group; cp.async.wait_group 0;\n\
         ld.shared.u32 r, [a0+12]; and.b32 a2, t, 15; cp.async.ca.shared.global [a0], [d0+128], 16, a2; cp.async.wait_all;\n\
         ld.shared.v4.u32 {a3, a4, a5, a6}, [a0]; add.u32 r, r, a3; add.u32 r, r, a4; add.u32 r, r, a5; add.u32 r, r, a6;\n\
         setp.eq.u32 p0, t, 3; mov.u32 a3, 0; st.shared.u32 [a0], a3; @p0 cp.async.ca.shared.global [a0], [d0+128], 4;\n\
         ld.shared.u32 a3, [a0]; add.u32 r, r, a3;",
    ));
    let words: Vec<u32> = (0..64).map(|word| word * 0x0101_0101).collect();
    let out = bench.words(&words);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    let expected: Vec<u32> = (0..32_usize)
        .map(|t| {
            let from = &words[32 + (t & 7) * 4..][..4];
            let mut start: Vec<u8> = from.iter().flat_map(|word| word.to_le_bytes()).collect();
            start[t & 15..].fill(0);
            let start = start
                .as_chunks::<4>()
                .0
                .iter()
                .map(|word| u32::from_le_bytes(*word));
            let sum = start.fold(from[3], u32::wrapping_add);
            sum.wrapping_add(if t == 3 { from[0] } else { 0 })
        })
        .collect();
    assert_eq!(bench.read(out, 32), expected);
}

#[test]
fn lanes_that_part_meet_again() {
    let found = per_lane(
        "and.b32 a0, t, 1; setp.eq.u32 p0, a0, 0; @p0 bra even; mul.lo.u32 r, t, 10; bra both; even: mov.u32 r, 7;\n\
         both: activemask.b32 a1; add.u32 r, r, a1;",
    );
    let expected: Vec<u32> = (0..32_u32)
        .map(|lane| (if lane % 2 == 0 { 7 } else { lane * 10 }).wrapping_add(u32::MAX))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn loops_run_as_often_as_each_lane_wants() {
    let found = per_lane(
        "mov.u32 r, 0; mov.u32 a0, 0; again: setp.ge.u32 p0, a0, t; @p0 bra done; add.u32 a0, a0, 1; add.u32 r, r, a0;\n\
         bra again; done:",
    );
    let expected: Vec<u32> = (0..32).map(|lane| lane * (lane + 1) / 2).collect();
    assert_eq!(found, expected);
}

#[test]
fn shuffles_wait_for_lanes_that_come_by_another_way() {
    // Each half shuffles at a place of its own, with a mask that names all.
    let found = per_lane(
        "setp.lt.u32 p0, t, 16; @p0 bra low; shfl.sync.bfly.b32 r, t, 16, 31, -1; bra both;\n\
         low: add.u32 a0, t, 100; shfl.sync.bfly.b32 r, a0, 16, 31, -1; both:",
    );
    let expected: Vec<u32> = (0..32)
        .map(|lane| if lane < 16 { lane + 16 } else { lane + 84 })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn ballots_do_not_wait_for_lanes_that_have_ended() {
    let bench = Bench::new(&kernel(
        "setp.ge.u32 p0, t, 8; @p0 exit; setp.lt.u32 p1, t, 3; vote.sync.ballot.b32 r, p1, -1;",
    ));
    let out = bench.words(&[9; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    assert_eq!(bench.read(out, 9), [7, 7, 7, 7, 7, 7, 7, 7, 9]);
}

#[test]
fn a_lane_that_holds_a_lock_is_not_starved() {
    let variables = ".global .b32 lock;\n.global .b32 sum;\n";
    let body = "mov.u32 r, 0; try: atom.global.cas.b32 a0, [lock], 0, 1; setp.ne.u32 p0, a0, 0; @p0 bra try;\n\
         ld.global.u32 a1, [sum]; add.u32 a1, a1, 1; st.global.u32 [sum], a1; membar.gl; atom.global.exch.b32 a2, [lock], 0;\n\
         mov.u32 r, a1;";
    let bench = Bench::new(&format!("{variables}{}", kernel(body)));
    let out = bench.words(&[0; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    let mut order = bench.read(out, 32);
    order.sort_unstable();
    assert_eq!(order, (1..=32).collect::<Vec<_>>());
}

#[test]
fn barriers_hold_a_whole_block() {
    let text = ".visible .entry k(.param .u64 block) { .shared .b32 s[128]; .reg .b32 t, r, a<4>; .reg .b64 at, out;\n\
         .reg .pred p; ld.param.u64 out, [block]; mov.u32 t, %tid.x; shl.b32 a0, t, 2; mov.u32 a1, s; add.u32 a0, a0, a1;\n\
         st.shared.u32 [a0], t; bar.sync 0; xor.b32 a2, t, 127; shl.b32 a2, a2, 2; add.u32 a2, a2, a1; ld.shared.u32 r, [a2];\n\
         setp.lt.u32 p, t, 40; bar.red.popc.u32 a3, 1, p; add.u32 r, r, a3; mul.wide.u32 at, t, 4; add.u64 at, at, out;\n\
         st.global.u32 [at], r; }";
    let bench = Bench::new(text);
    let out = bench.words(&[0; 128]);
    let shape = Shape {
        block: 128,
        ..ONE_WARP
    };
    bench.launch(shape, &[out]).expect("no fault");
    let expected: Vec<u32> = (0..128).map(|lane| 127 - lane + 40).collect();
    assert_eq!(bench.read(out, 128), expected);
}

#[test]
fn calls_recurse_and_lanes_come_back_one_by_one() {
    let text = ".func (.param .b32 result) fib(.param .b32 number) { .reg .b32 n, a, b; .reg .pred p; ld.param.b32 n, [number];\n\
         setp.lt.u32 p, n, 2; @p bra small; { .param .b32 x; .param .b32 y; sub.u32 a, n, 1; st.param.b32 [x], a;\n\
         call (y), fib, (x); ld.param.b32 b, [y]; } { .param .b32 x; .param .b32 y; sub.u32 a, n, 2; st.param.b32 [x], a;\n\
         call (y), fib, (x); ld.param.b32 a, [y]; } add.u32 n, a, b; small: st.param.b32 [result], n; ret; }\n";
    let body = "{ .param .b32 x; .param .b32 y; rem.u32 a0, t, 12; st.param.b32 [x], a0; call (y), fib, (x);\n\
         ld.param.b32 r, [y]; }";
    let bench = Bench::new(&format!("{text}{}", kernel(body)));
    let out = bench.words(&[0; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    let fib = |n: u32| (0..n).fold((0, 1), |(a, b), _| (b, a + b)).0;
    let expected: Vec<u32> = (0..32).map(|lane| fib(lane % 12)).collect();
    assert_eq!(bench.read(out, 32), expected);
}

#[test]
fn indirect_calls_go_where_each_lane_points() {
    let text = ".func (.reg .b32 r) plus(.reg .b32 a) { add.u32 r, a, 5; ret; }\n\
         .func (.reg .b32 r) times(.reg .b32 a) { mul.lo.u32 r, a, 3; ret; }\n.global .u64 table[2] = {plus, times};\n";
    let body = "and.b32 a0, t, 1; mul.wide.u32 d0, a0, 8; mov.u64 d1, table; add.u64 d0, d0, d1; ld.global.u64 d2, [d0];\n\
         proto: .callprototype (.reg .b32 _) _ (.reg .b32 _); call (r), d2, (t), proto;";
    let bench = Bench::new(&format!("{text}{}", kernel(body)));
    let out = bench.words(&[0; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    let expected: Vec<u32> = (0..32)
        .map(|lane| if lane % 2 == 0 { lane + 5 } else { lane * 3 })
        .collect();
    assert_eq!(bench.read(out, 32), expected);
}

#[test]
fn atomic_sums_of_many_blocks_are_exact() {
    let text = ".visible .entry k(.param .u64 block) { .reg .b64 d; .reg .f32 f; ld.param.u64 d, [block];\n\
         red.global.add.u32 [d], 3; atom.global.add.f32 f, [d+4], 0f3F000000; }";
    let bench = Bench::new(text);
    let out = bench.words(&[0; 2]);
    let shape = Shape {
        grid: 50,
        block: 96,
        host_threads: 3,
        ..ONE_WARP
    };
    bench.launch(shape, &[out]).expect("no fault");
    assert_eq!(bench.read(out, 2), [50 * 96 * 3, 2400_f32.to_bits()]);
}

#[test]
fn blocks_that_wait_for_all_others_find_them() {
    // Counts in, then polls until everybody has: on one thread of the host.
    let text = ".visible .entry k(.param .u64 block) { .reg .b64 d; .reg .b32 a; .reg .pred p; ld.param.u64 d, [block];\n\
         atom.global.add.u32 a, [d], 1; again: ld.volatile.global.u32 a, [d]; setp.lt.u32 p, a, 20; @p bra again;\n\
         red.global.add.u32 [d+4], 1; }";
    let bench = Bench::new(text);
    for host_threads in [1, 3] {
        let out = bench.words(&[0; 2]);
        let shape = Shape {
            grid: 20,
            block: 1,
            host_threads,
            ..ONE_WARP
        };
        bench.launch(shape, &[out]).expect("no fault");
        assert_eq!(bench.read(out, 2), [20, 20]);
    }
}

#[test]
fn spaces_have_generic_addresses() {
    let found = per_lane(
        ".shared .b32 s[32]; .local .b32 l[4]; mov.u64 d0, s; cvta.shared.u64 d1, d0; mul.wide.u32 d2, t, 4; add.u64 d1, d1, d2;\n\
         st.u32 [d1], t; bar.warp.sync -1; ld.shared.u32 a0, [s+12]; mov.u64 d3, l; cvta.local.u64 d4, d3; add.u32 a1, t, 1; st.u32 [d4+8], a1;\n\
         ld.local.u32 a2, [l+8]; isspacep.shared p0, d1; isspacep.local p1, d4; isspacep.global p2, out; and.pred p0, p0, p1;\n\
         and.pred p0, p0, p2; selp.u32 r, a2, 0, p0; mad.lo.u32 r, a0, 100, r;",
    );
    let expected: Vec<u32> = (0..32).map(|lane| 300 + lane + 1).collect();
    assert_eq!(found, expected);
}

#[test]
fn constant_memory_is_not_global() {
    let text = format!(
        ".const .b32 c[4] = {{1, 2, 3, 4}};\n.global .b32 g;\n{}",
        kernel(
            "mov.u64 d0, c; cvta.const.u64 d0, d0; mov.u64 d1, g; cvta.global.u64 d1, d1; isspacep.const p0, d0;\n\
             selp.u32 r, 1, 0, p0; isspacep.global p0, d0; selp.u32 a0, 2, 0, p0; isspacep.const p0, d1; selp.u32 a1, 4, 0, p0;\n\
             isspacep.global p0, d1; selp.u32 a2, 8, 0, p0; or.b32 r, r, a0; or.b32 r, r, a1; or.b32 r, r, a2;"
        )
    );
    let bench = Bench::new(&text);
    let out = bench.words(&[0; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    assert_eq!(bench.read(out, 1), [1 + 8]);
}

#[test]
fn printing_without_format_prints_nothing() {
    let text = format!(
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n{}",
        kernel(
            "{ .reg .b64 v; .param .b64 f; .param .b64 a; .param .b32 c; mov.u64 v, 0; st.param.b64 [f], v;\n\
             st.param.b64 [a], v; call (c), vprintf, (f, a); ld.param.b32 r, [c]; }"
        )
    );
    let bench = Bench::new(&text);
    let out = bench.words(&[0; 32]);
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    assert_eq!(
        (bench.read(out, 1), bench.text()),
        (vec![u32::MAX], String::new())
    );
}

#[test]
fn dynamic_shared_memory_is_behind_the_static() {
    let text = format!(
        ".extern .shared .align 16 .b8 more[];\n{}",
        kernel(
            ".shared .b32 s[5]; mov.u32 a0, s; mov.u32 a1, more; sub.u32 r, a1, a0; mov.u32 a2, %dynamic_smem_size;\n\
             mad.lo.u32 r, a2, 1000, r; st.shared.u32 [a1+60], a2;"
        )
    );
    let bench = Bench::new(&text);
    let out = bench.words(&[0; 32]);
    let shape = Shape {
        dynamic_bytes: 64,
        ..ONE_WARP
    };
    bench.launch(shape, &[out]).expect("no fault");
    assert_eq!(bench.read(out, 1), [64_032]);
}

#[test]
fn kernels_print_and_have_memory_of_their_own() {
    let text = format!(
        ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n\
         .extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 p);\n\
         .global .b8 text[12] = {{37, 100, 32, 37, 46, 49, 102, 10}};\n{}",
        kernel(
            "{ .local .align 8 .b8 args[16]; .reg .b64 v; .param .b64 n; .param .b64 m; .param .b64 f; .param .b64 a; .param .b32 c;\n\
             mov.u64 v, 8; st.param.b64 [n], v; call (m), malloc, (n); ld.param.b64 d0, [m]; st.u32 [d0+4], t;\n\
             ld.u32 r, [d0+4]; st.param.b64 [n], d0; call free, (n); setp.ne.u32 p0, t, 3; @p0 bra quiet;\n\
             st.local.u32 [args], t; mov.b64 v, 0d4004000000000000; st.local.u64 [args+8], v; mov.u64 d1, args;\n\
             cvta.local.u64 d1, d1; mov.u64 d2, text; st.param.b64 [f], d2; st.param.b64 [a], d1; call (c), vprintf, (f, a);\n\
             ld.param.b32 a0, [c]; add.u32 r, r, a0; quiet: }"
        )
    );
    let bench = Bench::new(&text);
    let out = bench.words(&[0; 32]);
    let live = bench.arena.live();
    bench.launch(ONE_WARP, &[out]).expect("no fault");
    assert_eq!(bench.text(), "3 2.5\n");
    let mut expected: Vec<u32> = (0..32).collect();
    expected[3] += 2;
    assert_eq!(bench.read(out, 32), expected);
    assert_eq!(bench.arena.live(), live + 1, "only the workspace is left");
}

#[test]
fn an_assertion_says_what_failed_and_where() {
    let text = format!(
        ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n\
         .global .b8 what[4] = {{120, 62, 49}};\n.global .b8 file[5] = {{97, 46, 99, 117}};\n{}",
        kernel(
            "{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e; setp.ne.u32 p0, t, 9; @p0 bra fine;\n\
             mov.u64 d0, what; mov.u64 d1, file; mov.u32 a0, 12; mov.u64 d2, 1; st.param.b64 [a], d0; st.param.b64 [b], d1;\n\
             st.param.b32 [c], a0; st.param.b64 [d], d0; st.param.b64 [e], d2; call __assertfail, (a, b, c, d, e); fine: }\n\
             mov.u32 r, 0;"
        )
    );
    let found = fault(&text, ONE_WARP);
    let said = "a.cu:12: x>1: assertion `x>1` failed".to_owned();
    assert_eq!(
        (found.kind, found.thread),
        (FaultKind::Assertion(said), [9, 0, 0])
    );
}

fn fault(text: &str, shape: Shape) -> Fault {
    let bench = Bench::new(text);
    let out = bench.words(&[0; 32]);
    *bench.launch(shape, &[out]).expect_err("a fault")
}

#[test]
fn wild_accesses_name_thread_address_and_instruction() {
    let found = fault(
        &kernel(
            "setp.ne.u32 p0, t, 5; @p0 bra fine;\nst.global.u32 [at+200], t;\nfine: mov.u32 r, 0;",
        ),
        ONE_WARP,
    );
    assert_eq!((found.thread, found.at.line), ([5, 0, 0], 8));
    let text = found.to_string();
    assert!(
        text.starts_with("invalid write of 4 bytes at global address 0x"),
        "{text}"
    );
    assert!(
        text.contains("92 bytes past the end of the allocation of 128 bytes"),
        "{text}"
    );
}

#[test]
fn every_way_to_fail_has_its_kind() {
    let kinds = [
        ("ld.u32 r, [4096];", "invalid read"),
        ("ld.global.u32 r, [at+1];", "multiple"),
        (
            ".shared .b32 s[4]; ld.shared.u32 r, [s+16];",
            "shared address 0x10",
        ),
        (
            ".local .b32 l[4]; ld.local.u32 r, [l+-4];",
            "local address 0xfffffffc",
        ),
        ("trap;", "trap"),
        ("mov.u32 r, 16; bar.sync r;", "barrier 16"),
    ];
    for (body, expected) in kinds {
        let found = fault(&kernel(body), ONE_WARP).to_string();
        assert!(found.contains(expected), "{body}: {found}");
    }
}

#[test]
fn a_call_of_what_is_no_function_is_a_fault() {
    let body = "call (r), at, (t), proto; proto: .callprototype (.reg .b32 _) _ (.reg .b32 _);";
    let found = fault(&kernel(body), ONE_WARP).to_string();
    assert!(found.contains("no function"), "{found}");
}

#[test]
fn endless_recursion_and_loops_end() {
    let text = ".func f() { .local .b8 l[64]; call g; ret; } .func g() { call f; ret; } .visible .entry k(.param .u64 a) { call f; }";
    let text = format!(".func g();\n{text}");
    assert_eq!(fault(&text, ONE_WARP).kind, FaultKind::Stack);
    let shape = Shape {
        time_limit: Some(Duration::from_millis(20)),
        ..ONE_WARP
    };
    let forever = ".visible .entry k(.param .u64 a) { again: bra again; }";
    assert_eq!(fault(forever, shape).kind, FaultKind::TimeLimit);
    // Two warps that take turns in waiting for each other.
    let shape = Shape {
        block: 64,
        time_limit: Some(Duration::from_millis(20)),
        ..ONE_WARP
    };
    let meeting = ".visible .entry k(.param .u64 a) { again: bar.sync 0; bra again; }";
    assert_eq!(fault(meeting, shape).kind, FaultKind::TimeLimit);
}

#[test]
fn frames_of_a_deep_recursion_are_bounded() {
    // Each call has a parameter of 64 KiB for each lane.
    let text = ".func f(.param .b8 a[65536]) { .param .b8 b[65536]; call f, (b); ret; }\n\
         .visible .entry k(.param .u64 a) { .param .b8 b[65536]; call f, (b); }";
    assert_eq!(fault(text, ONE_WARP).kind, FaultKind::Stack);
}

#[test]
fn threads_that_wait_for_each_other_in_vain_are_told() {
    let found = fault(
        &kernel(
            "setp.lt.u32 p0, t, 16; @p0 bra other; bar.sync 1, 64; other: bar.sync 2, 64; mov.u32 r, 0;",
        ),
        ONE_WARP,
    );
    assert_eq!(found.kind, FaultKind::Deadlock);
}

#[test]
fn carries_and_packed_values_travel_between_instructions() {
    let found = per_lane(
        "mov.u32 a0, -1; add.cc.u32 a1, a0, t; addc.u32 r, 0, 0; mov.b64 d0, {a1, r}; mov.b64 {a2, a3}, d0; shl.b32 r, a3, 8;\n\
         and.b32 a2, a2, 255; or.b32 r, r, a2; bfi.b32 r, 1, r, 16, 1;",
    );
    let expected: Vec<u32> = (0..32_u32)
        .map(|lane| {
            let low = lane.wrapping_sub(1) & 255;
            1 << 16 | u32::from(lane > 0) << 8 | low
        })
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn outcomes_of_pairs_may_be_what_guards_them() {
    // 2 and 1 below, 1 and 2 above.
    let found = per_lane(
        "setp.lt.u32 p0, t, 16; setp.ne.u32 p1, t, t; mov.b32 a0, 0x3c004000; mov.b32 a1, 0x40003c00;\n\
         @p0 setp.lt.f16x2 p0|p1, a0, a1; selp.u32 r, 1, 0, p0; selp.u32 a2, 2, 0, p1; or.b32 r, r, a2;\n\
         lop3.or.b32 _|p2, t, 0, 0, 0xf0, p1; selp.u32 a2, 4, 0, p2; or.b32 r, r, a2;",
    );
    let expected: Vec<u32> = (0..32).map(|lane| if lane < 16 { 6 } else { 4 }).collect();
    assert_eq!(found, expected);
}

#[test]
fn parts_of_words_are_computed_with_and_put_in_their_place() {
    let of = |instruction: &str| {
        let values = "mov.b32 a0, 0x01ff8040; mov.b32 a1, 0x7f0280ff;";
        per_lane(&format!("{values} {instruction}"))[9]
    };
    // 255 + 128, held to a byte with a sign.
    assert_eq!(
        of("vsub.s32.u32.s32.sat r.b3, a0.b2, a1.b1, t;"),
        127 << 24 | 9
    );
    assert_eq!(of("vmax.s32.s32.s32.max r, a0.h0, a1.h1, t;"), 0x7f02);
    assert_eq!(of("vmax.s32.s32.s32.min r, a0.h0, a1.h1, t;"), 9);
    // The upper half of `a1` and of `a0`, held to 16 bits; below stays what was there.
    assert_eq!(
        of("vadd2.s32.s32.s32.sat r.h1, a0.h32, a1.h10, t;"),
        0x7fff << 16 | 9
    );
    assert_eq!(
        of("vavrg4.u32.u32.u32.add r, a0, a1, t;"),
        160 + 128 + 129 + 64 + 9
    );
}

#[test]
fn tables_of_targets_are_branched_into() {
    let found = per_lane(
        "and.b32 a0, t, 3; brx.idx a0, where; where: .branchtargets zero, one, zero, three;\n\
         zero: mov.u32 r, 10; bra end; one: mov.u32 r, 11; bra end; three: mov.u32 r, 13; end:",
    );
    let expected: Vec<u32> = (0..32).map(|lane| [10, 11, 10, 13][lane % 4]).collect();
    assert_eq!(found, expected);
}
