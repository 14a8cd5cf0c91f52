//! Contents of buffers and images: passed from the one server to the other where they have a lane for that, else read here and written there,
//! piece by piece.

use std::collections::hash_map::Entry;

use super::super::transfer::{Command, Host, Place, shape};
use super::*;
use crate::moved::in_turns;
use crate::peer::{PeerLane, lane_between};

/// Largest piece of contents that the client holds.
pub(super) const PIECE: usize = 16 << 20;

/// Contents of one memory object.
pub(super) enum Contents {
    Bytes(usize),
    Texels { region: [usize; 3], element: usize },
}

/// A memory object whose contents move.
pub(super) struct Moved {
    pub(super) mem: u64,
    pub(super) context: u64,
    flags: u64,
    pub(super) contents: Contents,
}

/// Contexts that have memory objects, with a device of each.
pub(super) type Devices = HashMap<u64, wire::DeviceHandle>;

impl Remote {
    /// Has the contents of buffers and images be there what they are here.
    pub(super) fn move_contents(&self, fresh: &Self) -> Result<(), RebuildError> {
        let (mut objects, devices) = self.objects()?;
        let mut from = Ferries::new(self, &devices);
        let mut to = Ferries::new(fresh, &devices);
        let is_large =
            |object: &Moved| matches!(object.contents, Contents::Bytes(size) if size > PIECE);
        if objects.iter().any(is_large)
            && let Some(lane) = lane_between(self, fresh)
        {
            let mut stay = Vec::new();
            for object in objects {
                let passed =
                    is_large(&object) && pass(&object, from.of(&object)?, to.of(&object)?, &lane);
                if !passed {
                    stay.push(object);
                }
            }
            objects = stay;
        }
        let pieces = pieces(&objects);
        let mut read = |at: usize, piece: &mut Vec<u8>| {
            let (object, place) = pieces[at];
            from.read(object, place, piece)
        };
        in_turns(pieces.len(), &mut read, &mut |at, piece| {
            let (object, place) = pieces[at];
            to.of(object)?.write(object, place, piece)
        })?;
        from.close().and(to.close())
    }

    /// All memory objects with contents of their own.
    pub(super) fn objects(&self) -> Result<(Vec<Moved>, Devices), RebuildError> {
        let mut objects = Vec::new();
        let mut devices = HashMap::new();
        self.recipes.in_order(|id, recipe, _| {
            let context: Option<wire::CreateContext<'_>> = recipe.read();
            if let Some(device) = context.and_then(|context| context.devices.iter().next()) {
                devices.insert(id, device);
            }
            objects.extend(self.contents(id, recipe)?);
            Ok::<_, RebuildError>(())
        })?;
        Ok((objects, devices))
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
    fn pieces(&self) -> Vec<Place> {
        match self.contents {
            Contents::Bytes(size) => (0..size)
                .step_by(PIECE)
                .map(|offset| Place::linear(offset, PIECE.min(size - offset)))
                .collect(),
            Contents::Texels { region, element } => {
                let [width, height, depth] = region;
                let rows = (PIECE / (width * element).max(1)).clamp(1, height.max(1));
                let starts =
                    (0..depth).flat_map(|z| (0..height).step_by(rows).map(move |y| (y, z)));
                let place = |(y, z)| Place {
                    shape: shape::IMAGE,
                    origin: [0, y, z],
                    region: [width, rows.min(height - y), 1],
                    element,
                    ..Place::linear(0, 0)
                };
                starts.map(place).collect()
            }
        }
    }

    fn host_cannot(&self, forbidden: cl_mem_flags) -> bool {
        self.flags & (forbidden | CL_MEM_HOST_NO_ACCESS) != 0
    }
}

/// The pieces of all contents, with the objects that they are of.
pub(super) fn pieces(objects: &[Moved]) -> Vec<(&Moved, Place)> {
    let of = |object| {
        Moved::pieces(object)
            .into_iter()
            .map(move |place| (object, place))
    };
    objects.iter().flat_map(of).collect()
}

/// Has the servers pass a buffer on; false where that fails, and the contents are still where they were.
fn pass(object: &Moved, from: &Ferry<'_>, to: &Ferry<'_>, lane: &PeerLane) -> bool {
    let Contents::Bytes(size) = object.contents else {
        return false;
    };
    let (mem, lane) = (wire::MemHandle(object.mem), (lane, lane.payload()));
    let taken = to.session.take_in(lane, to.queue, mem, (0, size));
    let passed = from.session.pass_out(lane, from.queue, mem, (0, size));
    let [taken, passed] = [(to, taken), (from, passed)].map(|(end, event)| {
        event.is_ok_and(|event| {
            let status = end.session.wait_for_events(&[event.to_raw()]);
            end.session.release_event(event.to_raw());
            status == CL_SUCCESS
        })
    });
    if taken && passed {
        from.session.sent_to_peer(size);
    }
    taken && passed
}

/// The ferries of one server, one for each context.
pub(super) struct Ferries<'a> {
    session: &'a Remote,
    devices: &'a Devices,
    open: HashMap<u64, Ferry<'a>>,
}

impl<'a> Ferries<'a> {
    pub(super) fn new(session: &'a Remote, devices: &'a Devices) -> Self {
        Self {
            session,
            devices,
            open: HashMap::new(),
        }
    }

    /// That of an object's context.
    pub(super) fn of(&mut self, object: &Moved) -> Result<&mut Ferry<'a>, RebuildError> {
        Ok(match self.open.entry(object.context) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let why = "the context of a memory object has ended before the object";
                let device = self.devices.get(&object.context);
                let device = device.ok_or(RebuildError::Unmovable(why))?;
                new.insert(Ferry::open(self.session, object.context, *device)?)
            }
        })
    }

    /// Reads a piece of an object's contents.
    pub(super) fn read(
        &mut self,
        object: &Moved,
        place: Place,
        to: &mut Vec<u8>,
    ) -> Result<(), RebuildError> {
        to.resize(place.size(), 0);
        self.of(object)?.read(object, place, to)
    }

    pub(super) fn close(self) -> Result<(), RebuildError> {
        self.open.into_values().try_for_each(Ferry::close)
    }
}

/// What moves contents between the client and one server: a queue of its own, and a buffer for objects that the host may not touch.
pub(super) struct Ferry<'a> {
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

    pub(super) fn write(
        &mut self,
        object: &Moved,
        place: Place,
        from: &[u8],
    ) -> Result<(), RebuildError> {
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
