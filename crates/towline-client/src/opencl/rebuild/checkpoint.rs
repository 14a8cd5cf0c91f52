//! Checkpoints of OpenCL sessions ([`crate::held`]).

use std::path::Path;

use towline_checkpoint::{Device, Manifest, PART_BYTES, Part, Place as Stored, Reader, Writer};

use super::super::moving::{PATIENCE, follow};
use super::super::transfer::{Place, shape};
use super::contents::{Contents, Ferries, Moved, PIECE, pieces};
use super::*;
use crate::access::Admission;
use crate::held;
use crate::moved::in_turns;
use crate::peer::Control;

const _: () = assert!(PIECE <= PART_BYTES, "each piece of contents is a part");

/// The state of a session that is held, with the calls that it holds back.
struct Held<'a> {
    alone: RwLockWriteGuard<'a, ()>,
    times: EventTimes,
    written: held::Written,
}

impl Remote {
    /// Writes a checkpoint, leaves the server, and returns when the session goes on with another one. In the error, why it has not left.
    pub(in crate::opencl) fn checkpoint(
        self: &Arc<Self>,
        folder: &str,
        is_alone: bool,
        access: &Admission,
        left: &Control,
    ) -> Result<(), String> {
        let path = held::path(folder)?;
        let saved = self.save(path, is_alone);
        let Held {
            alone,
            times,
            written,
        } = saved.map_err(|error| error.to_string())?;
        let link = self.link();
        held::leave(link, left, || {
            let _ = link.post(&wire::Goodbye { reason: 0 });
        });
        held::hold(path, written, self.server(), &mut |server, reader| {
            let access = held::admit(server, access)?;
            let fresh = Self::connect_as(server, &access).map_err(|error| error.to_string())?;
            let resumed = self.resume(fresh, reader, &times);
            resumed.map_err(|error| error.to_string())
        });
        follow(Arc::downgrade(self), is_alone, Arc::clone(access));
        drop(alone);
        Ok(())
    }

    /// Brings the session to rest and writes its contents.
    fn save(&self, path: &Path, is_alone: bool) -> Result<Held<'_>, RebuildError> {
        let offer = held::invited(path)?;
        self.alive(self.link())?;
        if !is_alone {
            return Err(RebuildError::Unmovable(
                "its program has sessions with other servers, which a checkpoint would not hold",
            ));
        }
        self.movable()?;
        offer.take()?;
        let began = Instant::now();
        let alone = self.stop(PATIENCE)?;
        // All that a restore could find later.
        self.movable()?;
        self.events()?;
        let times = self.times_of_events()?;
        let mut writer = offer.begin(self.manifest())?;
        self.write_contents(&mut writer)?;
        self.alive(self.link())?;
        let written = held::finish(writer, path, self.server(), began)?;
        Ok(Held {
            alone,
            times,
            written,
        })
    }

    fn manifest(&self) -> Manifest {
        let devices = self.snapshot.devices.iter().map(|device| Device {
            name: device.answers.text(CL_DEVICE_NAME).unwrap_or_default(),
            bytes: (device.answers.number(CL_DEVICE_GLOBAL_MEM_SIZE)).unwrap_or_default(),
        });
        Manifest::new(held::program(), self.server().into(), devices.collect())
    }

    fn write_contents(&self, writer: &mut Writer<'_>) -> Result<(), RebuildError> {
        let (objects, devices) = self.objects()?;
        let pieces = pieces(&objects);
        let mut from = Ferries::new(self, &devices);
        let mut read = |at: usize, piece: &mut Vec<u8>| {
            let (object, place) = pieces[at];
            from.read(object, place, piece)
        };
        in_turns(pieces.len(), &mut read, &mut |at, piece| {
            let (object, place) = pieces[at];
            Ok(writer.put(object.context, object.stored(place), piece)?)
        })?;
        from.close()
    }

    /// As [`Self::rebuild`], with the contents of a checkpoint.
    fn resume(
        &self,
        fresh: Self,
        reader: &Reader<'_>,
        times: &EventTimes,
    ) -> Result<(), RebuildError> {
        self.make_all(&fresh)?;
        self.read_contents(&fresh, reader)?;
        fresh.accepted()?;
        self.take_over(fresh, times.clone());
        Ok(())
    }

    fn read_contents(&self, fresh: &Self, reader: &Reader<'_>) -> Result<(), RebuildError> {
        let (objects, devices) = self.objects()?;
        let objects: HashMap<u64, Moved> = objects
            .into_iter()
            .map(|object| (object.mem, object))
            .collect();
        let parts = &reader.manifest().parts;
        let mut to = Ferries::new(fresh, &devices);
        let mut read = |at: usize, piece: &mut Vec<u8>| Ok(reader.read(&parts[at], piece)?);
        in_turns(parts.len(), &mut read, &mut |at, piece| {
            let (object, place) = place_of(&parts[at], &objects).ok_or(RebuildError::Unmovable(
                "its checkpoint has contents of something else",
            ))?;
            to.of(object)?.write(object, place, piece)
        })?;
        to.close()
    }
}

impl Moved {
    /// How the manifest names a piece.
    fn stored(&self, place: Place) -> Stored {
        let [x, row, slice] = place.origin.map(|value| value as u64);
        let [width, rows, _] = place.region.map(|value| value as u64);
        match self.contents {
            Contents::Bytes(_) => Stored::Buffer {
                buffer: self.mem,
                offset: x,
            },
            Contents::Texels { element, .. } => Stored::Rows {
                array: self.mem,
                row,
                slice,
                width: width * element as u64,
                rows,
            },
        }
    }
}

/// The piece that a part of the manifest names.
fn place_of<'a>(part: &Part, objects: &'a HashMap<u64, Moved>) -> Option<(&'a Moved, Place)> {
    match &part.place {
        Stored::Buffer { buffer, offset } => {
            let object = objects.get(buffer)?;
            Some((object, Place::linear(*offset as usize, part.size as usize)))
        }
        Stored::Rows {
            array,
            row,
            slice,
            width,
            rows,
        } => {
            let object = objects.get(array)?;
            let Contents::Texels { element, .. } = object.contents else {
                return None;
            };
            let place = Place {
                shape: shape::IMAGE,
                origin: [0, *row as usize, *slice as usize],
                region: [*width as usize / element.max(1), *rows as usize, 1],
                element,
                ..Place::linear(0, 0)
            };
            Some((object, place))
        }
        _ => None,
    }
}
