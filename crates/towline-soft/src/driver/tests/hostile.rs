//! Programs that mean no good: each fails by itself, and what comes after it on the same devices is right.

use super::*;

/// Registers of a kernel that has too many.
const REGISTERS: usize = 4_000;

const HOSTILE: &str = ".version 8.0\n.target sm_75\n.address_size 64\n\
.func again() { .local .b64 near[16]; .reg .b64 d; mov.u64 d, near; st.local.u64 [d], d; call again; ret; }\n\
.visible .entry forever() { more: bra more; }\n\
.visible .entry spin(.param .u64 at) { .reg .b64 d; .reg .b32 x; .reg .pred p; ld.param.u64 d, [at];\n\
 more: atom.global.cas.b32 x, [d], 7, 7; setp.ne.u32 p, x, 7; @p bra more; ret; }\n\
.visible .entry deep() { call again; ret; }\n\
.visible .entry barrier() { .reg .b32 x; .reg .pred p; mov.u32 x, %tid.x; setp.eq.u32 p, x, 0; @p bar.sync 0, 64; ret; }\n\
.visible .entry read(.param .u64 at) { .reg .b64 d; ld.param.u64 d, [at]; ld.u64 d, [d]; st.u64 [d], d; ret; }\n\
.visible .entry write(.param .u64 at) { .reg .b64 d; ld.param.u64 d, [at]; st.u64 [d], d; ret; }\n\
.visible .entry jump(.param .u64 at) { .reg .b64 d; ld.param.u64 d, [at]; p: .callprototype _ (); call d, (), p; ret; }\n";

/// Such programs, and one with so many registers that all are needed to the end.
fn program() -> std::ffi::CString {
    use std::fmt::Write;
    let mut text = format!(
        "{HOSTILE}.visible .entry wide(.param .u64 at) {{ .reg .b64 r<{REGISTERS}>;\nld.param.u64 r0, [at];\n"
    );
    for register in 1..REGISTERS {
        let written = writeln!(text, "add.u64 r{register}, r{}, {register};", register - 1);
        written.expect("memory");
    }
    for register in 1..REGISTERS {
        let written = writeln!(text, "xor.b64 r0, r0, r{register};");
        written.expect("memory");
    }
    text += "ret; }\n";
    std::ffi::CString::new(text).expect("no NUL")
}

/// A context of its own, in which a kernel computes what it should.
fn is_right_afterwards(cuda: &SoftCuda) {
    let mut context = null_mut();
    // SAFETY: one place for the context, which becomes current.
    check(unsafe { cuda.cuCtxCreate_v2(&raw mut context, 0, 0) });
    let module = module(cuda, PROGRAM).expect("a module");
    let scale = function(cuda, module, c"scale");
    let data = allocate(cuda, 128);
    upload(cuda, data, &[5; 32], null_mut());
    check(launch(cuda, scale, (1, 32), null_mut(), &mut [data, 32]));
    assert_eq!(download(cuda, data, 32, null_mut()), [15; 32]);
}

fn fails_alone(tier: SoftTier) {
    let cuda = devices(SoftOptions {
        time_limit: Some(Duration::from_millis(50)),
        launch_bytes: 64 << 20,
        tier,
        ..SoftOptions::default()
    });
    let text = std::ffi::CString::new(HOSTILE).expect("no NUL");
    let attempts: [(&CStr, u64, u32, CUresult); 12] = [
        (c"forever", 0, 32, CUDA_ERROR_LAUNCH_TIMEOUT),
        (c"forever", 0, 1024, CUDA_ERROR_LAUNCH_TIMEOUT),
        (c"deep", 0, 1, CUDA_ERROR_HARDWARE_STACK_ERROR),
        (c"deep", 0, 1024, CUDA_ERROR_HARDWARE_STACK_ERROR),
        (c"barrier", 0, 64, CUDA_ERROR_LAUNCH_TIMEOUT),
        (c"read", 0, 1, CUDA_ERROR_ILLEGAL_ADDRESS),
        (c"read", u64::MAX - 7, 1, CUDA_ERROR_ILLEGAL_ADDRESS),
        (
            c"read",
            crate::image::SHARED_WINDOW + (1 << 40),
            1,
            CUDA_ERROR_ILLEGAL_ADDRESS,
        ),
        (c"write", 1 << 47, 1, CUDA_ERROR_ILLEGAL_ADDRESS),
        // Where this process has its code.
        (
            c"write",
            fails_alone as *const () as u64 & !7,
            1,
            CUDA_ERROR_ILLEGAL_ADDRESS,
        ),
        (c"jump", 0x1234, 1, CUDA_ERROR_INVALID_PC),
        (c"spin", 0, 32, CUDA_ERROR_LAUNCH_TIMEOUT),
    ];
    for (name, argument, threads, expected) in attempts {
        let mut context = null_mut();
        // SAFETY: one place for the context, which becomes current.
        check(unsafe { cuda.cuCtxCreate_v2(&raw mut context, 0, 0) });
        let module = module(&cuda, &text).expect("a module");
        let function = function(&cuda, module, name);
        // A lock that nobody releases.
        let lock = allocate(&cuda, 8);
        let argument = if name == c"spin" { lock } else { argument };
        check(launch(
            &cuda,
            function,
            (4, threads),
            null_mut(),
            &mut [argument],
        ));
        assert_eq!(
            synchronize(&cuda, null_mut()),
            expected,
            "{name:?} {argument:#x}"
        );
        // SAFETY: the context is live.
        check(unsafe { cuda.cuCtxDestroy_v2(context) });
        is_right_afterwards(&cuda);
    }
}

#[test]
fn hostile_kernels_fail_alone_when_interpreted() {
    fails_alone(SoftTier::Interpreter);
}

#[test]
fn hostile_kernels_fail_alone_when_compiled() {
    fails_alone(SoftTier::Jit);
}

#[test]
fn a_launch_gets_no_more_memory_than_the_operator_grants() {
    let text = program();
    let attempt = |launch_bytes: u64, threads: u32| {
        let cuda = devices(SoftOptions {
            launch_bytes,
            tier: SoftTier::Interpreter,
            ..SoftOptions::default()
        });
        let module = module(&cuda, &text).expect("a module");
        let wide = function(&cuda, module, c"wide");
        let data = allocate(&cuda, 8);
        let status = launch(&cuda, wide, (1, threads), null_mut(), &mut [data]);
        check(synchronize(&cuda, null_mut()));
        status
    };
    // Of 32 lanes, 8 bytes each: 1 MiB a warp.
    assert_eq!(attempt(900 << 10, 1), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    assert_eq!(attempt(2 << 20, 1), CUDA_SUCCESS);
    assert_eq!(attempt(2 << 20, 1024), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    assert_eq!(attempt(64 << 20, 1024), CUDA_SUCCESS);
}
