//! Memory and its errors.

extern "C" {
    /// Total, free and used bytes of memory, with what the driver keeps among the used.
    #[call(id = 0x0601)]
    fn nvmlDeviceGetMemoryInfo(
        device: nvmlDevice_t,
        #[out] memory: *mut nvmlMemory_t,
    ) -> nvmlReturn_t;

    /// As `nvmlDeviceGetMemoryInfo`, with what the driver keeps apart.
    #[call(id = 0x0602)]
    fn nvmlDeviceGetMemoryInfo_v2(
        device: nvmlDevice_t,
        #[inout] memory: *mut nvmlMemory_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the DRAM encryption mode of a device.
    #[call(id = 0x0603)]
    fn nvmlDeviceGetDramEncryptionMode(
        device: nvmlDevice_t,
        #[inout] current: *mut nvmlDramEncryptionInfo_v1_t,
        #[inout] pending: *mut nvmlDramEncryptionInfo_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the ECC mode of a device.
    #[call(id = 0x0604)]
    fn nvmlDeviceGetEccMode(
        device: nvmlDevice_t,
        #[out] current: *mut nvmlEnableState_t,
        #[out] pending: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the default ECC mode of a device.
    #[call(id = 0x0605, fixed)]
    fn nvmlDeviceGetDefaultEccMode(
        device: nvmlDevice_t,
        #[out] defaultMode: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the total ECC errors of a device.
    #[call(id = 0x0606)]
    fn nvmlDeviceGetTotalEccErrors(
        device: nvmlDevice_t,
        errorType: nvmlMemoryErrorType_t,
        counterType: nvmlEccCounterType_t,
        #[out] eccCounts: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the detailed ECC errors of a device.
    #[call(id = 0x0607)]
    fn nvmlDeviceGetDetailedEccErrors(
        device: nvmlDevice_t,
        errorType: nvmlMemoryErrorType_t,
        counterType: nvmlEccCounterType_t,
        #[out] eccCounts: *mut nvmlEccErrorCounts_t,
    ) -> nvmlReturn_t;

    /// Tells the memory error counter of a device.
    #[call(id = 0x0608)]
    fn nvmlDeviceGetMemoryErrorCounter(
        device: nvmlDevice_t,
        errorType: nvmlMemoryErrorType_t,
        counterType: nvmlEccCounterType_t,
        locationType: nvmlMemoryLocation_t,
        #[out] count: *mut u64,
    ) -> nvmlReturn_t;

    /// Total, free and used bytes of the BAR1 window.
    #[call(id = 0x0609)]
    fn nvmlDeviceGetBAR1MemoryInfo(
        device: nvmlDevice_t,
        #[out] bar1Memory: *mut nvmlBAR1Memory_t,
    ) -> nvmlReturn_t;

    /// Tells the SRAM ECC error status of a device.
    #[call(id = 0x060A)]
    fn nvmlDeviceGetSramEccErrorStatus(
        device: nvmlDevice_t,
        #[inout] errors: *mut nvmlEccSramErrorStatus_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the retired pages of a device.
    #[call(id = 0x060B, unsupported)]
    fn nvmlDeviceGetRetiredPages(
        device: nvmlDevice_t,
        cause: nvmlPageRetirementCause_t,
        #[local] pageCount: *mut u32,
        #[local] addresses: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the retired pages of a device.
    #[call(id = 0x060C, unsupported)]
    fn nvmlDeviceGetRetiredPages_v2(
        device: nvmlDevice_t,
        cause: nvmlPageRetirementCause_t,
        #[local] pageCount: *mut u32,
        #[local] addresses: *mut u64,
        #[local] timestamps: *mut u64,
    ) -> nvmlReturn_t;

    /// Tells the retired pages pending status of a device.
    #[call(id = 0x060D)]
    fn nvmlDeviceGetRetiredPagesPendingStatus(
        device: nvmlDevice_t,
        #[out] isPending: *mut nvmlEnableState_t,
    ) -> nvmlReturn_t;

    /// Tells the remapped rows of a device.
    #[call(id = 0x060E)]
    fn nvmlDeviceGetRemappedRows(
        device: nvmlDevice_t,
        #[out] corrRows: *mut u32,
        #[out] uncRows: *mut u32,
        #[out] isPending: *mut u32,
        #[out] failureOccurred: *mut u32,
    ) -> nvmlReturn_t;

    /// Tells the row remapper histogram of a device.
    #[call(id = 0x060F)]
    fn nvmlDeviceGetRowRemapperHistogram(
        device: nvmlDevice_t,
        #[out] values: *mut nvmlRowRemapperHistogramValues_t,
    ) -> nvmlReturn_t;

    /// Tells the bank remapper status of a device.
    #[call(id = 0x0610, unsupported)]
    fn nvmlDeviceGetBankRemapperStatus_v1(
        device: nvmlDevice_t,
        #[local] status: *mut nvmlEccBankRemapperStatus_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the memory limits of a device.
    #[call(id = 0x0611, unsupported)]
    fn nvmlDeviceGetMemoryLimits_v1(
        device: nvmlDevice_t,
        #[local] limits: *mut nvmlGetMemoryLimits_v1_t,
    ) -> nvmlReturn_t;

    /// Tells the remapped rows of a device.
    #[call(id = 0x0612, unsupported)]
    fn nvmlDeviceGetRemappedRows_v2(
        device: nvmlDevice_t,
        #[local] info: *mut nvmlRemappedRowsInfo_v2_t,
    ) -> nvmlReturn_t;

    /// Tells the repair status of a device.
    #[call(id = 0x0613, unsupported)]
    fn nvmlDeviceGetRepairStatus(
        device: nvmlDevice_t,
        #[local] status: *mut nvmlRepairStatus_t,
    ) -> nvmlReturn_t;

    /// Tells the SRAM unique uncorrected ECC error counts of a device.
    #[call(id = 0x0614, unsupported)]
    fn nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(
        device: nvmlDevice_t,
        #[local] counts: *mut nvmlEccSramUniqueUncorrectedErrorCounts_t,
    ) -> nvmlReturn_t;

    /// Tells the unrepairable memory flag of a device.
    #[call(id = 0x0615, unsupported)]
    fn nvmlDeviceGetUnrepairableMemoryFlag_v1(
        device: nvmlDevice_t,
        #[local] status: *mut nvmlUnrepairableMemoryStatus_v1_t,
    ) -> nvmlReturn_t;
}
