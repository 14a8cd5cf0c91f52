//! Maps. The address of a mapped range is wanted when the map is enqueued, long before the vendor may be asked for it, so it is the
//! address of memory of ours, or of the application's where the object was made over that (`CL_MEM_USE_HOST_PTR`).
//!
//! A map is filled from a map of the vendor's when its turn comes; an unmap of a range that was mapped for writing writes all of it
//! back through another. Maps that overlap do not see each other's writes; the specification leaves that undefined.

use std::alloc::Layout;
use std::ptr;
use std::sync::Arc;

use super::super::contract::{Asked, Bytes, put, require, status, triple};
use super::super::handles::Destructor;
use super::super::scheduler::{Order, Work};
use super::super::*;
use super::objects::{CommandQueue, Memory, Shape};
use super::{Serial, Target, turn};

/// Alignment of the largest type, a vector of sixteen 64-bit numbers.
const ALIGN: usize = 128;

/// Memory that a range is mapped to.
struct Shadow {
    first: *mut u8,
    /// None of the application's memory.
    layout: Option<Layout>,
}

// SAFETY: the pointer is to memory that lives as long as the value; OpenCL leaves it to the application that nothing races on it.
unsafe impl Send for Shadow {}
// SAFETY: as above.
unsafe impl Sync for Shadow {}

impl Shadow {
    fn new(size: usize) -> Result<Self, cl_int> {
        let layout = Layout::from_size_align(size, ALIGN).map_err(|_| CL_INVALID_VALUE)?;
        require(size > 0, CL_INVALID_VALUE)?;
        // SAFETY: the size is not zero.
        let first = unsafe { std::alloc::alloc_zeroed(layout) };
        require(!first.is_null(), CL_OUT_OF_HOST_MEMORY)?;
        Ok(Self {
            first,
            layout: Some(layout),
        })
    }

    fn over(address: usize) -> Self {
        Self {
            first: ptr::with_exposed_provenance_mut(address),
            layout: None,
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: the memory was allocated with this layout.
            unsafe { std::alloc::dealloc(self.first, layout) };
        }
    }
}

/// A part of a memory object.
#[derive(Clone, Copy)]
enum Part {
    Buffer {
        offset: usize,
        size: usize,
    },
    Image {
        origin: [usize; 3],
        region: [usize; 3],
        /// Bytes of a row of the region.
        row: usize,
        /// Bytes from row to row, and from slice to slice, in the shadow.
        strides: (usize, usize),
        is_array_of_rows: bool,
    },
}

impl Part {
    /// Maps the part at the vendor, carries its bytes one way, and unmaps it with the event that is asked for.
    ///
    /// # Safety
    /// The caller has the turn; the object and the queue are live, the shadow holds the part.
    unsafe fn carry(
        self,
        native: &NativeOpenCl,
        queue: cl_command_queue,
        mem: cl_mem,
        shadow: &Shadow,
        is_store: bool,
        done: *mut cl_event,
    ) -> cl_int {
        let flags = if is_store {
            CL_MAP_WRITE_INVALIDATE_REGION
        } else {
            CL_MAP_READ
        };
        let none = (ptr::null(), ptr::null_mut());
        let mut code = CL_SUCCESS;
        let (mut row_pitch, mut slice_pitch) = (0, 0);
        let mapped = match self {
            // SAFETY: the caller's contract; the code is a local.
            Self::Buffer { offset, size } => unsafe {
                native.clEnqueueMapBuffer(
                    queue,
                    mem,
                    CL_TRUE,
                    flags,
                    offset,
                    size,
                    0,
                    none.0,
                    none.1,
                    &raw mut code,
                )
            },
            // SAFETY: the caller's contract; the rest are locals.
            Self::Image { origin, region, .. } => unsafe {
                native.clEnqueueMapImage(
                    queue,
                    mem,
                    CL_TRUE,
                    flags,
                    origin.as_ptr(),
                    region.as_ptr(),
                    &raw mut row_pitch,
                    &raw mut slice_pitch,
                    0,
                    none.0,
                    none.1,
                    &raw mut code,
                )
            },
        };
        if code != CL_SUCCESS {
            return code;
        }
        let carry = |theirs: usize, ours: usize, size: usize| {
            let theirs = mapped.cast::<u8>().wrapping_add(theirs);
            let ours = shadow.first.wrapping_add(ours);
            let (to, from) = if is_store {
                (theirs, ours)
            } else {
                (ours, theirs)
            };
            // SAFETY: the caller's contract; where the vendor uses the application's memory itself, both are the same.
            unsafe { ptr::copy(from, to, size) };
        };
        match self {
            Self::Buffer { size, .. } => carry(0, 0, size),
            Self::Image {
                region,
                row,
                strides,
                is_array_of_rows,
                ..
            } => {
                let row_pitch = if is_array_of_rows {
                    slice_pitch
                } else {
                    row_pitch
                };
                for z in 0..region[2] {
                    for y in 0..region[1] {
                        let theirs = z * slice_pitch + y * row_pitch;
                        carry(theirs, z * strides.1 + y * strides.0, row);
                    }
                }
            }
        }
        // SAFETY: the caller's contract; the vendor gave the address for this object.
        unsafe { native.clEnqueueUnmapMemObject(queue, mem, mapped, 0, none.0, done) }
    }
}

/// A range that is mapped.
pub(super) struct Mapping {
    shadow: Arc<Shadow>,
    part: Part,
    is_written: bool,
}

impl Memory {
    /// What is mapped at this address, which it is no longer.
    fn unmap(&self, address: usize) -> Option<Mapping> {
        let mut maps = self.maps();
        let at = maps
            .iter()
            .position(|mapping| mapping.shadow.first.addr() == address)?;
        Some(maps.swap_remove(at))
    }
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl Serial {
    pub(super) unsafe fn clRetainMemObject(&self, memobj: cl_mem) -> cl_int {
        status(self.registry.retain::<Memory, _>(memobj))
    }

    pub(super) unsafe fn clReleaseMemObject(&self, memobj: cl_mem) -> cl_int {
        status(self.registry.release::<Memory, _>(memobj).map(drop))
    }

    pub(super) unsafe fn clSetMemObjectDestructorCallback(
        &self,
        memobj: cl_mem,
        pfn_notify: Option<unsafe extern "C" fn(cl_mem, *mut c_void)>,
        user_data: *mut c_void,
    ) -> cl_int {
        status(self.get::<Memory, _>(memobj).and_then(|known| {
            let function = pfn_notify.ok_or(CL_INVALID_VALUE)?;
            let destructor = Destructor::new(function, memobj, user_data);
            known.vendored.destructors.add(destructor);
            Ok(())
        }))
    }

    pub(super) unsafe fn clEnqueueMapBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        offset: usize,
        size: usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
        errcode_ret: *mut cl_int,
    ) -> *mut c_void {
        let mapped = (|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let memory = self.memory(&target.0, buffer)?;
            memory.range(offset, size)?;
            require(size > 0, CL_INVALID_VALUE)?;
            let shadow = match memory.host {
                Some(host) => Shadow::over(host.wrapping_add(offset)),
                None => Shadow::new(size)?,
            };
            let part = Part::Buffer { offset, size };
            let how = (CL_COMMAND_MAP_BUFFER, Order::Free, blocking_map);
            // SAFETY: the caller's contract.
            unsafe { self.map(target, memory, map_flags, (shadow, part), how, event) }
        })();
        // SAFETY: the caller's contract.
        unsafe { put(errcode_ret, mapped.err().unwrap_or(CL_SUCCESS)) };
        mapped.unwrap_or(ptr::null_mut())
    }

    pub(super) unsafe fn clEnqueueMapImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_map: cl_bool,
        map_flags: cl_map_flags,
        origin: *const usize,
        region: *const usize,
        image_row_pitch: *mut usize,
        image_slice_pitch: *mut usize,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
        errcode_ret: *mut cl_int,
    ) -> *mut c_void {
        let mapped = (|| {
            // SAFETY: the caller's contract.
            let target =
                unsafe { self.target(command_queue, num_events_in_wait_list, event_wait_list) }?;
            let memory = self.memory(&target.0, image)?;
            let Shape::Image {
                element,
                row_pitch,
                slice_pitch,
                is_array_of_rows,
            } = memory.shape
            else {
                return Err(CL_INVALID_MEM_OBJECT);
            };
            // SAFETY: the caller's contract.
            let origin = unsafe { triple(origin) }?;
            // SAFETY: as above.
            let region = unsafe { triple(region) }?;
            let has_slices = slice_pitch != 0;
            require(
                !image_row_pitch.is_null() && (!has_slices || !image_slice_pitch.is_null()),
                CL_INVALID_VALUE,
            )?;
            let size = |a: usize, b: usize| a.checked_mul(b).ok_or(CL_INVALID_VALUE);
            let row = size(region[0], element)?;
            // What the application is told, and the strides of the region's second and third dimension.
            let (pitches, shadow) = match memory.host {
                Some(host) => {
                    let second = if is_array_of_rows {
                        slice_pitch
                    } else {
                        row_pitch
                    };
                    let strides = [element, second, slice_pitch];
                    let mut at = host;
                    for (index, stride) in origin.into_iter().zip(strides) {
                        at = at
                            .checked_add(size(index, stride)?)
                            .ok_or(CL_INVALID_VALUE)?;
                    }
                    let shadow = Shadow::over(at);
                    ((row_pitch, slice_pitch), shadow)
                }
                None => {
                    let all = size(size(row, region[1])?, region[2])?;
                    let slice = match (has_slices, is_array_of_rows) {
                        (false, _) => 0,
                        (true, true) => row,
                        (true, false) => size(row, region[1])?,
                    };
                    ((row, slice), Shadow::new(all)?)
                }
            };
            let second = if is_array_of_rows {
                pitches.1
            } else {
                pitches.0
            };
            let part = Part::Image {
                origin,
                region,
                row,
                strides: (second, pitches.1),
                is_array_of_rows,
            };
            let how = (CL_COMMAND_MAP_IMAGE, Order::Free, blocking_map);
            // SAFETY: the caller's contract.
            let mapped =
                unsafe { self.map(target, memory, map_flags, (shadow, part), how, event) }?;
            // SAFETY: the caller's contract.
            unsafe { put(image_row_pitch, pitches.0) };
            // SAFETY: as above.
            unsafe { put(image_slice_pitch, pitches.1) };
            Ok(mapped)
        })();
        // SAFETY: the caller's contract.
        unsafe { put(errcode_ret, mapped.err().unwrap_or(CL_SUCCESS)) };
        mapped.unwrap_or(ptr::null_mut())
    }

    /// Enqueues the filling of a shadow and gives its address.
    ///
    /// # Safety
    /// `event` is NULL or writable; the shadow holds the part.
    unsafe fn map(
        &self,
        target: Target,
        memory: Arc<Memory>,
        flags: cl_map_flags,
        (shadow, part): (Shadow, Part),
        how: (cl_command_type, Order, cl_bool),
        event: *mut cl_event,
    ) -> Result<*mut c_void, cl_int> {
        const KNOWN: cl_map_flags = CL_MAP_READ | CL_MAP_WRITE | CL_MAP_WRITE_INVALIDATE_REGION;
        let invalidates = flags & CL_MAP_WRITE_INVALIDATE_REGION != 0;
        let is_alone = flags == CL_MAP_WRITE_INVALIDATE_REGION;
        require(
            flags & !KNOWN == 0 && (!invalidates || is_alone),
            CL_INVALID_VALUE,
        )?;
        let mapped = shadow.first.cast::<c_void>();
        let shadow = Arc::new(shadow);
        memory.maps().push(Mapping {
            shadow: shadow.clone(),
            part,
            is_written: flags != CL_MAP_READ,
        });
        let work = if invalidates {
            nothing()
        } else {
            let memory = memory.clone();
            // SAFETY: the closure holds the object and the shadow; it is called in a turn.
            self.work(&target.0, move |native, queue, done| unsafe {
                part.carry(native, queue, memory.mem(), &shadow, false, done)
            })
        };
        // SAFETY: the caller's contract.
        let done = unsafe { self.submit(target, how, event, work) };
        if done.is_err() {
            memory.unmap(mapped.addr());
        }
        done.map(|()| mapped)
    }

    pub(super) unsafe fn clEnqueueUnmapMemObject(
        &self,
        at: &CommandQueue,
        memobj: cl_mem,
        mapped_ptr: *mut c_void,
    ) -> Result<Work, cl_int> {
        let memory = self.memory(at, memobj)?;
        let Mapping {
            shadow,
            part,
            is_written,
        } = memory.unmap(mapped_ptr.addr()).ok_or(CL_INVALID_VALUE)?;
        if !is_written {
            // The memory stays until the commands that fill it have run.
            return Ok(Box::new(move || {
                drop(shadow);
                Ok(())
            }));
        }
        // SAFETY: the closure holds the object and the shadow; it is called in a turn.
        Ok(self.work(at, move |native, queue, done| unsafe {
            part.carry(native, queue, memory.mem(), &shadow, true, done)
        }))
    }

    pub(super) unsafe fn clGetMemObjectInfo(
        &self,
        memobj: cl_mem,
        param_name: cl_mem_info,
        param_value_size: usize,
        param_value: *mut c_void,
        param_value_size_ret: *mut usize,
    ) -> cl_int {
        let asked = Asked::new(param_value_size, param_value, param_value_size_ret);
        let known = match self.get::<Memory, _>(memobj) {
            Ok(known) => known,
            Err(error) => return error,
        };
        match param_name {
            CL_MEM_REFERENCE_COUNT => {
                let references = self.registry.references(memobj).bytes();
                // SAFETY: the caller's contract.
                status(unsafe { asked.answer(&references) })
            }
            CL_MEM_MAP_COUNT => {
                let count = known.maps().len() as cl_uint;
                // SAFETY: the caller's contract.
                status(unsafe { asked.answer(&count.bytes()) })
            }
            _ => {
                let _turn = turn::take();
                // SAFETY: the caller's contract, passed on.
                unsafe {
                    self.native.clGetMemObjectInfo(
                        memobj,
                        param_name,
                        param_value_size,
                        param_value,
                        param_value_size_ret,
                    )
                }
            }
        }
    }
}

/// A command that does nothing.
fn nothing() -> Work {
    Box::new(|| Ok(()))
}
