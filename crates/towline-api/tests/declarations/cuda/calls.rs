//! One call for each shape that only the CUDA driver API has. What is generated for it is compared with
//! `tests/golden/cuda/<shape>.rs`.

extern "C" {
    /// A handle comes out of it.
    #[call(id = 0x0101, async, since = "2.0")]
    fn cuCreated(#[out(creates)] phStream: *mut CUstream, Flags: u32) -> CUresult;

    /// A stream, which is the thread's own under another name; an older name means the same.
    #[call(
        id = 0x0102,
        async,
        since = "11.7",
        alias = "cuPerStream@8.0",
        per_thread = "cuPerStream_v2_ptsz@11.7"
    )]
    fn cuPerStream_v2(stream: CUstream, address: CUdeviceptr, value: u64) -> CUresult;

    /// The default stream, which is the thread's own under another name, though no parameter names it.
    #[call(
        id = 0x0103,
        local,
        manual(client),
        per_thread = "cuPerThread_ptds@7.0"
    )]
    fn cuPerThread(
        dst: CUdeviceptr,
        #[input(bytes = ByteCount, bulk)] src: *const c_void,
        ByteCount: usize,
    ) -> CUresult;

    /// A structure by value.
    #[call(id = 0x0104, sync)]
    fn cuByValue(extent: CUextent) -> CUresult;

    /// A structure with another and with arrays in it, out.
    #[call(id = 0x0105, sync)]
    fn cuOutStruct(#[out] room: *mut CUDA_ROOM_DESCRIPTOR, ctx: CUcontext) -> CUresult;

    /// Bytes in, through a pointer that could be written to.
    #[call(id = 0x0106, sync)]
    fn cuWritableInput(#[input(bytes = 8)] value: *mut c_void) -> CUresult;

    /// A value that the driver picks and the device interprets.
    #[call(id = 0x0107, sync)]
    fn cuDeviceValue(#[out(device_value)] value: *mut CUdeviceptr) -> CUresult;

    /// What goes in and comes out again, and what cannot travel: composed by the client.
    #[call(id = 0x0108, local, manual(client))]
    fn cuComposed(
        #[inout] count: *mut usize,
        #[input] place: *const CUplace,
        #[callback] fn_: CUhostFn,
        #[user_data] userData: *mut c_void,
    ) -> CUresult;

    /// Output that is zero where the call fails.
    #[call(id = 0x010a, local, manual(client))]
    fn cuCleared(#[out(cleared)] dptr: *mut CUdeviceptr, bytesize: usize) -> CUresult;

    /// Lists that share their length, of which one can be left out; the half learns the length from the other.
    #[call(id = 0x010b, local)]
    fn cuGivenLists(
        #[out] phNode: *mut CUstream,
        #[input(len = count)] nodes: *const CUstream,
        #[input(len = count, nullable)] extents: *const CUextent,
        count: usize,
    ) -> CUresult;

    /// A list with its room behind a pointer, which tells the true length, a place that can be left out, and one that the half itself
    /// decides about.
    #[call(id = 0x010c, local)]
    fn cuToldList(
        #[out(len = count, nullable)] nodes: *mut CUstream,
        #[inout] count: *mut usize,
        #[out(nullable)] first: *mut u64,
        #[out(place)] last: *mut CUstream,
    ) -> CUresult;

    /// Structures with pointers inside, which the call's contract vouches for; one comes out again.
    #[call(id = 0x010d, local)]
    fn cuVouched(#[input] work: *const CUwork, #[inout] made: *mut CUwork) -> CUresult;

    /// Text in, text out up to a length, and a value of so many bytes; two results.
    #[call(id = 0x010e, local)]
    fn cuTexts(
        #[input(cstr)] path: *const c_char,
        #[out(bytes = room)] name: *mut c_char,
        room: i32,
        #[out(bytes = 8)] value: *mut c_void,
        #[out] kind: *mut u32,
    ) -> CUresult;

    /// Declared for later.
    #[call(id = 0x0109, async, planned)]
    fn cuPlanned(#[destroys] hStream: CUstream) -> CUresult;
}
