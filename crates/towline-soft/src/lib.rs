//! A CUDA device in software: PTX carried out on the CPU, behind the driver's contract.
//!
//! [`SoftCuda`] implements [`CudaApi`](towline_backend::cuda::CudaApi), so a worker serves it like a GPU's driver. Modules must hold PTX;
//! what of it this device cannot carry out is refused per kernel, when it is launched, with a message that says which instruction it is
//! and what helps.
//!
//! - [`memory`]: memory that kernels and the host share. Every access is checked.
//! - [`image`]: a module on a device.
//! - [`exec`]: launches, and the interpreter.
//! - [`jit`]: kernels as machine code.
//! - [`fault`]: what goes wrong while a kernel runs.
//! - [`texture`]: textures and surfaces.
//! - [`messages`]: what the program is told of it.
//! - [`tier`]: which of the two runs a launch.
//! - [`driver`]: contexts, streams, and the calls.
//! - [`collectives`]: what NCCL does between GPUs, between these devices.
#![deny(unsafe_code)]
#![warn(missing_docs)]

#[allow(unsafe_code, reason = "calls of the driver's contract")]
mod collectives;
#[cfg(any(test, feature = "differ"))]
pub mod differ;
mod driver;
mod exec;
mod fault;
mod image;
mod jit;
pub mod measure;
#[allow(unsafe_code, reason = "memory that kernels and the host share")]
mod memory;
mod messages;
mod texture;
mod tier;

pub use collectives::SoftNccl;
pub use driver::{SoftCuda, SoftOptions, SoftTier};
