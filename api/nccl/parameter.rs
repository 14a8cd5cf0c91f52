//! Parameters of the library, by name.

extern "C" {
    /// Finds a parameter by its name.
    #[call(refused)]
    fn ncclParamBind(out: *mut ncclParamHandle_t, key: *const c_char) -> ncclResult_t;

    /// Reads a parameter as a signed number of 8 bits.
    #[call(refused)]
    fn ncclParamGetI8(h: ncclParamHandle_t, out: *mut i8) -> ncclResult_t;

    /// Reads a parameter as a signed number of 16 bits.
    #[call(refused)]
    fn ncclParamGetI16(h: ncclParamHandle_t, out: *mut i16) -> ncclResult_t;

    /// Reads a parameter as a signed number of 32 bits.
    #[call(refused)]
    fn ncclParamGetI32(h: ncclParamHandle_t, out: *mut i32) -> ncclResult_t;

    /// Reads a parameter as a signed number of 64 bits.
    #[call(refused)]
    fn ncclParamGetI64(h: ncclParamHandle_t, out: *mut i64) -> ncclResult_t;

    /// Reads a parameter as an unsigned number of 8 bits.
    #[call(refused)]
    fn ncclParamGetU8(h: ncclParamHandle_t, out: *mut u8) -> ncclResult_t;

    /// Reads a parameter as an unsigned number of 16 bits.
    #[call(refused)]
    fn ncclParamGetU16(h: ncclParamHandle_t, out: *mut u16) -> ncclResult_t;

    /// Reads a parameter as an unsigned number of 32 bits.
    #[call(refused)]
    fn ncclParamGetU32(h: ncclParamHandle_t, out: *mut u32) -> ncclResult_t;

    /// Reads a parameter as an unsigned number of 64 bits.
    #[call(refused)]
    fn ncclParamGetU64(h: ncclParamHandle_t, out: *mut u64) -> ncclResult_t;

    /// Reads a parameter as text.
    #[call(refused)]
    fn ncclParamGetStr(h: ncclParamHandle_t, out: *mut *const c_char) -> ncclResult_t;

    /// Reads the bytes of a parameter.
    #[call(refused)]
    fn ncclParamGet(
        h: ncclParamHandle_t,
        out: *mut c_void,
        maxLen: i32,
        len: *mut i32,
    ) -> ncclResult_t;

    /// Reads the text of a parameter by its name.
    #[call(refused)]
    fn ncclParamGetParameter(
        key: *const c_char,
        value: *mut *const c_char,
        valueLen: *mut i32,
    ) -> ncclResult_t;

    /// Lists the names of parameters.
    #[call(refused)]
    fn ncclParamGetAllParameterKeys(
        table: *mut *mut *const c_char,
        tableLen: *mut i32,
    ) -> ncclResult_t;

    /// Writes all parameters into the log.
    #[call(refused = ())]
    fn ncclParamDumpAll();
}
