//! What Towline's tests share: the conformance suite that runs over every implementation of the OpenCL contract.

pub mod conformance;
pub mod pair;
