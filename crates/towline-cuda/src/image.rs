//! Device code: how long an image is, which part of it travels, and what is known of its functions.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{CString, c_void};
use std::sync::{Arc, Mutex};

use towline_backend::cuda::*;
use towline_client::cuda::KeptImage;
use towline_client::raw::Vouched;
use towline_ptx::ComputeCapability;
use towline_ptx::fatbin;
use towline_wire::cuda::facts::{Function, ModuleFacts};

use crate::layout::Layout;
use crate::library::Elsewhere;

/// Longest PTX text that is looked for its end.
const TEXT_LIMIT: usize = 1 << 30;
/// Longest cubin.
const CUBIN_LIMIT: u64 = 4 << 30;

/// Attributes that say how a function's blocks are grouped: the driver may refuse afterwards what it accepted before they were set.
const CLUSTER_ATTRIBUTES: [CUfunction_attribute; 4] = [
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
    CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
    CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
];

/// A module or library on the server, with what it holds.
pub(crate) struct Image {
    pub(crate) number: u64,
    pub(crate) context: u64,
    pub(crate) session: u8,
    pub(crate) first: u64,
    pub(crate) facts: Arc<ModuleFacts>,
    pub(crate) layout: Arc<Layout>,
    /// Of a library in a process with several servers.
    pub(crate) elsewhere: Option<Box<Elsewhere>>,
    names: Arc<Vec<CString>>,
    by_name: HashMap<Vec<u8>, u32>,
    changeable: Mutex<Changeable>,
}

#[derive(Default)]
struct Changeable {
    /// Attributes that the application has set, by function, device and attribute.
    attributes: HashMap<(u32, CUdevice, CUfunction_attribute), i32>,
    /// Dynamic shared memory that the server's driver grants, where that is more than the application asked for last; by function and
    /// device.
    granted: HashMap<(u32, CUdevice), i32>,
    /// What is known of how much runs at once, by function, device, question and its words.
    occupancy: HashMap<(u32, CUdevice, u32, Vec<u64>), i64>,
    /// Launch configurations that the driver has accepted.
    accepted: HashSet<u64>,
    /// Addresses and sizes of globals, by context and name; under context 0 those that are the same in all.
    globals: HashMap<u64, HashMap<Vec<u8>, (u64, usize)>>,
    /// What a library is in a context: its module's number.
    modules: HashMap<u64, u64>,
    /// What a kernel is in a context: its function's number.
    functions: HashMap<(u32, u64), u64>,
}

/// A function or kernel.
#[derive(Clone)]
pub(crate) struct Known {
    pub(crate) image: Arc<Image>,
    pub(crate) index: u32,
    /// The context of a function; 0 for a kernel, which has none.
    pub(crate) context: u64,
}

/// The functions, kernels, modules and libraries of the process.
#[derive(Default)]
pub(crate) struct Functions {
    pub(crate) images: HashMap<u64, Arc<Image>>,
    /// Runs of numbers, by the first: how many, and what the first names.
    runs: BTreeMap<u64, (u64, Known)>,
}

impl Functions {
    pub(crate) fn insert(&mut self, image: &Arc<Image>) {
        self.images.insert(image.number, Arc::clone(image));
        let count = image.facts.functions.len() as u64;
        let first = Known {
            image: Arc::clone(image),
            index: 0,
            context: image.context,
        };
        self.runs.insert(image.first, (count, first));
    }

    /// Adds the number of a function that a kernel is in a context.
    pub(crate) fn add_function(&mut self, number: u64, kernel: &Known, context: u64) {
        let function = Known {
            context,
            ..kernel.clone()
        };
        self.runs.insert(number, (1, function));
    }

    /// The function that has a number.
    pub(crate) fn find(&self, number: u64) -> Option<Known> {
        let (first, (count, known)) = self.runs.range(..=number).next_back()?;
        let at = number - first;
        (at < *count).then(|| Known {
            image: Arc::clone(&known.image),
            index: known.index + at as u32,
            context: known.context,
        })
    }

    /// Forgets a module, or a library with all that it is in contexts and on other servers.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Arc<Image>> {
        let image = self.images.remove(&number)?;
        let mut ended: Vec<Arc<Image>> = image.everywhere().map(Arc::clone).collect();
        ended.push(Arc::clone(&image));
        let modules: Vec<u64> = ended.iter().flat_map(|image| image.modules()).collect();
        ended.extend(
            modules
                .iter()
                .filter_map(|module| self.images.remove(module)),
        );
        self.runs
            .retain(|_, (_, known)| !ended.iter().any(|image| Arc::ptr_eq(&known.image, image)));
        Some(image)
    }

    /// Forgets the modules of a context, and what libraries were in it: they belong to none and are loaded into the next one again.
    pub(crate) fn drop_context(&mut self, context: u64) {
        self.images.retain(|_, image| image.context != context);
        self.runs.retain(|_, (_, known)| known.context != context);
        for library in self.images.values().filter(|image| image.context == 0) {
            library.forget_context(context);
            for image in library.everywhere() {
                image.forget_context(context);
            }
        }
    }
}

impl Image {
    pub(crate) fn new(
        number: u64,
        context: u64,
        session: u8,
        first: u64,
        facts: Arc<ModuleFacts>,
        layout: Arc<Layout>,
    ) -> Self {
        let names = facts.functions.iter().map(|function| {
            let name = function.name.split(|byte| *byte == 0).next();
            CString::new(name.unwrap_or_default()).unwrap_or_default()
        });
        let by_name = facts.functions.iter().enumerate();
        Self {
            number,
            context,
            session,
            first,
            names: Arc::new(names.collect()),
            by_name: by_name
                .map(|(index, function)| (function.name.clone(), index as u32))
                .collect(),
            changeable: Mutex::default(),
            elsewhere: None,
            facts,
            layout,
        }
    }

    pub(crate) fn index(&self, name: &[u8]) -> Option<u32> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn find(&self, name: &[u8]) -> Option<u64> {
        Some(self.first + u64::from(self.index(name)?))
    }

    /// What other servers have of a library.
    fn everywhere(&self) -> impl Iterator<Item = &Arc<Image>> {
        self.elsewhere.iter().flat_map(|other| other.images())
    }

    fn with<T>(&self, change: impl FnOnce(&mut Changeable) -> T) -> T {
        change(&mut crate::driver::lock(&self.changeable))
    }

    pub(crate) fn global(&self, context: u64, name: &[u8]) -> Option<(u64, usize)> {
        self.with(|known| known.globals.get(&context)?.get(name).copied())
    }

    pub(crate) fn note_global(&self, context: u64, name: &[u8], place: (u64, usize)) {
        self.with(|known| {
            let there = known.globals.entry(context).or_default();
            there.insert(name.to_vec(), place);
        });
    }

    /// Addresses and sizes of the globals that were asked for; of none from now on.
    pub(crate) fn take_globals(&self) -> Vec<(u64, usize)> {
        let globals = self.with(|known| std::mem::take(&mut known.globals));
        let globals = globals.into_values().flat_map(HashMap::into_values);
        globals.collect()
    }

    fn modules(&self) -> Vec<u64> {
        self.with(|known| known.modules.values().copied().collect())
    }

    fn forget_context(&self, context: u64) {
        self.with(|known| {
            known.globals.remove(&context);
            known.modules.remove(&context);
            known.functions.retain(|(_, of), _| *of != context);
        });
    }

    pub(crate) fn module_in(&self, context: u64) -> Option<u64> {
        self.with(|known| known.modules.get(&context).copied())
    }

    pub(crate) fn note_module(&self, context: u64, module: u64) {
        self.with(|known| known.modules.insert(context, module));
    }
}

impl Known {
    pub(crate) fn facts(&self) -> &Function {
        // The index comes from the run that the image was entered with.
        &self.image.facts.functions[self.index as usize]
    }

    pub(crate) fn name(&self) -> *const std::ffi::c_char {
        self.image
            .names
            .get(self.index as usize)
            .map_or(std::ptr::null(), |name| name.as_ptr())
    }

    pub(crate) fn attribute(
        &self,
        device: CUdevice,
        attribute: CUfunction_attribute,
    ) -> Option<i32> {
        let key = (self.index, device, attribute);
        let set = self.image.with(|known| known.attributes.get(&key).copied());
        set.or_else(|| self.facts().attribute(attribute))
    }

    pub(crate) fn set_attribute(
        &self,
        device: CUdevice,
        attribute: CUfunction_attribute,
        value: i32,
    ) {
        let key = (self.index, device, attribute);
        self.image.with(|known| {
            if CLUSTER_ATTRIBUTES.contains(&attribute) {
                known.accepted.clear();
            }
            if known.attributes.insert(key, value) != Some(value) {
                known
                    .occupancy
                    .retain(|(index, of, ..), _| (*index, *of) != (self.index, device));
            }
        });
    }

    /// Whether the server's driver grants so much dynamic shared memory already. It is never asked to grant less: launches that it has not
    /// carried out yet may need what they were granted, and what the application may use now is looked at when it launches.
    pub(crate) fn is_granted(&self, device: CUdevice, bytes: i32) -> bool {
        let key = (self.index, device);
        let most = self.image.with(|known| known.granted.get(&key).copied());
        bytes >= 0 && most.is_some_and(|most| bytes <= most)
    }

    pub(crate) fn grant(&self, device: CUdevice, bytes: i32) {
        self.image
            .with(|known| known.granted.insert((self.index, device), bytes));
    }

    pub(crate) fn occupancy(&self, device: CUdevice, question: u32, words: &[u64]) -> Option<i64> {
        let key = (self.index, device, question, words.to_vec());
        self.image.with(|known| known.occupancy.get(&key).copied())
    }

    pub(crate) fn note_occupancy(
        &self,
        device: CUdevice,
        question: u32,
        words: &[u64],
        answer: i64,
    ) {
        let key = (self.index, device, question, words.to_vec());
        self.image.with(|known| known.occupancy.insert(key, answer));
    }

    /// Whether the driver has accepted a launch of this configuration before.
    pub(crate) fn accepted(&self, configuration: u64) -> bool {
        self.image
            .with(|known| known.accepted.contains(&configuration))
    }

    pub(crate) fn accept(&self, configuration: u64) {
        self.image
            .with(|known| known.accepted.insert(configuration));
    }

    pub(crate) fn function_in(&self, context: u64) -> Option<u64> {
        self.image
            .with(|known| known.functions.get(&(self.index, context)).copied())
    }

    pub(crate) fn note_function(&self, context: u64, function: u64) {
        self.image
            .with(|known| known.functions.insert((self.index, context), function));
    }
}

/// The device that an image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) capability: ComputeCapability,
    /// It runs machine code; a device in software runs PTX alone.
    pub(crate) machine_code: bool,
}

/// What travels of an image.
pub(crate) enum Travelling<'a> {
    Whole(&'a [u8]),
    Chosen(Arc<Vec<u8>>),
}

impl Travelling<'_> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Whole(bytes) => bytes,
            Self::Chosen(bytes) => bytes,
        }
    }
}

/// The part of an image that is kept for when its session moves: nothing but its place, if it lies in a library or the program, which stay.
pub(crate) fn kept(
    image: Vouched<'_, *const c_void>,
    wrapped: bool,
    devices: Vec<Target>,
    travelling: &Travelling<'_>,
) -> KeptImage {
    let place = *image;
    let address = place.expose_provenance();
    let Some(object) = loaded_object(place) else {
        return KeptImage::Bytes(match travelling {
            Travelling::Whole(bytes) => Arc::new(bytes.to_vec()),
            Travelling::Chosen(bytes) => Arc::clone(bytes),
        });
    };
    KeptImage::Read(Box::new(move || {
        let place = std::ptr::with_exposed_provenance::<c_void>(address);
        // Another object may have been loaded there since.
        if loaded_object(place).as_ref() != Some(&object) {
            return None;
        }
        // SAFETY: the object that the image lies in is where it was, and nobody writes to images.
        let image = unsafe { Vouched::new(place) };
        let again = self::travelling(image, wrapped, &devices).ok()?;
        Some(again.bytes().to_vec())
    }))
}

/// The program or library that an address lies in: where it begins, and its file.
fn loaded_object(place: *const c_void) -> Option<(usize, CString)> {
    let mut told = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: one place for what is told.
    let found = unsafe { libc::dladdr(place, told.as_mut_ptr()) };
    // SAFETY: zeros are a value of it, whatever the call has written.
    let told = unsafe { told.assume_init() };
    if found == 0 || told.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's names are NUL-terminated, and there as long as the object.
    let file = unsafe { std::ffi::CStr::from_ptr(told.dli_fname) };
    Some((told.dli_fbase.addr(), file.to_owned()))
}

/// The image that starts at `start`: the entries of a container that the devices use, or the whole.
pub(crate) fn travelling<'a>(
    image: Vouched<'a, *const c_void>,
    wrapped: bool,
    devices: &[Target],
) -> Result<Travelling<'a>, CUresult> {
    let start = *image;
    if start.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // The shortest image, PTX of a few bytes, is text whose end comes later than its first word.
    match u32::from_le_bytes(*beginning(image)) {
        fatbin::WRAPPER_MAGIC => {
            // Measured on an H200: only cuLibraryLoadData takes a wrapper.
            if !wrapped {
                return Err(CUDA_ERROR_INVALID_IMAGE);
            }
            let wrapper =
                fatbin::Wrapper::decode(beginning(image)).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
            let container = std::ptr::with_exposed_provenance::<c_void>(wrapper.container as usize);
            if container.is_null() {
                return Err(CUDA_ERROR_INVALID_IMAGE);
            }
            // SAFETY: a wrapper points to its container.
            container_at(unsafe { Vouched::new(container) }, devices)
        }
        fatbin::CONTAINER_MAGIC => container_at(image, devices),
        ELF_MAGIC => cubin_at(image),
        _ => {
            // SAFETY: the image is vouched for: what is nothing else is text with a NUL.
            let text = unsafe { std::ffi::CStr::from_ptr(start.cast()) };
            let text = text.to_bytes_with_nul();
            if text.len() > TEXT_LIMIT {
                return Err(CUDA_ERROR_INVALID_IMAGE);
            }
            Ok(Travelling::Whole(text))
        }
    }
}

const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");

/// Refuses a file that its headers say to be longer than it is, or that is a wrapper: that points to memory.
pub(crate) fn check_file(file: &[u8]) -> Result<(), CUresult> {
    let header = || file.first_chunk().ok_or(CUDA_ERROR_INVALID_IMAGE);
    let length = match file.first_chunk().map(|magic| u32::from_le_bytes(*magic)) {
        Some(fatbin::WRAPPER_MAGIC) => None,
        Some(fatbin::CONTAINER_MAGIC) => fatbin::container_len(header()?).ok(),
        Some(ELF_MAGIC) => {
            let tables = file.get(..64).and_then(elf_tables);
            let bytes = tables.and_then(|tables| file.get(..tables));
            bytes.and_then(elf_length).map(|length| length as u64)
        }
        _ => Some(0),
    };
    match length.is_some_and(|length| length <= file.len() as u64) {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_IMAGE),
    }
}

/// The first bytes of an image, which is as long as what it begins with says.
fn bytes<'a>(image: Vouched<'a, *const c_void>, count: usize) -> &'a [u8] {
    // SAFETY: the image is vouched for, and begins with what has this length.
    unsafe { std::slice::from_raw_parts(image.cast(), count) }
}

/// As [`bytes`], of what has one length.
fn beginning<'a, const COUNT: usize>(image: Vouched<'a, *const c_void>) -> &'a [u8; COUNT] {
    let bytes = bytes(image, COUNT).first_chunk();
    bytes.expect("there are so many")
}

fn container_at<'a>(
    start: Vouched<'a, *const c_void>,
    devices: &[Target],
) -> Result<Travelling<'a>, CUresult> {
    let bytes = whole_container(start)?;
    Ok(match chosen(bytes, devices) {
        Ok(Some(chosen)) => Travelling::Chosen(Arc::new(chosen)),
        Ok(None) => Travelling::Whole(bytes),
        Err(error) => {
            log::debug!("an image travels whole: {error}");
            Travelling::Whole(bytes)
        }
    })
}

fn whole_container<'a>(start: Vouched<'a, *const c_void>) -> Result<&'a [u8], CUresult> {
    let length = fatbin::container_len(beginning(start)).map_err(|_| CUDA_ERROR_INVALID_IMAGE)?;
    Ok(bytes(start, length as usize))
}

fn chosen(container: &[u8], devices: &[Target]) -> Result<Option<Vec<u8>>, towline_ptx::Error> {
    let devices = devices.iter();
    fatbin::select_for(
        container,
        devices.map(|device| (device.capability, device.machine_code)),
    )
}

/// The objects that the code of a wrapper was linked from, where none of that code is for the device: `nvcc -rdc=true` links machine code
/// only, and leaves the rest to the driver.
pub(crate) fn objects<'a>(
    image: Vouched<'a, *const c_void>,
    device: Target,
) -> Option<Vec<&'a [u8]>> {
    if image.is_null() || u32::from_le_bytes(*beginning(image)) != fatbin::WRAPPER_MAGIC {
        return None;
    }
    let wrapper = fatbin::Wrapper::decode(beginning(image)).ok()?;
    let pointer = |address| std::ptr::with_exposed_provenance::<c_void>(address as usize);
    let (linked, list) = (pointer(wrapper.container), pointer(wrapper.extra));
    let is_linked = wrapper.version == fatbin::WrapperVersion::Linked;
    if !is_linked || linked.is_null() || list.is_null() {
        return None;
    }
    // SAFETY: a wrapper points to its container.
    let linked = whole_container(unsafe { Vouched::new(linked) }).ok()?;
    if chosen(linked, &[device]).ok()?.is_some() {
        return None;
    }
    let mut objects = Vec::new();
    for at in (0..).step_by(8) {
        // SAFETY: such a wrapper points to a list of containers, which ends with a NULL.
        let entry = unsafe { Vouched::new(list.wrapping_byte_add(at)) };
        let object = pointer(u64::from_le_bytes(*beginning(entry)));
        if object.is_null() {
            break;
        }
        // SAFETY: as above.
        objects.push(whole_container(unsafe { Vouched::new(object) }).ok()?);
    }
    (!objects.is_empty()).then_some(objects)
}

fn cubin_at<'a>(start: Vouched<'a, *const c_void>) -> Result<Travelling<'a>, CUresult> {
    let tables = elf_tables(bytes(start, 64)).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    let length = elf_length(bytes(start, tables)).ok_or(CUDA_ERROR_INVALID_IMAGE)?;
    Ok(Travelling::Whole(bytes(start, length)))
}

fn word(bytes: &[u8], at: usize, width: usize) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..width)?
        .copy_from_slice(bytes.get(at..at.checked_add(width)?)?);
    Some(u64::from_le_bytes(word))
}

/// Bytes of the file up to the end of its last table.
fn elf_tables(header: &[u8]) -> Option<usize> {
    let end = |offset: usize, size: usize, count: usize| -> Option<u64> {
        let entries = word(header, size, 2)?.checked_mul(word(header, count, 2)?)?;
        word(header, offset, 8)?.checked_add(entries)
    };
    let end = end(0x20, 0x36, 0x38)?.max(end(0x28, 0x3a, 0x3c)?).max(64);
    (end <= CUBIN_LIMIT).then_some(end as usize)
}

/// Bytes of the file, from its tables.
fn elf_length(bytes: &[u8]) -> Option<usize> {
    const NO_BITS: u64 = 8;
    let (offset, size, count) = (
        word(bytes, 0x28, 8)? as usize,
        word(bytes, 0x3a, 2)? as usize,
        word(bytes, 0x3c, 2)? as usize,
    );
    let mut end = bytes.len() as u64;
    for index in 0..count {
        let at = offset.checked_add(index.checked_mul(size)?)?;
        if word(bytes, at.checked_add(4)?, 4)? != NO_BITS {
            end = end.max(word(bytes, at + 0x18, 8)?.checked_add(word(bytes, at + 0x20, 8)?)?);
        }
    }
    (end <= CUBIN_LIMIT).then_some(end as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Target = Target {
        capability: ComputeCapability::new(9, 0),
        machine_code: true,
    };

    fn image(whole: &[u8]) -> Vouched<'_, *const c_void> {
        // SAFETY: the tests' images are whole.
        unsafe { Vouched::new(whole.as_ptr().cast()) }
    }

    #[test]
    fn text_travels_with_its_nul() {
        let text = c".version 8.0\n";
        let found = travelling(image(text.to_bytes_with_nul()), false, &[DEVICE]);
        assert_eq!(found.unwrap().bytes(), text.to_bytes_with_nul());
    }

    #[test]
    fn a_wrapper_is_followed_only_where_the_driver_follows_it() {
        let mut container = fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
        container.extend([1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let mut wrapper = fatbin::WRAPPER_MAGIC.to_le_bytes().to_vec();
        wrapper.extend([1, 0, 0, 0]);
        wrapper.extend((container.as_ptr().expose_provenance() as u64).to_le_bytes());
        wrapper.extend([0; 8]);
        let refused = travelling(image(&wrapper), false, &[DEVICE]);
        assert_eq!(refused.err(), Some(CUDA_ERROR_INVALID_IMAGE));
        let taken = travelling(image(&wrapper), true, &[DEVICE]);
        assert_eq!(taken.unwrap().bytes(), container);
    }

    /// A container with one entry that holds nothing.
    fn container(kind: u16, architecture: u32) -> Vec<u8> {
        let mut out = fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
        out.extend([1, 0, 16, 0, 64, 0, 0, 0, 0, 0, 0, 0]);
        out.resize(16 + 64, 0);
        out[16..18].copy_from_slice(&kind.to_le_bytes());
        (out[20], out[16 + 28]) = (64, architecture as u8);
        out
    }

    #[test]
    fn objects_are_linked_where_no_linked_code_fits() {
        let address = |bytes: &[u8]| bytes.as_ptr().expose_provenance() as u64;
        let (linked, one, two) = (container(2, 80), container(1, 80), container(1, 75));
        let list = [address(&one), address(&two), 0]
            .map(u64::to_le_bytes)
            .concat();
        let wrapper = |version: u8| {
            let mut wrapper = fatbin::WRAPPER_MAGIC.to_le_bytes().to_vec();
            wrapper.extend([version, 0, 0, 0]);
            wrapper.extend(address(&linked).to_le_bytes());
            wrapper.extend(address(&list).to_le_bytes());
            wrapper
        };
        let twice = wrapper(2);
        let found = objects(image(&twice), DEVICE);
        assert_eq!(found, Some(vec![one.as_slice(), &two]));
        let fitting = Target {
            capability: ComputeCapability::new(8, 6),
            ..DEVICE
        };
        assert_eq!(objects(image(&wrapper(2)), fitting), None);
        let software = Target {
            machine_code: false,
            ..fitting
        };
        assert_eq!(
            objects(image(&wrapper(2)), software).map(|of| of.len()),
            Some(2)
        );
        assert_eq!(objects(image(&wrapper(1)), DEVICE), None);
        assert_eq!(objects(image(&linked), DEVICE), None);
    }

    #[test]
    fn files_shorter_than_their_headers_say_are_refused() {
        let mut cubin = vec![0; 300];
        cubin[..4].copy_from_slice(b"\x7fELF");
        (cubin[0x28], cubin[0x3a], cubin[0x3c]) = (64, 64, 2);
        (cubin[128 + 0x18], cubin[128 + 0x20]) = (200, 100);
        let mut container = fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
        container.extend([1, 0, 16, 0, 32, 0, 0, 0, 0, 0, 0, 0]);
        container.extend([0; 32]);
        for file in [cubin, container] {
            assert_eq!(check_file(&file), Ok(()));
            for length in 4..file.len() {
                let refused = check_file(&file[..length]);
                assert_eq!(refused, Err(CUDA_ERROR_INVALID_IMAGE), "{length} bytes");
            }
        }
        let wrapper = fatbin::WRAPPER_MAGIC.to_le_bytes();
        assert_eq!(check_file(&wrapper), Err(CUDA_ERROR_INVALID_IMAGE));
        assert_eq!(check_file(b".version 8.0"), Ok(()));
    }

    #[test]
    fn a_cubin_is_as_long_as_its_last_section() {
        let mut file = vec![0; 300];
        file[..4].copy_from_slice(b"\x7fELF");
        file[0x28] = 64;
        file[0x3a] = 64;
        file[0x3c] = 2;
        // The second section: 100 bytes from byte 200 on.
        file[128 + 0x18] = 200;
        file[128 + 0x20] = 100;
        let found = travelling(image(&file), false, &[DEVICE]);
        assert_eq!(found.unwrap().bytes().len(), 300);
    }
}
