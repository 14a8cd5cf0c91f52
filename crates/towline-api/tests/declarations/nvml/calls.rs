//! One call for each shape that only NVML has. What is generated for it is compared with `tests/golden/nvml/<shape>.rs`.

extern "C" {
    /// A structure that says its own size, in and out again.
    #[call(id = 0x0101)]
    fn nvmlBothWays(device: nvmlDevice_t, #[inout] room: *mut nvmlRoom_v1_t) -> nvmlReturn_t;

    /// Refused because no client may.
    #[call(id = 0x0102, denied)]
    fn nvmlDenied(device: nvmlDevice_t, limit: u32) -> nvmlReturn_t;

    /// An answer that never changes.
    #[call(id = 0x0103, fixed)]
    fn nvmlFixed(device: nvmlDevice_t, #[out] cores: *mut u32) -> nvmlReturn_t;
}
