//! The generated dispatcher: one arm per call.

#![allow(
    clippy::unnecessary_cast,
    clippy::unnecessary_map_on_constructor,
    reason = "generated code is the same for every width of scalar"
)]

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_wire::error::{CloseCode, ProtocolError};

use super::session::Session;
use crate::decode::c_string;

include!(concat!(env!("OUT_DIR"), "/cuda_dispatch.rs"));
