//! Statements to ask about: every instruction with modifiers and types in all ways, right or wrong, and right ones with an operand changed.

use std::collections::HashSet;

/// What stands in front of functions.
pub(crate) const HEAD: &str = ".version 9.3\n.target sm_90\n.address_size 64\n\
    .func (.param .b32 result) twice(.param .b32 number) { ret; }\n\
    .global .b32 somewhere[16];\n.const .b32 fixed[16];\n";

/// Types that registers may have.
const REGISTERS: &[&str] = &[
    "b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16",
    "f16x2", "f32", "f64",
];

/// Types that instructions may name.
const TYPES: &[&str] = &[
    "pred", "b8", "b16", "b32", "b64", "u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "f16",
    "f16x2", "bf16", "bf16x2", "f32", "f64", "u16x2", "s16x2",
];

/// Most modifiers beside types that are tried at once.
const MOST: usize = 4;
/// Most statements of an opcode and shape: of more, every so manieth is tried.
const SAMPLE: usize = 350;

/// How instructions are made: opcodes; groups of modifiers, of which one may be taken from each; how many types; operands. In operands `0`
/// and `1` are registers of those types, `2` one of twice the bits of the first, `r` of 32 bits, `h` of 16, `d` of 64, `p` a predicate.
struct Shape {
    opcodes: &'static str,
    groups: &'static [&'static str],
    types: usize,
    operands: &'static str,
}

const fn shape(
    opcodes: &'static str,
    groups: &'static [&'static str],
    types: usize,
    operands: &'static str,
) -> Shape {
    Shape {
        opcodes,
        groups,
        types,
        operands,
    }
}

const COMPARE: &str = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan";
const SCOPES: &str = "cta cluster gpu sys";
// Parameters' spaces are left out: ptxas 13.5 dies of stores through registers there.
const SPACES: &str = "global shared local const shared::cta shared::cluster";

const SHAPES: &[Shape] = &[
    shape(
        "add sub addc subc",
        &["rn rz rni", "ftz", "sat", "cc"],
        1,
        "0, 0, 0",
    ),
    shape("mul", &["rn rp", "ftz", "sat", "lo hi", "cc"], 1, "0, 0, 0"),
    shape("mul mul24", &["wide"], 1, "2, 0, 0"),
    shape(
        "mad madc",
        &["rn rm", "ftz", "lo hi", "sat", "cc"],
        1,
        "0, 0, 0, 0",
    ),
    shape("mad madc", &["wide", "sat", "cc"], 1, "2, 0, 0, 2"),
    shape("mul24", &["lo hi", "sat"], 1, "0, 0, 0"),
    shape("mad24", &["lo hi", "sat"], 1, "0, 0, 0, 0"),
    shape(
        "fma",
        &["rn rz", "ftz", "sat", "relu", "lo"],
        1,
        "0, 0, 0, 0",
    ),
    shape("div", &["rn rz", "approx full", "ftz", "sat"], 1, "0, 0, 0"),
    shape("rem", &["rn", "ftz", "lo"], 1, "0, 0, 0"),
    shape("sad", &["sat", "ftz"], 1, "0, 0, 0, 0"),
    shape(
        "min max",
        &["ftz", "NaN", "xorsign", "abs", "relu", "rn"],
        1,
        "0, 0, 0",
    ),
    shape("copysign", &["ftz", "rn"], 1, "0, 0, 0"),
    shape("abs neg", &["ftz", "sat", "rn"], 1, "0, 0"),
    shape(
        "rcp sqrt rsqrt",
        &["approx full", "rn rz", "ftz", "sat"],
        1,
        "0, 0",
    ),
    shape(
        "sin cos lg2 ex2 tanh",
        &["approx full", "rn", "ftz"],
        1,
        "0, 0",
    ),
    shape("and or xor", &["sat", "lo"], 1, "0, 0, 0"),
    shape("not cnot", &["ftz"], 1, "0, 0"),
    shape("shl shr", &["wrap clamp", "lo"], 1, "0, 0, r"),
    shape("shf", &["l r", "wrap clamp", "sat"], 1, "0, 0, 0, r"),
    shape("popc clz bfind", &["shiftamt", "sat"], 1, "r, 0"),
    shape("brev", &["lo"], 1, "0, 0"),
    shape("bfe", &["wrap"], 1, "0, 0, r, r"),
    shape("bfi", &["wrap"], 1, "0, 0, 0, r, r"),
    shape("bmsk szext", &["wrap clamp", "lo"], 1, "0, 0, r"),
    shape("fns", &["lo"], 1, "0, 0, r, r"),
    shape("lop3", &["lo", "and"], 1, "0, 0, 0, 0, 150"),
    shape("prmt", &["f4e b4e rc8 ecl ecr rc16 lo"], 1, "0, 0, 0, 0"),
    shape("dp4a", &["lo hi"], 2, "r, 0, 1, r"),
    shape("dp2a", &["lo hi"], 2, "r, 0, 1, r"),
    shape("setp", &[COMPARE, "ftz", "sat"], 1, "p, 0, 0"),
    shape("setp", &["eq lo nan", "and or xor", "ftz"], 1, "p, 0, 0, p"),
    shape("setp", &["eq lt hs num", "ftz"], 1, "p|q, 0, 0"),
    shape("set", &["eq lt hs num", "ftz"], 2, "0, 1, 1"),
    shape("set", &["ne gt", "and xor"], 2, "0, 1, 1, p"),
    shape("selp", &["ftz", "sat"], 1, "0, 0, 0, p"),
    shape("slct", &["ftz", "sat"], 2, "0, 0, 0, 1"),
    shape(
        "testp",
        &[
            "finite infinite number notanumber normal subnormal nan",
            "ftz",
        ],
        1,
        "p, 0",
    ),
    shape("mov", &["sat", "ftz"], 1, "0, 0"),
    shape("cvt", &["rn rz rp rna", "ftz", "sat", "relu"], 2, "0, 1"),
    shape("cvt", &["rni rzi rmi rpi", "ftz", "sat"], 2, "0, 1"),
    shape("cvt", &["rn rz rm", "ftz", "sat", "relu"], 2, "0, 1, 1"),
    shape("cvta", &["to", SPACES], 1, "0, 0"),
    shape("isspacep", &["to", SPACES], 0, "p, d"),
    shape(
        "bar barrier",
        &["cta cluster", "sync arrive", "aligned", "red"],
        0,
        "1",
    ),
    shape(
        "bar barrier",
        &["cta", "sync arrive", "aligned"],
        0,
        "1, 64",
    ),
    shape(
        "bar barrier",
        &["cta", "sync arrive red", "aligned", "popc and or"],
        1,
        "0, 1, p",
    ),
    shape(
        "bar barrier",
        &["cta", "red", "aligned", "popc and or"],
        1,
        "0, 1, 64, p",
    ),
    shape("bar", &["warp", "sync arrive", "aligned"], 0, "-1"),
    shape("nanosleep", &["sat"], 1, "0"),
    shape(
        "prefetch prefetchu",
        &[SPACES, "L1 L2 L2::evict_last L2::evict_normal"],
        0,
        "[d]",
    ),
    shape(
        "discard applypriority",
        &[SPACES, "L2 L2::evict_normal"],
        0,
        "[d], 128",
    ),
    shape("griddepcontrol", &["launch_dependents wait", "sync"], 0, ""),
    shape("exit trap ret brkpt", &["uni", "sync"], 0, ""),
    shape("activemask", &["sync"], 1, "0"),
    shape("elect", &["sync", "all"], 0, "r|p, -1"),
    shape("match", &["all any", "sync"], 1, "r, 0, -1"),
    shape("match", &["all any", "sync"], 1, "r|p, 0, -1"),
    shape(
        "redux",
        &["add min max and or xor inc", "sync", "abs NaN"],
        1,
        "0, 0, -1",
    ),
    shape("shfl", &["up down bfly idx", "sync"], 1, "0, 0, 1, 31, -1"),
    shape("shfl", &["up down bfly idx", "sync"], 1, "0|p, 0, r, r, r"),
    shape("shfl", &["up down bfly idx"], 1, "0, 0, 1, 31"),
    shape("vote", &["all any uni ballot", "sync"], 1, "0, p, -1"),
    shape("vote", &["all any uni ballot"], 1, "0, p"),
    shape(
        "ld",
        &["weak volatile relaxed acquire release mmio", SCOPES, SPACES],
        1,
        "0, [d]",
    ),
    shape("ld", &["ca cg cs lu cv wb", "nc", SPACES], 1, "0, [d]"),
    shape(
        "ld",
        &[
            "weak volatile relaxed",
            "gpu",
            "global shared const",
            "L1::evict_last L1::no_allocate L2::64B L2::evict_first",
        ],
        1,
        "0, [d]",
    ),
    shape(
        "ld",
        &["volatile relaxed", "gpu", "global shared const", "v2 v4 v8"],
        1,
        "{0, 0}, [d]",
    ),
    shape(
        "ld",
        &["volatile relaxed", "gpu", "global shared", "v2 v4 v8"],
        1,
        "{0, 0, 0, 0}, [d]",
    ),
    shape("ld", &["mmio", "relaxed", "sys gpu", "global"], 1, "0, [d]"),
    shape("ldu", &["global shared", "v2", "volatile"], 1, "0, [d]"),
    shape(
        "st",
        &["weak volatile relaxed acquire release mmio", SCOPES, SPACES],
        1,
        "[d], 0",
    ),
    shape("st", &["ca cg cs wt wb", "volatile", SPACES], 1, "[d], 0"),
    shape(
        "st",
        &["volatile relaxed", "gpu", "global shared", "v2 v4 v8"],
        1,
        "[d], {0, 0}",
    ),
    shape(
        "st",
        &["volatile relaxed", "gpu", "global shared", "v2 v4 v8"],
        1,
        "[d], {0, 0, 0, 0}",
    ),
    shape("st", &["mmio", "relaxed", "sys gpu", "global"], 1, "[d], 0"),
    shape(
        "atom",
        &[
            "relaxed acquire release acq_rel volatile",
            "cta sys",
            "global shared local const",
            "add exch",
        ],
        1,
        "0, [d], 0",
    ),
    shape(
        "atom",
        &[
            "add and cas dec exch inc max min or xor",
            "noftz",
            "global shared",
        ],
        1,
        "0, [d], 0",
    ),
    shape(
        "atom",
        &["cas add", "gpu", "global shared local"],
        1,
        "0, [d], 0, 0",
    ),
    shape(
        "red",
        &[
            "relaxed acquire release acq_rel",
            "cta sys",
            "global shared local",
            "add exch",
        ],
        1,
        "[d], 0",
    ),
    shape(
        "red",
        &[
            "add and cas dec exch inc max min or xor",
            "noftz",
            "global shared",
        ],
        1,
        "[d], 0",
    ),
    shape(
        "fence membar",
        &["sc acq_rel acquire release", "cta gpu gl sys cluster"],
        0,
        "",
    ),
    shape(
        "mbarrier",
        &["init", "shared shared::cta shared::cluster"],
        1,
        "[d], r",
    ),
    shape(
        "mbarrier",
        &["inval", "shared shared::cta global"],
        1,
        "[d]",
    ),
    shape(
        "mbarrier",
        &[
            "expect_tx complete_tx",
            "relaxed release",
            "cta cluster gpu",
            "shared shared::cluster",
        ],
        1,
        "[d], r",
    ),
    shape(
        "mbarrier",
        &[
            "arrive arrive_drop",
            "release relaxed acquire",
            "cta cluster",
            "shared::cta",
        ],
        1,
        "d, [d]",
    ),
    shape(
        "mbarrier",
        &[
            "arrive arrive_drop",
            "expect_tx noComplete",
            "release",
            "cta cluster",
            "shared shared::cluster",
        ],
        1,
        "d, [d], r",
    ),
    shape(
        "mbarrier",
        &[
            "arrive arrive_drop",
            "expect_tx",
            "relaxed",
            "cta cluster",
            "shared shared::cluster",
        ],
        1,
        "_, [d], r",
    ),
    shape(
        "mbarrier",
        &[
            "test_wait try_wait",
            "acquire relaxed",
            "cta cluster",
            "shared shared::cluster",
        ],
        1,
        "p, [d], d",
    ),
    shape(
        "mbarrier",
        &[
            "test_wait try_wait",
            "parity",
            "acquire",
            "cta cluster",
            "shared",
        ],
        1,
        "p, [d], r",
    ),
    shape(
        "mbarrier",
        &["try_wait test_wait", "parity", "acquire", "shared::cta"],
        1,
        "p, [d], r, r",
    ),
    shape("mbarrier", &["pending_count", "shared"], 1, "r, d"),
    shape(
        "barrier",
        &[
            "cluster",
            "arrive wait",
            "release acquire relaxed",
            "aligned",
        ],
        0,
        "",
    ),
    shape("mapa", &["shared::cluster shared"], 1, "0, 0, r"),
    shape("getctarank", &["shared::cluster shared"], 1, "r, 0"),
    shape(
        "fence",
        &[
            "proxy mbarrier_init",
            "async alias release",
            "shared::cta shared::cluster global cluster",
        ],
        0,
        "",
    ),
    shape(
        "cp",
        &["async", "mbarrier", "arrive", "noinc", "shared shared::cta"],
        1,
        "[d]",
    ),
];

/// Registers of every type, in one line each.
pub(crate) fn declarations() -> String {
    let registers = REGISTERS.iter().map(|ty| format!(".reg .{ty} {ty}_<6>;"));
    let registers: Vec<_> = registers.collect();
    format!("{} .reg .pred pred_<6>;", registers.join(" "))
}

/// A register that suits this type.
fn register(ty: &str, number: usize) -> String {
    let declared = match ty {
        "bf16" => "b16",
        "bf16x2" | "u16x2" | "s16x2" => "b32",
        ty => ty,
    };
    format!("{declared}_{number}")
}

fn bits(ty: &str) -> &'static str {
    match ty {
        "u8" | "s8" | "b8" => "b16",
        "u16" | "s16" | "b16" | "f16" | "bf16" => "b32",
        _ => "b64",
    }
}

/// Operands for these types.
fn operands(template: &str, types: &[&str]) -> String {
    let mut out = String::new();
    let mut next = 0;
    let mut number = || {
        next = (next + 1) % 6;
        next
    };
    for (index, part) in template
        .split_inclusive([' ', '|', '{', '[', ',', ']', '}'])
        .enumerate()
    {
        let end = part.len()
            - part
                .chars()
                .next_back()
                .filter(|c| !c.is_alphanumeric())
                .map_or(0, char::len_utf8);
        let (word, rest) = part.split_at(end);
        let _ = index;
        out += &match word {
            "0" => register(types[0], number()),
            "1" if types.len() > 1 => register(types[1], number()),
            "2" => register(bits(types[0]), number()),
            "r" => register("b32", number()),
            "h" => register("b16", number()),
            "d" => register("b64", number()),
            "p" | "q" => register("pred", number()),
            other => other.to_owned(),
        };
        out += rest;
    }
    out
}

/// All ways to take at most one of each group.
fn choices(groups: &[&'static str]) -> Vec<Vec<&'static str>> {
    let mut all = vec![Vec::new()];
    for group in groups {
        for index in 0..all.len() {
            for name in group.split(' ') {
                if all[index].len() < MOST {
                    let with = [&all[index][..], &[name]].concat();
                    all.push(with);
                }
            }
        }
    }
    all
}

/// Every instruction with every choice of modifiers and types.
pub(crate) fn modifiers() -> Vec<String> {
    let mut all = Vec::new();
    for shape in SHAPES {
        for opcode in shape.opcodes.split(' ') {
            let every = every(shape, opcode);
            // A step that is prime to the number of types goes through all of them.
            let step = (every.len() / SAMPLE) | 1;
            all.extend(every.into_iter().step_by(step));
        }
    }
    all
}

/// An opcode with every choice of modifiers and types of a shape.
fn every(shape: &Shape, opcode: &str) -> Vec<String> {
    let mut all = Vec::new();
    for names in choices(shape.groups) {
        let name = [&[opcode], &names[..]].concat().join(".");
        match shape.types {
            0 => all.push(statement(&name, shape.operands, &[])),
            1 => {
                let typed = |ty: &&str| statement(&format!("{name}.{ty}"), shape.operands, &[ty]);
                all.extend(TYPES.iter().map(typed));
            }
            _ => {
                for first in TYPES {
                    let typed = |second: &&str| {
                        let name = format!("{name}.{first}.{second}");
                        statement(&name, shape.operands, &[first, second])
                    };
                    all.extend(TYPES.iter().map(typed));
                }
            }
        }
    }
    all
}

/// What takes the place of an operand.
const OTHERS: &[&str] = &[
    "b8_0",
    "b16_0",
    "b32_0",
    "b64_0",
    "u8_0",
    "u16_0",
    "u32_0",
    "u64_0",
    "s16_0",
    "s32_0",
    "s64_0",
    "f16_0",
    "f16x2_0",
    "f32_0",
    "f64_0",
    "pred_0",
    "!pred_0",
    "1",
    "-1",
    "70000",
    "0x1ffffffff",
    "1.5",
    "0f3F800000",
    "0d3FF0000000000000",
    "undeclared",
    "b32_6",
    "{b32_0, b32_1}",
    "{b32_0}",
    "[b64_0]",
    "[b64_0+4]",
    "[undeclared]",
    "%tid.x",
    "%clock64",
    "somewhere",
    "(1 + 2)",
];

/// What the shapes have not. Most are right.
pub(crate) const BY_HAND: &[&str] = &[
    "{ bra away; away: }",
    "{ bra.uni away; away: }",
    "bra nowhere;",
    "bra 4;",
    "bra b32_0;",
    "{ @pred_0 bra away; away: }",
    "{ @!pred_0 bra away; away: }",
    "{ @b32_0 bra away; away: }",
    "{ list: .branchtargets one, two; brx.idx b32_0, list; one: two: }",
    "{ list: .branchtargets one; brx.idx b64_0, list; one: }",
    "{ brx.idx b32_0, list; list: .branchtargets one; one: }",
    "{ brx.idx b32_0, list; }",
    "{ .param .b32 a; .param .b32 r; st.param.b32 [a], b32_0; call (r), twice, (a); ld.param.b32 b32_0, [r]; }",
    "{ .param .b32 a; call twice, (a); }",
    "{ .param .b32 r; call (r), twice; }",
    "{ .param .b64 a; .param .b32 r; call (r), twice, (a); }",
    "{ .param .b32 a; .param .b32 r; call (r), thrice, (a); }",
    "{ .reg .b32 same; .reg .b32 same; }",
    "{ .reg .b32 outer; { .reg .b64 outer; mov.b64 outer, 1; } mov.b32 outer, 1; }",
    "{ .local .b32 near[4]; st.local.b32 [near+4], b32_0; }",
    "{ .local .b32 near[4]; st.shared.b32 [near+4], b32_0; }",
    "{ .local .b32 near[4]; ld.global.b32 b32_0, [near]; }",
    "{ .shared .b32 buffer[4]; ld.shared.b32 b32_0, [buffer+8]; }",
    "{ .shared .b32 buffer[4]; ld.global.b32 b32_0, [buffer+8]; }",
    "ld.global.b32 b32_0, [somewhere+4];",
    "ld.const.b32 b32_0, [fixed+4];",
    "ld.const.b32 b32_0, [somewhere];",
    "ld.global.b32 b32_0, [fixed];",
    "st.const.b32 [fixed], b32_0;",
    "ld.param.b64 b64_0, [given];",
    "ld.param.b32 b32_0, [given+4];",
    "ld.param.b64 b64_0, [somewhere];",
    "mov.u64 b64_0, somewhere;",
    "mov.u64 b64_0, somewhere+4;",
    "mov.u32 b32_0, somewhere;",
    "mov.b64 b64_0, {b32_0, b32_1};",
    "mov.b64 {b32_0, b32_1}, b64_0;",
    "mov.b64 {b32_0, _}, b64_0;",
    "mov.b64 b64_0, {b16_0, b16_1, b16_2, b16_3};",
    "mov.b64 b64_0, {b32_0, b16_0};",
    "mov.b32 b32_0, {b8_0, b8_1, b8_2, b8_3};",
    "mov.f32 f32_0, -0f3F800000;",
    "mov.u32 b32_0, %laneid;",
    "mov.u32 b32_0, %nonsense;",
    "mov.u32 b32_0, %tid;",
    "atom.global.add.u32 _, [b64_0], 1;",
    "atom.global.cas.b32 b32_0, [b64_0], b32_1;",
    "ld.global.v2.b32 {b32_0, b32_1, b32_2}, [b64_0];",
    "ld.global.v4.b32 {b32_0, _, b32_2, b32_3}, [b64_0];",
    "setp.lt.s32 pred_0|pred_1, b32_0, b32_1;",
    "setp.lt.s32 _|pred_1, b32_0, b32_1;",
    "shfl.sync.up.b32 b32_0|pred_0, b32_1, 1, 0, -1;",
    "lop3.b32 b32_0, b32_1, b32_2, b32_3, 256;",
    "lop3.b32 b32_0, b32_1, b32_2, b32_3, b32_4;",
    "lop3.or.b32 b32_0|pred_0, b32_1, b32_2, b32_3, 150, pred_1;",
    "lop3.and.b32 _|pred_0, b32_1, b32_2, b32_3, 150, !pred_1;",
    "lop3.xor.b32 b32_0|pred_0, b32_1, b32_2, b32_3, 150, pred_1;",
    "lop3.or.b32 b32_0, b32_1, b32_2, b32_3, 150, pred_1;",
    "lop3.b32 b32_0|pred_0, b32_1, b32_2, b32_3, 150, pred_1;",
    "cvt.pack.sat.s16.s32 b32_0, b32_1, b32_2;",
    "cvt.pack.sat.u8.s32.b32 b32_0, b32_1, b32_2, b32_3;",
    "cvt.pack.sat.u8.s32 b32_0, b32_1, b32_2;",
    "cvt.pack.s16.s32 b32_0, b32_1, b32_2;",
    "cvt.pack.sat.s16.s32.b32 b32_0, b32_1, b32_2, b32_3;",
    "vadd.s32.s32.u32.sat b32_0, b32_1, b32_2;",
    "vadd.s32.u32.s32 b32_0.b1, b32_1.h0, b32_2.b3, b32_3;",
    "vmad.s32.s32.u32.shr8 b32_0, b32_1, b32_2, b32_3;",
    "vshl.u32.u32.u32 b32_0, b32_1, b32_2;",
    "vadd4.u32.u32.u32 b32_0, b32_1, b32_2, b32_3;",
    "vadd.f32.s32.s32 f32_0, b32_1, b32_2;",
    "call (b32_0), nobody, (b32_1);",
    "cvt.rna.tf32.f32 b32_0, f32_0;",
    "cvt.rn.tf32.f32 b32_0, f32_0;",
    "cvt.rn.relu.tf32.f32 b32_0, f32_0;",
    "cvt.rna.relu.tf32.f32 b32_0, f32_0;",
    "cvt.rm.tf32.f32 b32_0, f32_0;",
    "cvt.tf32.f32 b32_0, f32_0;",
    "cvt.rna.tf32.f64 b32_0, f64_0;",
    "cvt.rna.tf32.f32 f32_0, f32_1;",
    "cvt.rna.tf32.f32 u32_0, f32_1;",
    "cvt.rz.tf32.f32 b32_0, b32_1;",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [b64_0], [b64_1], b32_0, [b64_2];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [b64_0], [b64_1], b32_0, [b64_2], b64_3;",
    "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [b64_0], [b64_1], b32_0, [b64_2];",
    "cp.async.bulk.global.shared::cta.bulk_group [b64_0], [b64_1], b32_0;",
    "cp.async.bulk.global.shared::cta.bulk_group [b64_0], [b64_1], 16;",
    "cp.async.bulk.global.global.bulk_group [b64_0], [b64_1], b32_0;",
    "cp.async.bulk.global.shared::cta [b64_0], [b64_1], b32_0;",
    "cp.async.bulk.shared::cluster.global.bulk_group [b64_0], [b64_1], b32_0;",
    "cp.async.bulk.commit_group;",
    "cp.async.bulk.prefetch.L2.global [b64_0], b32_0;",
    "cp.async.bulk.prefetch.L2.global.L2::cache_hint [b64_0], 16, b64_1;",
    "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 b64_0, 0f3f800000;",
    "createpolicy.fractional.L2::evict_first.b64 b64_0;",
    "createpolicy.range.global.L2::evict_last.L2::evict_first.b64 b64_0, [b64_1], b32_0, b32_1;",
    "createpolicy.cvt.L2.b64 b64_0, b64_1;",
    "cp.async.bulk.wait_group 3;",
    "cp.async.bulk.wait_group.read 0;",
    "cp.async.bulk.wait_group b32_0;",
    "mov.u32 b32_0, %clusterid.x;",
    "mov.u32 b32_0, %cluster_nctaid.z;",
    "mov.u32 b32_0, %cluster_ctarank;",
    "mov.u32 b32_0, %cluster_nctarank.x;",
    "mov.u32 b32_0, %nclusterid.y;",
    "{ .shared .b32 near[4]; mapa.shared::cluster.u32 b32_0, near, 0; }",
    "{ .shared .b32 near[4]; mapa.u64 b64_0, near, b32_0; }",
    "cvt.f16.bf16 f16_0, b16_0;",
    "cvt.rn.f16.bf16 f16_0, b16_0;",
    "madc.lo.u16 u16_0, u16_1, u16_2, u16_3;",
    "wrong.b32 b32_0, b32_1;",
    "add.wrong.f32 f32_0, f32_1, f32_2;",
    ";",
];

/// Statements that are right, one for each opcode and types, with one operand changed, left out, or there twice.
pub(crate) fn mutated(right: &[&str]) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for statement in right {
        let body = statement.strip_suffix(';').unwrap_or(statement);
        let (name, operands) = body.split_once(' ').unwrap_or((body, ""));
        let mut names = name.split('.');
        let mut key = names.next().unwrap_or_default().to_owned();
        for ty in names.filter(|name| TYPES.contains(name) || name.starts_with('v')) {
            key += ty;
        }
        let operands = split(operands);
        if !seen.insert((key, operands.len())) {
            continue;
        }
        let mut push = |operands: &[&str]| {
            let operands = operands.join(", ");
            all.push(format!("{name} {operands};").replace(" ;", ";"));
        };
        for index in 0..operands.len() {
            for other in OTHERS {
                let mut operands = operands.clone();
                operands[index] = other;
                push(&operands);
            }
            push(&[&operands[..index], &operands[index + 1..]].concat());
            push(&[&operands[..=index], &operands[index..]].concat());
        }
        push(&[&operands[..], &["1"]].concat());
    }
    all
}

/// Operands between commas, but not those within brackets.
fn split(operands: &str) -> Vec<&str> {
    let (mut all, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in operands.char_indices() {
        match letter {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            ',' if depth == 0 => {
                all.push(operands[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    match operands[start..].trim() {
        "" => {}
        last => all.push(last),
    }
    all
}

fn statement(name: &str, template: &str, types: &[&str]) -> String {
    match operands(template, types) {
        none if none.is_empty() => format!("{name};"),
        operands => format!("{name} {operands};"),
    }
}
