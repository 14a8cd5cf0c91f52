//! Parameters that calls hand on, time limits, alignment.

use super::*;

also_compiled! {
    callees_read_kernel_parameters_by_address_and_value,
    long_rounds_end_at_the_time_limit,
    misaligned_accesses_to_odd_host_memory_are_faults,
    pairs_of_bytes_go_there_and_back,
}

/// A function takes the address of a parameter of the kernel's, and another as a register.
#[test]
fn callees_read_kernel_parameters_by_address_and_value() {
    let text = ".func (.reg .b64 x) sum(.param .b64 p, .reg .b64 b) { .reg .b64 d; ld.param.u64 d, [p]; ld.u64 x, [d+8];\n\
         add.u64 x, x, b; ret; }\n\
         .visible .entry k(.param .u64 block, .param .align 8 .b8 s[16], .param .b64 more) { .reg .b64 out, x; .param .b64 a;\n\
         ld.param.u64 out, [block]; mov.b64 x, s; cvta.param.u64 x, x; st.param.b64 [a], x;\n\
         call (x), sum, (a, more); st.global.u64 [out], x; ret; }";
    let bench = Bench::new(text);
    let out = bench.words(&[0; 2]);
    bench
        .launch(ONE_WARP, &[out, 1, 20, 300])
        .expect("no fault");
    assert_eq!(bench.read(out, 2), [320, 0]);
    let writes = text.replace("ld.u64 x, [d+8]", "st.u64 [d+8], b");
    let found = Bench::new(&writes).launch(ONE_WARP, &[out, 1, 20, 300]);
    let found = found.expect_err("parameters are only read").kind;
    assert!(
        matches!(found, FaultKind::Address { write: true, .. }),
        "{found:?}"
    );
}

/// Each round has many operations that helpers carry out.
#[test]
fn long_rounds_end_at_the_time_limit() {
    let body = "sin.approx.f32 f1, f1; vadd.u32.u32.u32.sat a1, a0, a1;\n".repeat(100);
    let text = kernel(&format!("again: {body} bra again;"));
    let shape = Shape {
        block: 256,
        time_limit: Some(Duration::from_millis(20)),
        ..ONE_WARP
    };
    let started = Instant::now();
    assert_eq!(fault(&text, shape).kind, FaultKind::TimeLimit);
    let took = started.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// The distance from where registered memory begins does not tell what is aligned.
#[test]
fn misaligned_accesses_to_odd_host_memory_are_faults() {
    let bench = Bench::new(&kernel(
        "shr.u32 a0, t, 4; cvt.u64.u32 d0, a0; ld.param.u64 d1, [other]; add.u64 d0, d0, d1; ld.global.u32 r, [d0];",
    ).replace("block)", "block, .param .u64 other)"));
    let mut memory = vec![0_u64; 16];
    let start = memory.as_mut_ptr().expose_provenance() as u64;
    assert!(bench.arena.register(start + 1, 100));
    let out = bench.words(&[0; 32]);
    let found = bench.launch(ONE_WARP, &[out, start + 8]);
    let found = found.expect_err("a fault").kind;
    let address = start + 9;
    assert_eq!(found, FaultKind::Misaligned { address, bytes: 4 });
}

/// Alignment beyond that of allocations.
#[test]
fn variables_have_the_alignment_they_ask_for() {
    let bench = Bench::new(
        ".global .b32 one; .global .align 4096 .b8 a[16]; .const .align 65536 .b8 b[16]; .visible .entry k() { ret; }",
    );
    for (name, align) in [("a", 4096), ("b", 65536)] {
        let (address, len) = bench.image.global(name).expect("a variable");
        assert_eq!((address % align, len), (0, 16), "{name}");
    }
}

/// Bytes that hold numbers, from 32 bits, to 16 and back.
#[test]
fn pairs_of_bytes_go_there_and_back() {
    let found = per_lane(
        ".reg .b16 h; cvt.rn.f32.u32 f0, t; neg.f32 f1, f0; cvt.rn.satfinite.relu.e4m3x2.f32 h, f1, f0; cvt.rn.f16x2.e4m3x2 a0, h;\n\
         cvt.rn.satfinite.e5m2x2.f16x2 h, a0; mov.b32 r, {h, h};",
    );
    // 17 is a tie between 16 and 18 first, 9 one between 8 and 10.
    assert_eq!(
        [0, 1, 9, 17].map(|lane| found[lane]),
        [0, 0x3c_003c, 0x48_0048, 0x4c_004c]
    );
}
