//! The kernels that are measured: PTX as compilers write it, their inputs, and what tells that a result is right.

use std::fmt::Write;

/// A kernel, ready to be launched.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Millions of instructions per second that it should make compiled, on one thread of the host: what a prototype with Cranelift and
    /// without checks of addresses made of the same kernel.
    pub(super) bar: f64,
    pub(super) text: String,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Memory, in the order of the parameters that point to it.
    pub(super) memory: Vec<Vec<u8>>,
    /// Parameters behind those, of 32 bits.
    pub(super) numbers: Vec<u32>,
    /// Which memory holds the result.
    pub(super) result: usize,
}

const HEAD: &str = ".version 8.0\n.target sm_75\n.address_size 64\n";
/// What every kernel of three pointers and a number starts with: `r1` is the number of the thread in the grid.
const START: &str = "ld.param.u64 rd1, [a]; ld.param.u64 rd2, [b]; ld.param.u64 rd3, [c]; ld.param.u32 r2, [n];\n\
     cvta.to.global.u64 rd1, rd1; cvta.to.global.u64 rd2, rd2; cvta.to.global.u64 rd3, rd3;\n\
     mov.u32 r3, %ctaid.x; mov.u32 r4, %ntid.x; mov.u32 r5, %tid.x; mad.lo.s32 r1, r3, r4, r5;\n";
const PARAMETERS: &str = ".param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n";
const REGISTERS: &str = ".reg .pred p<9>; .reg .f32 f<64>; .reg .b32 r<64>; .reg .b64 rd<64>;\n";

fn kernel(body: &str) -> String {
    format!("{HEAD}.visible .entry k({PARAMETERS}) {{\n{REGISTERS}{START}{body}\nret; }}\n")
}

/// Numbers that are all small and whole, so that sums of them are exact in any order.
fn floats(count: usize) -> Vec<u8> {
    let value = |index: usize| ((index * 7 + index / 13) % 16) as f32;
    (0..count)
        .flat_map(|index| value(index).to_le_bytes())
        .collect()
}

fn words(count: usize, most: u32) -> Vec<u8> {
    let mut state = 12345_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % most
    };
    (0..count).flat_map(|_| next().to_le_bytes()).collect()
}

fn zeros(words: usize) -> Vec<u8> {
    vec![0; words * 4]
}

pub(super) fn all(quick: bool) -> Vec<Case> {
    let less = if quick { 16 } else { 1 };
    vec![
        vector_add((1 << 20) / less),
        matrix_product(if quick { 64 } else { 256 }),
        warp_sum((1 << 18) / less),
        tree_sum((1 << 20) / less),
        stencil(if quick { 256 } else { 1024 }),
        bodies(if quick { 512 } else { 2048 }),
        histogram((1 << 20) / less),
        alignment(1024 / less),
    ]
}

fn vector_add(count: u32) -> Case {
    Case {
        name: "vector add",
        bar: 9_400.0,
        text: kernel(
            "setp.ge.s32 p1, r1, r2; @p1 bra done; mul.wide.s32 rd4, r1, 4; add.s64 rd5, rd1, rd4; add.s64 rd6, rd2, rd4;\n\
             ld.global.f32 f1, [rd5]; ld.global.f32 f2, [rd6]; add.f32 f3, f1, f2; add.s64 rd7, rd3, rd4;\n\
             st.global.f32 [rd7], f3; done:",
        ),
        grid: [count / 256, 1, 1],
        block: [256, 1, 1],
        memory: vec![
            floats(count as usize),
            floats(count as usize),
            zeros(count as usize),
        ],
        numbers: vec![count],
        result: 2,
    }
}

/// Tiles of 16 by 16 in shared memory, two barriers in the loop over tiles.
fn matrix_product(side: u32) -> Case {
    let mut body = String::from(
        ".shared .align 4 .b8 sa[1024]; .shared .align 4 .b8 sb[1024];\n\
         mov.u32 r6, %tid.y; mov.u32 r7, %ctaid.y; shl.b32 r8, r7, 4; add.s32 r8, r8, r6; shl.b32 r9, r3, 4; add.s32 r9, r9, r5;\n\
         mad.lo.s32 r10, r8, r2, r5; mad.lo.s32 r11, r6, r2, r9; shl.b32 r12, r6, 6; shl.b32 r13, r5, 2; mov.u32 r14, sa;\n\
         mov.u32 r15, sb; add.s32 r16, r14, r12; add.s32 r17, r16, r13; add.s32 r18, r15, r12; add.s32 r18, r18, r13;\n\
         add.s32 r19, r15, r13; shl.b32 r20, r2, 4; mov.f32 f1, 0f00000000; mov.u32 r21, 0;\n\
         tiles: mul.wide.s32 rd4, r10, 4; add.s64 rd5, rd1, rd4; ld.global.f32 f2, [rd5]; st.shared.f32 [r17], f2;\n\
         mul.wide.s32 rd6, r11, 4; add.s64 rd7, rd2, rd6; ld.global.f32 f3, [rd7]; st.shared.f32 [r18], f3; bar.sync 0;\n",
    );
    for k in 0..16 {
        let _ = writeln!(
            body,
            "ld.shared.f32 f4, [r19+{}]; ld.shared.f32 f5, [r16+{}]; fma.rn.f32 f1, f5, f4, f1;",
            k * 64,
            k * 4
        );
    }
    body.push_str(
        "bar.sync 0; add.s32 r21, r21, 16; add.s32 r10, r10, 16; add.s32 r11, r11, r20; setp.lt.s32 p1, r21, r2; @p1 bra tiles;\n\
         mad.lo.s32 r22, r8, r2, r9; mul.wide.s32 rd8, r22, 4; add.s64 rd9, rd3, rd8; st.global.f32 [rd9], f1;",
    );
    let count = (side * side) as usize;
    Case {
        name: "tiled matrix product",
        bar: 2_730.0,
        text: kernel(&body),
        grid: [side / 16, side / 16, 1],
        block: [16, 16, 1],
        memory: vec![floats(count), floats(count), zeros(count)],
        numbers: vec![side],
        result: 2,
    }
}

/// Ten shuffles, one barrier and one atomic addition.
fn warp_sum(count: u32) -> Case {
    let mut body = String::from(
        ".shared .align 4 .b8 sums[128]; mul.wide.s32 rd4, r1, 4; add.s64 rd5, rd1, rd4; ld.global.f32 f1, [rd5];\n",
    );
    let shuffles = |body: &mut String| {
        for distance in [16, 8, 4, 2, 1] {
            let _ = writeln!(
                body,
                "mov.b32 r10, f1; shfl.sync.down.b32 r11|p2, r10, {distance}, 31, -1; mov.b32 f2, r11; add.f32 f1, f1, f2;"
            );
        }
    };
    shuffles(&mut body);
    body.push_str(
        "and.b32 r6, r5, 31; shr.u32 r7, r5, 5; setp.ne.s32 p1, r6, 0; shl.b32 r8, r7, 2; mov.u32 r9, sums; add.s32 r12, r9, r8;\n\
         @p1 bra kept; st.shared.f32 [r12], f1; kept: bar.sync 0; setp.gt.u32 p3, r5, 31; @p3 bra done;\n\
         shl.b32 r13, r5, 2; add.s32 r13, r13, r9; mov.f32 f1, 0f00000000; setp.gt.u32 p4, r5, 7; @p4 bra none;\n\
         ld.shared.f32 f1, [r13]; none:\n",
    );
    shuffles(&mut body);
    body.push_str("setp.ne.s32 p5, r5, 0; @p5 bra done; atom.global.add.f32 f9, [rd3], f1; done:");
    Case {
        name: "sum by shuffles",
        bar: 3_250.0,
        text: kernel(&body),
        grid: [count / 256, 1, 1],
        block: [256, 1, 1],
        memory: vec![floats(count as usize), zeros(1), zeros(1)],
        numbers: vec![count],
        result: 2,
    }
}

/// Halves the threads that add, with a barrier each time.
fn tree_sum(count: u32) -> Case {
    Case {
        name: "sum by a tree",
        bar: 1_810.0,
        text: kernel(
            ".shared .align 4 .b8 sums[1024]; mul.wide.s32 rd4, r1, 4; add.s64 rd5, rd1, rd4; ld.global.f32 f1, [rd5];\n\
             shl.b32 r6, r5, 2; mov.u32 r7, sums; add.s32 r8, r7, r6; st.shared.f32 [r8], f1; bar.sync 0; shr.u32 r9, r4, 1;\n\
             half: setp.ge.u32 p1, r5, r9; @p1 bra wait; shl.b32 r10, r9, 2; add.s32 r11, r8, r10; ld.shared.f32 f2, [r11];\n\
             ld.shared.f32 f3, [r8]; add.f32 f4, f2, f3; st.shared.f32 [r8], f4; wait: bar.sync 0; shr.u32 r9, r9, 1;\n\
             setp.ne.s32 p2, r9, 0; @p2 bra half; setp.ne.s32 p3, r5, 0; @p3 bra done; ld.shared.f32 f5, [sums];\n\
             mul.wide.u32 rd6, r3, 4; add.s64 rd7, rd3, rd6; st.global.f32 [rd7], f5; done:",
        ),
        grid: [count / 256, 1, 1],
        block: [256, 1, 1],
        memory: vec![
            floats(count as usize),
            zeros(1),
            zeros(count as usize / 256),
        ],
        numbers: vec![count],
        result: 2,
    }
}

/// The mean of a cell and its four neighbours.
fn stencil(side: u32) -> Case {
    let count = (side * side) as usize;
    Case {
        name: "stencil in 2D",
        bar: 4_470.0,
        text: kernel(
            "mov.u32 r6, %ctaid.y; mov.u32 r7, %ntid.y; mov.u32 r8, %tid.y; mad.lo.s32 r9, r6, r7, r8; add.s32 r10, r2, -1;\n\
             setp.lt.s32 p1, r1, 1; setp.ge.s32 p2, r1, r10; or.pred p1, p1, p2; setp.lt.s32 p3, r9, 1; or.pred p1, p1, p3;\n\
             setp.ge.s32 p4, r9, r10; or.pred p1, p1, p4; @p1 bra done; mad.lo.s32 r11, r9, r2, r1; mul.wide.s32 rd4, r11, 4;\n\
             add.s64 rd5, rd1, rd4; ld.global.f32 f1, [rd5]; ld.global.f32 f2, [rd5+-4]; ld.global.f32 f3, [rd5+4];\n\
             mul.wide.s32 rd6, r2, 4; sub.s64 rd7, rd5, rd6; ld.global.f32 f4, [rd7]; add.s64 rd8, rd5, rd6;\n\
             ld.global.f32 f5, [rd8]; add.f32 f6, f2, f3; add.f32 f7, f4, f5; add.f32 f8, f6, f7; mul.f32 f9, f8, 0f3E000000;\n\
             fma.rn.f32 f10, f1, 0f3F000000, f9; add.s64 rd9, rd3, rd4; st.global.f32 [rd9], f10; done:",
        ),
        grid: [side / 32, side / 8, 1],
        block: [32, 8, 1],
        memory: vec![floats(count), zeros(1), zeros(count)],
        numbers: vec![side],
        result: 2,
    }
}

/// Forces of all on each: positions and masses as vectors of four.
fn bodies(count: u32) -> Case {
    let mut body = String::from(
        "mul.wide.s32 rd4, r1, 16; add.s64 rd5, rd1, rd4; ld.global.v4.f32 {f1, f2, f3, f4}, [rd5]; mov.f32 f5, 0f00000000;\n\
         mov.f32 f6, f5; mov.f32 f7, f5; mov.u32 r6, 0; mov.u64 rd6, rd1;\nall:\n",
    );
    for other in 0..4 {
        let _ = writeln!(
            body,
            "ld.global.v4.f32 {{f8, f9, f10, f11}}, [rd6+{}]; sub.f32 f12, f8, f1; sub.f32 f13, f9, f2; sub.f32 f14, f10, f3;\n\
             fma.rn.f32 f15, f12, f12, 0f3C23D70A; fma.rn.f32 f15, f13, f13, f15; fma.rn.f32 f15, f14, f14, f15;\n\
             rsqrt.approx.f32 f16, f15; mul.f32 f17, f16, f16; mul.f32 f18, f11, f16; mul.f32 f19, f18, f17;\n\
             fma.rn.f32 f5, f12, f19, f5; fma.rn.f32 f6, f13, f19, f6; fma.rn.f32 f7, f14, f19, f7;",
            other * 16
        );
    }
    body.push_str(
        "add.s32 r6, r6, 4; add.s64 rd6, rd6, 64; setp.lt.s32 p1, r6, r2; @p1 bra all; add.s64 rd7, rd3, rd4;\n\
         st.global.v4.f32 [rd7], {f5, f6, f7, f4};",
    );
    Case {
        name: "n bodies",
        bar: 5_170.0,
        text: kernel(&body),
        grid: [count / 128, 1, 1],
        block: [128, 1, 1],
        memory: vec![
            floats(count as usize * 4),
            zeros(1),
            zeros(count as usize * 4),
        ],
        numbers: vec![count],
        result: 2,
    }
}

/// Counts in shared memory, then adds them up in global memory.
fn histogram(count: u32) -> Case {
    Case {
        name: "histogram in shared memory",
        bar: 1_930.0,
        text: kernel(
            ".shared .align 4 .b8 bins[1024]; shl.b32 r6, r5, 2; mov.u32 r7, bins; add.s32 r8, r7, r6; mov.u32 r9, 0;\n\
             st.shared.u32 [r8], r9; bar.sync 0; mov.u32 r10, %nctaid.x; mul.lo.s32 r11, r10, r4;\n\
             next: setp.ge.s32 p1, r1, r2; @p1 bra counted; mul.wide.s32 rd4, r1, 4; add.s64 rd5, rd1, rd4;\n\
             ld.global.u32 r12, [rd5]; shl.b32 r13, r12, 2; add.s32 r14, r7, r13; atom.shared.add.u32 r15, [r14], 1;\n\
             add.s32 r1, r1, r11; bra next; counted: bar.sync 0; ld.shared.u32 r16, [r8]; mul.wide.u32 rd6, r5, 4;\n\
             add.s64 rd7, rd3, rd6; red.global.add.u32 [rd7], r16;",
        ),
        grid: [64, 1, 1],
        block: [256, 1, 1],
        memory: vec![words(count as usize, 256), zeros(1), zeros(256)],
        numbers: vec![count],
        result: 2,
    }
}

/// Each thread scores two sequences of 64 letters, with a row of scores in memory.
fn alignment(pairs: u32) -> Case {
    let len = 64;
    let pairs = pairs.next_multiple_of(64);
    let body = format!(
        ".local .align 4 .b8 row[260]; .reg .b64 l<4>; mul.wide.s32 rd4, r1, {0}; add.s64 rd5, rd1, rd4; add.s64 rd6, rd2, rd4;\n\
         mov.u64 l1, row; mov.u32 r6, 0; mov.u32 r20, 0; mov.u64 l2, l1;\n\
         clear: st.local.u32 [l2], r20; add.s64 l2, l2, 4; add.s32 r6, r6, 1; setp.lt.s32 p1, r6, 65; @p1 bra clear;\n\
         mov.u32 r7, 0; mov.u32 r8, 0;\n\
         rows: ld.global.u32 r9, [rd5]; mov.u32 r10, 0; mov.u32 r11, 0; mov.u32 r12, 0; mov.u64 l2, l1; mov.u64 rd7, rd6;\n\
         columns: ld.global.u32 r13, [rd7]; ld.local.u32 r14, [l2+4]; setp.eq.s32 p2, r13, r9; selp.b32 r15, 3, -2, p2;\n\
         add.s32 r16, r11, r15; add.s32 r17, r14, -1; add.s32 r18, r12, -1; max.s32 r16, r16, r17; max.s32 r16, r16, r18;\n\
         max.s32 r12, r16, 0; st.local.u32 [l2+4], r12; max.s32 r8, r8, r12; mov.u32 r11, r14; add.s64 l2, l2, 4;\n\
         add.s64 rd7, rd7, 4; add.s32 r10, r10, 1; setp.lt.s32 p3, r10, {len}; @p3 bra columns; add.s64 rd5, rd5, 4;\n\
         add.s32 r7, r7, 1; setp.lt.s32 p4, r7, {len}; @p4 bra rows; mul.wide.s32 rd8, r1, 4; add.s64 rd9, rd3, rd8;\n\
         st.global.u32 [rd9], r8;",
        len * 4
    );
    let letters = (pairs * len) as usize;
    Case {
        name: "Smith-Waterman",
        bar: 5_970.0,
        text: kernel(&body),
        grid: [pairs / 64, 1, 1],
        block: [64, 1, 1],
        memory: vec![
            words(letters, 4),
            words(letters + 7, 4)[28..].to_vec(),
            zeros(pairs as usize),
        ],
        numbers: vec![pairs],
        result: 2,
    }
}

/// A kernel of about so many instructions, to time its first launch.
pub(super) fn long(instructions: u32) -> String {
    let mut body = String::new();
    for index in 0..instructions / 5 {
        let _ = writeln!(
            body,
            "add.s32 r{}, r1, {index}; mul.wide.s32 rd4, r{0}, 4; fma.rn.f32 f{}, f2, f3, f1; xor.b32 r8, r8, r{0};\n\
             setp.lt.s32 p1, r8, r2; @p1 bra l{index}; add.f32 f1, f1, f{1}; l{index}:",
            10 + index % 20,
            10 + index % 20,
        );
    }
    body.push_str("mul.wide.s32 rd4, r1, 4; add.s64 rd5, rd3, rd4; st.global.f32 [rd5], f1;");
    kernel(&body)
}
