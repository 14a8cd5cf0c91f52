//! How much of a kernel runs at once.

use std::ffi::c_void;

use towline_backend::cuda::*;

use crate::runtime::{Runtime, status};
use crate::types::*;
use crate::{call, get};

impl Runtime {
    pub unsafe fn cudaOccupancyMaxActiveBlocksPerMultiprocessor(
        &self,
        numBlocks: *mut i32,
        func: *const c_void,
        blockSize: i32,
        dynamicSMemSize: usize,
    ) -> cudaError_t {
        // SAFETY: the caller's contract.
        unsafe {
            self.cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                numBlocks,
                func,
                blockSize,
                dynamicSMemSize,
                0,
            )
        }
    }

    pub unsafe fn cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &self,
        numBlocks: *mut i32,
        func: *const c_void,
        blockSize: i32,
        dynamicSMemSize: usize,
        flags: u32,
    ) -> cudaError_t {
        status(|| {
            let (driver, function) = self.function(func)?;
            call!(driver.cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                numBlocks,
                function,
                blockSize,
                dynamicSMemSize,
                flags
            ));
            Ok(())
        })
    }

    pub unsafe fn cudaOccupancyAvailableDynamicSMemPerBlock(
        &self,
        dynamicSmemSize: *mut usize,
        func: *const c_void,
        numBlocks: i32,
        blockSize: i32,
    ) -> cudaError_t {
        status(|| {
            let (driver, function) = self.function(func)?;
            call!(driver.cuOccupancyAvailableDynamicSMemPerBlock(
                dynamicSmemSize,
                function,
                numBlocks,
                blockSize
            ));
            Ok(())
        })
    }

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
