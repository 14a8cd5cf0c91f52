//! Commands that move contents.

use super::*;

impl Remote {
    /// Image regions in elements, with the application's pitches.
    unsafe fn image_place(
        &self,
        image: cl_mem,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        start: *mut c_void,
    ) -> Result<(Place, Host), cl_int> {
        let known = *lock(&self.images)
            .get(&(image.addr() as u64))
            .ok_or(CL_INVALID_MEM_OBJECT)?;
        // SAFETY: the caller's contract: three elements each.
        let origin = unsafe { triple(origin) }.ok_or(CL_INVALID_VALUE)?;
        // SAFETY: as above.
        let region = unsafe { triple(region) }.ok_or(CL_INVALID_VALUE)?;
        let row = if row_pitch == 0 {
            region[0] * known.element
        } else {
            row_pitch
        };
        let row = if known.layers_in_rows && slice_pitch != 0 {
            slice_pitch
        } else {
            row
        };
        let slice = if slice_pitch == 0 || known.layers_in_rows {
            row * region[1]
        } else {
            slice_pitch
        };
        let place = Place {
            shape: shape::IMAGE,
            origin,
            region,
            row_pitch: 0,
            slice_pitch: 0,
            element: known.element,
        };
        Ok((
            place,
            Host {
                start: start.cast(),
                row_pitch: row,
                slice_pitch: slice,
            },
        ))
    }
}

/// Rectangles in bytes, with the pitches of both sides filled in.
#[allow(
    clippy::too_many_arguments,
    reason = "the parameters of the rectangular transfers"
)]
unsafe fn rect(
    buffer_origin: *const usize,
    host_origin: *const usize,
    region: *const usize,
    buffer_row_pitch: usize,
    buffer_slice_pitch: usize,
    host_row_pitch: usize,
    host_slice_pitch: usize,
    start: *mut c_void,
) -> Option<(Place, Host)> {
    // SAFETY: the caller's contract: three elements each.
    let origin = unsafe { triple(buffer_origin) }?;
    // SAFETY: as above.
    let host_origin = unsafe { triple(host_origin) }?;
    // SAFETY: as above.
    let region = unsafe { triple(region) }?;
    let filled = |row: usize, slice: usize| {
        let row = if row == 0 { region[0] } else { row };
        (row, if slice == 0 { row * region[1] } else { slice })
    };
    let (row_pitch, slice_pitch) = filled(buffer_row_pitch, buffer_slice_pitch);
    let (host_row, host_slice) = filled(host_row_pitch, host_slice_pitch);
    let within = host_origin[2] * host_slice + host_origin[1] * host_row + host_origin[0];
    let place = Place {
        shape: shape::RECT,
        origin,
        region,
        row_pitch,
        slice_pitch,
        element: 1,
    };
    Some((
        place,
        Host {
            start: start.cast::<u8>().wrapping_add(within),
            row_pitch: host_row,
            slice_pitch: host_slice,
        },
    ))
}

#[allow(non_snake_case, clippy::too_many_arguments)]
impl TransferCalls for Remote {
    unsafe fn clEnqueueReadBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        offset: usize,
        size: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueReadBuffer",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_read != 0,
            waits,
            event,
        };
        let host = Host {
            start: ptr.cast(),
            row_pitch: size,
            slice_pitch: size,
        };
        self.read(&command, Place::linear(offset, size), host)
    }

    unsafe fn clEnqueueReadBufferRect(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_read: cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueReadBufferRect",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_read != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        let area = unsafe {
            rect(
                buffer_origin,
                host_origin,
                region,
                buffer_row_pitch,
                buffer_slice_pitch,
                host_row_pitch,
                host_slice_pitch,
                ptr,
            )
        };
        let Some((place, host)) = area else {
            return CL_INVALID_VALUE;
        };
        self.read(&command, place, host)
    }

    unsafe fn clEnqueueWriteBuffer(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        offset: usize,
        size: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueWriteBuffer",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_write != 0,
            waits,
            event,
        };
        let host = Host {
            start: ptr.cast_mut().cast(),
            row_pitch: size,
            slice_pitch: size,
        };
        self.write(&command, Place::linear(offset, size), host)
    }

    unsafe fn clEnqueueWriteBufferRect(
        &self,
        command_queue: cl_command_queue,
        buffer: cl_mem,
        blocking_write: cl_bool,
        buffer_origin: *const usize,
        host_origin: *const usize,
        region: *const usize,
        buffer_row_pitch: usize,
        buffer_slice_pitch: usize,
        host_row_pitch: usize,
        host_slice_pitch: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueWriteBufferRect",
            queue: command_queue,
            mem: buffer,
            blocking: blocking_write != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        let area = unsafe {
            rect(
                buffer_origin,
                host_origin,
                region,
                buffer_row_pitch,
                buffer_slice_pitch,
                host_row_pitch,
                host_slice_pitch,
                ptr.cast_mut(),
            )
        };
        let Some((place, host)) = area else {
            return CL_INVALID_VALUE;
        };
        self.write(&command, place, host)
    }

    unsafe fn clEnqueueReadImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_read: cl_bool,
        origin: *const usize,
        region: *const usize,
        row_pitch: usize,
        slice_pitch: usize,
        ptr: *mut c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueReadImage",
            queue: command_queue,
            mem: image,
            blocking: blocking_read != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        match unsafe { self.image_place(image, origin, region, row_pitch, slice_pitch, ptr) } {
            Ok((place, host)) => self.read(&command, place, host),
            Err(status) => status,
        }
    }

    unsafe fn clEnqueueWriteImage(
        &self,
        command_queue: cl_command_queue,
        image: cl_mem,
        blocking_write: cl_bool,
        origin: *const usize,
        region: *const usize,
        input_row_pitch: usize,
        input_slice_pitch: usize,
        ptr: *const c_void,
        num_events_in_wait_list: cl_uint,
        event_wait_list: *const cl_event,
        event: *mut cl_event,
    ) -> cl_int {
        // SAFETY: the caller's contract of the C function.
        let waits = unsafe { events(event_wait_list, num_events_in_wait_list) };
        let command = Command {
            call: "clEnqueueWriteImage",
            queue: command_queue,
            mem: image,
            blocking: blocking_write != 0,
            waits,
            event,
        };
        // SAFETY: the caller's contract of the C function.
        match unsafe {
            self.image_place(
                image,
                origin,
                region,
                input_row_pitch,
                input_slice_pitch,
                ptr.cast_mut(),
            )
        } {
            Ok((place, host)) => self.write(&command, place, host),
            Err(status) => status,
        }
    }
}
