//! Settings of the program's own library: there are none here.

extern "C" {
    /// Finds a setting.
    #[call(refused)]
    fn ncclParamBind(out: *mut ncclParamHandle_t, key: *const c_char) -> ncclResult_t;

    /// Tells a setting.
    #[call(refused)]
    fn ncclParamGet(
        h: ncclParamHandle_t,
        out: *mut c_void,
        maxLen: c_int,
        len: *mut c_int,
    ) -> ncclResult_t;

    /// Tells a setting as text.
    #[call(refused)]
    fn ncclParamGetStr(h: ncclParamHandle_t, out: *mut *const c_char) -> ncclResult_t;

    /// Tells a setting by its name.
    #[call(refused)]
    fn ncclParamGetParameter(
        key: *const c_char,
        value: *mut *const c_char,
        valueLen: *mut c_int,
    ) -> ncclResult_t;

    /// Tells the names of all settings.
    #[call(refused)]
    fn ncclParamGetAllParameterKeys(
        table: *mut *mut *const c_char,
        tableLen: *mut c_int,
    ) -> ncclResult_t;

    /// Prints all settings: there are none here.
    #[call(refused)]
    fn ncclParamDumpAll();

    /// Tells a setting as a number of 8 bits.
    #[call(refused)]
    fn ncclParamGetI8(h: ncclParamHandle_t, out: *mut i8) -> ncclResult_t;

    /// Tells a setting as a number of 16 bits.
    #[call(refused)]
    fn ncclParamGetI16(h: ncclParamHandle_t, out: *mut i16) -> ncclResult_t;

    /// Tells a setting as a number of 32 bits.
    #[call(refused)]
    fn ncclParamGetI32(h: ncclParamHandle_t, out: *mut i32) -> ncclResult_t;

    /// Tells a setting as a number of 64 bits.
    #[call(refused)]
    fn ncclParamGetI64(h: ncclParamHandle_t, out: *mut i64) -> ncclResult_t;

    /// Tells a setting as a number of 8 bits.
    #[call(refused)]
    fn ncclParamGetU8(h: ncclParamHandle_t, out: *mut u8) -> ncclResult_t;

    /// Tells a setting as a number of 16 bits.
    #[call(refused)]
    fn ncclParamGetU16(h: ncclParamHandle_t, out: *mut u16) -> ncclResult_t;

    /// Tells a setting as a number of 32 bits.
    #[call(refused)]
    fn ncclParamGetU32(h: ncclParamHandle_t, out: *mut u32) -> ncclResult_t;

    /// Tells a setting as a number of 64 bits.
    #[call(refused)]
    fn ncclParamGetU64(h: ncclParamHandle_t, out: *mut u64) -> ncclResult_t;
}
