//! Lanes that code takes by fours, against the interpreter: where they part and meet again, and at the edges of what is checked for all
//! of them at once.

use super::{Compiled, in_both_tiers, kernel, loaded, of_threads};

/// Blocks of which some threads, or all, have nobody to go with.
const BLOCKS: [[u32; 3]; 6] = [
    [1, 1, 1],
    [38, 1, 1],
    [64, 1, 1],
    [96, 1, 1],
    [6, 7, 1],
    [8, 3, 2],
];

/// Where each thread has 16 bytes to itself, by its number in the block.
const OWN: &str = "mov.u32 a0, %ntid.x; mov.u32 a1, %tid.y; mad.lo.u32 a2, a0, a1, t; mov.u32 a1, %ntid.y; mul.lo.u32 a1, a0, a1;\n\
                   mov.u32 a0, %tid.z; mad.lo.u32 a2, a0, a1, a2; mul.wide.u32 d1, a2, 16; add.u64 d0, d0, d1;\n";

fn agree(body: &str) {
    for block in BLOCKS {
        let bytes = vec![0; block.iter().product::<u32>() as usize * 16];
        let [interpreted, compiled] = of_threads(block, &format!("{OWN}{body}"), &bytes);
        assert!(interpreted.is_ok(), "{block:?}: {interpreted:?}");
        assert_eq!(interpreted, compiled, "{block:?}");
    }
}

#[test]
fn lanes_that_part_go_on_each_by_itself() {
    // One of four, two of four, and all four on ways of their own.
    agree(
        "and.b32 a0, a2, 3; mov.u32 a1, 100; setp.eq.u32 p, a0, 1; @p bra one; add.u32 a1, a1, t; setp.gt.u32 p, a2, 33; @p bra two;\n\
         add.u32 a1, a1, 1000; two: add.u32 a1, a1, 7; one: add.u32 a3, a0, 1; more: mad.lo.u32 a1, a1, 3, a0; sub.u32 a3, a3, 1;\n\
         setp.ne.u32 p, a3, 0; @p bra more; st.global.u32 [d0], a1; st.global.u32 [d0+4], a3;",
    );
    // Some end, with a guard and by a way of their own; others go past the last instruction.
    agree(
        "st.global.u32 [d0], t; and.b32 a0, a2, 7; setp.eq.u32 p, a0, 2; @p exit; st.global.u32 [d0+4], t; setp.gt.u32 p, a0, 5; @p bra end;\n\
           st.global.u32 [d0+8], a0; end:",
    );
    // What stands behind a guard is carried out by some.
    agree(
        "and.b32 a0, a2, 3; mov.u32 a1, a2; setp.eq.u32 p, a0, 2; @p add.u32 a1, a1, 50; @!p st.global.u32 [d0+4], a1; cvt.u64.u32 d1, a1;\n\
         @p mul.lo.u64 d1, d1, 3; @p setp.eq.u32 p, a2, 6; selp.u32 a3, 1, 2, p; st.global.u32 [d0], a3; st.global.u64 [d0+8], d1;",
    );
}

#[test]
fn a_few_steps_that_some_leave_out_part_nobody() {
    // Stores that are checked together where all carry them out, what a register had before, and atomic operations.
    agree(
        "mov.u32 a1, 5; and.b32 a0, a2, 7; setp.gt.u32 p, a0, 4; add.u32 a1, a1, a0; @p bra past; st.global.u32 [d0], a1;\n\
         st.global.u32 [d0+4], a0; mad.lo.u32 a1, a1, 3, t; past: mov.u32 a3, s; setp.ne.u32 p, a0, 6; @p bra end;\n\
         atom.shared.add.u32 a1, [a3+8], 1; end: min.u32 a1, a1, 90; st.global.u32 [d0+8], a1; bar.sync 0; ld.shared.u32 a0, [a3+8];\n\
         st.global.u32 [d0+12], a0;",
    );
    // One of them fails.
    let body = "setp.ne.u32 p, t, 13; mov.u32 a1, s; add.u32 a1, a1, 4000; @p bra past; st.shared.u32 [a1], t; past:";
    let text = told(body, 4);
    assert!(text.contains("thread (13, 0, 0)"), "{text}");
}

#[test]
fn lanes_that_parted_go_together_again_only_as_equals() {
    // Behind the loop each has gone round as often as it wants, and what was the same for all differs; behind the other it is the same.
    for rounds in ["and.b32 a0, a2, 3;", "mov.u32 a0, 3; @p exit;"] {
        agree(&format!(
            "setp.eq.u32 p, t, 5; {rounds} mov.u32 a3, 0; mov.u32 a1, s; again: add.u32 a3, a3, 1; add.u32 a1, a1, 4;\n\
             sub.u32 a0, a0, 1; setp.gt.s32 p, a0, 0; @p bra again; bar.warp.sync -1; bar.sync 0; st.shared.u32 [a1], a3;\n\
             bar.sync 0; add.u32 a3, a3, 5; st.global.u32 [d0], a3; sub.u32 a1, a1, s; st.global.u32 [d0+4], a1;"
        ).replace("sub.u32 a1, a1, s;", "mov.u32 a0, s; sub.u32 a1, a1, a0;"));
    }
}

#[test]
fn members_of_one_four_may_wait_for_others() {
    // Lanes by twos vote with those of the next four: parts of fours go on while others wait.
    agree(
        "mov.u32 a0, %laneid; add.u32 a0, a0, 2; and.b32 a0, a0, 28; mov.u32 a1, 0x3c; setp.lt.u32 p, a0, 8; mov.u32 a3, t; @!p bra rest;\n\
         setp.lt.u32 p, a0, 4; selp.u32 a1, 3, a1, p; and.b32 a0, t, 1; setp.eq.u32 p, a0, 1; vote.sync.ballot.b32 a3, p, a1; rest:\n\
         bar.sync 0; st.global.u32 [d0], a3; st.global.u32 [d0+4], t;",
    );
}

#[test]
fn what_is_widened_may_overflow_between_lanes() {
    for start in ["0x7ffffffe", "0xfffffffe", "0x7fffffe1", "0xffffffdf", "5"] {
        for widen in [
            "mul.wide.s32 d1, a0, 4;",
            "mul.wide.u32 d1, a0, 4;",
            "cvt.s64.s32 d1, a0;",
            "cvt.u64.u32 d1, a0;",
            "mad.wide.s32 d1, a0, -3, d0; sub.u64 d1, d1, d0;",
        ] {
            agree(&format!(
                "add.u32 a0, t, {start}; {widen} st.global.u64 [d0], d1;"
            ));
            agree(&format!(
                "sub.u32 a0, {start}, t; {widen} st.global.u64 [d0], d1;"
            ));
        }
    }
}

/// How both tiers say that an access of 40 threads fails.
fn told(body: &str, bytes: usize) -> String {
    let [interpreted, compiled] = in_both_tiers(body, bytes);
    let told = compiled.expect_err("a fault");
    assert_eq!(interpreted, Err(told.clone()));
    told
}

#[test]
fn the_lane_that_fails_is_named() {
    let load = "mul.wide.u32 d1, t, 4; add.u64 d1, d0, d1; ld.global.u32 a0, [d1]; st.global.u32 [d1], a0;";
    assert!(in_both_tiers(load, 160)[1].is_ok());
    // Memory ends behind a lane in the middle of four.
    let text = told(load, 4 * 38);
    assert!(text.contains("thread (38, 0, 0)"), "{text}");
    // Downwards, from the 14th on in front of it.
    let down = "mul.wide.u32 d1, t, 4; sub.u64 d1, d0, d1; ld.global.u32 a0, [d1+52]; st.global.u32 [d1+52], a0;";
    let text = told(down, 160);
    assert!(text.contains("thread (14, 0, 0)"), "{text}");
    // Not aligned: all, and one of four.
    let text = told(
        "mul.wide.u32 d1, t, 4; add.u64 d1, d0, d1; ld.global.u32 a0, [d1+2];",
        400,
    );
    assert!(text.contains("thread (0, 0, 0)"), "{text}");
    let text = told(
        "mul.wide.u32 d1, t, 6; add.u64 d1, d0, d1; ld.global.u32 a0, [d1];",
        400,
    );
    assert!(text.contains("thread (1, 0, 0)"), "{text}");
    // Shared memory, whose addresses have 32 bits.
    let shared = "mov.u32 a1, s; mad.lo.u32 a1, t, 8, a1; st.shared.u32 [a1+0], t;";
    assert!(in_both_tiers(shared, 4)[1].is_err());
    let text = told(shared, 4);
    assert!(text.contains("thread (32, 0, 0)"), "{text}");
    let shared =
        "mov.u32 a1, s; sub.u32 a1, a1, 8; mad.lo.u32 a1, t, 4, a1; ld.shared.u32 a0, [a1];";
    let text = told(shared, 4);
    assert!(text.contains("thread (0, 0, 0)"), "{text}");
    // Local memory, at the same place for each.
    let local = ".local .b32 l[4]; mov.u32 a1, l; st.local.u32 [a1+16], t;";
    let text = told(local, 4);
    assert!(text.contains("thread (0, 0, 0)"), "{text}");
}

#[test]
fn memory_of_four_lanes_is_read_and_written_at_every_width() {
    let mut body = String::from(
        ".local .align 16 .b8 l[32]; .shared .align 16 .b8 m[2048]; .reg .b32 v<4>; .reg .b16 h; .reg .b64 w<2>; .reg .f32 f; .reg .f64 g;\n\
         mov.u32 a1, m; mad.lo.u32 a1, t, 16, a1; mov.u32 a3, l; st.shared.v4.u32 [a1], {t, a2, t, a1}; st.local.u32 [a3+4], t;\n\
         mad.lo.u32 v0, t, 3, 1; cvt.u16.u32 h, v0; st.local.u16 [a3+8], h; st.local.u8 [a3+13], v0; cvt.rn.f32.u32 f, v0;\n\
         cvt.rn.f64.u32 g, v0; st.local.f64 [a3+16], g; st.local.f32 [a3], f;\n",
    );
    for load in [
        "ld.shared.v2.u32 {v0, v1}, [a1+8]; sub.u32 v1, v1, a1; xor.b32 v2, v0, v1;",
        "ld.shared.u32 v2, [a1+4];",
        "ld.shared.s8 v2, [a1];",
        "ld.shared.u16 h, [a1]; cvt.u32.u16 v2, h;",
        "ld.shared.u64 w0, [a1]; shr.u64 w0, w0, 20; cvt.u32.u64 v2, w0;",
        "ld.local.u32 v2, [a3+4];",
        "ld.local.u16 h, [a3+8]; cvt.u32.u16 v2, h;",
        "ld.local.s8 v2, [a3+13];",
        "ld.local.f64 g, [a3+16]; cvt.rzi.u32.f64 v2, g;",
        "ld.local.f32 f, [a3]; cvt.rzi.s32.f32 v2, f;",
        "ld.global.u32 v2, [d0];",
    ] {
        body += &format!(
            "{load} ld.global.u32 v3, [d0]; mad.lo.u32 v3, v3, 31, v2; st.global.u32 [d0], v3;\n"
        );
    }
    for block in [[64, 1, 1], [16, 4, 1]] {
        let bytes = vec![3; 64 * 16];
        // Lanes in a row have 16 bytes of shared memory each, which rows share: all threads write the same there.
        let body = body.replace("{t, a2, t, a1}", "{t, t, t, a1}");
        let [interpreted, compiled] = of_threads(block, &format!("{OWN}{body}"), &bytes);
        assert!(interpreted.is_ok(), "{interpreted:?}");
        assert_eq!(interpreted, compiled);
    }
}

#[test]
fn numbers_in_vectors_are_those_of_the_interpreter() {
    // No numbers, quiet and signalling; infinities, zeros, subnormal numbers, and what rounds at the edge of them.
    let special: [u32; 16] = [
        0x7fc0_0001,
        0xffc0_0000,
        0x7f80_0001,
        0x7f80_0000,
        0xff80_0000,
        0,
        0x8000_0000,
        1,
        0x807f_ffff,
        0x0080_0000,
        0x3f80_0000,
        0xbf80_0001,
        0x3f7f_ffff,
        0x7f7f_ffff,
        0x4f00_0000,
        0x1f80_0000,
    ];
    let bytes: Vec<u8> = special.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let head = ".reg .f32 x, y, z, w; .reg .pred q; .reg .b64 e; mul.wide.u32 d1, t, 4; add.u64 d1, d0, d1; and.b32 a0, t, 15; mul.wide.u32 d2, a0, 4;\n\
        add.u64 d2, d0, d2; ld.global.f32 x, [d2]; shr.u32 a0, t, 4; and.b32 a0, a0, 15; mul.wide.u32 d2, a0, 4; add.u64 d2, d0, d2;\n\
        ld.global.f32 y, [d2]; add.u32 a0, t, a0; and.b32 a0, a0, 15; mul.wide.u32 d2, a0, 4; add.u64 d2, d0, d2; ld.global.f32 z, [d2];\n\
        mov.u32 a3, 0;\n";
    let operations = [
        "add.f32 w, x, y;",
        "add.ftz.sat.f32 w, x, y;",
        "sub.f32 w, x, y;",
        "mul.f32 w, x, y;",
        "mul.ftz.f32 w, x, y;",
        "mul.ftz.sat.f32 w, x, y;",
        "div.rn.f32 w, x, y;",
        "div.approx.ftz.f32 w, x, y;",
        "fma.rn.f32 w, x, y, z;",
        "fma.rn.ftz.f32 w, x, y, z;",
        "fma.rn.sat.f32 w, x, y, z;",
        "min.f32 w, x, y;",
        "max.f32 w, x, y;",
        "min.ftz.f32 w, x, y;",
        "max.ftz.f32 w, x, y;",
        "abs.f32 w, x;",
        "neg.f32 w, x;",
        "abs.ftz.f32 w, x;",
        "neg.ftz.f32 w, x;",
        "sqrt.rn.f32 w, x;",
        "rcp.rn.f32 w, x;",
        "rcp.approx.ftz.f32 w, x;",
        "rsqrt.approx.f32 w, x;",
        "rsqrt.approx.ftz.f32 w, x;",
        "cvt.rni.f32.f32 w, x;",
        "cvt.rmi.ftz.f32.f32 w, x;",
        "cvt.rzi.s32.f32 a3, x; mov.b32 w, a3;",
        "cvt.rni.u32.f32 a3, x; mov.b32 w, a3;",
        "mov.b32 a3, x; cvt.rn.f32.s32 w, a3;",
        "mov.b32 a3, x; cvt.rn.f32.u32 w, a3;",
        "mov.f32 w, x;",
        "setp.lt.f32 q, x, y; selp.f32 w, x, y, q;",
        "setp.equ.f32 q, x, y; selp.f32 w, x, z, q;",
        "setp.ne.f32 q, x, y; selp.f32 w, x, z, q;",
        "setp.neu.ftz.f32 q, x, y; selp.f32 w, x, z, q;",
        "setp.ltu.f32 q, x, y; selp.f32 w, x, z, q;",
        "setp.geu.f32 q, x, y; selp.f32 w, x, z, q;",
        "setp.num.f32 q, x, y; selp.f32 w, x, z, q;",
        "setp.nan.f32 q, x, y; selp.f32 w, x, z, q;",
        "setp.eq.ftz.f32 q, x, y; selp.f32 w, x, z, q;",
    ];
    for operation in operations {
        let mut memory = bytes.clone();
        memory.resize(64 + 4 * 256, 0);
        let body = format!("{head} {operation} st.global.f32 [d1+64], w;");
        let code = Compiled::new(&loaded(&kernel(&body))).expect("code");
        assert!(code.outline.four, "{operation}");
        let [interpreted, compiled] = of_threads([256, 1, 1], &body, &memory);
        assert!(interpreted.is_ok(), "{operation} {interpreted:?}");
        assert!(interpreted == compiled, "{operation}");
    }
}

#[test]
fn shuffles_in_a_chain_move_what_they_move_alone() {
    let mut body = String::from("mul.lo.u32 a3, a2, 77; .reg .pred q; mov.u32 a1, 0;\n");
    for (index, shuffle) in [
        "down.b32 a3|q, a3, 16, 31, -1",
        "down.b32 a3, a3, 3, 31, -1",
        "up.b32 a3|q, a3, 1, 0, -1",
        "up.b32 a3, a3, 5, 0x1800, -1",
        "bfly.b32 a3|q, a3, 1, 31, -1",
        "bfly.b32 a3, a3, 22, 31, -1",
        "idx.b32 a3, a3, 9, 31, -1",
        "idx.b32 a3|q, a3, 3, 0x181c, -1",
    ]
    .into_iter()
    .enumerate()
    {
        body += &format!("add.u32 a3, a3, a2; shfl.sync.{shuffle};\n");
        if shuffle.contains("|q") {
            body += &format!("@q add.u32 a1, a1, {};\n", 1 << index);
        }
        // In the middle some part, and a meeting of all brings them together again.
        if index == 4 {
            body +=
                "setp.eq.u32 p, t, 6; @p bra other; add.u32 a1, a1, 3; other: bar.warp.sync -1;\n";
        }
    }
    body += "st.global.u32 [d0], a3; st.global.u32 [d0+4], a1;";
    agree(&body);
    // In a loop, between barriers, with a lane that has ended.
    agree(
        "mov.u32 a1, 4; mov.u32 a3, a2; again: shfl.sync.bfly.b32 a0, a3, 2, 31, -1; add.u32 a3, a3, a0; shfl.sync.down.b32 a0, a3, 1, 31, -1;\n\
         add.u32 a3, a3, a0; bar.sync 0; sub.u32 a1, a1, 1; setp.ne.u32 p, a1, 0; @p bra again; st.global.u32 [d0], a3;",
    );
}

#[test]
fn loops_of_fours_give_others_their_turn() {
    // The first four poll for what the last thread of another warp tells only then.
    let body = "setp.gt.u32 p, t, 3; @p bra rest; look: ld.volatile.global.u32 a0, [d0]; setp.eq.u32 p, a0, 0; @p bra look; st.global.u32 [d0+4], a0;\n\
                exit; rest: setp.ne.u32 p, t, 63; @p exit; st.volatile.global.u32 [d0], 9;";
    let [interpreted, compiled] = of_threads([64, 1, 1], body, &[0; 8]);
    assert_eq!(interpreted, Ok(vec![9, 0, 0, 0, 9, 0, 0, 0]));
    assert_eq!(interpreted, compiled);
}
