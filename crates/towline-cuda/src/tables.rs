//! The tables behind `cuGetExportTable`, which the runtime library and the libraries above it ask for.
//!
//! They are undocumented; what is here follows from public descriptions and from what real programs call. An empty slot is NULL: it has
//! not been seen called. All answers are given in this process.

use std::ffi::{c_char, c_void};
use std::sync::OnceLock;

use towline_backend::cuda as wire;
use towline_backend::cuda::*;
use towline_client::raw::{Out, Vouched};

use crate::compiled::{Cache, Key};
use crate::driver::{Driver, lock, tell};
use crate::handshake::{self, Addresses};
use crate::jit::Options;

type Slot = *const c_void;

/// A table: addresses of functions, in most of them after the table's size in bytes.
struct Table<const SLOTS: usize>([Slot; SLOTS]);

// SAFETY: a table is never written after it was made, and its addresses are those of functions.
unsafe impl<const SLOTS: usize> Sync for Table<SLOTS> {}
// SAFETY: as above.
unsafe impl<const SLOTS: usize> Send for Table<SLOTS> {}

impl<const SLOTS: usize> Table<SLOTS> {
    /// A table that begins with its size.
    fn sized(slots: &[(usize, Slot)]) -> Self {
        let mut table = Self([std::ptr::null(); SLOTS]);
        table.0[0] = std::ptr::without_provenance(SLOTS * size_of::<Slot>());
        for (index, slot) in slots {
            table.0[*index] = *slot;
        }
        table
    }

    fn start(&'static self) -> Slot {
        self.0.as_ptr().cast()
    }
}

const RUNTIME: [u8; 16] = id(0x6bd5fb6c_5bf4_e74a_8987_d93912fd9df9);
const TOOLS_TLS: [u8; 16] = id(0x42d85a81_23f6_cb47_8298_f6e78a3aecdc);
const HOOKS: [u8; 16] = id(0xa094798c_2e74_2e74_93f2_0800200c0a66);
const STORAGE: [u8; 16] = id(0xc693336e_1121_df11_a8c3_68f355d89593);
const CHECK: [u8; 16] = id(0xd4082055_bde6_704b_8d34_ba123c66e1f2);
const CONTEXT_CHECKS: [u8; 16] = id(0x263e8860_7cd2_6143_92f6_bbd5006dfa7e);
const CONTEXT_INTERNALS: [u8; 16] = id(0x21318c60_9714_3248_8ca6_41ff7324c8f2);
const TOPOLOGY: [u8; 16] = id(0x1734dc26_800d_4745_8726_c0f1e7dd8bca);
const FUNCTION_INTERNALS: [u8; 16] = id(0x6e163fbe_b958_444d_835c_e182aff1991e);

const COMPILED: [u8; 16] = id(0xda9151d3_3ae6_cc41_a5c0_4f26d533e328);

const fn id(number: u128) -> [u8; 16] {
    number.to_be_bytes()
}

/// The table of an id, where the driver has one.
pub(crate) fn find(driver: &Driver, wanted: &[u8; 16]) -> Option<Slot> {
    let _ = driver;
    let found = match *wanted {
        RUNTIME => Some(runtime().start()),
        TOOLS_TLS => Some(tools_tls().start()),
        HOOKS => Some(hooks().start()),
        STORAGE => Some(storage().start()),
        CHECK => Some(checks().start()),
        CONTEXT_CHECKS => Some(context_checks().start()),
        CONTEXT_INTERNALS => Some(context_internals().start()),
        TOPOLOGY => Some(topology().start()),
        FUNCTION_INTERNALS => Some(function_internals().start()),
        COMPILED => Some(compiled().start()),
        _ => None,
    };
    let name = towline_wire::cuda::snapshot::uuid_text(wanted);
    match found {
        Some(_) => log::trace!("export table {name}"),
        None => log::debug!("export table {name}: not here"),
    }
    found
}

/// Runs a slot of a table as an exported function is run.
pub(crate) fn slot(
    table: &'static str,
    number: u32,
    call: impl FnOnce(&'static Driver) -> CUresult,
) -> CUresult {
    log::trace!("slot {number} of table {table}");
    // Slots own what they write to; exported functions, of which there are hundreds, do not.
    let mut call = Some(call);
    crate::export::guard(table, |driver| match call.take() {
        Some(call) => call(driver),
        None => CUDA_ERROR_UNKNOWN,
    })
}

/// The addresses that the runtime's check covers.
pub(crate) fn addresses() -> Addresses {
    Addresses {
        runtime_table: runtime().start().addr() as u64,
        check_table: checks().start().addr() as u64,
        check: checks().0[1].addr() as u64,
    }
}

// What the runtime library calls itself.

fn runtime() -> &'static Table<13> {
    static TABLE: OnceLock<Table<13>> = OnceLock::new();
    TABLE.get_or_init(|| {
        Table::sized(&[
            (1, load_module as Slot),
            (2, primary_context as Slot),
            (6, load_module_6 as Slot),
            (7, release_module as Slot),
            (8, load_module_8 as Slot),
            (12, preload_compilers as Slot),
        ])
    })
}

extern "C" fn load_module(module: Out<CUmodule>, wrapper: Vouched<'_, *const c_void>) -> CUresult {
    slot("runtime", 1, |driver| {
        let loaded = driver.load_module(wrapper, true, &Options::default());
        tell(module, loaded)
    })
}

extern "C" fn primary_context(context: Out<CUcontext>, device: CUdevice) -> CUresult {
    slot("runtime", 2, |driver| {
        // Not retained: the context is to be found inactive until somebody uses it.
        let primary = driver.primary(device);
        let handle = primary.map(|primary| wire::ContextHandle(primary.number).to_raw());
        tell(context, handle)
    })
}

extern "C" fn load_module_6(
    module: Out<CUmodule>,
    wrapper: Vouched<'_, *const c_void>,
    _: *mut c_void,
    _: *mut c_void,
    _: u32,
) -> CUresult {
    load_module(module, wrapper)
}

extern "C" fn release_module(_: *mut c_void) {
    log::trace!("slot 7 of table runtime");
}

extern "C" fn load_module_8(
    header: Vouched<'_, *const c_void>,
    module: Out<CUmodule>,
    _: *mut c_void,
    _: *mut c_void,
    _: u32,
) -> CUresult {
    load_module(module, header)
}

extern "C" fn preload_compilers(_: u32) -> CUresult {
    slot("runtime", 12, |_| CUDA_SUCCESS)
}

// What tools keep with a thread.

fn tools_tls() -> &'static Table<3> {
    static TABLE: OnceLock<Table<3>> = OnceLock::new();
    TABLE.get_or_init(|| Table::sized(&[(2, current_context as Slot)]))
}

extern "C" fn current_context(context: Out<CUcontext>) -> CUresult {
    slot("tools", 2, |_| {
        let current = wire::ContextHandle(crate::thread::current()).to_raw();
        tell(context, Ok(current))
    })
}

// Whether tools want to hear of the runtime's calls: buffers of zeros say that none does.

const FIRST_HOOKS: usize = 1024;
const SECOND_HOOKS: usize = 14;

fn hooks() -> &'static Table<7> {
    static TABLE: OnceLock<Table<7>> = OnceLock::new();
    TABLE.get_or_init(|| {
        Table::sized(&[
            (1, hooks_told as Slot),
            (2, first_hooks as Slot),
            (4, hooks_told_of as Slot),
            (6, second_hooks as Slot),
        ])
    })
}

/// Zeros that the runtime may write to, of `WORDS` words, for ever.
fn zeros<const WORDS: usize>(cell: &'static OnceLock<usize>) -> *mut c_void {
    let start = *cell.get_or_init(|| {
        let zeros: &'static mut [u32; WORDS] = Box::leak(Box::new([0; WORDS]));
        std::ptr::from_mut(zeros).expose_provenance()
    });
    std::ptr::with_exposed_provenance_mut(start)
}

extern "C" fn hooks_told() {
    log::trace!("slot 1 of table hooks");
}

extern "C" fn first_hooks(buffer: Out<*mut c_void>, size: Out<usize>) {
    static ZEROS: OnceLock<usize> = OnceLock::new();
    log::trace!("slot 2 of table hooks");
    buffer.set(zeros::<FIRST_HOOKS>(&ZEROS));
    size.set(FIRST_HOOKS);
}

extern "C" fn hooks_told_of(value: Out<u32>) -> CUresult {
    slot("hooks", 4, |_| {
        value.set(0);
        CUDA_SUCCESS
    })
}

extern "C" fn second_hooks(buffer: Out<*mut c_void>, size: Out<usize>) {
    static ZEROS: OnceLock<usize> = OnceLock::new();
    log::trace!("slot 6 of table hooks");
    buffer.set(zeros::<SECOND_HOOKS>(&ZEROS));
    size.set(SECOND_HOOKS);
}

// What libraries keep with a context. This table does not begin with its size.

fn storage() -> &'static Table<4> {
    static TABLE: OnceLock<Table<4>> = OnceLock::new();
    TABLE.get_or_init(|| Table([put as Slot, delete as Slot, get as Slot, std::ptr::null()]))
}

impl Driver {
    /// The context that a library means: NULL and -1 are the thread's own.
    fn kept_with(&self, context: CUcontext) -> Result<u64, CUresult> {
        match context.addr() {
            0 | usize::MAX => match crate::thread::current() {
                0 => Err(CUDA_ERROR_INVALID_CONTEXT),
                current => Ok(current),
            },
            number => self.context(number as u64).map(|context| context.number),
        }
    }

    /// Forgets what libraries kept with a context. Their destructors are not run: some free the value themselves when they unload.
    pub(crate) fn end_kept(&self, context: u64) {
        lock(&self.kept).retain(|(of, _), _| *of != context);
    }
}

extern "C" fn put(
    context: CUcontext,
    key: *mut c_void,
    value: *mut c_void,
    _destructor: *mut c_void,
) -> CUresult {
    slot("storage", 0, |driver| {
        crate::driver::status(driver.kept_with(context).map(|context| {
            lock(&driver.kept).insert((context, key.addr()), value.expose_provenance());
        }))
    })
}

extern "C" fn delete(context: CUcontext, key: *mut c_void) -> CUresult {
    slot("storage", 1, |driver| {
        crate::driver::status(driver.kept_with(context).and_then(|context| {
            let removed = lock(&driver.kept).remove(&(context, key.addr()));
            removed.map(|_| ()).ok_or(CUDA_ERROR_INVALID_HANDLE)
        }))
    })
}

extern "C" fn get(value: Out<*mut c_void>, context: CUcontext, key: *mut c_void) -> CUresult {
    slot("storage", 2, |driver| {
        let kept = driver.kept_with(context).and_then(|context| {
            let kept = lock(&driver.kept).get(&(context, key.addr())).copied();
            kept.map(std::ptr::with_exposed_provenance_mut)
                .ok_or(CUDA_ERROR_INVALID_HANDLE)
        });
        tell(value, kept)
    })
}

// The runtime's check of the driver.

fn checks() -> &'static Table<3> {
    static TABLE: OnceLock<Table<3>> = OnceLock::new();
    TABLE.get_or_init(|| Table::sized(&[(1, handshake::check as Slot), (2, check_toggled as Slot)]))
}

extern "C" fn check_toggled(_: u32) -> CUresult {
    slot("check", 2, |_| CUDA_SUCCESS)
}

// What kind of context one is.

fn context_checks() -> &'static Table<4> {
    static TABLE: OnceLock<Table<4>> = OnceLock::new();
    TABLE.get_or_init(|| {
        Table::sized(&[
            (1, refused as Slot),
            (2, unwrap_context as Slot),
            (3, no_checks as Slot),
        ])
    })
}

extern "C" fn refused() -> CUresult {
    slot("context checks", 1, |_| CUDA_ERROR_NOT_SUPPORTED)
}

extern "C" fn unwrap_context(
    _context: CUcontext,
    is_wrapped: Out<u32>,
    _inner: *mut CUcontext,
) -> CUresult {
    // Ordinary contexts only: nothing is wrapped.
    slot("context checks", 2, |_| tell(is_wrapped, Ok(0)))
}

extern "C" fn no_checks() -> u32 {
    log::trace!("slot 3 of table context checks");
    0
}

// Contexts and streams from inside, for cuBLAS.

/// As many as the latest driver has: the runtime checks only that the table is there.
const INTERNALS: usize = 93;

fn context_internals() -> &'static Table<INTERNALS> {
    static TABLE: OnceLock<Table<INTERNALS>> = OnceLock::new();
    TABLE.get_or_init(|| {
        Table::sized(&[
            (3, device_of as Slot),
            (4, id_of as Slot),
            (39, nothing_between as Slot),
            (51, stream_object as Slot),
        ])
    })
}

extern "C" fn device_of(device: Out<CUdevice>, context: CUcontext) -> CUresult {
    slot("context internals", 3, |driver| {
        let of = driver.context_or_current(context);
        tell(device, of.map(|context| context.device))
    })
}

extern "C" fn id_of(context: CUcontext, id: Out<u64>) -> CUresult {
    slot("context internals", 4, |driver| {
        let of = driver.context_or_current(context);
        tell(id, of.map(|context| context.id))
    })
}

extern "C" fn nothing_between(_: *mut c_void, _: *mut c_void, value: Out<u64>) -> CUresult {
    slot("context internals", 39, |_| tell(value, Ok(0)))
}

extern "C" fn stream_object(
    _context: CUcontext,
    stream: CUstream,
    object: Out<*mut c_void>,
) -> CUresult {
    static ZEROS: OnceLock<usize> = OnceLock::new();
    slot("context internals", 51, |_| {
        if stream.addr() == usize::MAX {
            return CUDA_ERROR_INVALID_HANDLE;
        }
        tell(object, Ok(zeros::<128>(&ZEROS)))
    })
}

// How the device's multiprocessors are grouped, which cuBLAS asks without looking whether the table is there.

/// As many as driver 580.159 has.
const TOPOLOGY_SLOTS: usize = 17;

fn topology() -> &'static Table<TOPOLOGY_SLOTS> {
    static TABLE: OnceLock<Table<TOPOLOGY_SLOTS>> = OnceLock::new();
    TABLE.get_or_init(|| Table::sized(&[(4, groups as Slot), (13, groups_over as Slot)]))
}

/// Most multiprocessors of a device.
const GROUPING_ROOM: usize = 4096;

impl Driver {
    /// The lists of the current context's device, asked for once.
    fn grouping(&self) -> Result<&[Vec<u8>; 2], CUresult> {
        let acting = self.session_for(0)?;
        let device = self.device(acting.context.device)?;
        if let Some(known) = device.grouping.get() {
            return Ok(known);
        }
        let request = wire::Grouping {
            room: GROUPING_ROOM as u64,
        };
        let body = acting.call_for("cuGetExportTable", &request)?;
        let reply = wire::GroupingReply::decode(&body).map_err(|_| acting.malformed())?;
        let lists = [reply.first, reply.second].map(|list| list.unwrap_or_default().to_vec());
        Ok(device.grouping.get_or_init(|| lists))
    }
}

/// A copy of bytes for the caller, which may free it, with zeros up to `room`; NULL where there is no memory.
fn given(bytes: &[u8], room: usize) -> *mut u8 {
    // SAFETY: has no requirements.
    let copy = unsafe { libc::calloc(room.max(1), 1) }.cast::<u8>();
    if !copy.is_null() {
        let length = bytes.len().min(room);
        // SAFETY: the copy has room, and nobody else knows it.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, length) };
    }
    copy
}

extern "C" fn groups(first: Out<*mut u8>, second: Out<*mut u8>) -> CUresult {
    slot("topology", 4, |driver| {
        let lists = match driver.grouping() {
            Ok(lists) => lists,
            Err(status) => return status,
        };
        for (target, list) in [first, second].into_iter().zip(lists) {
            target.set(given(list, GROUPING_ROOM));
        }
        CUDA_SUCCESS
    })
}

/// The caller is through with a list. What it passes is not known well enough to free it.
extern "C" fn groups_over(_: *mut c_void) -> CUresult {
    slot("topology", 13, |_| CUDA_SUCCESS)
}

// Functions from inside, for cuFFT.

/// As many as driver 580.159 has.
const FUNCTION_SLOTS: usize = 99;

fn function_internals() -> &'static Table<FUNCTION_SLOTS> {
    static TABLE: OnceLock<Table<FUNCTION_SLOTS>> = OnceLock::new();
    TABLE.get_or_init(|| Table::sized(&[(7, functions_of as Slot)]))
}

/// Told of each function of a module: what the caller passed, the function, the module.
type Visit = Option<unsafe extern "C" fn(*mut c_void, CUfunction, CUmodule)>;

unsafe extern "C" fn functions_of(
    _context: CUcontext,
    module: CUmodule,
    visit: Visit,
    passed: *mut c_void,
) -> usize {
    let mut count = 0;
    slot("function internals", 7, |driver| {
        let functions = match driver.functions_of(module) {
            Ok(functions) => functions,
            Err(status) => return status,
        };
        count = functions.len();
        for function in functions {
            if let Some(visit) = visit {
                // SAFETY: the caller's contract.
                unsafe { visit(passed, function, module) };
            }
        }
        CUDA_SUCCESS
    });
    count
}

// Where NVRTC keeps what it compiled. Its calls were seen with NVRTC 13.0 and driver 580.159.

fn compiled() -> &'static Table<7> {
    static TABLE: OnceLock<Table<7>> = OnceLock::new();
    TABLE.get_or_init(|| {
        Table::sized(&[
            (1, compiled_open as Slot),
            (2, compiled_close as Slot),
            (3, compiled_find as Slot),
            (4, compiled_store as Slot),
            (6, compiled_free as Slot),
        ])
    })
}

/// An entry between `open` and `close`.
struct Entry {
    cache: Cache,
    key: Key,
}

/// Begins with an entry, by all that decides about its content: which of the compiler's stages, what it reads, its options, its platform,
/// when it was built, and the architecture. `CUDA_ERROR_NOT_INITIALIZED` where nothing is to be kept.
unsafe extern "C" fn compiled_open(
    entry: Out<Box<Entry>>,
    stage: u32,
    input: *const u8,
    input_size: usize,
    options: *const c_char,
    platform: *const c_char,
    build: *const c_char,
    architecture: u32,
) -> CUresult {
    slot("compiled", 1, |_| {
        let Some(cache) = Cache::of_environment(|name| std::env::var(name).ok()) else {
            return CUDA_ERROR_NOT_INITIALIZED;
        };
        if !entry.wanted() || input.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let texts = [options, platform, build];
        // SAFETY: the compiler's contract: NULL or strings.
        let texts = unsafe { texts.map(|text| crate::raw::text(text).unwrap_or_default()) };
        // SAFETY: the compiler's contract: so many bytes.
        let input = unsafe { crate::raw::slice(input, input_size) }.unwrap_or_default();
        let numbers = [stage.to_le_bytes(), architecture.to_le_bytes()];
        let key = Key::of(&[
            &numbers[0],
            input,
            texts[0],
            texts[1],
            texts[2],
            &numbers[1],
        ]);
        entry.set(Box::new(Entry { cache, key }));
        CUDA_SUCCESS
    })
}

extern "C" fn compiled_close(entry: Option<Box<Entry>>) -> CUresult {
    slot("compiled", 2, |_| {
        drop(entry);
        CUDA_SUCCESS
    })
}

/// Gives the entry's content in memory of its own, and its size.
extern "C" fn compiled_find(
    entry: Option<&Entry>,
    _: u32,
    content: Out<*mut u8>,
    size: Out<u32>,
) -> CUresult {
    slot("compiled", 3, |_| {
        let Some(entry) = entry else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        let Some(found) = entry.cache.find(&entry.key) else {
            return CUDA_ERROR_NOT_FOUND;
        };
        let Ok(length) = u32::try_from(found.len()) else {
            return CUDA_ERROR_NOT_FOUND;
        };
        if !content.wanted() || !size.wanted() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        let memory = given(&found, found.len());
        if memory.is_null() {
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        content.set(memory);
        size.set(length);
        CUDA_SUCCESS
    })
}

unsafe extern "C" fn compiled_store(
    entry: Option<&Entry>,
    _: u32,
    content: *const u8,
    size: u32,
) -> CUresult {
    slot("compiled", 4, |_| {
        let Some(entry) = entry else {
            return CUDA_ERROR_INVALID_VALUE;
        };
        if content.is_null() {
            return CUDA_ERROR_INVALID_VALUE;
        }
        // SAFETY: the compiler's contract: so many bytes.
        let content = unsafe { std::slice::from_raw_parts(content, size as usize) };
        entry.cache.store(&entry.key, content);
        CUDA_SUCCESS
    })
}

/// Frees the content that `compiled_find` gave.
unsafe extern "C" fn compiled_free(content: *mut c_void) -> CUresult {
    slot("compiled", 6, |_| {
        // SAFETY: the compiler's contract: NULL, or memory of `compiled_find`.
        unsafe { libc::free(content) };
        CUDA_SUCCESS
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size_of_table(id: [u8; 16]) -> usize {
        let table = find(&Driver::default(), &id).unwrap();
        // SAFETY: the table lives for ever and begins with a word.
        unsafe { table.cast::<usize>().read() }
    }

    #[test]
    fn compiler_finds_what_it_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        let open = || {
            let variable = |name: &str| (name == "CUDA_CACHE_PATH").then(|| path.to_owned());
            Box::new(Entry {
                cache: Cache::of_environment(variable).unwrap(),
                key: Key::of(&[b"source"]),
            })
        };
        let (entry, code) = (open(), b"code");
        let (mut content, mut size) = (std::ptr::null_mut(), 0);
        let find = |entry: &Entry, content: &mut *mut u8, size: &mut u32| {
            // SAFETY: a place of the caller.
            let content = unsafe { Out::new(content) };
            // SAFETY: as above.
            let size = unsafe { Out::new(size) };
            compiled_find(Some(entry), 0, content, size)
        };
        let found = find(&entry, &mut content, &mut size);
        assert_eq!(
            (found, content.is_null(), size),
            (CUDA_ERROR_NOT_FOUND, true, 0)
        );
        // SAFETY: there are so many bytes.
        let stored = unsafe { compiled_store(Some(&entry), 0, code.as_ptr(), 4) };
        assert_eq!(stored, CUDA_SUCCESS);
        assert_eq!(compiled_close(Some(entry)), CUDA_SUCCESS);
        let entry = open();
        assert_eq!(
            (find(&entry, &mut content, &mut size), size),
            (CUDA_SUCCESS, 4)
        );
        // SAFETY: the content that was just found.
        let bytes = unsafe { std::slice::from_raw_parts(content, 4) };
        assert_eq!(bytes, code);
        // SAFETY: as above; it is not used again.
        assert_eq!(unsafe { compiled_free(content.cast()) }, CUDA_SUCCESS);
        assert_eq!(compiled_close(Some(entry)), CUDA_SUCCESS);
    }

    #[test]
    fn tables_begin_with_their_size() {
        let ids = [
            RUNTIME,
            TOOLS_TLS,
            HOOKS,
            CHECK,
            CONTEXT_CHECKS,
            CONTEXT_INTERNALS,
            FUNCTION_INTERNALS,
            TOPOLOGY,
            COMPILED,
        ];
        let sizes = [104, 24, 56, 24, 32, 744, 792, 136, 56];
        assert_eq!(ids.map(size_of_table), sizes);
    }

    #[test]
    fn ids_are_written_as_programs_write_them() {
        assert_eq!(RUNTIME[..4], [0x6b, 0xd5, 0xfb, 0x6c]);
        assert_eq!(CHECK[12..], [0x3c, 0x66, 0xe1, 0xf2]);
    }

    #[test]
    fn the_storage_table_begins_with_its_first_function() {
        let table = find(&Driver::default(), &STORAGE).unwrap();
        // SAFETY: the table has four slots.
        let slots = unsafe { table.cast::<[usize; 4]>().read() };
        assert_eq!(slots[0], (put as Slot).addr());
        assert_eq!(slots[3], 0);
    }

    #[test]
    fn an_unknown_table_is_an_error_and_null() {
        let driver = Driver::default();
        let id = CUuuid { bytes: [7; 16] };
        let mut table = std::ptr::dangling::<c_void>();
        // SAFETY: both are locals.
        let status = unsafe { CudaApi::cuGetExportTable(&driver, &raw mut table, &raw const id) };
        assert_eq!(status, CUDA_ERROR_INVALID_VALUE);
        assert!(table.is_null());
    }

    #[test]
    fn tables_stay_where_they_are() {
        let driver = Driver::default();
        assert_eq!(find(&driver, &RUNTIME), find(&driver, &RUNTIME));
        assert_eq!(addresses().check_table, checks().start().addr() as u64);
    }

    #[test]
    fn no_tool_has_subscribed() {
        let (mut buffer, mut size) = (std::ptr::null_mut(), 0);
        // SAFETY: a local.
        let to_buffer = unsafe { Out::new(&raw mut buffer) };
        // SAFETY: a local.
        let to_size = unsafe { Out::new(&raw mut size) };
        first_hooks(to_buffer, to_size);
        // SAFETY: the buffer has that many words, for ever.
        let words = unsafe { std::slice::from_raw_parts(buffer.cast::<u32>(), size) };
        assert_eq!(words.len(), 1024);
        assert!(words.iter().all(|word| *word == 0));
    }
}
