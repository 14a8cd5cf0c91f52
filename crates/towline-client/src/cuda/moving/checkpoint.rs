//! A session that leaves its server for a folder, and is made again from there ([`towline_checkpoint`]).
//!
//! It comes to rest as for a move, and its contents go into the folder in place of another session. Then its server is left, and the program's
//! calls are held until a file in the folder says where to go on. All that time the process has no connection and no descriptor of the session,
//! so that another tool can dump it. A restore that fails leaves it held.

use std::path::Path;

use towline_checkpoint::message::{Answer as Told, Held, INVITATION};
use towline_checkpoint::{
    CheckpointError, Device, Digest as Written, Folder, Level, Manifest, PART_BYTES,
    Part as Stored, Place, Reader, Writer,
};
use towline_transport::is_trusted;
use towline_wire::control::{limits, printable};

use super::contents::{ArrayLevel, PIECE, Part, has_addresses, in_turns, stores_none};
use super::*;
use crate::state::Event as Ended;

/// Time between two looks whether the program is to go on.
const LOOK: Duration = Duration::from_millis(100);
/// Workers that are tried where addresses are in use. The program is held anyhow.
const UNHURRIED_ATTEMPTS: usize = 24;

const _: () = assert!(PIECE <= PART_BYTES, "each piece of contents is a part");

/// The state of a held session's last link that later calls may ask for.
struct Kept {
    events: HashMap<u64, Ended>,
    failures: HashMap<u64, i32>,
}

impl Session {
    /// Writes a checkpoint, leaves the server, and returns when the session goes on with another one. In the error, why it has not left.
    pub(super) fn checkpoint(
        self: &Arc<Self>,
        folder: &str,
        owner: &Arc<dyn Owner>,
        access: &Admission,
        left: &Control,
    ) -> Result<(), String> {
        // It is logged, and a server named it.
        if printable(folder, limits::PATH_BYTES) != folder {
            return Err("the folder's path has characters that cannot be shown".into());
        }
        let path = Path::new(folder);
        let saved = self.save(path, &**owner);
        let (alone, digest) = saved.map_err(|error| error.to_string())?;
        let kept = self.suspend(left);
        log::info!("the session is held: its contents are in {folder}");
        self.hold(path, digest, kept, &**owner, access);
        self.follow(Arc::clone(owner), Arc::clone(access));
        drop(alone);
        Ok(())
    }

    /// Brings the session to rest and writes its contents: calls are held back until the value is dropped.
    fn save(
        &self,
        path: &Path,
        owner: &dyn Owner,
    ) -> Result<(Box<dyn Any>, Written), RebuildError> {
        let folder = invited(path)?;
        self.alive()?;
        if !owner.is_alone(self) {
            return Err(RebuildError::Unmovable(
                "its program has sessions with other servers, which a checkpoint would not hold",
            ));
        }
        self.movable(owner)?;
        folder.remove(INVITATION)?;
        let began = Instant::now();
        let alone = owner.stop(PATIENCE);
        let alone = alone.ok_or(RebuildError::Busy("calls are under way"))?;
        self.movable(owner)?;
        owner.prepare(self);
        self.quiesce(PATIENCE)?;
        owner.at_rest(self)?;
        let mut writer = Writer::begin(folder, self.manifest())?;
        self.write_contents(&mut writer, owner)?;
        self.alive()?;
        let written = writer.written_bytes();
        let digest = writer.finish()?;
        Folder::open(path)?.hold(&Held {
            program: program(),
            pid: std::process::id().into(),
            server: self.server().into(),
        })?;
        log::info!(
            "a checkpoint of the session with {} took {:.3} s; {written} bytes of it were new",
            self.server(),
            began.elapsed().as_secs_f64(),
        );
        Ok((alone, digest))
    }

    fn manifest(&self) -> Manifest {
        let devices = self.snapshot.devices.iter().map(|device| Device {
            name: String::from_utf8_lossy(&device.name).into_owned(),
            bytes: device.total_bytes,
        });
        Manifest::new(program(), self.server().into(), devices.collect())
    }

    fn write_contents(&self, writer: &mut Writer, owner: &dyn Owner) -> Result<(), RebuildError> {
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

    /// Leaves the server. Of the session's last link nothing stays but what later calls may ask for.
    fn suspend(&self, left: &Control) -> Kept {
        let link = self.link();
        let kept = {
            let mut state = link.state();
            Kept {
                events: std::mem::take(&mut state.events),
                failures: std::mem::take(&mut state.failures),
            }
        };
        if !left.leave() {
            let _ = link.post(&wire::Goodbye { reason: 0 });
            link.flush();
        }
        link.end("the session is held".into());
        link.clear();
        self.staging.take_over(&Staging::default());
        kept
    }

    /// Returns when the session is with a server again.
    fn hold(
        &self,
        path: &Path,
        digest: Written,
        kept: Kept,
        owner: &dyn Owner,
        access: &Admission,
    ) {
        let mut kept = Some(kept);
        while kept.is_some() {
            std::thread::sleep(LOOK);
            // It may be on its way from another machine.
            let Ok(folder) = Folder::open(path) else {
                continue;
            };
            if !folder.is_asking() {
                continue;
            }
            // Before the wish is taken: `towline` sees by it that this process lives.
            let _ = folder.lock();
            let wish = match folder.take_wish() {
                Ok(Some(wish)) => wish,
                Ok(None) => continue,
                Err(error) => {
                    log::error!("the session is still held: {error}");
                    continue;
                }
            };
            let outcome = self.resume(path, digest, &wish.servers, &mut kept, owner, access);
            match &outcome {
                Ok(server) => log::info!("the session goes on with {server}"),
                Err(reason) => log::error!("the session is still held: {reason}"),
            }
            let told = match outcome.is_ok() {
                true => folder.release(),
                false => Ok(()),
            };
            let id = wish.id;
            let told = told.and_then(|()| folder.answer(&Told { id, outcome }));
            if let Err(error) = told {
                log::error!("{error}");
            }
        }
    }

    /// Makes the session again with the first of these servers that takes it: its address. `kept` is taken then.
    fn resume(
        &self,
        path: &Path,
        digest: Written,
        servers: &[String],
        kept: &mut Option<Kept>,
        owner: &dyn Owner,
        access: &Admission,
    ) -> Result<String, String> {
        let reader = Folder::open(path).and_then(|folder| Reader::open(folder, digest));
        let reader = reader.map_err(|error| error.to_string())?;
        // Nothing is begun anywhere before it is known to be whole.
        reader.verify().map_err(|error| error.to_string())?;
        let last = [self.server().to_owned()];
        let servers = match servers.is_empty() {
            true => &last,
            false => servers,
        };
        let mut reasons = Vec::new();
        for server in servers {
            match self.resume_at(server, &reader, kept, owner, access) {
                Ok(()) => return Ok(server.clone()),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    fn resume_at(
        &self,
        server: &str,
        reader: &Reader,
        kept: &mut Option<Kept>,
        owner: &dyn Owner,
        access: &Admission,
    ) -> Result<(), String> {
        let server: Address = server
            .parse()
            .map_err(|error| format!("{server}: {error}"))?;
        for attempt in 1.. {
            // The user names it, not a server: its key may be a new one.
            let access = access(&server).map_err(|error| error.to_string())?;
            let access = Access {
                only_known: false,
                ..access
            };
            let fresh = Self::connect_as(&server, &access).map_err(|error| error.to_string())?;
            match self.remake(fresh, reader, kept, owner) {
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
        reader: &Reader,
        kept: &mut Option<Kept>,
        owner: &dyn Owner,
    ) -> Result<(), RebuildError> {
        self.match_devices(&fresh)?;
        fresh.unused()?;
        let ahead = self.make_ahead(&fresh, owner)?;
        fresh.link().count_from(self.link().minted());
        let aliases = self.make_all(&fresh, &ahead)?;
        fresh.set_aliases(aliases);
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
        if let Some(kept) = kept.take() {
            let mut state = self.link().state();
            (state.events, state.failures) = (kept.events, kept.failures);
        }
        self.take_over(fresh);
        owner.moved(self);
        Ok(())
    }

    /// Brings contents to the device: one part is written while the next is read.
    fn read_contents(&self, reader: &Reader) -> Result<(), RebuildError> {
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
        let read = |at: usize, piece: &mut Vec<u8>| Ok(reader.read(&parts[at], piece)?);
        in_turns(parts.len(), &read, &mut |at, piece| {
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

/// The folder, where the user wants one checkpoint in it, and nobody else is at it. A server that guesses learns nothing of what is where.
fn invited(path: &Path) -> Result<Folder, RebuildError> {
    let refuse = |why| CheckpointError::Folder {
        folder: path.to_owned(),
        why,
    };
    if !is_trusted() {
        return Err(RebuildError::Unmovable(
            "its program runs with more rights than its user",
        ));
    }
    let folder = Folder::open(path)
        .inspect_err(|error| log::warn!("no checkpoint: {error}"))
        .ok();
    let folder = folder.filter(|folder| folder.has(INVITATION));
    let folder = folder.ok_or_else(|| {
        refuse(
            "its user has not offered it; on the program's machine make it, for that user alone (install -d -m 700), and a file `invitation` in it",
        )
    })?;
    if folder.held()?.is_some() {
        return Err(
            refuse("a program is held for it; if that one has ended, remove held.toml").into(),
        );
    }
    match folder.lock()? {
        true => Ok(folder),
        false => Err(refuse("another program is at it").into()),
    }
}

fn program() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_without_invitation_are_refused_alike() {
        let above = tempfile::tempdir().expect("room for temporary files");
        let path = above.path().join("held");
        let refused = || invited(&path).expect_err("nobody offers it").to_string();
        let missing = refused();
        let folder = Folder::make(&path).expect("there is room");
        assert_eq!(refused(), missing);
        folder.invite().expect("it is ours");
        let held = Held {
            program: "train".into(),
            pid: 1,
            server: "tcp://gpu1:7140".into(),
        };
        folder.hold(&held).expect("it is ours");
        assert!(refused().contains("a program is held"));
        folder.release().expect("it is ours");
        let offered = invited(&path).expect("it is offered");
        assert!(refused().contains("another program"));
        drop(offered);
        assert!(invited(&path).is_ok());
    }
}
