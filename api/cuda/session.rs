//! Messages of the session itself: what the client composes CUDA calls from. They are numbered like calls, and not exported.
//!
//! Whatever needs a context runs in the one that the last `Act` named. A stream of 0 is the context's default stream.

extern "C" {
    /// Says for which client thread the messages that follow act, in which context, and how strictly a capture guards that thread.
    #[call(id = 0x0f01, internal, async, manual(server))]
    fn Act(thread: u64, context: CUcontext, capture_mode: CUstreamCaptureMode) -> CUresult;

    /// Makes a context; what the device says of it decides.
    #[call(id = 0x0f02, internal, sync, manual(server))]
    fn ContextCreate(
        device: CUdevice,
        flags: u32,
        #[out(creates)] context: *mut CUcontext,
    ) -> CUresult;

    /// Takes the session's reference to a device's primary context. While the end of the one that had this number is under way, the answer
    /// is CUDA_ERROR_NOT_READY, when that has ended: the client asks again.
    #[call(id = 0x0f03, internal, sync, manual(server))]
    fn PrimaryRetain(
        device: CUdevice,
        flags: u32,
        #[out(creates)] context: *mut CUcontext,
    ) -> CUresult;

    /// Gives that reference back.
    #[call(id = 0x0f04, internal, async, manual(server))]
    fn PrimaryRelease(device: CUdevice, #[destroys] context: CUcontext) -> CUresult;

    /// Ends everything in a device's primary context.
    #[call(id = 0x0f05, internal, sync, waits, manual(server))]
    fn PrimaryReset(device: CUdevice) -> CUresult;

    /// Ends a context and everything in it.
    #[call(id = 0x0f06, internal, async, manual(server))]
    fn ContextDestroy(#[destroys] context: CUcontext) -> CUresult;

    /// Launches a function with the parameters in `params`, laid out as its facts say. A kernel's number may stand for the function's.
    /// `attributes` are nine words each: the attribute's number and its 64 bytes, handles as their numbers.
    #[call(id = 0x0f10, internal, async, manual(server))]
    fn Launch(
        function: CUfunction,
        stream: CUstream,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        attribute_words: u32,
        #[input(len = attribute_words)] attributes: *const u64,
        size: u64,
        #[input(bytes = size)] params: *const c_void,
    ) -> CUresult;

    /// As `Launch`, and waits for the driver's verdict: the first launch of a function with this configuration.
    #[call(id = 0x0f11, internal, sync, manual(server))]
    fn LaunchFirst(
        function: CUfunction,
        stream: CUstream,
        grid_x: u32,
        grid_y: u32,
        grid_z: u32,
        block_x: u32,
        block_y: u32,
        block_z: u32,
        shared_bytes: u32,
        attribute_words: u32,
        #[input(len = attribute_words)] attributes: *const u64,
        size: u64,
        #[input(bytes = size)] params: *const c_void,
    ) -> CUresult;

    /// Stops a stream until the client has called the application's function of this number, and says so with `HostDone`.
    #[call(id = 0x0f12, internal, async, manual(server))]
    fn HostFunction(stream: CUstream, function: u64, sync_mode: u32) -> CUresult;

    /// The application's function has returned: the stream goes on.
    #[call(id = 0x0f13, internal, async, manual(server))]
    fn HostDone(function: u64) -> CUresult;

    /// What would fit: `kind` names the question as the API's functions do, `words` are its arguments, attributes nine words each.
    #[call(id = 0x0f14, internal, sync, manual(server))]
    fn Occupancy(
        kind: u32,
        function: CUfunction,
        count: u32,
        #[input(len = count)] words: *const u64,
        #[out] answer: *mut i64,
    ) -> CUresult;

    /// Tells how the multiprocessors of the device are grouped: two lists of a byte for each pair, from the driver's undocumented table.
    #[call(id = 0x0f15, internal, sync, manual(server))]
    fn Grouping(
        room: u64,
        #[out(bytes = room)] first: *mut c_void,
        #[out(bytes = room)] second: *mut c_void,
    ) -> CUresult;

    /// Writes data that travels with the request to device memory.
    #[call(id = 0x0f20, internal, async, manual(server))]
    fn WriteInline(
        stream: CUstream,
        address: CUdeviceptr,
        size: u64,
        #[input(bytes = size)] data: *const c_void,
    ) -> CUresult;

    /// Writes payload that travels on the payload lanes once the server grants it.
    #[call(id = 0x0f21, internal, async, manual(server))]
    fn WriteBulk(stream: CUstream, address: CUdeviceptr, size: u64, payload: u64) -> CUresult;

    /// Reads device memory; the data comes back under the payload's number: small data on the command lane, the rest on the payload lanes.
    #[call(id = 0x0f22, internal, async, manual(server))]
    fn Read(
        stream: CUstream,
        address: CUdeviceptr,
        size: u64,
        payload: u64,
        urgent: u32,
    ) -> CUresult;

    /// Writes a box. `place`: x in bytes, y, z, width in bytes, height, depth, pitch, height of a slice; in an array, or from an address
    /// on. The rows lie end to end: in `data`, or in the payload of this number.
    #[call(id = 0x0f23, internal, async, manual(server))]
    fn WriteBox(
        stream: CUstream,
        array: CUarray,
        address: CUdeviceptr,
        #[input(len = 8)] place: *const u64,
        payload: u64,
        size: u64,
        #[input(bytes = size, nullable)] data: *const c_void,
    ) -> CUresult;

    /// Reads a box, as `WriteBox` writes one.
    #[call(id = 0x0f24, internal, async, manual(server))]
    fn ReadBox(
        stream: CUstream,
        array: CUarray,
        address: CUdeviceptr,
        #[input(len = 8)] place: *const u64,
        size: u64,
        payload: u64,
        urgent: u32,
    ) -> CUresult;

    /// Copies from memory that was shared to the device when the stream comes to it. A `done` that is not 0 is told as an Event when the
    /// memory is not needed any more.
    #[call(id = 0x0f28, internal, async, manual(server))]
    fn WriteShared(
        stream: CUstream,
        address: CUdeviceptr,
        area: u64,
        offset: u64,
        size: u64,
        done: u64,
    ) -> CUresult;

    /// Copies from the device to memory that was shared, in the same way.
    #[call(id = 0x0f29, internal, async, manual(server))]
    fn ReadShared(
        stream: CUstream,
        address: CUdeviceptr,
        area: u64,
        offset: u64,
        size: u64,
        done: u64,
    ) -> CUresult;

    /// Copies between two addresses; a context of 0 is the one acted in.
    #[call(id = 0x0f25, internal, async, manual(server))]
    fn Copy(
        stream: CUstream,
        destination: CUdeviceptr,
        destination_context: CUcontext,
        source: CUdeviceptr,
        source_context: CUcontext,
        size: u64,
    ) -> CUresult;

    /// Copies a box between arrays and addresses. `place`: source x in bytes, y, z, level, pitch, height of a slice; the same of the
    /// destination; width in bytes, height, depth.
    #[call(id = 0x0f26, internal, async, manual(server))]
    fn CopyBox(
        stream: CUstream,
        destination_array: CUarray,
        destination: CUdeviceptr,
        destination_context: CUcontext,
        source_array: CUarray,
        source: CUdeviceptr,
        source_context: CUcontext,
        #[input(len = 15)] place: *const u64,
    ) -> CUresult;

    /// Fills a rectangle with elements of 1, 2 or 4 bytes; a height of 1 has no pitch.
    #[call(id = 0x0f27, internal, async, manual(server))]
    fn Memset(
        stream: CUstream,
        address: CUdeviceptr,
        pitch: u64,
        value: u32,
        element_size: u32,
        width: u64,
        height: u64,
    ) -> CUresult;

    /// Waits until a stream is idle.
    #[call(id = 0x0f30, internal, sync, waits, manual(server))]
    fn SynchronizeStream(stream: CUstream) -> CUresult;

    /// Waits until a context is idle.
    #[call(id = 0x0f31, internal, sync, waits, manual(server))]
    fn SynchronizeContext(context: CUcontext) -> CUresult;

    /// Waits until an event has passed.
    #[call(id = 0x0f32, internal, sync, waits, manual(server))]
    fn SynchronizeEvent(event: CUevent) -> CUresult;

    /// Records an event; that it has passed is pushed under `record`, the number of this recording.
    #[call(id = 0x0f33, internal, async, manual(server))]
    fn EventRecord(event: CUevent, stream: CUstream, flags: u32, record: u64) -> CUresult;

    /// Sets an attribute of a stream; `value` is the API's union, handles in it as their numbers.
    #[call(id = 0x0f34, internal, async, manual(server))]
    fn StreamAttribute(
        stream: CUstream,
        attribute: CUstreamAttrID,
        #[input(bytes = 64)] value: *const c_void,
    ) -> CUresult;

    /// Waits for and writes values, in stream order. Each operation is six words, as the API's union has them.
    #[call(id = 0x0f35, internal, async, manual(server))]
    fn StreamOperations(
        stream: CUstream,
        flags: u32,
        words: u32,
        #[input(len = words)] operations: *const u64,
    ) -> CUresult;

    /// Ends the session in good order.
    #[call(id = 0x0f40, internal, async, manual(server))]
    fn Goodbye(reason: u32) -> CUresult;

    /// Answers at once; measures the round trip.
    #[call(id = 0x0f41, internal, sync, manual(server))]
    fn Ping(token: u64) -> CUresult;

    /// Says where the worker's time went: on the lane, and waiting for the device on behalf of this client, in nanoseconds.
    #[call(id = 0x0f42, internal, sync, manual(server))]
    fn Usage(token: u64, #[out] lane_ns: *mut u64, #[out] device_ns: *mut u64) -> CUresult;

    /// Loads an image as a module and answers with the facts of its kernels, which get the numbers from `first` on. Without `image` and
    /// payload the server takes it from its cache, by the digest, or answers that it is `missing`.
    #[call(id = 0x0f50, internal, sync, waits, manual(server))]
    fn ModuleLoad(
        #[input(bytes = 32)] digest: *const c_void,
        size: u64,
        payload: u64,
        image_size: u64,
        #[input(bytes = image_size, nullable)] image: *const c_void,
        num_options: u32,
        #[input(len = num_options)] options: *const CUjit_option,
        #[input(len = num_options)] values: *const u64,
        first: u64,
        room: u64,
        #[out(bytes = room)] facts: *mut c_void,
        log_room: u64,
        #[out(bytes = log_room)] log: *mut c_void,
        info_room: u64,
        #[out(bytes = info_room)] info: *mut c_void,
        #[out] wall: *mut u32,
        #[out] missing: *mut u32,
        #[out(creates)] module: *mut CUmodule,
    ) -> CUresult;

    /// As `ModuleLoad`, for a library.
    #[call(id = 0x0f51, internal, sync, waits, manual(server))]
    fn LibraryLoad(
        #[input(bytes = 32)] digest: *const c_void,
        size: u64,
        payload: u64,
        image_size: u64,
        #[input(bytes = image_size, nullable)] image: *const c_void,
        num_options: u32,
        #[input(len = num_options)] options: *const CUjit_option,
        #[input(len = num_options)] values: *const u64,
        num_library_options: u32,
        #[input(len = num_library_options)] library_options: *const CUlibraryOption,
        #[input(len = num_library_options)] library_values: *const u64,
        first: u64,
        room: u64,
        #[out(bytes = room)] facts: *mut c_void,
        log_room: u64,
        #[out(bytes = log_room)] log: *mut c_void,
        info_room: u64,
        #[out(bytes = info_room)] info: *mut c_void,
        #[out] wall: *mut u32,
        #[out] missing: *mut u32,
        #[out(creates)] library: *mut CUlibrary,
    ) -> CUresult;

    /// Names the module that a library is in the current context; its functions get the numbers from `first` on, in the kernels' order.
    #[call(id = 0x0f52, internal, async, manual(server))]
    fn LibraryModule(
        library: CUlibrary,
        first: u64,
        #[out(creates)] module: *mut CUmodule,
    ) -> CUresult;

    /// Names the function that a kernel is in the current context.
    #[call(id = 0x0f53, internal, async, manual(server))]
    fn KernelFunction(kernel: CUkernel, #[out(creates)] function: *mut CUfunction) -> CUresult;

    /// Begins a link of device code under the client's number. Of each log the server keeps so much.
    #[call(id = 0x0f54, internal, sync, manual(server))]
    fn Link(
        num_options: u32,
        #[input(len = num_options)] options: *const CUjit_option,
        #[input(len = num_options)] values: *const u64,
        info_room: u64,
        log_room: u64,
        link: u64,
    ) -> CUresult;

    /// Adds device code to a link: `data`, or the payload of this number.
    #[call(id = 0x0f55, internal, sync, waits, manual(server))]
    fn LinkAdd(
        link: u64,
        kind: CUjitInputType,
        size: u64,
        payload: u64,
        data_size: u64,
        #[input(bytes = data_size, nullable)] data: *const c_void,
        #[input(cstr)] name: *const c_char,
        num_options: u32,
        #[input(len = num_options)] options: *const CUjit_option,
        #[input(len = num_options)] values: *const u64,
        log_room: u64,
        #[out(bytes = log_room)] log: *mut c_void,
        info_room: u64,
        #[out(bytes = info_room)] info: *mut c_void,
        #[out] wall: *mut u32,
    ) -> CUresult;

    /// Links what was added into an image.
    #[call(id = 0x0f56, internal, sync, waits, manual(server))]
    fn LinkComplete(
        link: u64,
        room: u64,
        #[out(bytes = room)] image: *mut c_void,
        log_room: u64,
        #[out(bytes = log_room)] log: *mut c_void,
        info_room: u64,
        #[out(bytes = info_room)] info: *mut c_void,
        #[out] wall: *mut u32,
    ) -> CUresult;

    /// Ends a link.
    #[call(id = 0x0f57, internal, async, manual(server))]
    fn LinkEnd(link: u64) -> CUresult;

    /// Reserves a window of addresses in which the client places its allocations; 0 where the device cannot.
    #[call(id = 0x0f60, internal, planned, sync, manual(server))]
    fn WindowReserve(device: CUdevice, hint: u64, size: u64, #[out] address: *mut u64) -> CUresult;

    /// Asks for memory credit: what the client may place without asking again, and what the device has free.
    #[call(id = 0x0f61, internal, planned, sync, manual(server))]
    fn Credit(
        device: CUdevice,
        size: u64,
        #[out] granted: *mut u64,
        #[out] free: *mut u64,
        #[out] total: *mut u64,
    ) -> CUresult;

    /// Backs addresses of a window with memory of the device, within the credit.
    #[call(id = 0x0f62, internal, planned, async, manual(server))]
    fn WindowMap(device: CUdevice, address: CUdeviceptr, size: u64) -> CUresult;

    /// Takes the memory off addresses of a window, once what uses it is done.
    #[call(id = 0x0f63, internal, planned, async, manual(server))]
    fn WindowUnmap(address: CUdeviceptr, size: u64) -> CUresult;

    /// Allocates memory where the driver wants it; with attachment flags, managed memory.
    #[call(id = 0x0f64, internal, sync, manual(server))]
    fn MemoryAlloc(
        size: u64,
        managed_flags: u32,
        #[out(device_value)] address: *mut CUdeviceptr,
    ) -> CUresult;

    /// Frees such memory.
    #[call(id = 0x0f65, internal, sync, waits, manual(server))]
    fn MemoryFree(address: CUdeviceptr) -> CUresult;

    /// Allocates from a pool, in stream order; a pool of 0 is the device's current one.
    #[call(id = 0x0f66, internal, sync, manual(server))]
    fn PoolAlloc(
        stream: CUstream,
        pool: CUmemoryPool,
        size: u64,
        #[out(device_value)] address: *mut CUdeviceptr,
    ) -> CUresult;

    /// Frees memory, in stream order.
    #[call(id = 0x0f67, internal, async, manual(server))]
    fn PoolFree(stream: CUstream, address: CUdeviceptr) -> CUresult;

    /// Creates a pool on a device; with `exportable` 1 other sessions may open it.
    #[call(id = 0x0f68, internal, async, manual(server))]
    fn PoolCreate(
        device: CUdevice,
        max_size: u64,
        usage: u32,
        exportable: u32,
        #[out(creates)] pool: *mut CUmemoryPool,
    ) -> CUresult;

    /// Names a device's default or current pool.
    #[call(id = 0x0f69, internal, async, manual(server))]
    fn PoolOf(device: CUdevice, current: u32, #[out(creates)] pool: *mut CUmemoryPool) -> CUresult;

    /// Sets an attribute of a pool.
    #[call(id = 0x0f6a, internal, async, manual(server))]
    fn PoolSet(pool: CUmemoryPool, attribute: CUmemPool_attribute, value: u64) -> CUresult;

    /// Tells an attribute of a pool.
    #[call(id = 0x0f6b, internal, sync, manual(server))]
    fn PoolGet(
        pool: CUmemoryPool,
        attribute: CUmemPool_attribute,
        #[out] value: *mut u64,
    ) -> CUresult;

    /// Says how locations may use addresses, or a pool where there is one. `access`: kind of location, its number, flags, of each.
    #[call(id = 0x0f6c, internal, sync, manual(server))]
    fn SetAccess(
        pool: CUmemoryPool,
        address: CUdeviceptr,
        size: u64,
        words: u32,
        #[input(len = words)] access: *const u64,
    ) -> CUresult;

    /// Tells how a location may use an address, or a pool where there is one.
    #[call(id = 0x0f6d, internal, sync, manual(server))]
    fn GetAccess(
        pool: CUmemoryPool,
        address: CUdeviceptr,
        location: CUmemLocationType,
        number: i32,
        #[out] flags: *mut u64,
    ) -> CUresult;

    /// Tells the driver how managed memory will be used.
    #[call(id = 0x0f6e, internal, planned, async, manual(server))]
    fn Advise(
        address: CUdeviceptr,
        size: u64,
        advice: CUmem_advise,
        location: CUmemLocationType,
        number: i32,
    ) -> CUresult;

    /// Moves managed memory ahead of its use, in stream order.
    #[call(id = 0x0f6f, internal, planned, async, manual(server))]
    fn Prefetch(
        stream: CUstream,
        address: CUdeviceptr,
        size: u64,
        location: CUmemLocationType,
        number: i32,
        flags: u32,
    ) -> CUresult;

    /// Creates physical memory under the client's number.
    #[call(id = 0x0f70, internal, sync, manual(server))]
    fn PhysicalCreate(device: CUdevice, size: u64, flags: u32, memory: u64) -> CUresult;

    /// Drops the client's reference to physical memory.
    #[call(id = 0x0f71, internal, async, manual(server))]
    fn PhysicalRelease(memory: u64) -> CUresult;

    /// Reserves addresses for the application. With a span (where it begins, and its bytes) they are to be those of `hint`, which lie in it;
    /// drivers heed the wish for a span where they do not for a few addresses.
    #[call(id = 0x0f72, internal, sync, manual(server))]
    fn AddressReserve(
        size: u64,
        alignment: u64,
        hint: u64,
        span: u64,
        span_size: u64,
        #[out(device_value)] address: *mut CUdeviceptr,
    ) -> CUresult;

    /// Gives them back.
    #[call(id = 0x0f73, internal, async, manual(server))]
    fn AddressFree(address: CUdeviceptr, size: u64) -> CUresult;

    /// Maps physical memory at reserved addresses.
    #[call(id = 0x0f74, internal, async, manual(server))]
    fn PhysicalMap(address: CUdeviceptr, size: u64, offset: u64, memory: u64) -> CUresult;

    /// Takes it off again.
    #[call(id = 0x0f75, internal, sync, waits, manual(server))]
    fn PhysicalUnmap(address: CUdeviceptr, size: u64) -> CUresult;

    /// Makes memory where another server's driver has it: `allocations` are pairs of a start and a size, all within a span of addresses, as
    /// with `AddressReserve`. Each is freed as what the driver allocates is.
    #[call(id = 0x0f76, internal, sync, manual(server))]
    fn MemoryPlace(
        device: CUdevice,
        span: u64,
        span_size: u64,
        words: u32,
        #[input(len = words)] allocations: *const u64,
    ) -> CUresult;

    /// Maps memory of the client's own, whose descriptor was sent on the command lane's connection just before, and registers it with
    /// the driver. `area` is its number. Where nothing lies at the client's own address of it in the worker, it is mapped there too;
    /// `device` is where the device has it then, and 0 where kernels do not reach it.
    #[call(id = 0x0f7a, internal, sync, waits, manual(server))]
    fn ShareHost(area: u64, size: u64, address: u64, #[out] device: *mut u64) -> CUresult;

    /// Unmaps it, behind what uses it.
    #[call(id = 0x0f7b, internal, async, manual(server))]
    fn UnshareHost(area: u64) -> CUresult;

    /// Creates a texture. `resource`: its kind, address, format, channels, width, height, pitch, bytes.
    #[call(id = 0x0f80, internal, sync, manual(server))]
    fn TextureCreate(
        array: CUarray,
        mipmap: CUmipmappedArray,
        #[input(len = 8)] resource: *const u64,
        #[input] texture: *const CUDA_TEXTURE_DESC,
        #[input(nullable)] view: *const CUDA_RESOURCE_VIEW_DESC,
        #[out(device_value)] object: *mut CUtexObject,
    ) -> CUresult;

    /// Creates a surface over an array.
    #[call(id = 0x0f81, internal, sync, manual(server))]
    fn SurfaceCreate(array: CUarray, #[out(device_value)] object: *mut CUsurfObject) -> CUresult;

    /// Describes a tensor. `words` are the API's arguments, in order, without the address; `kind` 0 is tiled, 1 image to column, 2 wide
    /// image to column, 3 a description that is to get another address.
    #[call(id = 0x0f82, internal, sync, manual(server))]
    fn TensorMap(
        kind: u32,
        address: CUdeviceptr,
        count: u32,
        #[input(len = count)] words: *const u64,
        #[out(bytes = 128)] map: *mut c_void,
    ) -> CUresult;

    /// Says what a texture reference reads, or how, once what was launched before has been enqueued. `setting` and `words` are in
    /// `towline_wire::cuda::texture_reference`; `offset` is what the driver answers where it answers anything.
    #[call(id = 0x0f83, internal, sync, waits, manual(server))]
    fn TextureReferenceSet(
        reference: CUtexref,
        setting: u32,
        array: CUarray,
        mipmap: CUmipmappedArray,
        #[input(len = 6)] words: *const u64,
        #[out] offset: *mut u64,
    ) -> CUresult;

    /// Tells a setting of a texture reference.
    #[call(id = 0x0f84, internal, sync, manual(server))]
    fn TextureReferenceGet(
        reference: CUtexref,
        setting: u32,
        index: i32,
        #[out(len = 4)] words: *mut u64,
    ) -> CUresult;

    /// Tells what there is between two devices: whether the first can reach the second's memory, and the attributes of the path from 1
    /// on, -1 for those that the driver does not know.
    #[call(id = 0x0f85, internal, sync, manual(server))]
    fn DevicePath(device: CUdevice, peer: CUdevice, #[out(len = 6)] values: *mut i32) -> CUresult;

    /// Offers something to other sessions of the server: kind 0 the allocation that begins at address `number`, 1 the event, 2 the physical
    /// memory, 3 the pool of that number, 4 the allocation of a pool at address `number`. Whoever knows the token may open it.
    #[call(id = 0x0f88, internal, sync, waits, manual(server))]
    fn Share(kind: u32, number: u64, #[out(bytes = 32)] token: *mut c_void) -> CUresult;

    /// Opens what another session offers under a token: memory at an address of the driver's choice, an event, physical memory or a pool
    /// under the client's number; an allocation of a pool in the pool that has the number.
    #[call(id = 0x0f89, internal, sync, waits, manual(server))]
    fn OpenShared(
        kind: u32,
        #[input(bytes = 32)] token: *const c_void,
        flags: u32,
        number: u64,
        #[out(device_value)] address: *mut CUdeviceptr,
        #[out] size: *mut u64,
        #[out] device: *mut i32,
    ) -> CUresult;

    /// Lets go of memory of another session.
    #[call(id = 0x0f8a, internal, sync, waits, manual(server))]
    fn CloseShared(address: CUdeviceptr) -> CUresult;

    /// Tells whether an event has passed that others record too.
    #[call(id = 0x0f8b, internal, sync, manual(server))]
    fn EventState(event: CUevent) -> CUresult;

    /// Makes a graph on the server ahead of its first instantiation: some of its nodes, or conditional values of it, have numbers that the
    /// device interprets.
    #[call(id = 0x0fa0, internal, async, manual(server))]
    fn GraphAnchor(#[out(creates)] graph: *mut CUgraph) -> CUresult;

    /// Ends such a graph.
    #[call(id = 0x0fa1, internal, async, manual(server))]
    fn GraphAnchorEnd(#[destroys] graph: CUgraph) -> CUresult;

    /// Adds a node that allocates to such a graph. `access`: kind of location, its number, flags, of each.
    #[call(id = 0x0fa2, internal, sync, manual(server))]
    fn GraphAlloc(
        graph: CUgraph,
        node: u64,
        device: CUdevice,
        size: u64,
        words: u32,
        #[input(len = words)] access: *const u64,
        #[out(device_value)] address: *mut CUdeviceptr,
    ) -> CUresult;

    /// Creates a value that conditional nodes of such a graph look at.
    #[call(id = 0x0fa3, internal, sync, manual(server))]
    fn GraphCondition(
        graph: CUgraph,
        default: u32,
        flags: u32,
        #[out(device_value)] handle: *mut u64,
    ) -> CUresult;

    /// Makes a graph executable: the one that `description` describes (`towline_wire::cuda::graph`), in the anchored graph of this number
    /// or, where that is 0, a new one. A node that stands in the way is told by its number.
    #[call(id = 0x0fa4, internal, sync, waits, manual(server))]
    fn GraphMake(
        graph: CUgraph,
        flags: u64,
        stream: CUstream,
        size: u64,
        #[input(bytes = size)] description: *const c_void,
        exec: u64,
        #[out] result: *mut CUgraphInstantiateResult,
        #[out] error_node: *mut u64,
    ) -> CUresult;

    /// Replaces what nodes of an executable graph do: `changes` is a description without edges. It ends at the first that is refused.
    #[call(id = 0x0fa5, internal, sync, waits, manual(server))]
    fn GraphChange(
        exec: u64,
        size: u64,
        #[input(bytes = size)] changes: *const c_void,
        #[out] error_node: *mut u64,
    ) -> CUresult;

    /// Gives launches of an executable graph other parameters: `changes` as in `GraphChange`, where all else is as it was, so that the
    /// driver has nothing to refuse. In the order of a stream: the one that the graph was launched on last.
    #[call(id = 0x0faa, internal, async, manual(server))]
    fn GraphAdjust(
        exec: u64,
        stream: CUstream,
        size: u64,
        #[input(bytes = size)] changes: *const c_void,
    ) -> CUresult;

    /// Switches a node of an executable graph on or off.
    #[call(id = 0x0fa6, internal, sync, waits, manual(server))]
    fn GraphEnable(exec: u64, node: u64, enabled: u32) -> CUresult;

    /// Brings an executable graph to the device ahead of its launch.
    #[call(id = 0x0fa7, internal, async, manual(server))]
    fn GraphBring(exec: u64, stream: CUstream) -> CUresult;

    /// Launches an executable graph. `calls`: a node, and the number under which the client is called, or data is moved, when this launch
    /// comes to it.
    #[call(id = 0x0fa8, internal, async, manual(server))]
    fn GraphRun(
        exec: u64,
        stream: CUstream,
        words: u32,
        #[input(len = words)] calls: *const u64,
    ) -> CUresult;

    /// Ends an executable graph, once its launches are done.
    #[call(id = 0x0fa9, internal, async, manual(server))]
    fn GraphEnd(exec: u64) -> CUresult;

    /// Tells the version of the server's NCCL; CUDA_ERROR_NOT_SUPPORTED where the session may not use any.
    #[call(id = 0x0fb0, internal, sync, waits, manual(server))]
    fn CollectiveVersion(#[out] version: *mut i32) -> CUresult;

    /// Makes an id under which ranks find each other. `result` here and below is NCCL's.
    #[call(id = 0x0fb1, internal, sync, waits, manual(server))]
    fn CollectiveId(#[out(bytes = 128)] name: *mut c_void, #[out] result: *mut i32) -> CUresult;

    /// Makes communicators together: `words` describe them (`towline_wire::cuda::collective`). `facts` are two numbers for each: its rank
    /// and how many there are; -1 where there is no communicator.
    #[call(id = 0x0fb2, internal, sync, waits, manual(server))]
    fn CollectiveMake(
        count: u32,
        #[input(len = count)] words: *const u64,
        room: u32,
        #[out(len = room)] facts: *mut i32,
        #[out] result: *mut i32,
    ) -> CUresult;

    /// Enqueues collectives and messages together, as `words` describe them. A failure is told by `CollectiveState`, and by waits.
    #[call(id = 0x0fb3, internal, async, manual(server))]
    fn CollectiveRun(count: u32, #[input(len = count)] words: *const u64) -> CUresult;

    /// Tells whether a communicator works.
    #[call(id = 0x0fb4, internal, sync, waits, manual(server))]
    fn CollectiveState(communicator: u64, #[out] result: *mut i32) -> CUresult;

    /// Ends a communicator, or stops it for a while. `how`: 0 completes what was enqueued and leaves it to be destroyed, 1 destroys it, 2 ends
    /// it at once, 3 gives memory back until 4 goes on with it, 5 stops what is under way for good.
    #[call(id = 0x0fb5, internal, sync, waits, manual(server))]
    fn CollectiveEnd(communicator: u64, how: u32, #[out] result: *mut i32) -> CUresult;

    /// Makes memory known to a communicator: as a window with these flags, or, with negative ones, as a buffer. `known` is NCCL's handle.
    #[call(id = 0x0fb6, internal, sync, waits, manual(server))]
    fn CollectiveRegister(
        communicator: u64,
        address: u64,
        size: u64,
        flags: i32,
        #[out] known: *mut u64,
        #[out] result: *mut i32,
    ) -> CUresult;

    /// Has a communicator forget such a window (`window` is 1) or buffer.
    #[call(id = 0x0fb7, internal, sync, waits, manual(server))]
    fn CollectiveDeregister(
        communicator: u64,
        known: u64,
        window: u32,
        #[out] result: *mut i32,
    ) -> CUresult;

    /// Says in words what went wrong last.
    #[call(id = 0x0fba, internal, sync, waits, manual(server))]
    fn CollectiveText(room: u64, #[out(bytes = room)] text: *mut c_void) -> CUresult;
}
