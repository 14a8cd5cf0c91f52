//! Devices that reach each other's memory.

extern "C" {
    /// Tells whether a device can reach another's memory.
    #[call]
    fn cudaDeviceCanAccessPeer(
        canAccessPeer: *mut i32,
        device: i32,
        peerDevice: i32,
    ) -> cudaError_t;

    /// Tells one number about the way between two devices.
    #[call(bare = "cuDeviceGetP2PAttribute")]
    fn cudaDeviceGetP2PAttribute(
        value: *mut i32,
        attr: cudaDeviceP2PAttr,
        srcDevice: i32,
        dstDevice: i32,
    ) -> cudaError_t;

    /// Tells which atomic operations reach another device's memory.
    #[call(bare = "cuDeviceGetP2PAtomicCapabilities", only = 13)]
    fn cudaDeviceGetP2PAtomicCapabilities(
        capabilities: *mut u32,
        operations: *const cudaAtomicOperation,
        count: u32,
        srcDevice: i32,
        dstDevice: i32,
    ) -> cudaError_t;

    /// Lets the current device reach another's memory.
    #[call]
    fn cudaDeviceEnablePeerAccess(peerDevice: i32, flags: u32) -> cudaError_t;

    /// Takes back what cudaDeviceEnablePeerAccess gave.
    #[call]
    fn cudaDeviceDisablePeerAccess(peerDevice: i32) -> cudaError_t;
}
