//! What Towline's tests share: the conformance suite that runs over every implementation of the OpenCL contract, a session over a
//! simulated link or with a process of its own, and faults of that link.

#![warn(missing_docs)]

pub mod conformance;
pub mod faults;
pub mod guarded;
pub mod healing;
pub mod mutated;
pub mod pair;
pub mod process;
pub mod tamper;
