//! Checkpoints of CUDA sessions ([`crate::held`]).

use std::path::Path;

use towline_checkpoint::{
    Device, Level, Manifest, PART_BYTES, Part as Stored, Place, Reader, Writer,
};

use super::contents::{ArrayLevel, PIECE, Part, has_addresses, stores_none};
use super::*;
use crate::held;
use crate::moved::in_turns;

/// Workers that are tried where addresses are in use. The program is held anyhow.
const UNHURRIED_ATTEMPTS: usize = 24;

const _: () = assert!(PIECE <= PART_BYTES, "each piece of contents is a part");

impl Session {
    /// Writes a checkpoint, leaves the server, and returns when the session goes on with another one. In the error, why it has not left.
    pub(super) fn checkpoint(
        self: &Arc<Self>,
        folder: &str,
        owner: &Arc<dyn Owner>,
        access: &Admission,
        left: &Control,
    ) -> Result<(), String> {
        let path = held::path(folder)?;
        let saved = self.save(path, &**owner);
        let (alone, written) = saved.map_err(|error| error.to_string())?;
        let link = self.link();
        held::leave(link, left, || {
            let _ = link.post(&wire::Goodbye { reason: 0 });
        });
        self.staging.take_over(&Staging::default());
        held::hold(path, written, self.server(), &mut |server, reader| {
            self.resume(server, reader, &**owner, access)
        });
        self.follow(Arc::clone(owner), Arc::clone(access));
        drop(alone);
        Ok(())
    }

    /// Brings the session to rest and writes its contents: calls are held back until the value is dropped.
    fn save(
        &self,
        path: &Path,
        owner: &dyn Owner,
    ) -> Result<(Box<dyn Any>, held::Written), RebuildError> {
        let offer = held::invited(path)?;
        self.alive()?;
        if !owner.is_alone(self) {
            return Err(RebuildError::Unmovable(
                "its program has sessions with other servers, which a checkpoint would not hold",
            ));
        }
        self.movable(owner)?;
        offer.take()?;
        let began = Instant::now();
        let alone = owner.stop(PATIENCE);
        let alone = alone.ok_or(RebuildError::Busy("calls are under way"))?;
        self.movable(owner)?;
        owner.prepare(self);
        self.quiesce(PATIENCE)?;
        owner.at_rest(self)?;
        let mut writer = offer.begin(self.manifest())?;
        self.write_contents(&mut writer, owner)?;
        self.alive()?;
        let written = held::finish(writer, path, self.server(), began)?;
        Ok((alone, written))
    }

    fn manifest(&self) -> Manifest {
        let devices = self.snapshot.devices.iter().map(|device| Device {
            name: String::from_utf8_lossy(&device.name).into_owned(),
            bytes: device.total_bytes,
        });
        Manifest::new(held::program(), self.server().into(), devices.collect())
    }

    fn write_contents(
        &self,
        writer: &mut Writer<'_>,
        owner: &dyn Owner,
    ) -> Result<(), RebuildError> {
        let (parts, levels) = self.cut_all(None, owner)?;
        let variables = {
            let known = self.recipes.lock();
            self.find_variables(None, &known, owner, &Ahead::default())?
        };
        writer.manifest_mut().levels = levels.iter().map(stored_level).collect();
        // Their next addresses are not known: each of the present ones may be wrong then.
        let search = self.search_for(variables.iter());
        self.carry(&parts, &search, &mut |context, part, piece| {
            Ok(writer.put(context, place(part), piece)?)
        })?;
        let mut piece = Vec::new();
        for found in &variables {
            let (address, size) = found.ours;
            let name = String::from_utf8(found.variable.name.clone());
            let name = name.map_err(|_| {
                RebuildError::Unmovable("a variable of its device code has a name that is no text")
            })?;
            for offset in (0..size).step_by(PIECE) {
                piece.resize(PIECE.min((size - offset) as usize), 0);
                let part = Part::Bytes(address + offset, piece.len());
                self.read_part_of(found.context, part, &mut piece)?;
                // Also of addresses that were linked in: they are others wherever the variables lie elsewhere.
                stores_none(&piece, &search)?;
                let place = Place::Variable {
                    code: found.code,
                    of_module: found.of_module,
                    name: name.clone(),
                    address,
                    offset,
                    has_addresses: found.variable.has_addresses,
                };
                writer.put(found.context, place, &piece)?;
            }
        }
        Ok(())
    }

    /// Makes the session again with a server.
    fn resume(
        &self,
        server: &Address,
        reader: &Reader<'_>,
        owner: &dyn Owner,
        access: &Admission,
    ) -> Result<(), String> {
        for attempt in 1.. {
            let access = held::admit(server, access)?;
            let fresh = Self::connect_as(server, &access).map_err(|error| error.to_string())?;
            match self.remake(fresh, reader, owner) {
                // Another worker has other addresses in use.
                Err(RebuildError::Taken { .. }) if attempt < UNHURRIED_ATTEMPTS => {}
                outcome => return outcome.map_err(|error| error.to_string()),
            }
        }
        Ok(())
    }

    /// As [`Self::rebuild`], with the contents of a checkpoint.
    fn remake(
        &self,
        fresh: Self,
        reader: &Reader<'_>,
        owner: &dyn Owner,
    ) -> Result<(), RebuildError> {
        self.match_devices(&fresh)?;
        fresh.unused()?;
        let ahead = self.make_ahead(&fresh, owner)?;
        fresh.link().count_from(self.link().minted());
        self.make_all(&fresh, &ahead)?;
        owner.remake(self, &MovedTo { fresh: &fresh })?;
        fresh.accepted()?;
        fresh.read_contents(reader)?;
        for number in self.contexts() {
            let context = wire::ContextHandle(number);
            let request = wire::SynchronizeContext { context };
            let waited = fresh.call_rare(in_context(number), &request);
            waited.map_err(|status| fresh.refused("a write of contents", status))?;
        }
        fresh.accepted()?;
        self.take_over(fresh);
        owner.moved(self);
        Ok(())
    }

    /// Brings contents to the device: one part is written while the next is read.
    fn read_contents(&self, reader: &Reader<'_>) -> Result<(), RebuildError> {
        for level in &reader.manifest().levels {
            let Level {
                context,
                number,
                array,
                level,
            } = *level;
            self.name_level(ArrayLevel {
                context,
                number,
                array,
                level,
            })?;
        }
        let parts = &reader.manifest().parts;
        let mut read = |at: usize, piece: &mut Vec<u8>| Ok(reader.read(&parts[at], piece)?);
        in_turns(parts.len(), &mut read, &mut |at, piece| {
            self.write_stored(&parts[at], piece)
        })
    }

    fn write_stored(&self, part: &Stored, contents: &[u8]) -> Result<(), RebuildError> {
        match &part.place {
            Place::Memory { address } if part.is_zero() => {
                self.clear(part.context, *address, part.size)
            }
            Place::Memory { address } => {
                let whole = Part::Bytes(*address, contents.len());
                self.write_part_of(part.context, whole, contents)
            }
            Place::Rows {
                array,
                row,
                slice,
                width,
                rows,
            } => {
                let start = [*row as usize, *slice as usize];
                let rows = Part::Rows(*array, start, [*width as usize, *rows as usize]);
                self.write_part_of(part.context, rows, contents)
            }
            Place::Buffer { .. } => Err(RebuildError::Unmovable(
                "its checkpoint has contents of OpenCL",
            )),
            Place::Variable {
                code,
                of_module,
                name,
                address,
                offset,
                has_addresses: linked,
            } => {
                let place = self.place_of(part.context, *code, *of_module, name.as_bytes());
                let (there, bytes) = place.ok_or(RebuildError::Unmovable(
                    "the server does not find a variable of its device code",
                ))?;
                // Code that is built there may round a variable's size otherwise.
                let size = contents.len().min(bytes.saturating_sub(*offset) as usize);
                let contents = contents.get(..size).unwrap_or_default();
                let at = Part::Bytes(there + offset, size);
                let mut now = vec![0; size];
                self.read_part_of(part.context, at, &mut now)?;
                if now == contents {
                    return Ok(());
                }
                // Addresses that were linked in are others there.
                if *linked && there != *address {
                    return Err(has_addresses(name));
                }
                self.write_part_of(part.context, at, contents)
            }
        }
    }

    fn clear(&self, context: u64, address: u64, size: u64) -> Result<(), RebuildError> {
        let request = wire::Memset {
            stream: wire::StreamHandle(0),
            address,
            pitch: 0,
            value: 0,
            element_size: 1,
            width: size,
            height: 1,
        };
        let posted = self.post_rare(in_context(context), &request);
        posted.map_err(|status| self.refused("a write of contents", status))
    }
}

fn place(part: Part) -> Place {
    match part {
        Part::Bytes(address, _) => Place::Memory { address },
        Part::Rows(array, [row, slice], [width, rows]) => Place::Rows {
            array,
            row: row as u64,
            slice: slice as u64,
            width: width as u64,
            rows: rows as u64,
        },
    }
}

fn stored_level(level: &ArrayLevel) -> Level {
    let ArrayLevel {
        context,
        number,
        array,
        level,
    } = *level;
    Level {
        context,
        number,
        array,
        level,
    }
}
