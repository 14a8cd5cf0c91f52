//! A server that lies about device code: what it states of a kernel's parameters is held against the image that the application brought,
//! and nothing beside the arguments of a launch leaves the application's memory.
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "calls of the C interface stand side by side"
)]

mod support;

use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use support::Machine;
use towline_backend::cuda::*;
use towline_test::tamper::{Message, Tamper, TamperedTransport, Traffic, Victim};

/// Puts a word into what the server sends, behind these bytes.
struct Replace {
    from: Vec<u8>,
    to: Vec<u8>,
}

impl Tamper for Replace {
    fn message(&mut self, (id, mut body): Message, out: &mut Vec<Message>) {
        let places: Vec<usize> = (0..body.len().saturating_sub(self.from.len() - 1))
            .filter(|at| body[*at..].starts_with(&self.from))
            .collect();
        for at in places {
            body[at..at + self.to.len()].copy_from_slice(&self.to);
        }
        out.push((id, body));
    }
}

/// A machine whose server's word is changed, and what the client sends.
fn lying(from: &[u8], to: &[u8]) -> (Machine, Arc<Traffic>) {
    assert_eq!(from.len(), to.len());
    let (from, to) = (from.to_vec(), to.to_vec());
    let transport = TamperedTransport::new(Victim::Client, Replace { from, to });
    let traffic = transport.traffic();
    let transport = std::cell::Cell::new(Some(transport));
    let machine = Machine::on_soft_over(|_| {
        let transport = transport.take().expect("there is one server");
        (Box::new(transport), "memory://server".parse().unwrap())
    });
    (machine, traffic)
}

/// What the facts say of a parameter.
fn stated(offset: u32, size: u32) -> Vec<u8> {
    [offset.to_le_bytes(), size.to_le_bytes()].concat()
}

const IMAGE: &CStr = c".version 7.0\n.target sm_70\n.address_size 64\n\
    .visible .entry put(.param .u64 place, .param .u32 value) {\n\
    .reg .b64 %rd<3>; .reg .b32 %r<2>;\n\
    ld.param.u64 %rd1, [place]; ld.param.u32 %r1, [value]; cvta.to.global.u64 %rd2, %rd1;\n\
    st.global.u32 [%rd2], %r1; ret; }\n";

const SECRET: &[u8] = b"what lies behind an argument and is not lent";

/// An argument of four bytes, and what lies behind it.
struct Argument {
    memory: Vec<u8>,
}

impl Argument {
    fn new(value: u32) -> Self {
        let mut memory = value.to_le_bytes().to_vec();
        memory.extend(SECRET.iter().cycle().take(8192));
        Self { memory }
    }

    fn pointer(&mut self) -> *mut c_void {
        self.memory.as_mut_ptr().cast()
    }
}

fn load(driver: &towline_cuda::Driver, image: &CStr) -> (CUresult, CUmodule) {
    let mut module = null_mut();
    // SAFETY: the image is a string, and the place a local.
    let loaded = unsafe { driver.cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
    (loaded, module)
}

/// Launches `put` and says what came of it, and what is in its place then.
fn put(machine: &Machine, function: CUfunction, value: u32) -> (CUresult, Vec<u8>) {
    let place = machine.filled(&[0; 4]);
    let (mut address, mut value) = (place, Argument::new(value));
    let mut params = [(&raw mut address).cast(), value.pointer()];
    // SAFETY: the parameters are those of the kernel.
    let launched = unsafe {
        let (list, none) = (params.as_mut_ptr(), null_mut());
        let driver = &machine.driver;
        driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, null_mut(), list, none)
    };
    let found = match launched {
        CUDA_SUCCESS => machine.bytes(place, 4),
        _ => Vec::new(),
    };
    (launched, found)
}

fn function(machine: &Machine, module: CUmodule) -> CUfunction {
    let mut found = null_mut();
    // SAFETY: the function is a local.
    let status = unsafe {
        let name = c"put".as_ptr();
        machine
            .driver
            .cuModuleGetFunction(&raw mut found, module, name)
    };
    assert_eq!(status, CUDA_SUCCESS);
    found
}

#[test]
fn an_honest_server_is_sent_the_argument_alone() {
    let (machine, traffic) = lying(&stated(8, 4), &stated(8, 4));
    let (loaded, module) = load(&machine.driver, IMAGE);
    assert_eq!(loaded, CUDA_SUCCESS);
    let (launched, found) = put(&machine, function(&machine, module), 0x1234_5678);
    assert_eq!(
        (launched, found),
        (CUDA_SUCCESS, 0x1234_5678_u32.to_le_bytes().to_vec())
    );
    assert!(traffic.holds(&0x1234_5678_u32.to_le_bytes()));
    assert!(!traffic.holds(&SECRET[..8]));
    machine.leave();
}

#[test]
fn a_parameter_larger_than_the_images_ends_the_session_at_the_load() {
    for lie in [
        stated(8, 4100),
        stated(8, 8),
        stated(16, 4),
        stated(8, 32_756),
        stated(9, 3),
    ] {
        let (machine, traffic) = lying(&stated(8, 4), &lie);
        let (loaded, _) = load(&machine.driver, IMAGE);
        assert_eq!(loaded, CUDA_ERROR_DEVICE_UNAVAILABLE);
        let reason = machine.sessions[0].lost().unwrap().to_owned();
        assert!(reason.contains("other parameters of put"), "{reason}");
        assert!(!traffic.holds(&SECRET[..8]));
        machine.end();
    }
}

#[test]
fn parameters_beyond_cudas_own_limits_do_not_decode() {
    for lie in [stated(8, 40_000), stated(3_000_000_000, 4), stated(7, 4)] {
        let (machine, _) = lying(&stated(8, 4), &lie);
        let (loaded, _) = load(&machine.driver, IMAGE);
        assert_eq!(loaded, CUDA_ERROR_DEVICE_UNAVAILABLE);
        let reason = machine.sessions[0].lost().unwrap().to_owned();
        assert!(reason.contains("does not decode"), "{reason}");
        machine.end();
    }
}

/// A container that holds the image as an entry for PTX.
fn container() -> Vec<u8> {
    let text = IMAGE.to_bytes_with_nul();
    let padded = text.len().next_multiple_of(8);
    let mut entry = vec![0; 64 + padded];
    entry[0] = 1;
    entry[2..4].copy_from_slice(&0x101_u16.to_le_bytes());
    entry[4] = 64;
    entry[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
    entry[28..32].copy_from_slice(&70_u32.to_le_bytes());
    entry[64..64 + text.len()].copy_from_slice(text);
    let mut out = 0xba55_ed50_u32.to_le_bytes().to_vec();
    out.extend([1, 0, 16, 0]);
    out.extend((entry.len() as u64).to_le_bytes());
    out.extend(entry);
    out
}

#[test]
fn a_container_is_read_at_the_first_use_of_a_parameter() {
    let container = container();
    for (lie, outcome) in [
        (stated(8, 4), CUDA_SUCCESS),
        (stated(8, 4100), CUDA_ERROR_DEVICE_UNAVAILABLE),
    ] {
        let (machine, traffic) = lying(&stated(8, 4), &lie);
        let mut module = null_mut();
        // SAFETY: the container is whole, and the place a local.
        let loaded = unsafe {
            let image = container.as_ptr().cast();
            machine.driver.cuModuleLoadData(&raw mut module, image)
        };
        assert_eq!(loaded, CUDA_SUCCESS);
        let (launched, _) = put(&machine, function(&machine, module), 7);
        assert_eq!(launched, outcome);
        assert!(!traffic.holds(&SECRET[..8]));
        machine.end();
    }
}

#[test]
fn questions_about_parameters_have_the_same_answer_as_the_image() {
    let container = container();
    let (machine, _) = lying(&stated(8, 4), &stated(8, 4100));
    let mut module = null_mut();
    let (mut offset, mut size) = (0, 0);
    // SAFETY: the container is whole, and the places are locals.
    let told = unsafe {
        let image = container.as_ptr().cast();
        assert_eq!(
            machine.driver.cuModuleLoadData(&raw mut module, image),
            CUDA_SUCCESS
        );
        let function = function(&machine, module);
        machine
            .driver
            .cuFuncGetParamInfo(function, 1, &raw mut offset, &raw mut size)
    };
    assert_eq!((told, size), (CUDA_ERROR_DEVICE_UNAVAILABLE, 0));
    machine.end();
}

/// Links the image on a server that changes the outcome: what completing gives.
fn linked(from: &[u8], to: &[u8]) -> CUresult {
    let (machine, _) = lying(from, to);
    let driver = &machine.driver;
    let (mut link, mut image, mut size) = (null_mut(), null_mut(), 0);
    let code = IMAGE.to_bytes_with_nul();
    let none = || (0, null_mut(), null_mut());
    // SAFETY: the code is readable for its length, and the places are locals.
    let completed = unsafe {
        let (count, options, values) = none();
        assert_eq!(
            driver.cuLinkCreate_v2(count, options, values, &raw mut link),
            CUDA_SUCCESS
        );
        let (data, name) = (code.as_ptr().cast_mut().cast(), c"part".as_ptr());
        let added = driver.cuLinkAddData_v2(
            link,
            CU_JIT_INPUT_PTX,
            data,
            code.len(),
            name,
            count,
            options,
            values,
        );
        assert_eq!(added, CUDA_SUCCESS);
        driver.cuLinkComplete(link, &raw mut image, &raw mut size)
    };
    machine.end();
    completed
}

#[test]
fn link_with_other_parameters_ends_the_session() {
    let value = b".param .u32 value";
    assert_eq!(linked(value, value), CUDA_SUCCESS);
    assert_eq!(
        linked(value, b".param .u64 value"),
        CUDA_ERROR_DEVICE_UNAVAILABLE
    );
    assert_eq!(
        linked(b".version", b".ver\0ion"),
        CUDA_ERROR_DEVICE_UNAVAILABLE
    );
}
