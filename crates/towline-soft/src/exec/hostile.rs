//! Programs that nobody would write: whatever they do ends as a fault or in time, never in a panic.

use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::image::Image;
use crate::memory::Purpose;

/// Instructions with gaps for operands: `R` a register of 32 bits, `D` of 64, `F` and `G` of 32 and 64 for numbers, `P` a predicate,
/// `L` a label, `N` a number.
const SHAPES: &[&str] = &[
    "add.s32 R, R, R;",
    "sub.sat.s32 R, R, N;",
    "mul.hi.u32 R, R, R;",
    "mad.wide.s32 D, R, R, D;",
    "div.s32 R, R, R;",
    "rem.u64 D, D, D;",
    "min.s64 D, D, D;",
    "shl.b32 R, R, R;",
    "shr.s64 D, D, R;",
    "shf.l.wrap.b32 R, R, R, R;",
    "bfe.s32 R, R, R, R;",
    "bfi.b64 D, D, D, R, R;",
    "prmt.b32 R, R, R, R;",
    "lop3.b32 R, R, R, R, 150;",
    "popc.b64 R, D;",
    "bfind.shiftamt.s64 R, D;",
    "fns.b32 R, R, R, R;",
    "dp4a.s32.u32 R, R, R, R;",
    "add.cc.u32 R, R, R;",
    "madc.hi.u32 R, R, R, R;",
    "bmsk.wrap.b32 R, R, R;",
    "szext.clamp.s32 R, R, R;",
    "add.rz.ftz.f32 F, F, F;",
    "fma.rp.f64 G, G, G, G;",
    "div.rm.f32 F, F, F;",
    "sqrt.rn.f64 G, G;",
    "ex2.approx.f32 F, F;",
    "min.NaN.f32 F, F, F;",
    "cvt.rzi.s32.f32 R, F;",
    "cvt.rm.f32.u64 F, D;",
    "cvt.sat.u8.s32 R, R;",
    "cvt.rn.f16x2.f32 R, F, F;",
    "fma.rn.f16x2 R, R, R, R;",
    "setp.lt.s32 P, R, R;",
    "setp.neu.and.f64 P|P, G, G, !P;",
    "selp.b32 R, R, R, P;",
    "slct.f32.s32 F, F, F, R;",
    "mov.b64 D, {R, R};",
    "mov.b64 {R, R}, D;",
    "mov.u32 R, %tid.x;",
    "mov.u64 D, spare;",
    "mov.u32 R, own;",
    "ld.global.u32 R, [out+N];",
    "ld.global.v2.u32 {R, R}, [D];",
    "ld.u64 D, [D+N];",
    "ld.shared.u32 R, [R];",
    "ld.local.u8 R, [near+N];",
    "ld.param.u32 R, [block+N];",
    "ld.volatile.u32 R, [out];",
    "st.global.u32 [out+N], R;",
    "st.u16 [D], R;",
    "st.shared.v4.u32 [own+N], {R, R, R, R};",
    "st.local.u64 [near+8], D;",
    "atom.global.add.u32 R, [out+N], R;",
    "atom.shared.cas.b32 R, [own], R, R;",
    "red.add.f64 [D], G;",
    "membar.gl;",
    "cvta.shared.u64 D, D;",
    "isspacep.local P, D;",
    "bra L;",
    "bra L;",
    "bra.uni L;",
    "brx.idx R, table;",
    "bar.sync 0;",
    "barrier.sync R, 64;",
    "bar.arrive 2, 64;",
    "bar.red.popc.u32 R, 1, P;",
    "bar.warp.sync R;",
    "shfl.sync.idx.b32 R|P, R, R, 31, R;",
    "vote.sync.ballot.b32 R, P, R;",
    "match.any.sync.b64 R, D, -1;",
    "redux.sync.max.s32 R, R, R;",
    "activemask.b32 R;",
    "nanosleep.u32 R;",
    "call again;",
    "call (D), helper, (D, R);",
    "call D, table2;",
    "ret;",
    "exit;",
    "trap;",
    "mov.b32 F, R;",
    "mov.b64 G, D;",
    "and.pred P, P, !P;",
    "elect.sync R|P, R;",
];

fn instruction() -> impl Strategy<Value = String> {
    let guard = prop_oneof![3 => Just(""), 1 => Just("@P "), 1 => Just("@!P ")];
    let shape = prop::sample::select(SHAPES);
    let numbers = prop::collection::vec(0_u32..6, 12);
    let offset = prop_oneof![Just(0_i64), -64..300_i64, any::<i32>().prop_map(i64::from)];
    (guard, shape, numbers, offset).prop_map(|(guard, shape, numbers, offset)| {
        let mut numbers = numbers.into_iter().cycle();
        let mut out = String::new();
        let whole = format!("{guard}{shape}");
        let mut before = ' ';
        for letter in whole.chars() {
            let number = numbers.next().unwrap_or(0);
            let gap = !before.is_alphanumeric() && before != '.' && before != '_';
            match letter {
                'R' | 'D' | 'F' | 'G' | 'P' | 'L' if gap => {
                    out.push_str(&format!("{}{number}", letter.to_ascii_lowercase()));
                }
                'N' if gap => out.push_str(&offset.to_string()),
                letter => out.push(letter),
            }
            before = letter;
        }
        out
    })
}

/// A kernel with a label before every few instructions.
fn program() -> impl Strategy<Value = String> {
    prop::collection::vec(instruction(), 6..40).prop_map(|body| {
        let step = body.len() / 6;
        let lines = body.iter().enumerate().map(|(index, line)| {
            let label = match index % step {
                0 if index / step < 6 => format!("l{}: ", index / step),
                _ => String::new(),
            };
            format!("{label}{line}\n")
        });
        let registers = ".reg .b32 r<6>; .reg .b64 d<6>, out; .reg .f32 f<6>; .reg .f64 g<6>; .reg .pred p<6>;";
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.global .b64 spare[4];\n\
             .func (.reg .b64 x) helper(.reg .b64 a, .reg .b32 b) {{ add.u64 x, a, 8; ret; }}\n\
             .func again() {{ .local .b64 l[9]; .reg .b64 t; mov.u64 t, l; call again; st.local.u64 [t], t; ret; }}\n\
             .visible .entry k(.param .u64 block) {{ {registers} .shared .align 16 .b32 own[40]; .local .align 8 .b8 near[64];\n\
             table: .branchtargets l0, l1, l2, l3, l4, l5; table2: .callprototype _ ();\n\
             ld.param.u64 out, [block]; mov.u64 d0, out; mov.u64 d1, near; cvta.local.u64 d1, d1; mov.u32 r0, %laneid;\n{}ret; }}",
            lines.collect::<String>()
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    #[test]
    fn no_program_makes_the_device_panic(text in program()) {
        let arena = Arc::new(Arena::reserve(1 << 20).expect("memory"));
        let image = Arc::new(Image::load(text.clone(), &arena, 0).expect("a module"));
        let id = image.program.kernel("k").expect("a kernel");
        let kernel = image.kernel(id);
        prop_assert!(kernel.is_ok(), "{}: {:?}", text, kernel.err());
        let out = arena.allocate(256, 0, Purpose::Device).expect("room");
        let kernel = image.kernel(id).expect("just now");
        let launch = Launch {
            shared_bytes: kernel.dynamic_start(),
            dynamic_bytes: 0,
            kernel,
            code: None,
            arena: Arc::clone(&arena),
            textures: Default::default(),
            device: 0,
            grid: [2, 1, 1],
            block: [40, 1, 1],
            parameters: out.to_le_bytes().to_vec(),
            resident_blocks: 2,
            workspace: 0,
            number: 1,
            host_threads: 2,
            heap_bytes: 1 << 16,
            memory_limit: LAUNCH_LIMIT,
            started: Instant::now(),
            deadline: Some(Instant::now() + Duration::from_millis(10)),
            executed: AtomicU64::new(0),
            cancelled: Arc::new(AtomicBool::new(false)),
            print: Arc::new(|_: &[u8]| {}),
        };
        // Either outcome will do.
        let _ = run(&Arc::new(launch));
    }
}
