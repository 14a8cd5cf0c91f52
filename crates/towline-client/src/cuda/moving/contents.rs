//! Contents of memory, arrays and variables: read here and written there, piece by piece.

use std::sync::mpsc::{channel, sync_channel};

use towline_backend::cuda::{CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED};

use super::*;
use crate::raw::HostPtr;

/// Largest piece of contents that the client holds.
const PIECE: usize = 16 << 20;

/// A part of some contents.
#[derive(Debug, Clone, Copy)]
enum Part {
    /// Bytes from an address on.
    Bytes(u64, usize),
    /// Rows of an array's slice: its number, the first row, the slice; bytes of a row, and how many rows.
    Rows(u64, [usize; 2], [usize; 2]),
}

impl Part {
    fn size(self) -> usize {
        match self {
            Self::Bytes(_, size) => size,
            Self::Rows(_, _, [width, rows]) => width * rows,
        }
    }
}

/// A variable of device code, in a context.
struct Found {
    context: u64,
    variable: Variable,
    ours: (u64, u64),
    theirs: (u64, u64),
}

impl Session {
    pub(super) fn move_contents(
        &self,
        fresh: &Self,
        owner: &dyn Owner,
        ahead: &Ahead,
    ) -> Result<(), RebuildError> {
        let (parts, variables) = {
            let known = self.recipes.lock();
            let mut parts = Vec::new();
            let homes = memory::homes(&known);
            for recipe in known.in_order() {
                if let Some((address, size)) = memory::allocation(recipe) {
                    cut(recipe.context, address, size as usize, &mut parts);
                }
                if let Some(mapped) = recipe.read::<wire::PhysicalMap>() {
                    let context = homes.get(&mapped.memory).ok_or(RebuildError::Unmovable(
                        "it has mapped memory on a device where it has no context",
                    ))?;
                    cut(*context, mapped.address, mapped.size as usize, &mut parts);
                }
                self.cut_array(fresh, recipe, owner, &mut parts)?;
            }
            (parts, self.find_variables(fresh, &known, owner, ahead)?)
        };
        let elsewhere = variables
            .iter()
            .filter(|found| found.ours.0 != found.theirs.0);
        let elsewhere = elsewhere.map(|found| (found.ours.0, found.ours.0 + found.ours.1));
        let told: Vec<(u64, u64)> = {
            let known = self.recipes.lock();
            let told = known.in_order().filter_map(|recipe| variable(recipe)?.1);
            told.map(|(start, size)| (start, start.saturating_add(size)))
                .collect()
        };
        let search = Search::new(elsewhere.chain(told));
        self.carry(fresh, parts, &search)?;
        variables
            .iter()
            .try_for_each(|found| self.move_variable(fresh, found, &search))
    }

    /// Reads here and writes there: one piece is written while the next is read.
    fn carry(
        &self,
        fresh: &Self,
        parts: Vec<(u64, Part)>,
        search: &Search,
    ) -> Result<(), RebuildError> {
        let (sender, pieces) = sync_channel::<(u64, Part, Vec<u8>)>(1);
        let (back, used) = channel::<Vec<u8>>();
        let read = move || {
            for (context, part) in parts {
                let mut piece = used.try_recv().unwrap_or_default();
                piece.resize(part.size(), 0);
                self.read_part_of(context, part, &mut piece)?;
                stores_none(&piece, search)?;
                // Nobody takes it where writing has failed, which tells.
                if sender.send((context, part, piece)).is_err() {
                    break;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let reading = scope.spawn(read);
            let written = pieces.into_iter().try_for_each(|(context, part, piece)| {
                let written = fresh.write_part_of(context, part, &piece);
                let _ = back.send(piece);
                written
            });
            let read = reading
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            written.and(read)
        })
    }

    fn read_part_of(&self, context: u64, part: Part, to: &mut [u8]) -> Result<(), RebuildError> {
        let actor = in_context(context);
        // SAFETY: it has so many bytes, and the data is there when the call returns.
        let target = unsafe { HostPtr::new(to.as_mut_ptr()) };
        let done = match part {
            Part::Bytes(address, size) => {
                self.read(actor, "rebuild", 0, address, target, size, true)
            }
            Part::Rows(array, [row, slice], [width, rows]) => {
                let (from, to) = boxed(array, [row, slice], [width, rows], target);
                self.read_box(actor, "rebuild", 0, from, to, [width, rows, 1], true)
            }
        };
        done.map_err(|status| self.refused("a read of contents", status))
    }

    fn write_part_of(&self, context: u64, part: Part, from: &[u8]) -> Result<(), RebuildError> {
        let actor = in_context(context);
        // SAFETY: it has so many bytes, which have left when the call returns, and is only read.
        let source = unsafe { HostPtr::new(from.as_ptr().cast_mut()) };
        let done = match part {
            Part::Bytes(address, size) => {
                self.write(actor, "rebuild", 0, address, source, size, true)
            }
            Part::Rows(array, [row, slice], [width, rows]) => {
                let (to, from) = boxed(array, [row, slice], [width, rows], source);
                self.write_box(actor, "rebuild", 0, to, from, [width, rows, 1], true)
            }
        };
        done.map_err(|status| self.refused("a write of contents", status))
    }

    /// Cuts an array, or each level of a mipmapped one, into parts.
    fn cut_array(
        &self,
        fresh: &Self,
        recipe: &Recipe,
        owner: &dyn Owner,
        parts: &mut Vec<(u64, Part)>,
    ) -> Result<(), RebuildError> {
        let whole = recipe.read::<wire::Array3DCreateV2>();
        let mipmap = recipe.read::<wire::MipmappedArrayCreate>();
        let (number, shape, levels) = match (whole, mipmap) {
            (Some(made), _) => (made.pHandle.0, made.pAllocateArray, 0),
            (_, Some(made)) => {
                let levels = made.numMipmapLevels;
                (made.pHandle.0, made.pMipmappedArrayDesc, levels)
            }
            _ => return Ok(()),
        };
        let element = owner.element(number).ok_or(RebuildError::Unmovable(
            "it has arrays of blocks or planes, which no call reads whole",
        ))?;
        let side = |side: u64| (side as usize).max(1);
        let is_layered = shape.Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP) != 0;
        for level in 0..levels.max(1) {
            let shrunk = |side: usize| (side >> level).max(1);
            let depth = match is_layered {
                true => side(shape.Depth),
                false => shrunk(side(shape.Depth)),
            };
            let (width, height) = (shrunk(side(shape.Width)), shrunk(side(shape.Height)));
            let array = match levels {
                0 => number,
                _ => self.level(fresh, recipe, number, level)?,
            };
            let width = width * element;
            let rows = (PIECE / width).clamp(1, height);
            for slice in 0..depth {
                for row in (0..height).step_by(rows) {
                    let part = Part::Rows(array, [row, slice], [width, rows.min(height - row)]);
                    parts.push((recipe.context, part));
                }
            }
        }
        Ok(())
    }

    /// A level of a mipmapped array, under a number that both servers know.
    fn level(
        &self,
        fresh: &Self,
        recipe: &Recipe,
        mipmap: u64,
        level: u32,
    ) -> Result<u64, RebuildError> {
        // A number that neither gives again: where the session stays, it has one more of this array.
        let number = self.mint(wire::ArrayHandle::TAG);
        let next = self.link().minted().max(fresh.link().minted());
        fresh.link().count_from(next);
        let request = wire::MipmappedArrayGetLevel {
            pLevelArray: wire::ArrayHandle(number),
            hMipmappedArray: wire::MipmappedArrayHandle(mipmap),
            level,
        };
        let mut body = Vec::new();
        Message::encode(&request, &mut body);
        let id = <wire::MipmappedArrayGetLevel as Request<'_>>::ID;
        for session in [self, fresh] {
            let posted = session.post_raw(in_context(recipe.context), id, &body);
            posted.map_err(|status| session.refused("a level of an array", status))?;
        }
        Ok(number)
    }

    /// Finds the variables of all device code, here and there.
    fn find_variables(
        &self,
        fresh: &Self,
        known: &recipe::Known,
        owner: &dyn Owner,
        ahead: &Ahead,
    ) -> Result<Vec<Found>, RebuildError> {
        let mut all = Vec::new();
        let contexts = contexts_in(known);
        for recipe in known.in_order() {
            let module = recipe.read::<wire::ModuleLoad<'_>>();
            let module = module.map(|made| made.module.0);
            let library = recipe.read::<wire::LibraryLoad<'_>>();
            let library = library.map(|made| made.library.0);
            let Some(code) = module.or(library) else {
                continue;
            };
            let variables = match ahead.variables.get(&code) {
                Some(variables) => Some(variables.clone()),
                None => known
                    .image(code)
                    .and_then(|image| image.bytes())
                    .and_then(|image| owner.variables(self, &image)),
            };
            let variables = variables.ok_or(RebuildError::Unmovable(
                "device code of it cannot be read, or allocates memory in kernels",
            ))?;
            let contexts = match module {
                Some(_) => vec![recipe.context],
                None => contexts.clone(),
            };
            for context in contexts {
                for variable in &variables {
                    let places = [self, fresh].map(|session| {
                        session.place_of(context, code, module.is_some(), &variable.name)
                    });
                    let (ours, theirs) = match places {
                        [Some(ours), Some(theirs)] => (ours, theirs),
                        // The driver knows no such name: no kernel uses the variable.
                        [None, _] => continue,
                        [Some(_), None] => {
                            return Err(RebuildError::Unmovable(
                                "the other server does not find a variable of its device code",
                            ));
                        }
                    };
                    all.push(Found {
                        context,
                        variable: variable.clone(),
                        ours,
                        theirs,
                    });
                }
            }
        }
        Ok(all)
    }

    /// Address and bytes of a variable.
    fn place_of(
        &self,
        context: u64,
        code: u64,
        is_module: bool,
        name: &[u8],
    ) -> Option<(u64, u64)> {
        let actor = in_context(context);
        let mut body = Vec::new();
        if is_module {
            let request = wire::ModuleGetGlobalV2 {
                want_dptr: true,
                want_bytes: true,
                hmod: wire::ModuleHandle(code),
                name,
            };
            Message::encode(&request, &mut body);
            let id = <wire::ModuleGetGlobalV2<'_> as Request<'_>>::ID;
            let answer = self.ask_raw(actor, id, &body).ok()?;
            let reply = wire::ModuleGetGlobalV2Reply::decode(&answer.body).ok()?;
            return (answer.status == 0).then_some((reply.dptr?, reply.bytes?));
        }
        let request = wire::LibraryGetGlobal {
            want_dptr: true,
            want_bytes: true,
            library: wire::LibraryHandle(code),
            name,
        };
        Message::encode(&request, &mut body);
        let id = <wire::LibraryGetGlobal<'_> as Request<'_>>::ID;
        let answer = self.ask_raw(actor, id, &body).ok()?;
        let reply = wire::LibraryGetGlobalReply::decode(&answer.body).ok()?;
        (answer.status == 0).then_some((reply.dptr?, reply.bytes?))
    }

    /// Has a variable be there what it is here, where it is not already.
    fn move_variable(
        &self,
        fresh: &Self,
        found: &Found,
        search: &Search,
    ) -> Result<(), RebuildError> {
        let size = found.ours.1.min(found.theirs.1) as usize;
        let mut at = 0;
        while at < size {
            let length = PIECE.min(size - at);
            let [ours, theirs] =
                [found.ours.0, found.theirs.0].map(|start| Part::Bytes(start + at as u64, length));
            let (mut here, mut there) = (vec![0; length], vec![0; length]);
            self.read_part_of(found.context, ours, &mut here)?;
            fresh.read_part_of(found.context, theirs, &mut there)?;
            if here != there {
                // Addresses that were linked in are others there.
                if found.variable.has_addresses && found.ours.0 != found.theirs.0 {
                    return Err(RebuildError::Differs {
                        what: format!(
                            "what {} holds, with addresses in it,",
                            String::from_utf8_lossy(&found.variable.name)
                        ),
                        ours: "other".into(),
                        theirs: "other".into(),
                    });
                }
                stores_none(&here, search)?;
                fresh.write_part_of(found.context, theirs, &here)?;
            }
            at += length;
        }
        Ok(())
    }
}

/// Refuses contents in which the program has stored where a variable lies that lies elsewhere there.
fn stores_none(contents: &[u8], search: &Search) -> Result<(), RebuildError> {
    match search.find(contents) {
        None => Ok(()),
        Some(address) => Err(RebuildError::Stored { address }),
    }
}

fn cut(context: u64, address: u64, size: usize, parts: &mut Vec<(u64, Part)>) {
    for at in (0..size).step_by(PIECE) {
        let part = Part::Bytes(address + at as u64, PIECE.min(size - at));
        parts.push((context, part));
    }
}

/// Rows of an array, and where they lie end to end.
fn boxed(
    array: u64,
    [row, slice]: [usize; 2],
    [width, rows]: [usize; 2],
    start: HostPtr,
) -> (DeviceBox, HostRows) {
    let device = DeviceBox {
        array,
        address: 0,
        start: [0, row, slice],
        pitch: 0,
        height: 0,
    };
    let host = HostRows {
        start,
        pitch: width,
        slice_pitch: width * rows,
    };
    (device, host)
}
