//! How much of a kernel runs at once.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::runtime::{Runtime, status};
use crate::types::*;
use crate::{call, get};

impl Runtime {
    pub unsafe fn cudaOccupancyMaxPotentialClusterSize(
        &self,
        clusterSize: *mut i32,
        func: *const c_void,
        launchConfig: *const cudaLaunchConfig_t,
    ) -> cudaError_t {
        status(|| {
            let (driver, function) = self.function(func)?;
            let config = self.configuration(&get!(launchConfig))?;
            call!(driver.cuOccupancyMaxPotentialClusterSize(
                clusterSize,
                function,
                &raw const config
            ));
            Ok(())
        })
    }

    pub unsafe fn cudaOccupancyMaxActiveClusters(
        &self,
        numClusters: *mut i32,
        func: *const c_void,
        launchConfig: *const cudaLaunchConfig_t,
    ) -> cudaError_t {
        status(|| {
            let (driver, function) = self.function(func)?;
            let config = self.configuration(&get!(launchConfig))?;
            call!(driver.cuOccupancyMaxActiveClusters(numClusters, function, &raw const config));
            Ok(())
        })
    }
}
