//! Contents of buffers and images: read from the one server and written to the other, piece by piece.

use std::collections::hash_map::Entry;

use super::super::transfer::{Command, Host, Place, shape};
use super::*;

/// Largest piece of contents that the client holds.
const PIECE: usize = 16 << 20;

/// Contents of one memory object.
enum Contents {
    Bytes(usize),
    Texels { region: [usize; 3], element: usize },
}

/// A memory object whose contents move.
struct Moved {
    mem: u64,
    context: u64,
    flags: u64,
    contents: Contents,
}

impl Remote {
    /// Reads the contents of buffers and images here and writes them there.
    pub(super) fn move_contents(&self, fresh: &Self) -> Result<(), RebuildError> {
        let mut moved = Vec::new();
        let mut devices = HashMap::new();
        self.recipes.in_order(|id, recipe, _| {
            let context: Option<wire::CreateContext<'_>> = recipe.read();
            if let Some(device) = context.and_then(|context| context.devices.iter().next()) {
                devices.insert(id, device);
            }
            moved.extend(self.contents(id, recipe)?);
            Ok::<_, RebuildError>(())
        })?;
        let mut piece = Vec::new();
        let mut contexts: HashMap<u64, (Ferry<'_>, Ferry<'_>)> = HashMap::new();
        for object in moved {
            let (from, to) = match contexts.entry(object.context) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => {
                    let Some(device) = devices.get(&object.context) else {
                        let why = "the context of a memory object has ended before the object";
                        return Err(RebuildError::Unmovable(why));
                    };
                    let from = Ferry::open(self, object.context, *device)?;
                    let to = Ferry::open(fresh, object.context, *device)?;
                    new.insert((from, to))
                }
            };
            object.pieces(|place| {
                let size = place.size();
                piece.resize(piece.len().max(size), 0);
                from.read(&object, place, &mut piece[..size])?;
                to.write(&object, place, &piece[..size])
            })?;
        }
        contexts
            .into_values()
            .try_for_each(|(from, to)| from.close().and(to.close()))
    }

    /// The contents that move with an object; parts of buffers and images of buffers have none of their own.
    fn contents(&self, mem: u64, recipe: &Recipe) -> Result<Option<Moved>, RebuildError> {
        let image = |context: wire::ContextHandle, flags, desc: wire::ImageDesc| {
            if desc.mem_object.0 != 0 {
                return Ok(None);
            }
            if desc.num_mip_levels > 1 || desc.num_samples > 1 {
                let why = "it has images of several levels or samples";
                return Err(RebuildError::Unmovable(why));
            }
            let element = lock(&self.images)
                .get(&mem)
                .map_or(1, |image| image.element);
            Ok(Some(Moved {
                mem,
                context: context.0,
                flags,
                contents: Contents::Texels {
                    region: region(&desc),
                    element,
                },
            }))
        };
        let buffer = |context: wire::ContextHandle, flags, size: u64| {
            Ok(Some(Moved {
                mem,
                context: context.0,
                flags,
                contents: Contents::Bytes(size as usize),
            }))
        };
        if let Some(made) = recipe.read::<wire::CreateBuffer<'_>>() {
            return buffer(made.context, made.flags, made.size);
        }
        if let Some(made) = recipe.read::<wire::CreateBufferWithProperties<'_>>() {
            return buffer(made.context, made.flags, made.size);
        }
        if let Some(made) = recipe.read::<wire::CreateImage>() {
            return image(made.context, made.flags, made.image_desc);
        }
        if let Some(made) = recipe.read::<wire::CreateImageWithProperties<'_>>() {
            return image(made.context, made.flags, made.image_desc);
        }
        Ok(None)
    }
}

/// The whole of an image.
fn region(desc: &wire::ImageDesc) -> [usize; 3] {
    let (height, depth) = match desc.image_type {
        CL_MEM_OBJECT_IMAGE1D_ARRAY => (desc.image_array_size, 1),
        CL_MEM_OBJECT_IMAGE2D => (desc.image_height, 1),
        CL_MEM_OBJECT_IMAGE2D_ARRAY => (desc.image_height, desc.image_array_size),
        CL_MEM_OBJECT_IMAGE3D => (desc.image_height, desc.image_depth),
        _ => (1, 1),
    };
    [desc.image_width, height, depth].map(|side| side as usize)
}

impl Moved {
    /// Cuts the contents into pieces that the client can hold.
    fn pieces(
        &self,
        mut with: impl FnMut(Place) -> Result<(), RebuildError>,
    ) -> Result<(), RebuildError> {
        match self.contents {
            Contents::Bytes(size) => {
                for offset in (0..size).step_by(PIECE) {
                    with(Place::linear(offset, PIECE.min(size - offset)))?;
                }
            }
            Contents::Texels { region, element } => {
                let [width, height, depth] = region;
                let rows = (PIECE / (width * element).max(1)).clamp(1, height.max(1));
                for z in 0..depth {
                    for y in (0..height).step_by(rows) {
                        with(Place {
                            shape: shape::IMAGE,
                            origin: [0, y, z],
                            region: [width, rows.min(height - y), 1],
                            element,
                            ..Place::linear(0, 0)
                        })?;
                    }
                }
            }
        }
        Ok(())
    }

    fn host_cannot(&self, forbidden: cl_mem_flags) -> bool {
        self.flags & (forbidden | CL_MEM_HOST_NO_ACCESS) != 0
    }
}

/// What moves contents between the client and one server: a queue of its own, and a buffer for objects that the host may not touch.
struct Ferry<'a> {
    session: &'a Remote,
    context: u64,
    queue: wire::CommandQueueHandle,
    between: Option<(wire::MemHandle, usize)>,
}

impl<'a> Ferry<'a> {
    fn open(
        session: &'a Remote,
        context: u64,
        device: wire::DeviceHandle,
    ) -> Result<Self, RebuildError> {
        let queue = wire::CommandQueueHandle(session.mint(wire::CommandQueueHandle::TAG));
        let request = wire::CreateCommandQueue {
            context: wire::ContextHandle(context),
            device,
            properties: 0,
            created: queue,
        };
        session.send("a queue", &request)?;
        Ok(Self {
            session,
            context,
            queue,
            between: None,
        })
    }

    /// A buffer of at least this size.
    fn between(&mut self, size: usize) -> Result<wire::MemHandle, RebuildError> {
        if let Some((buffer, room)) = self.between {
            if room >= size {
                return Ok(buffer);
            }
            let request = wire::ReleaseMemObject { memobj: buffer };
            self.session.send("a buffer", &request)?;
        }
        let created = wire::MemHandle(self.session.mint(wire::MemHandle::TAG));
        let request = wire::CreateBuffer {
            context: wire::ContextHandle(self.context),
            flags: CL_MEM_READ_WRITE,
            size: size as u64,
            host_ptr: None,
            created,
        };
        self.session.send("a buffer", &request)?;
        self.between = Some((created, size));
        Ok(created)
    }

    fn command(&self, mem: wire::MemHandle) -> Command<'static> {
        Command {
            call: "rebuild",
            queue: self.queue.to_raw(),
            mem: mem.to_raw(),
            blocking: true,
            waits: &[],
            event: std::ptr::null_mut(),
        }
    }

    /// Copies between an object and the buffer on the device; `out` is towards the buffer.
    fn copy(
        &self,
        object: &Moved,
        place: Place,
        between: wire::MemHandle,
        out: bool,
    ) -> Result<(), RebuildError> {
        let (mem, command_queue) = (wire::MemHandle(object.mem), self.queue);
        let origin = place.origin.map(|value| value as u64);
        let region = place.region.map(|value| value as u64);
        let what = "a copy on the device";
        match (&object.contents, out) {
            (Contents::Bytes(_), _) => {
                let ((from, at), (to, to_at)) = match out {
                    true => ((mem, origin[0]), (between, 0)),
                    false => ((between, 0), (mem, origin[0])),
                };
                let request = wire::EnqueueCopyBuffer {
                    command_queue,
                    src_buffer: from,
                    dst_buffer: to,
                    src_offset: at,
                    dst_offset: to_at,
                    size: region[0],
                    num_events_in_wait_list: 0,
                    event_wait_list: None,
                    event: None,
                };
                self.session.send(what, &request)
            }
            (Contents::Texels { .. }, true) => {
                let request = wire::EnqueueCopyImageToBuffer {
                    command_queue,
                    src_image: mem,
                    dst_buffer: between,
                    src_origin: wire::List::Values(&origin),
                    region: wire::List::Values(&region),
                    dst_offset: 0,
                    num_events_in_wait_list: 0,
                    event_wait_list: None,
                    event: None,
                };
                self.session.send(what, &request)
            }
            (Contents::Texels { .. }, false) => {
                let request = wire::EnqueueCopyBufferToImage {
                    command_queue,
                    src_buffer: between,
                    dst_image: mem,
                    src_offset: 0,
                    dst_origin: wire::List::Values(&origin),
                    region: wire::List::Values(&region),
                    num_events_in_wait_list: 0,
                    event_wait_list: None,
                    event: None,
                };
                self.session.send(what, &request)
            }
        }
    }

    fn read(&mut self, object: &Moved, place: Place, to: &mut [u8]) -> Result<(), RebuildError> {
        let host = packed(&place, to.as_mut_ptr());
        let (mem, place) = if object.host_cannot(CL_MEM_HOST_WRITE_ONLY) {
            let between = self.between(to.len())?;
            self.copy(object, place, between, true)?;
            (between, Place::linear(0, to.len()))
        } else {
            (wire::MemHandle(object.mem), place)
        };
        let status = self.session.read(&self.command(mem), place, host);
        self.session.expect("a read of contents", status)
    }

    fn write(&mut self, object: &Moved, place: Place, from: &[u8]) -> Result<(), RebuildError> {
        let host = packed(&place, from.as_ptr().cast_mut());
        let hidden = object.host_cannot(CL_MEM_HOST_READ_ONLY);
        let (mem, there) = if hidden {
            (self.between(from.len())?, Place::linear(0, from.len()))
        } else {
            (wire::MemHandle(object.mem), place)
        };
        let status = self.session.write(&self.command(mem), there, host);
        self.session.expect("a write of contents", status)?;
        if hidden {
            self.copy(object, place, mem, false)?;
        }
        Ok(())
    }

    fn close(self) -> Result<(), RebuildError> {
        let status = self.session.finish(self.queue.to_raw());
        self.session.expect("a copy of contents", status)?;
        if let Some((memobj, _)) = self.between {
            self.session
                .send("a buffer", &wire::ReleaseMemObject { memobj })?;
        }
        let command_queue = self.queue;
        self.session
            .send("a queue", &wire::ReleaseCommandQueue { command_queue })
    }
}

fn packed(place: &Place, start: *mut u8) -> Host {
    let row_pitch = place.region[0] * place.element;
    Host {
        start,
        row_pitch,
        slice_pitch: row_pitch * place.region[1],
    }
}
