//! Contents of memory, arrays and variables: read here and written there, piece by piece.

use towline_backend::cuda::{CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_LAYERED};

use super::*;
use crate::moved::in_turns;
use crate::raw::HostPtr;

/// Largest piece of contents that the client holds.
pub(super) const PIECE: usize = 16 << 20;

/// Whether something was done.
type Done = Result<(), RebuildError>;

/// Parts, with their contexts.
type Parts = Vec<(u64, Part)>;

/// A part of some contents.
#[derive(Debug, Clone, Copy)]
pub(super) enum Part {
    /// Bytes from an address on.
    Bytes(u64, usize),
    /// Rows of an array's slice: its number, the first row, the slice; bytes of a row, and how many rows.
    Rows(u64, [usize; 2], [usize; 2]),
}

impl Part {
    pub(super) fn size(self) -> usize {
        match self {
            Self::Bytes(_, size) => size,
            Self::Rows(_, _, [width, rows]) => width * rows,
        }
    }
}

/// A variable of device code, in a context.
#[cfg_attr(
    not(unix),
    allow(dead_code, reason = "checkpoints read what moves do not")
)]
pub(super) struct Found {
    pub(super) context: u64,
    /// The module or library.
    pub(super) code: u64,
    /// It is a module.
    pub(super) of_module: bool,
    pub(super) variable: Variable,
    pub(super) ours: (u64, u64),
    theirs: (u64, u64),
}

/// A level of a mipmapped array, by a number of its own.
#[derive(Clone, Copy)]
pub(super) struct ArrayLevel {
    pub(super) context: u64,
    pub(super) number: u64,
    pub(super) array: u64,
    pub(super) level: u32,
}

impl Session {
    pub(super) fn move_contents(
        &self,
        fresh: &Self,
        owner: &dyn Owner,
        ahead: &Ahead,
    ) -> Result<(), RebuildError> {
        let (parts, _) = self.cut_all(Some(fresh), owner)?;
        let variables = {
            let known = self.recipes.lock();
            self.find_variables(Some(fresh), &known, owner, ahead)?
        };
        let elsewhere = variables
            .iter()
            .filter(|found| found.ours.0 != found.theirs.0);
        let search = self.search_for(elsewhere);
        self.carry(&parts, &search, &mut |context, part, piece| {
            fresh.write_part_of(context, part, piece)
        })?;
        variables
            .iter()
            .try_for_each(|found| self.move_variable(fresh, found, &search))
    }

    /// Cuts all memory and arrays into parts, with the levels of arrays that parts name.
    pub(super) fn cut_all(
        &self,
        fresh: Option<&Self>,
        owner: &dyn Owner,
    ) -> Result<(Parts, Vec<ArrayLevel>), RebuildError> {
        let known = self.recipes.lock();
        let (mut parts, mut levels) = (Vec::new(), Vec::new());
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
            self.cut_array(fresh, recipe, owner, &mut parts, &mut levels)?;
        }
        Ok((parts, levels))
    }

    /// Finds addresses of these variables in contents, and of those that the program was told.
    pub(super) fn search_for<'a>(&self, variables: impl Iterator<Item = &'a Found>) -> Search {
        let found = variables.map(|found| (found.ours.0, found.ours.0 + found.ours.1));
        let told: Vec<(u64, u64)> = {
            let known = self.recipes.lock();
            let told = known.in_order().filter_map(|recipe| variable(recipe)?.1);
            told.map(|(start, size)| (start, start.saturating_add(size)))
                .collect()
        };
        Search::new(found.chain(told))
    }

    /// Reads here and has each piece written elsewhere while the next is read.
    pub(super) fn carry(
        &self,
        parts: &[(u64, Part)],
        search: &Search,
        write: &mut dyn FnMut(u64, Part, &[u8]) -> Done,
    ) -> Result<(), RebuildError> {
        let mut read = |at: usize, piece: &mut Vec<u8>| {
            let (context, part) = parts[at];
            piece.resize(part.size(), 0);
            self.read_part_of(context, part, piece)?;
            stores_none(piece, search)
        };
        in_turns(parts.len(), &mut read, &mut |at, piece| {
            let (context, part) = parts[at];
            write(context, part, piece)
        })
    }

    pub(super) fn read_part_of(
        &self,
        context: u64,
        part: Part,
        to: &mut [u8],
    ) -> Result<(), RebuildError> {
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

    pub(super) fn write_part_of(
        &self,
        context: u64,
        part: Part,
        from: &[u8],
    ) -> Result<(), RebuildError> {
        let actor = in_context(context);
        // SAFETY: it has so many bytes, which have left when the call returns, and is only read.
        let source = unsafe { HostPtr::new(from.as_ptr().cast_mut()) };
        let done = match part {
            Part::Bytes(address, size) => {
                self.write(actor, "rebuild", 0, address, source, size, Source::Fleeting)
            }
            Part::Rows(array, [row, slice], [width, rows]) => {
                let (to, from) = boxed(array, [row, slice], [width, rows], source);
                self.write_box(
                    actor,
                    "rebuild",
                    0,
                    to,
                    from,
                    [width, rows, 1],
                    Source::Fleeting,
                )
            }
        };
        done.map_err(|status| self.refused("a write of contents", status))
    }

    /// Cuts an array, or each level of a mipmapped one, into parts.
    fn cut_array(
        &self,
        fresh: Option<&Self>,
        recipe: &Recipe,
        owner: &dyn Owner,
        parts: &mut Vec<(u64, Part)>,
        named: &mut Vec<ArrayLevel>,
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
                _ => {
                    let level = self.level(fresh, recipe.context, number, level)?;
                    named.push(level);
                    level.number
                }
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
        fresh: Option<&Self>,
        context: u64,
        array: u64,
        level: u32,
    ) -> Result<ArrayLevel, RebuildError> {
        // A number that neither gives again: where the session stays, it has one more of this array.
        let level = ArrayLevel {
            context,
            number: self.mint(wire::ArrayHandle::TAG),
            array,
            level,
        };
        self.name_level(level)?;
        if let Some(fresh) = fresh {
            let next = self.link().minted().max(fresh.link().minted());
            fresh.link().count_from(next);
            fresh.name_level(level)?;
        }
        Ok(level)
    }

    pub(super) fn name_level(&self, level: ArrayLevel) -> Result<(), RebuildError> {
        let request = wire::MipmappedArrayGetLevel {
            pLevelArray: wire::ArrayHandle(level.number),
            hMipmappedArray: wire::MipmappedArrayHandle(level.array),
            level: level.level,
        };
        let mut body = Vec::new();
        Message::encode(&request, &mut body);
        let id = <wire::MipmappedArrayGetLevel as Request<'_>>::ID;
        let posted = self.post_raw(in_context(level.context), id, &body);
        posted.map_err(|status| self.refused("a level of an array", status))
    }

    /// Finds the variables of all device code, here and there; without another session they are there as here.
    pub(super) fn find_variables(
        &self,
        fresh: Option<&Self>,
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
                    let place = |session: &Self| {
                        session.place_of(context, code, module.is_some(), &variable.name)
                    };
                    // The driver may know no such name: no kernel uses the variable.
                    let Some(ours) = place(self) else {
                        continue;
                    };
                    let theirs = match fresh {
                        Some(fresh) => place(fresh).ok_or(RebuildError::Unmovable(
                            "the other server does not find a variable of its device code",
                        ))?,
                        None => ours,
                    };
                    all.push(Found {
                        context,
                        code,
                        of_module: module.is_some(),
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
    pub(super) fn place_of(
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
                    return Err(has_addresses(&String::from_utf8_lossy(
                        &found.variable.name,
                    )));
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
pub(super) fn stores_none(contents: &[u8], search: &Search) -> Result<(), RebuildError> {
    match search.find(contents) {
        None => Ok(()),
        Some(address) => Err(RebuildError::Stored { address }),
    }
}

pub(super) fn has_addresses(variable: &str) -> RebuildError {
    RebuildError::Differs {
        what: format!("what {variable} holds, with addresses in it,"),
        ours: "other".into(),
        theirs: "other".into(),
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
