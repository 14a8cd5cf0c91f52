//! The two tiers against each other: programs made from bytes, whose results do not hang on the order of threads, and which both must
//! carry out alike.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use crate::exec::{LAUNCH_LIMIT, Launch, run};
use crate::image::Image;
use crate::jit::Compiled;
use crate::memory::{Arena, Purpose};

/// Registers of each kind that programs compute with.
const REGISTERS: usize = 5;
/// Threads of a block, and blocks.
const THREADS: u32 = 72;
const BLOCKS: u32 = 2;
/// Bytes of global memory that each thread has to itself.
const OWN_BYTES: u64 = 256;

/// Instructions that any thread may carry out at any time. Gaps for operands as in the words: `R` a register of 32 bits, `D` of 64, `H` of
/// 16, `F` and `G` numbers of 32 and 64 bits, `P` a predicate; `O` an offset in the thread's own memory, a multiple of 16, `N` a number.
const ALONE: &[&str] = &[
    "add.s32 R, R, R;",
    "add.u32 R, R, N;",
    "add.sat.s32 R, R, R;",
    "sub.s32 R, R, R;",
    "sub.s64 D, D, D;",
    "add.s64 D, D, N;",
    "mul.lo.s32 R, R, R;",
    "mul.hi.s32 R, R, R;",
    "mul.hi.u64 D, D, D;",
    "mul.wide.s32 D, R, R;",
    "mul.wide.u32 D, R, R;",
    "mul.wide.u16 R, H, H;",
    "mul24.lo.s32 R, R, R;",
    "mad.lo.s32 R, R, R, R;",
    "mad.hi.u32 R, R, R, R;",
    "mad.wide.s32 D, R, R, D;",
    "mad.wide.u32 D, R, R, D;",
    "mad.lo.u64 D, D, D, D;",
    "sad.s32 R, R, R, R;",
    "div.s32 R, R, R;",
    "div.u32 R, R, R;",
    "div.s64 D, D, D;",
    "rem.s32 R, R, R;",
    "rem.u64 D, D, D;",
    "rem.s16 H, H, H;",
    "div.u16 H, H, H;",
    "abs.s32 R, R;",
    "abs.s64 D, D;",
    "neg.s32 R, R;",
    "neg.s16 H, H;",
    "min.s32 R, R, R;",
    "max.u64 D, D, D;",
    "min.u16 H, H, H;",
    "max.s16 H, H, H;",
    "add.u16 H, H, H;",
    "mul.lo.u16 H, H, H;",
    "mul.hi.s16 H, H, H;",
    "and.b32 R, R, R;",
    "or.b64 D, D, D;",
    "xor.b32 R, R, N;",
    "not.b32 R, R;",
    "not.b64 D, D;",
    "not.b16 H, H;",
    "cnot.b32 R, R;",
    "shl.b32 R, R, R;",
    "shl.b64 D, D, R;",
    "shl.b16 H, H, R;",
    "shr.u32 R, R, R;",
    "shr.s32 R, R, 7;",
    "shr.s64 D, D, R;",
    "shr.u64 D, D, 40;",
    "shr.s16 H, H, R;",
    "shf.l.wrap.b32 R, R, R, R;",
    "shf.r.wrap.b32 R, R, R, R;",
    "shf.r.clamp.b32 R, R, R, R;",
    "bfe.s32 R, R, R, R;",
    "bfe.u64 D, D, R, R;",
    "bfi.b32 R, R, R, R, R;",
    "prmt.b32 R, R, R, R;",
    "lop3.b32 R, R, R, R, 150;",
    "lop3.b32 R, R, R, R, 232;",
    "popc.b32 R, R;",
    "popc.b64 R, D;",
    "clz.b32 R, R;",
    "clz.b64 R, D;",
    "brev.b32 R, R;",
    "brev.b64 D, D;",
    "bfind.s32 R, R;",
    "bfind.shiftamt.u64 R, D;",
    "dp4a.s32.u32 R, R, R, R;",
    "fns.b32 R, R, R, R;",
    "add.cc.u32 R, R, R;\naddc.u32 R, R, R;",
    "sub.cc.u64 D, D, D;\nsubc.u64 D, D, D;",
    "mad.lo.cc.u32 R, R, R, R;\nmadc.hi.u32 R, R, R, R;",
    "add.f32 F, F, F;",
    "sub.f32 F, F, F;",
    "mul.f32 F, F, F;",
    "mul.ftz.f32 F, F, F;",
    "add.ftz.sat.f32 F, F, F;",
    "add.rz.f32 F, F, F;",
    "div.rn.f32 F, F, F;",
    "fma.rn.f32 F, F, F, F;",
    "fma.rn.ftz.sat.f32 F, F, F, F;",
    "fma.rm.f32 F, F, F, F;",
    "min.f32 F, F, F;",
    "max.ftz.f32 F, F, F;",
    "min.NaN.f32 F, F, F;",
    "neg.f32 F, F;",
    "abs.f32 F, F;",
    "neg.ftz.f32 F, F;",
    "sqrt.rn.f32 F, F;",
    "rcp.approx.ftz.f32 F, F;",
    "rsqrt.approx.f32 F, F;",
    "ex2.approx.f32 F, F;",
    "lg2.approx.f32 F, F;",
    "sin.approx.f32 F, F;",
    "copysign.f32 F, F, F;",
    "add.f64 G, G, G;",
    "sub.f64 G, G, G;",
    "mul.f64 G, G, G;",
    "mul.rp.f64 G, G, G;",
    "div.rn.f64 G, G, G;",
    "fma.rn.f64 G, G, G, G;",
    "fma.rz.f64 G, G, G, G;",
    "min.f64 G, G, G;",
    "max.f64 G, G, G;",
    "neg.f64 G, G;",
    "abs.f64 G, G;",
    "sqrt.rn.f64 G, G;",
    "rcp.rn.f64 G, G;",
    "fma.rn.f16x2 R, R, R, R;",
    "add.f16 H, H, H;",
    "cvt.rzi.s32.f32 R, F;",
    "cvt.rni.u32.f32 R, F;",
    "cvt.rmi.s64.f64 D, G;",
    "cvt.rpi.u64.f32 D, F;",
    "cvt.rzi.s16.f32 H, F;",
    "cvt.rn.f32.s32 F, R;",
    "cvt.rn.f32.u64 F, D;",
    "cvt.rz.f32.s64 F, D;",
    "cvt.rn.f64.u32 G, R;",
    "cvt.rn.f64.s64 G, D;",
    "cvt.f64.f32 G, F;",
    "cvt.ftz.f64.f32 G, F;",
    "cvt.rn.f32.f64 F, G;",
    "cvt.rni.f32.f32 F, F;",
    "cvt.rmi.ftz.f32.f32 F, F;",
    "cvt.f32.f16 F, H;",
    "cvt.rn.f16.f32 H, F;",
    "cvt.s32.s16 R, H;",
    "cvt.u32.u16 R, H;",
    "cvt.s64.s32 D, R;",
    "cvt.u64.u32 D, R;",
    "cvt.u32.u64 R, D;",
    "cvt.s32.s64 R, D;",
    "cvt.s8.s32 R, R;",
    "cvt.u8.s64 R, D;",
    "cvt.sat.u8.s32 R, R;",
    "cvt.sat.s16.s32 H, R;",
    "setp.lt.s32 P, R, R;",
    "setp.ge.u32 P, R, N;",
    "setp.eq.s64 P, D, D;",
    "setp.hi.u64 P, D, D;",
    "setp.ne.s16 P, H, H;",
    "setp.lt.f32 P, F, F;",
    "setp.ne.f32 P, F, F;",
    "setp.neu.f64 P, G, G;",
    "setp.gtu.ftz.f32 P, F, F;",
    "setp.num.f32 P, F, F;",
    "setp.le.and.s32 P|P, R, R, !P;",
    "setp.nan.xor.f64 P, G, G, P;",
    "setp.lt.f16 P, H, H;",
    "set.le.u32.f32 R, F, F;",
    "set.gt.or.f32.s32 F, R, R, P;",
    "testp.normal.f32 P, F;",
    "lop3.or.b32 R|P, R, R, R, 150, !P;",
    "vsub.s32.u32.s32.sat R.b1, R.b2, R.h1, R;",
    "vadd.u32.u32.u32.max R, R, R, R;",
    "vabsdiff4.u32.u32.u32.add R, R, R, R;",
    "vavrg2.s32.s32.s32.sat R.h1, R.h21, R, R;",
    "setp.lt.and.f16x2 P|P, R, R, P;",
    "set.ge.bf16x2.bf16x2 R, R, R;",
    "cvt.pack.sat.u8.s32.b32 R, R, R, R;",
    "cvt.pack.sat.s16.s32 R, R, R;",
    "div.rn.ftz.f32 F, F, F;",
    "div.approx.f32 F, F, F;",
    "div.full.ftz.f32 F, F, F;",
    "mul.rm.f64 G, G, G;",
    "div.rz.f64 G, G, G;",
    "rsqrt.approx.ftz.f64 G, G;",
    "cvt.rni.f64.f64 G, G;",
    "cvt.f32.f32 F, F;",
    "cvt.rn.ftz.f32.f64 F, G;",
    "cvt.f32.bf16 F, H;",
    "cvt.rn.sat.f64.s32 G, R;",
    "abs.f16 H, H;",
    "neg.ftz.f16x2 R, R;",
    "min.xorsign.abs.bf16x2 R, R, R;",
    "setp.lt.ftz.f16 P, H, H;",
    "rem.u32 R, R, R;",
    "and.pred P, P, P;",
    "not.pred P, P;",
    "xor.pred P, P, P;",
    "selp.b32 R, R, R, P;",
    "selp.f32 F, F, F, P;",
    "selp.b64 D, D, D, P;",
    "slct.s32.f32 R, R, R, F;",
    "mov.b32 F, R;",
    "mov.b32 R, F;",
    "mov.b64 G, D;",
    "mov.b64 D, G;",
    "mov.f32 F, F;",
    "mov.f32 F, 0f3F800000;",
    "mov.f32 F, 0f7FC12345;",
    "mov.f64 G, 0dBFF0000000000000;",
    "mov.u32 R, N;",
    "mov.b64 D, {R, R};",
    "mov.b64 {R, R}, D;",
    "mov.b32 R, {H, H};",
    "mov.b32 {H, H}, R;",
    "mov.u32 R, %tid.x;",
    "mov.u32 R, %ctaid.x;",
    "mov.u32 R, %laneid;",
    "mov.u32 R, %lanemask_le;",
    "mov.u32 R, %lanemask_gt;",
    "mov.u32 R, %ntid.x;",
    "ld.global.u32 R, [own+O];",
    "ld.global.s32 D, [own+O];",
    "ld.global.s8 R, [own+O];",
    "ld.global.u16 H, [own+O];",
    "ld.global.f32 F, [own+O];",
    "ld.global.f64 G, [own+O];",
    "ld.global.v2.u32 {R, R}, [own+O];",
    "ld.global.v4.f32 {F, F, F, F}, [own+O];",
    "ld.u64 D, [own+O];",
    "st.global.u32 [own+O], R;",
    "st.global.u8 [own+O], R;",
    "st.global.f32 [own+O], F;",
    "st.global.v2.f64 [own+O], {G, G};",
    "st.global.v4.u32 [own+O], {R, R, R, R};",
    "st.u16 [own+O], H;",
    "st.local.u32 [near+O], R;",
    "ld.local.f32 F, [near+O];",
    "ld.local.u64 D, [near+O];",
    "st.u32 [far+O], R;",
    "ld.u32 R, [far+O];",
    "ld.volatile.global.u32 R, [own+O];",
    "atom.global.add.u32 R, [own+O], R;",
    "atom.global.cas.b32 R, [own+O], R, R;",
    "atom.global.exch.b64 D, [own+O], D;",
    "atom.global.inc.u32 R, [own+O], R;",
    "atom.global.add.f32 F, [own+O], F;",
    "atom.max.s32 R, [own+O], R;",
    "red.global.add.u32 [sums], R;",
    "red.global.xor.b64 [sums+8], D;",
    "red.shared.add.u32 [counts], R;",
    "red.shared.max.s32 [counts+4], R;",
    "isspacep.global P, own;",
    "isspacep.shared P, far;",
    "call (R), twist, (R, R);",
    "call (F), mix, (F, R);",
    "membar.gl;",
    "{ .param .b32 x; .param .b64 y; st.param.b32 [x], R; call (y), widen, (x); ld.param.b64 D, [y]; }",
];

/// Instructions that all threads of a block carry out together.
const TOGETHER: &[&str] = &[
    "bar.sync 0;",
    "bar.sync 1;",
    "bar.red.popc.u32 R, 2, P;",
    "bar.red.and.pred P, 3, P;",
    "bar.warp.sync -1;",
    "shfl.sync.idx.b32 R, R, R, 31, -1;",
    "shfl.sync.down.b32 R|P, R, 3, 31, -1;",
    "shfl.sync.bfly.b32 F|P, F, 5, 31, -1;",
    "shfl.sync.up.b32 R, R, 1, 0, -1;",
    "vote.sync.ballot.b32 R, P, -1;",
    "vote.sync.all.pred P, P, -1;",
    "vote.sync.uni.pred P, !P, -1;",
    "match.any.sync.b32 R, R, -1;",
    "match.all.sync.b64 R|P, D, -1;",
    "redux.sync.add.s32 R, R, -1;",
    "redux.sync.max.u32 R, R, -1;",
    "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {F, F, F, F}, {R, R}, {R}, {F, F, F, F};",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {R, R}, {R, R, R, R}, {R, R}, {R, R};",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {F, F, F, F}, {R, R, R, R}, {R, R}, {F, F, F, F};",
    "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.u8.s32 {R, R}, {R}, {R}, {R, R};",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {G, G}, {G}, {G}, {G, G};",
    "movmatrix.sync.aligned.m8n8.trans.b16 R, R;",
    "barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;",
    "bar.sync 0;\nst.shared.u32 [mine], R;\nbar.sync 0;\nld.shared.u32 R, [yours];\nbar.sync 0;",
    "bar.sync 0;\nst.shared.f32 [mine], F;\nbar.sync 0;\nld.f32 F, [theirs];\nbar.sync 0;",
];

/// What a program is made from.
struct Bytes<'b> {
    left: &'b [u8],
}

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        match self.left.split_first() {
            Some((first, rest)) => {
                self.left = rest;
                *first
            }
            None => 0,
        }
    }

    fn below(&mut self, most: usize) -> usize {
        let wide = usize::from(self.next()) << 8 | usize::from(self.next());
        wide % most.max(1)
    }
}

/// Fills the gaps of an instruction.
fn filled(bytes: &mut Bytes<'_>, shape: &str, out: &mut String) {
    let mut before = ' ';
    for letter in shape.chars() {
        let gap = !before.is_alphanumeric() && before != '.' && before != '_' && before != '%';
        let kind = match letter {
            'R' | 'D' | 'H' | 'F' | 'G' | 'P' if gap => Some(letter.to_ascii_lowercase()),
            _ => None,
        };
        let done = match (kind, letter) {
            (Some(kind), _) => write!(out, "{kind}{}", bytes.below(REGISTERS)),
            (None, 'O') if gap => write!(out, "{}", bytes.below(4) * 16),
            (None, 'N') if gap => {
                let number = i64::from(bytes.next()) - 100;
                write!(out, "{}", number << (bytes.next() % 20))
            }
            _ => write!(out, "{letter}"),
        };
        let _ = done;
        before = letter;
    }
    out.push('\n');
}

/// Instructions one after another, with branches and loops. `together` as long as all threads take the same way.
fn body(bytes: &mut Bytes<'_>, together: bool, depth: u32, labels: &mut u32, out: &mut String) {
    for _ in 0..2 + bytes.below(10) {
        let choice = bytes.next() % 16;
        *labels += 1;
        let label = *labels;
        let p = bytes.below(REGISTERS);
        match choice {
            0 if depth < 3 => {
                let _ = writeln!(out, "@p{p} bra else{label};");
                body(bytes, false, depth + 1, labels, out);
                let _ = writeln!(out, "bra both{label};\nelse{label}:");
                body(bytes, false, depth + 1, labels, out);
                let _ = writeln!(out, "both{label}:");
                if together {
                    // Lanes that came apart meet before they do something together.
                    out.push_str("bar.warp.sync -1;\n");
                }
            }
            1 | 2 if depth < 3 => {
                // Each thread goes round as often as its number says, or all as often.
                let rounds = if choice == 1 { "lane" } else { "3" };
                let _ = writeln!(out, "and.b32 n{depth}, {rounds}, 3;\nloop{label}:");
                body(bytes, together && choice == 2, depth + 1, labels, out);
                let _ = writeln!(
                    out,
                    "sub.s32 n{depth}, n{depth}, 1;\nsetp.gt.s32 q, n{depth}, 0;\n@q bra loop{label};"
                );
            }
            3 => {
                let not = if bytes.next() & 1 != 0 { "!" } else { "" };
                let _ = write!(out, "@{not}p{p} ");
                let shape = ALONE[bytes.below(ALONE.len())];
                match shape.contains('\n') || shape.starts_with('{') || shape.starts_with("call") {
                    true => out.push_str("membar.gl;\n"),
                    false => filled(bytes, shape, out),
                }
            }
            4 | 5 if together => {
                let shape = TOGETHER[bytes.below(TOGETHER.len())];
                filled(bytes, shape, out);
            }
            _ => {
                let shape = ALONE[bytes.below(ALONE.len())];
                filled(bytes, shape, out);
            }
        }
    }
}

/// A program.
pub(crate) fn program(data: &[u8]) -> String {
    let mut bytes = Bytes { left: data };
    let mut text = String::from(
        ".version 8.3\n.target sm_90\n.address_size 64\n.global .align 16 .b64 sums[2];\n\
         .func (.reg .b32 x) twist(.reg .b32 a, .reg .b32 b) { .reg .b32 t; .reg .pred p; setp.lt.u32 p, a, b; @p bra less;\n\
         xor.b32 x, a, b; ret; less: mul.lo.u32 t, a, 3; add.u32 x, t, b; ret; }\n\
         .func (.reg .f32 x) mix(.reg .f32 a, .reg .b32 b) { .local .align 8 .b8 l[16]; .reg .f32 t; st.local.f32 [l+4], a;\n\
         cvt.rn.f32.u32 t, b; ld.local.f32 x, [l+4]; add.f32 x, x, t; ret; }\n\
         .func (.param .b64 y) widen(.param .b32 x) { .reg .b32 a; .reg .b64 d; ld.param.b32 a, [x]; mul.wide.s32 d, a, -7;\n\
         st.param.b64 [y], d; ret; }\n\
         .visible .entry k(.param .u64 block) { .shared .align 16 .b32 places[72]; .shared .align 16 .b32 counts[4];\n\
         .local .align 16 .b8 near[64]; .reg .b64 own, far, theirs, t64; .reg .b32 lane, mine, yours, n<4>, t32;\n\
         .reg .b32 r<5>; .reg .b64 d<5>; .reg .b16 h<5>; .reg .f32 f<5>; .reg .f64 g<5>; .reg .pred p<5>, q;\n\
         ld.param.u64 own, [block]; mov.u32 lane, %tid.x; mov.u32 mine, %ctaid.x; mov.u32 yours, %ntid.x;\n\
         mad.lo.u32 t32, mine, yours, lane;\n\
         mad.wide.u32 own, t32, 256, own; mov.u64 far, near; cvta.local.u64 far, far; mov.u32 yours, places;\n\
         mad.lo.u32 mine, lane, 4, yours; sub.u32 t32, 71, lane; mad.lo.u32 yours, t32, 4, yours; cvt.u64.u32 theirs, yours;\n\
         cvta.shared.u64 theirs, theirs;\n",
    );
    for number in 0..REGISTERS {
        let _ = writeln!(
            text,
            "mul.lo.u32 r{number}, lane, {}; mul.wide.u32 d{number}, r{number}, {}; cvt.u16.u32 h{number}, r{number};\n\
             cvt.rn.f32.s32 f{number}, r{number}; cvt.rn.f64.s64 g{number}, d{number}; setp.lt.u32 p{number}, lane, {};",
            u32::from(bytes.next()) << bytes.below(24),
            u32::from(bytes.next()) << bytes.below(20),
            bytes.next() % 80,
        );
    }
    body(&mut bytes, true, 0, &mut 0, &mut text);
    // What registers hold at the end is the result.
    for number in 0..REGISTERS {
        let at = 64 + number * 32;
        let _ = writeln!(
            text,
            "st.global.u32 [own+{}], r{number}; st.global.f32 [own+{}], f{number}; st.global.u64 [own+{}], d{number};\n\
             st.global.f64 [own+{}], g{number}; st.global.u16 [own+{}], h{number}; selp.u32 t32, 1, 0, p{number};\n\
             st.global.u8 [own+{}], t32;",
            at,
            at + 4,
            at + 8,
            at + 16,
            at + 24,
            at + 26,
        );
    }
    text.push_str("bar.sync 0; ld.shared.u32 t32, [counts]; st.global.u32 [own+224], t32; ld.shared.u32 t32, [counts+4];\n");
    text.push_str("st.global.u32 [own+228], t32; ret; }\n");
    text
}

/// Runs a program in one tier: what it leaves in memory, or how it fails.
fn outcome(text: &str, compiled: bool) -> Result<Vec<u8>, String> {
    let arena = Arc::new(Arena::reserve(4 << 20).map_err(|error| error.to_string())?);
    let image = Image::load(text.to_owned(), &arena, 0).map_err(|error| error.to_string())?;
    let image = Arc::new(image);
    let id = image.program.kernel("k").ok_or("no kernel")?;
    let kernel = image.kernel(id).map_err(|why| why.to_string())?;
    let code = match compiled {
        true => Some(Compiled::new(&kernel).map_err(|why| format!("not compiled: {why}"))?),
        false => None,
    };
    let len = OWN_BYTES * u64::from(THREADS * BLOCKS);
    let out = arena.allocate(len, 0, Purpose::Device).ok_or("no memory")?;
    let launch = Launch {
        shared_bytes: kernel.dynamic_start(),
        dynamic_bytes: 0,
        kernel,
        code: code.map(Arc::new),
        arena: Arc::clone(&arena),
        textures: Default::default(),
        device: 0,
        grid: [BLOCKS, 1, 1],
        block: [THREADS, 1, 1],
        parameters: out.to_le_bytes().to_vec(),
        resident_blocks: BLOCKS.into(),
        workspace: 0,
        number: 1,
        host_threads: 1,
        heap_bytes: 0,
        memory_limit: LAUNCH_LIMIT,
        started: Instant::now(),
        deadline: Some(Instant::now() + Duration::from_secs(20)),
        executed: AtomicU64::new(0),
        cancelled: Arc::new(AtomicBool::new(false)),
        print: Arc::new(|_: &[u8]| {}),
    };
    run(&Arc::new(launch)).map_err(|fault| fault.to_string())?;
    let mut bytes = vec![0; len as usize + 16];
    let (own, sums) = bytes.split_at_mut(len as usize);
    let read = |address: u64, to: &mut [u8]| arena.span(address).map(|span| span.read(address, to));
    read(out, own);
    if let Some((address, _)) = image.global("sums") {
        read(address, sums);
    }
    Ok(bytes)
}

/// Makes a program from bytes and runs it in both tiers. An error says how they differ, or that the program is none.
pub fn compare(data: &[u8]) -> Result<(), String> {
    let text = program(data);
    let reference = outcome(&text, false);
    let compiled = outcome(&text, true);
    if reference == compiled && reference.is_ok() {
        return Ok(());
    }
    let what = match (&reference, &compiled) {
        (Ok(reference), Ok(compiled)) => {
            let bytes = reference.iter().zip(compiled).enumerate();
            let mut differ = bytes.filter(|(_, (one, other))| one != other);
            let at = differ.next().map_or(0, |(at, _)| at);
            let word = |bytes: &[u8]| bytes.get(at & !7..(at & !7) + 8).map(<[u8]>::to_vec);
            format!(
                "thread {} has other bytes at {}: {:x?}, and compiled {:x?}",
                at / OWN_BYTES as usize,
                at % OWN_BYTES as usize,
                word(reference),
                word(compiled),
            )
        }
        _ => format!(
            "interpreted: {:?}; compiled: {:?}",
            reference.as_ref().err(),
            compiled.as_ref().err()
        ),
    };
    Err(format!("{what}\n{text}"))
}

#[cfg(test)]
#[path = "../../towline-ptx/tests/ptxas/oracle.rs"]
mod oracle;

#[cfg(test)]
mod tests {
    use super::*;
    use oracle::Oracle;

    /// Bytes that look random, the same in every run.
    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        };
        (0..1500).map(|_| next()).collect()
    }

    #[test]
    fn both_tiers_carry_out_every_instruction_alike() {
        let all: Vec<_> = ALONE.iter().chain(TOGETHER).collect();
        for (index, shapes) in (1_u64..).zip(all.chunks(8)) {
            let noise = noise(index);
            let mut bytes = Bytes { left: &noise };
            let mut lines = String::new();
            for shape in shapes.iter().cycle().take(24) {
                filled(&mut bytes, shape, &mut lines);
            }
            let text = with_body(&noise, &lines);
            let (reference, compiled) = (outcome(&text, false), outcome(&text, true));
            assert!(reference.is_ok(), "{shapes:?}: {reference:?}\n{text}");
            assert!(
                reference == compiled,
                "{shapes:?}: {:?}\n{text}",
                compiled.err()
            );
        }
    }

    /// A program whose body is given.
    fn with_body(data: &[u8], lines: &str) -> String {
        let text = program(&data[..30]);
        let at = text
            .find("bar.sync 0; ld.shared.u32 t32, [counts];")
            .expect("the end");
        let first = text[..at]
            .rfind("st.global.u32 [own+64]")
            .expect("the results");
        format!("{}{lines}{}", &text[..first], &text[first..])
    }

    #[test]
    fn both_tiers_carry_out_programs_alike() {
        for seed in 1..=40 {
            if let Err(why) = compare(&noise(seed)) {
                panic!("seed {seed}: {why}");
            }
        }
    }

    #[test]
    fn programs_are_right_for_ptxas_as_they_are_and_printed() {
        let Some(oracle) = Oracle::find("generated") else {
            return;
        };
        for seed in 1..=20 {
            let text = program(&noise(seed));
            let module = towline_ptx::ptx::Module::parse(&text).expect("a module");
            for text in [&text, &module.to_string()] {
                assert_eq!(oracle.module(text, oracle::TARGET), Ok(()), "seed {seed}");
            }
        }
    }
}
