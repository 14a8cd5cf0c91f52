//! One provider: PoCL as it is, and PoCL treated like a session, where maps are emulated and nothing of the host is shared.

mod support;

use std::ptr::{null, null_mut};

use support::{ADD, Cl, POCL, providers};
use towline_backend::opencl::*;

fn session_like() -> Cl {
    Cl::over(providers(&[POCL], false))
}

#[test]
fn a_kernel_adds_to_what_was_written() {
    let cl = Cl::new(&[POCL]);
    let queue = cl.queue(0);
    let buffer = cl.buffer(16);
    let kernel = cl.kernel(cl.program(ADD), "add");
    cl.write(queue, buffer, &[1, 2, 3, 4]);
    cl.arg(kernel, 0, buffer);
    cl.arg(kernel, 1, 10_u32);
    cl.launch(queue, kernel, 4);
    assert_eq!(cl.read(queue, buffer, 4), [11, 12, 13, 14]);
}
