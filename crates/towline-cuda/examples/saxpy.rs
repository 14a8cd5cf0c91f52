//! A program over the CUDA driver API that knows nothing of Towline: it loads `libcuda.so.1` by name, as programs do, and carries out
//! a multiply-add on the first device.
//!
//! ```console
//! $ cargo build -p towline-cuda --example saxpy
//! $ towline run --server gpubox -- target/debug/examples/saxpy
//! ```

use std::error::Error;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;

use libloading::Library;

/// `y[i] = a * x[i] + y[i]`, one thread for each element.
const PTX: &std::ffi::CStr = c"
.version 6.4
.target sm_75
.address_size 64
.visible .entry saxpy(.param .u32 n, .param .f32 a, .param .u64 x, .param .u64 y) {
    .reg .pred %p; .reg .b32 %i, %b, %t, %n; .reg .f32 %a, %fx, %fy; .reg .b64 %x, %y, %o;
    mov.u32 %b, %ctaid.x;  mov.u32 %t, %tid.x;  mov.u32 %n, %ntid.x;  mad.lo.u32 %i, %b, %n, %t;
    ld.param.u32 %n, [n];  setp.ge.u32 %p, %i, %n;  @%p ret;
    ld.param.u64 %x, [x];  ld.param.u64 %y, [y];  mul.wide.u32 %o, %i, 4;
    add.u64 %x, %x, %o;  add.u64 %y, %y, %o;
    ld.param.f32 %a, [a];  ld.global.f32 %fx, [%x];  ld.global.f32 %fy, [%y];
    fma.rn.f32 %fy, %a, %fx, %fy;  st.global.f32 [%y], %fy;
    ret;
}
";
const COUNT: usize = 1 << 20;
const BLOCK: usize = 256;

/// Calls a function of the driver by name and returns from `main` if it fails. The types are those of its C prototype.
macro_rules! call {
    ($driver:ident, $name:ident($($value:expr => $kind:ty),*)) => {{
        type Function = unsafe extern "C" fn($($kind),*) -> c_int;
        // SAFETY: the driver has this function with this prototype.
        let function = unsafe { $driver.get::<Function>(stringify!($name)) }?;
        // SAFETY: every pointer is to a live local of the type that the function writes or reads.
        match unsafe { function($($value),*) } {
            0 => {}
            status => return Err(format!(concat!(stringify!($name), " failed with status {}"), status).into()),
        }
    }};
}

fn main() -> Result<(), Box<dyn Error>> {
    // SAFETY: drivers do nothing when they are loaded.
    let driver = unsafe { Library::new("libcuda.so.1") }?;
    let (mut device, mut name) = (0, [0_u8; 100]);
    let mut context = null_mut();
    call!(driver, cuInit(0 => c_uint));
    call!(driver, cuDeviceGet(&raw mut device => *mut c_int, 0 => c_int));
    let (text, room) = (name.as_mut_ptr().cast(), name.len() as c_int);
    call!(driver, cuDeviceGetName(text => *mut c_char, room => c_int, device => c_int));
    call!(driver, cuDevicePrimaryCtxRetain(&raw mut context => *mut *mut c_void, device => c_int));
    call!(driver, cuCtxSetCurrent(context => *mut c_void));

    let (mut module, mut function) = (null_mut(), null_mut());
    let code = PTX.as_ptr().cast();
    call!(driver, cuModuleLoadData(&raw mut module => *mut *mut c_void, code => *const c_void));
    let entry = c"saxpy".as_ptr();
    call!(driver, cuModuleGetFunction(&raw mut function => *mut *mut c_void, module => *mut c_void, entry => *const c_char));

    let (mut n, mut a, mut x, mut y) = (COUNT as u32, 2.0_f32, 0_u64, 0_u64);
    let mut values = [vec![1.0_f32; COUNT], vec![3.0_f32; COUNT]];
    let bytes = COUNT * size_of::<f32>();
    for (address, values) in [&mut x, &mut y].into_iter().zip(&values) {
        let from = values.as_ptr().cast();
        call!(driver, cuMemAlloc_v2(&raw mut *address => *mut u64, bytes => usize));
        call!(driver, cuMemcpyHtoD_v2(*address => u64, from => *const c_void, bytes => usize));
    }

    let mut parameters: [*mut c_void; 4] = [
        (&raw mut n).cast(),
        (&raw mut a).cast(),
        (&raw mut x).cast(),
        (&raw mut y).cast(),
    ];
    let grid = COUNT.div_ceil(BLOCK) as c_uint;
    call!(driver, cuLaunchKernel(
        function => *mut c_void,
        grid => c_uint, 1 => c_uint, 1 => c_uint,
        BLOCK as c_uint => c_uint, 1 => c_uint, 1 => c_uint,
        0 => c_uint,
        null_mut() => *mut c_void,
        parameters.as_mut_ptr() => *mut *mut c_void,
        null_mut() => *mut *mut c_void
    ));
    let to = values[1].as_mut_ptr().cast();
    call!(driver, cuMemcpyDtoH_v2(to => *mut c_void, y => u64, bytes => usize));
    call!(driver, cuMemFree_v2(x => u64));
    call!(driver, cuMemFree_v2(y => u64));
    call!(driver, cuDevicePrimaryCtxRelease_v2(device => c_int));

    let right = values[1].iter().filter(|value| **value == 5.0).count();
    let name = String::from_utf8_lossy(name.split(|byte| *byte == 0).next().unwrap_or_default());
    println!("{name}: {right} of {COUNT} numbers are right");
    match right {
        COUNT => Ok(()),
        _ => Err("the device computed something else".into()),
    }
}
