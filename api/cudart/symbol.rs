//! Variables of the device, by their host shadows.

extern "C" {
    /// Tells the address of a variable of the device.
    #[call]
    fn cudaGetSymbolAddress(devPtr: *mut *mut c_void, symbol: *const c_void) -> cudaError_t;

    /// Tells the size of a variable of the device.
    #[call]
    fn cudaGetSymbolSize(size: *mut usize, symbol: *const c_void) -> cudaError_t;
}
