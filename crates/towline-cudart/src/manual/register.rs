//! What the host code that nvcc generates calls: before `main`, at its end, and around a launch with angle brackets.

use std::cell::RefCell;
use std::ffi::{c_char, c_void};
use std::mem::ManuallyDrop;

use towline_backend::cuda::*;

use crate::code::{self, Shadow};
use crate::runtime::{Outcome, Runtime, status};
use crate::types::*;
use crate::{get, put};

/// What stands in angle brackets.
#[derive(Clone, Copy)]
struct Configuration {
    grid: dim3,
    block: dim3,
    shared: usize,
    stream: usize,
}

thread_local! {
    /// Configurations between push and pop: an argument of a launch may launch. Nothing ends it with its thread: destructors of the program
    /// launch, too.
    static PUSHED: RefCell<ManuallyDrop<Vec<Configuration>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
}

impl Runtime {
    pub unsafe fn __cudaRegisterFatBinary(&self, fatCubin: *mut c_void) -> *mut *mut c_void {
        // SAFETY: the compiler's contract.
        let handle = unsafe { self.code.register(fatCubin) };
        std::ptr::without_provenance_mut(handle)
    }

    /// Nothing waits for the end: what was registered is loaded when it is used.
    pub unsafe fn __cudaRegisterFatBinaryEnd(&self, fatCubinHandle: *mut *mut c_void) {
        let _ = fatCubinHandle;
    }

    pub unsafe fn __cudaUnregisterFatBinary(&self, fatCubinHandle: *mut *mut c_void) {
        let Some(library) = self.code.forget(fatCubinHandle.addr()) else {
            return;
        };
        if let Ok(driver) = self.start() {
            // The driver may have ended before the program's last functions run; then there is nothing left to unload.
            // SAFETY: the library is this binary's, and nothing finds it any more.
            let _ = unsafe { driver.cuLibraryUnload(library) };
        }
    }

    pub unsafe fn __cudaRegisterFunction(
        &self,
        fatCubinHandle: *mut *mut c_void,
        hostFun: *const c_char,
        deviceFun: *mut c_char,
        deviceName: *const c_char,
        thread_limit: i32,
        tid: *mut c_void,
        bid: *mut c_void,
        bDim: *mut dim3,
        gDim: *mut dim3,
        wSize: *mut i32,
    ) {
        // Limits and the like stand in the code itself.
        let _ = (deviceFun, thread_limit, tid, bid, bDim, gDim, wSize);
        // SAFETY: the compiler's contract.
        if let Some(name) = unsafe { code::name(deviceName) } {
            self.code
                .add_kernel(fatCubinHandle.addr(), hostFun.addr(), name);
        }
    }

    pub unsafe fn __cudaRegisterVar(
        &self,
        fatCubinHandle: *mut *mut c_void,
        hostVar: *mut c_char,
        deviceAddress: *mut c_char,
        deviceName: *const c_char,
        ext: i32,
        size: usize,
        constant: i32,
        global: i32,
    ) {
        let _ = (deviceAddress, ext, constant, global);
        let shadow = Shadow {
            address: hostVar.addr(),
            size,
            managed: false,
        };
        // SAFETY: the compiler's contract.
        if let Some(name) = unsafe { code::name(deviceName) } {
            self.code.add_variable(fatCubinHandle.addr(), &shadow, name);
        }
    }

    pub unsafe fn __cudaRegisterManagedVar(
        &self,
        fatCubinHandle: *mut *mut c_void,
        hostVarPtrAddress: *mut *mut c_void,
        deviceAddress: *mut c_char,
        deviceName: *const c_char,
        ext: i32,
        size: usize,
        constant: i32,
        global: i32,
    ) {
        let _ = (deviceAddress, ext, constant, global);
        let shadow = Shadow {
            address: hostVarPtrAddress.expose_provenance(),
            size,
            managed: true,
        };
        // SAFETY: the compiler's contract.
        if let Some(name) = unsafe { code::name(deviceName) } {
            self.code.add_variable(fatCubinHandle.addr(), &shadow, name);
        }
    }

    pub unsafe fn __cudaRegisterHostVar(
        &self,
        fatCubinHandle: *mut *mut c_void,
        deviceName: *const c_char,
        hostVar: *mut c_char,
        size: usize,
    ) {
        let _ = (fatCubinHandle, deviceName, hostVar, size);
        self.refuse("__cudaRegisterHostVar");
    }

    pub unsafe fn __cudaRegisterUnifiedTable(
        &self,
        fatCubinHandle: *mut *mut c_void,
        table: *mut c_void,
    ) {
        let _ = (fatCubinHandle, table);
        self.refuse("__cudaRegisterUnifiedTable");
    }

    /// Gives managed variables their addresses before host code follows them. Answers whether it succeeded.
    pub unsafe fn __cudaInitModule(&self, fatCubinHandle: *mut *mut c_void) -> c_char {
        let entered = self.enter();
        match entered.and_then(|driver| self.code.has_managed(driver, fatCubinHandle.addr())) {
            Ok(()) => 1,
            Err(error) => {
                log::error!(
                    "managed variables cannot be used: {}",
                    super::error::name(error)
                );
                0
            }
        }
    }

    pub unsafe fn __cudaPushCallConfiguration(
        &self,
        gridDim: dim3,
        blockDim: dim3,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> u32 {
        PUSHED.with_borrow_mut(|pushed| {
            pushed.push(Configuration {
                grid: gridDim,
                block: blockDim,
                shared: sharedMem,
                stream: stream.expose_provenance(),
            });
        });
        0
    }

    pub unsafe fn __cudaPopCallConfiguration(
        &self,
        gridDim: *mut dim3,
        blockDim: *mut dim3,
        sharedMem: *mut usize,
        stream: *mut c_void,
    ) -> cudaError_t {
        status(|| {
            let popped = PUSHED.with_borrow_mut(|pushed| {
                let popped = pushed.pop();
                if pushed.is_empty() {
                    drop(std::mem::take(&mut **pushed));
                }
                popped
            });
            let popped = popped.ok_or(cudaErrorMissingConfiguration)?;
            put!(gridDim, popped.grid);
            put!(blockDim, popped.block);
            put!(sharedMem, popped.shared);
            let stream = stream.cast::<cudaStream_t>();
            put!(stream, std::ptr::with_exposed_provenance_mut(popped.stream));
            Ok(())
        })
    }

    /// Answers a name of this library's for the kernel: its code is loaded at the launch, which can tell what went wrong.
    pub unsafe fn __cudaGetKernel(
        &self,
        kernelPtr: *mut cudaKernel_t,
        entryFuncAddr: *const c_void,
    ) -> cudaError_t {
        status(|| {
            let handle = self.code.handle(entryFuncAddr.addr());
            let handle = handle.ok_or(cudaErrorInvalidDeviceFunction)?;
            put!(kernelPtr, std::ptr::without_provenance_mut(handle));
            Ok(())
        })
    }

    pub unsafe fn __cudaLaunchKernel(
        &self,
        kernel: cudaKernel_t,
        gridDim: dim3,
        blockDim: dim3,
        args: *mut *mut c_void,
        sharedMem: usize,
        stream: cudaStream_t,
    ) -> cudaError_t {
        // SAFETY: the caller's contract.
        unsafe { self.cudaLaunchKernel(kernel.cast(), gridDim, blockDim, args, sharedMem, stream) }
    }

    pub unsafe fn cudaGetSymbolAddress(
        &self,
        devPtr: *mut *mut c_void,
        symbol: *const c_void,
    ) -> cudaError_t {
        status(|| {
            let (address, _) = self.symbol(symbol)?;
            put!(
                devPtr,
                std::ptr::with_exposed_provenance_mut(address as usize)
            );
            Ok(())
        })
    }

    pub unsafe fn cudaGetSymbolSize(&self, size: *mut usize, symbol: *const c_void) -> cudaError_t {
        status(|| {
            let variable = self.code.variable(symbol)?;
            put!(size, variable.size);
            Ok(())
        })
    }

    /// Address and size of a variable on the current device.
    pub(crate) fn symbol(&self, symbol: *const c_void) -> Outcome<(CUdeviceptr, usize)> {
        let driver = self.enter()?;
        self.code.variable(symbol)?.place(driver)
    }

    /// The address of `count` bytes from `offset` on in a variable, for a copy to it.
    pub(crate) fn symbol_to_write(
        &self,
        symbol: *const c_void,
        offset: usize,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> Outcome<*mut c_void> {
        self.in_symbol(symbol, offset, count, (kind, cudaMemcpyHostToDevice))
    }

    /// As [`Self::symbol_to_write`], for a copy from it.
    pub(crate) fn symbol_to_read(
        &self,
        symbol: *const c_void,
        offset: usize,
        count: usize,
        kind: cudaMemcpyKind,
    ) -> Outcome<*mut c_void> {
        self.in_symbol(symbol, offset, count, (kind, cudaMemcpyDeviceToHost))
    }

    fn in_symbol(
        &self,
        symbol: *const c_void,
        offset: usize,
        count: usize,
        (kind, between): (cudaMemcpyKind, cudaMemcpyKind),
    ) -> Outcome<*mut c_void> {
        let (address, size) = self.symbol(symbol)?;
        let end = offset.checked_add(count).ok_or(cudaErrorInvalidValue)?;
        if end > size {
            return Err(cudaErrorInvalidValue);
        }
        // The variable is the device's (seen with NVIDIA's library over driver 580).
        if ![between, cudaMemcpyDeviceToDevice, cudaMemcpyDefault].contains(&kind) {
            return Err(cudaErrorInvalidMemcpyDirection);
        }
        let address = address.checked_add(offset as u64);
        let address = address.ok_or(cudaErrorInvalidValue)? as usize;
        Ok(std::ptr::with_exposed_provenance_mut(address))
    }
}

/// What `get!` reads, for structures that may be NULL.
pub(crate) fn optional<T>(source: *const T) -> Outcome<Option<T>> {
    if source.is_null() {
        return Ok(None);
    }
    Ok(Some(get!(source)))
}
