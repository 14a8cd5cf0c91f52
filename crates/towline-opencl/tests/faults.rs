//! Links that fail at every point of every kind of transfer: right bytes or an error, and right bytes where the link comes back, through the
//! whole of the client's library.

#[macro_use]
mod support;

use std::ffi::c_void;
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use support::{Cl, POCL};
use towline_backend::opencl::*;
use towline_opencl::Provider;
use towline_test::faults::{Run, Target};
use towline_test::pair::Pair;

/// Beyond what travels on the command lane: several chunks, and the last is no whole one.
const BULK: usize = 300_001;
/// Cases of a campaign among all tests; `every_point` runs all.
const SOME: usize = 60;

/// A session, its platform layer, a queue, and what its calls claim.
struct Session {
    run: Arc<Run>,
    pair: Pair,
    cl: Cl,
    queue: cl_command_queue,
}

impl Session {
    fn new(run: &Arc<Run>, api: Arc<dyn OpenClApi>) -> Self {
        let pair = Pair::through(api, run.network.clone(), &*run.transport());
        if run.has_control {
            pair.remote.expect_explanation();
        }
        let cl = Cl::over(Provider::of_session(&pair.remote));
        let queue = cl.queue(0);
        Self {
            run: Arc::clone(run),
            pair,
            cl,
            queue,
        }
    }

    /// On the device in host memory, whose transfers take the way of a discrete GPU.
    fn on_null(run: &Arc<Run>) -> Self {
        Self::new(run, Arc::new(NullOpenCl::discrete(1)))
    }

    fn on_pocl(run: &Arc<Run>) -> Self {
        Self::new(run, support::library(POCL).0)
    }

    /// Everything made so far is there, and the link fails from here on.
    fn arm(&self) {
        let cl = &self.cl;
        ok!(cl, clFinish(self.queue));
        self.run.arm();
    }

    fn finish(&self, targets: &[&Arc<Target>]) {
        let status = status!(self.cl, clFinish(self.queue));
        self.run.claim("clFinish", status, targets);
    }

    fn write(&self, buffer: cl_mem, blocking: cl_bool, offset: usize, data: &[u8]) {
        let (size, from) = (data.len(), data.as_ptr().cast());
        let status = status!(
            self.cl,
            clEnqueueWriteBuffer(
                self.queue,
                buffer,
                blocking,
                offset,
                size,
                from,
                0,
                null(),
                null_mut()
            )
        );
        self.run.post("clEnqueueWriteBuffer", status);
    }

    fn enqueue_read(
        &self,
        buffer: cl_mem,
        blocking: cl_bool,
        offset: usize,
        target: &Arc<Target>,
        event: *mut cl_event,
    ) -> cl_int {
        status!(
            self.cl,
            clEnqueueReadBuffer(
                self.queue,
                buffer,
                blocking,
                offset,
                target.size(),
                target.start().cast(),
                0,
                null(),
                event
            )
        )
    }

    /// A read that blocks.
    fn read(&self, buffer: cl_mem, offset: usize, right: &[u8]) {
        let target = Target::for_bytes(right);
        let done = self.enqueue_read(buffer, CL_TRUE, offset, &target, null_mut());
        self.run.claim("clEnqueueReadBuffer", done, &[&target]);
    }

    /// A read that does not, and its event; `None` where it fails at once.
    fn start_read(&self, buffer: cl_mem, target: &Arc<Target>) -> Option<cl_event> {
        let mut event = null_mut();
        let started = self.enqueue_read(buffer, CL_FALSE, 0, target, &raw mut event);
        self.run.post("clEnqueueReadBuffer", started);
        (started == CL_SUCCESS).then_some(event)
    }

    fn wait(&self, event: cl_event, targets: &[&Arc<Target>]) {
        let status = status!(self.cl, clWaitForEvents(1, &raw const event));
        self.run.claim("clWaitForEvents", status, targets);
    }

    /// Asks for an event's status until it has ended.
    fn poll(&self, event: cl_event, target: &Arc<Target>) {
        loop {
            let mut status = CL_SUBMITTED;
            let asked = status!(
                self.cl,
                clGetEventInfo(
                    event,
                    CL_EVENT_COMMAND_EXECUTION_STATUS,
                    size_of::<cl_int>(),
                    (&raw mut status).cast(),
                    null_mut()
                )
            );
            if asked != CL_SUCCESS || status <= CL_COMPLETE {
                let done = asked == CL_SUCCESS && status == CL_COMPLETE;
                return self.run.ended("the event", done, &[target]);
            }
            std::thread::yield_now();
        }
    }

    fn end(self) {
        // Memory that the session had must be its no more when the targets go.
        let _ = self.pair.finish();
        drop(self.cl);
    }
}

/// What a callback is to look at, and who waits for it.
struct Told {
    run: Arc<Run>,
    target: Arc<Target>,
    told: Sender<()>,
}

extern "C" fn completed(_: cl_event, status: cl_int, told: *mut c_void) {
    // SAFETY: the pointer was made from this box, and the callback is called once.
    let told = unsafe { Box::from_raw(told.cast::<Told>()) };
    told.run.ended(
        "the callback's event",
        status == CL_COMPLETE,
        &[&told.target],
    );
    // The program waits for it.
    let _ = told.told.send(());
}

fn pattern(size: usize, seed: u32) -> Vec<u8> {
    (0..size as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 13) as u8 | 1)
        .collect()
}

/// Small data, which travels with the requests.
fn inline_transfers(run: &Arc<Run>) {
    let session = Session::on_null(run);
    let buffer = session.cl.buffer(100_000);
    session.arm();
    let data = pattern(100_000, 1);
    session.write(buffer, CL_TRUE, 0, &data[..100]);
    session.write(buffer, CL_FALSE, 100, &data[100..60_100]);
    session.write(buffer, CL_FALSE, 60_100, &data[60_100..]);
    session.read(buffer, 0, &data[..100]);
    session.read(buffer, 0, &data);
    session.finish(&[]);
    session.read(buffer, 5, &data[5..10]);
    session.end();
}

/// Large data, which has lanes of its own.
fn bulk_transfers(run: &Arc<Run>) {
    let session = Session::on_null(run);
    let buffer = session.cl.buffer(BULK);
    session.arm();
    let (data, part) = (pattern(BULK, 1), pattern(200_000, 2));
    session.write(buffer, CL_TRUE, 0, &data);
    session.read(buffer, 0, &data);
    session.write(buffer, CL_FALSE, 1000, &part);
    session.finish(&[]);
    let mut both = data.clone();
    both[1000..201_000].copy_from_slice(&part);
    session.read(buffer, 0, &both);
    session.read(buffer, 1000, &part);
    session.end();
}

/// Reads that do not block, and each way to learn that they are done.
fn reads_that_do_not_block(run: &Arc<Run>) {
    let session = Session::on_null(run);
    let buffer = session.cl.buffer(BULK);
    let data = pattern(BULK, 3);
    session.write(buffer, CL_TRUE, 0, &data);
    session.arm();
    let targets: Vec<_> = (0..4).map(|_| Target::for_bytes(&data)).collect();
    let waited = session.start_read(buffer, &targets[0]);
    let called = session.start_read(buffer, &targets[1]);
    let polled = session.start_read(buffer, &targets[2]);
    let (told, telling) = channel();
    if let Some(event) = called {
        let told = Box::into_raw(Box::new(Told {
            run: Arc::clone(run),
            target: Arc::clone(&targets[1]),
            told,
        }));
        let status = status!(
            session.cl,
            clSetEventCallback(event, CL_COMPLETE, Some(completed), told.cast())
        );
        run.post("clSetEventCallback", status);
        if status != CL_SUCCESS {
            // SAFETY: nobody was given it.
            drop(unsafe { Box::from_raw(told) });
        }
    } else {
        drop(told);
    }
    if let Some(event) = polled {
        session.poll(event, &targets[2]);
    }
    if let Some(event) = waited {
        session.wait(event, &[&targets[0]]);
    }
    // Fails where the callback was not taken.
    let _ = telling.recv();
    let finished = session.start_read(buffer, &targets[3]);
    session.finish(&[&targets[3]][..usize::from(finished.is_some())]);
    session.end();
}

/// A box of 700 by 150 by 3 bytes from (17, 5, 1) on, in 1,024 by 200 by 4.
const BOX: [usize; 3] = [700, 150, 3];
const AT: [usize; 3] = [17, 5, 1];
const PITCHES: [usize; 2] = [1024, 1024 * 200];

/// Memory with a box of other bytes in it.
fn with_box(mut around: Vec<u8>, inside: &[u8]) -> Vec<u8> {
    for (row, bytes) in inside.chunks(BOX[0]).enumerate() {
        let (z, y) = (AT[2] + row / BOX[1], AT[1] + row % BOX[1]);
        let start = z * PITCHES[1] + y * PITCHES[0] + AT[0];
        around[start..start + BOX[0]].copy_from_slice(bytes);
    }
    around
}

/// Boxes with pitches at both ends.
fn boxes(run: &Arc<Run>) {
    let session = Session::on_null(run);
    let size = PITCHES[1] * 4;
    let buffer = session.cl.buffer(size);
    let (around, inside) = (pattern(size, 4), pattern(BOX.iter().product(), 5));
    session.write(buffer, CL_TRUE, 0, &around);
    session.arm();
    let (cl, queue) = (&session.cl, session.queue);
    let source = with_box(vec![0; size], &inside);
    let status = status!(
        cl,
        clEnqueueWriteBufferRect(
            queue,
            buffer,
            CL_TRUE,
            AT.as_ptr(),
            AT.as_ptr(),
            BOX.as_ptr(),
            PITCHES[0],
            PITCHES[1],
            PITCHES[0],
            PITCHES[1],
            source.as_ptr().cast(),
            0,
            null(),
            null_mut()
        )
    );
    run.post("clEnqueueWriteBufferRect", status);
    let before = pattern(size, 6);
    let target = Target::from(before.clone(), &with_box(before, &inside));
    let status = status!(
        cl,
        clEnqueueReadBufferRect(
            queue,
            buffer,
            CL_TRUE,
            AT.as_ptr(),
            AT.as_ptr(),
            BOX.as_ptr(),
            PITCHES[0],
            PITCHES[1],
            PITCHES[0],
            PITCHES[1],
            target.start().cast(),
            0,
            null(),
            null_mut()
        )
    );
    run.claim("clEnqueueReadBufferRect", status, &[&target]);
    session.read(buffer, 0, &with_box(around, &inside));
    session.end();
}

/// Maps for reading and writing, blocking and not; and a buffer that begins with the application's bytes.
fn maps(run: &Arc<Run>) {
    let session = Session::on_null(run);
    let (cl, queue) = (&session.cl, session.queue);
    session.arm();
    let mut data = pattern(BULK, 7);
    let made = make!(
        cl,
        clCreateBuffer(
            cl.context,
            CL_MEM_COPY_HOST_PTR,
            BULK,
            data.as_mut_ptr().cast()
        )
    );
    run.post("clCreateBuffer", made.err().unwrap_or(CL_SUCCESS));
    let Ok(buffer) = made else {
        return session.end();
    };
    for (round, blocking) in [CL_TRUE, CL_FALSE].into_iter().enumerate() {
        let mut event = null_mut();
        let mapped = make!(
            cl,
            clEnqueueMapBuffer(
                queue,
                buffer,
                blocking,
                CL_MAP_READ | CL_MAP_WRITE,
                0,
                BULK,
                0,
                null(),
                &raw mut event
            )
        );
        let mut status = mapped.err().unwrap_or(CL_SUCCESS);
        if blocking == CL_FALSE && mapped.is_ok() {
            status = status!(cl, clWaitForEvents(1, &raw const event));
        }
        run.claim("the map", status, &[]);
        let (Ok(mapped), CL_SUCCESS) = (mapped, status) else {
            continue;
        };
        // SAFETY: the region is mapped, for reading and writing, and used by nobody else.
        let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.cast::<u8>(), BULK) };
        if *bytes != *data {
            run.complain(format!("map {round} succeeds, and its bytes are wrong"));
        }
        data = pattern(BULK, 8 + round as u32);
        bytes.copy_from_slice(&data);
        let status = status!(
            cl,
            clEnqueueUnmapMemObject(queue, buffer, mapped, 0, null(), null_mut())
        );
        run.post("clEnqueueUnmapMemObject", status);
        session.finish(&[]);
    }
    session.read(buffer, 0, &data);
    session.end();
}

/// An image of 300 by 250 texels, whole and in part.
fn images(run: &Arc<Run>) {
    const SIZE: [usize; 3] = [300, 250, 1];
    let session = Session::on_pocl(run);
    let (cl, queue) = (&session.cl, session.queue);
    let format = cl_image_format {
        image_channel_order: CL_RGBA,
        image_channel_data_type: CL_UNSIGNED_INT8,
    };
    let desc = cl_image_desc {
        image_type: CL_MEM_OBJECT_IMAGE2D,
        image_width: SIZE[0],
        image_height: SIZE[1],
        image_depth: 0,
        image_array_size: 0,
        image_row_pitch: 0,
        image_slice_pitch: 0,
        num_mip_levels: 0,
        num_samples: 0,
        mem_object: null_mut(),
    };
    let image = make!(
        cl,
        clCreateImage(
            cl.context,
            CL_MEM_READ_WRITE,
            &raw const format,
            &raw const desc,
            null_mut()
        )
    );
    let image = image.expect("an image");
    session.arm();
    let texels = pattern(SIZE[0] * SIZE[1] * 4, 9);
    let status = status!(
        cl,
        clEnqueueWriteImage(
            queue,
            image,
            CL_TRUE,
            [0; 3].as_ptr(),
            SIZE.as_ptr(),
            0,
            0,
            texels.as_ptr().cast(),
            0,
            null(),
            null_mut()
        )
    );
    run.post("clEnqueueWriteImage", status);
    let rows = [SIZE[0], 200, 1];
    for (first, region) in [(0, SIZE), (50, rows)] {
        let start = first * SIZE[0] * 4;
        let size = region.iter().product::<usize>() * 4;
        let target = Target::for_bytes(&texels[start..start + size]);
        let status = status!(
            cl,
            clEnqueueReadImage(
                queue,
                image,
                CL_TRUE,
                [0, first, 0].as_ptr(),
                region.as_ptr(),
                0,
                0,
                target.start().cast(),
                0,
                null(),
                null_mut()
            )
        );
        run.claim("clEnqueueReadImage", status, &[&target]);
    }
    session.end();
}

macro_rules! campaigns {
    ($($program:ident)*) => {
        mod some_points {
            $(#[test]
            fn $program() {
                towline_test::faults::check(super::$program, super::SOME);
            })*
        }
        mod some_points_of_links_that_come_back {
            $(#[test]
            fn $program() {
                towline_test::faults::check_healed(super::$program, super::SOME);
            })*
        }
        mod every_point {
            $(#[test]
            #[ignore = "takes minutes"]
            fn $program() {
                towline_test::faults::check(super::$program, usize::MAX);
            })*
        }
        mod every_point_of_links_that_come_back {
            $(#[test]
            #[ignore = "takes minutes"]
            fn $program() {
                towline_test::faults::check_healed(super::$program, usize::MAX);
            })*
        }
    };
}

campaigns! {
    inline_transfers
    bulk_transfers
    reads_that_do_not_block
    boxes
    maps
    images
}
