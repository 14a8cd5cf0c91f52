//! The suite over the host-memory device: the rules that need no compiler.

use std::sync::Arc;

use towline_backend::opencl::NullOpenCl;
use towline_test::conformance::Fixture;

towline_test::suite! { "null" => Fixture::first(Arc::new(NullOpenCl::new(2))) }
