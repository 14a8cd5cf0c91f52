//! Which entry of a container a device uses.

use std::cmp::Reverse;

use super::{Container, Entry, EntryKind, Program, header_of};
use crate::Error;
use crate::arch::ComputeCapability;

/// The program that the driver uses on `device`: machine code if there is some that runs there, the one made for the device before
/// one for an earlier minor version; else the newest PTX that can be compiled for it. A variant for fewer devices comes before one
/// for more, and of equals the first. `None` where nothing fits, or nothing of a kind known here: what the driver makes of the
/// whole is then its own affair.
///
/// Observed on an H200 with driver 580: `sm_90a` before `sm_90` and `compute_90a` before `compute_90` in either order, code for
/// `sm_90` that was compiled for `compute_80` before newer PTX, `compute_90` before `compute_80`, the first of two for `sm_90`.
///
/// A program can ask its driver for something else (`CUDA_FORCE_PTX_JIT=1`, `CU_PREFER_PTX`): then give this only the PTX.
pub fn choose<'a>(
    programs: impl IntoIterator<Item = Program<'a>>,
    device: ComputeCapability,
) -> Option<Program<'a>> {
    programs
        .into_iter()
        .filter(|program| match program.kind {
            EntryKind::Elf => program.arch.runs_on(device),
            EntryKind::Ptx => program.arch.compiles_for(device),
            _ => false,
        })
        // Of equals this gives the first, as `max_by_key` would not.
        .min_by_key(|program| {
            let machine_code = program.kind == EntryKind::Elf;
            Reverse((machine_code, program.arch.number, program.arch.variant))
        })
}

/// The program that a device uses which runs PTX and no machine code: the newest that a driver would compile for `device`, or else the
/// oldest of all, which asks for least. `None` where there is no PTX.
pub fn choose_text<'a>(
    programs: impl IntoIterator<Item = Program<'a>>,
    device: ComputeCapability,
) -> Option<Program<'a>> {
    programs
        .into_iter()
        .filter(|program| program.kind == EntryKind::Ptx)
        .min_by_key(|program| {
            let fits = program.arch.compiles_for(device);
            let number = i64::from(program.arch.number);
            (!fits, if fits { -number } else { number })
        })
}

/// A container with only the entries that devices use, each once and compressed as it was: what [`choose`] says for one that runs machine
/// code, as its flag tells, and [`choose_text`] for another. `None` where nothing is for any of them.
pub fn select_for(
    container: &[u8],
    devices: impl IntoIterator<Item = (ComputeCapability, bool)>,
) -> Result<Option<Vec<u8>>, Error> {
    let programs = Container::parse(container)?.programs()?;
    let mut entries: Vec<Entry<'_>> = Vec::new();
    for (device, machine_code) in devices {
        let programs = programs.iter().copied();
        let chosen = match machine_code {
            true => choose(programs, device),
            false => choose_text(programs, device),
        };
        let Some(Program { entry, .. }) = chosen else {
            continue;
        };
        if !entries
            .iter()
            .any(|known| std::ptr::eq(known.bytes, entry.bytes))
        {
            entries.push(entry);
        }
    }
    let bytes = entries.iter().map(|entry| entry.bytes);
    let header = header_of(bytes.clone().map(<[u8]>::len).sum());
    let parts: Vec<&[u8]> = [header.as_slice()].into_iter().chain(bytes).collect();
    Ok((!entries.is_empty()).then(|| parts.concat()))
}

/// A container with only the entry whose program `device` uses, still compressed; `None` as [`choose`] says.
pub fn select(container: &[u8], device: ComputeCapability) -> Result<Option<Vec<u8>>, Error> {
    select_for(container, [(device, true)])
}

#[cfg(test)]
mod tests {
    use super::super::tests::{container, entry};
    use super::*;

    const ELF: u16 = 2;
    const PTX: u16 = 1;
    const SPECIFIC: u64 = 0x10_0000;
    const FAMILY: u64 = 0x20_0000;

    /// What is chosen among entries whose payload is their name.
    fn chosen(entries: &[(u16, u32, u64)], major: u32, minor: u32) -> Option<String> {
        let entries: Vec<_> = entries
            .iter()
            .map(|&(kind, number, flags)| entry(kind, number, flags, b"", 0))
            .collect();
        let bytes = container(&entries);
        let programs = Container::parse(&bytes)
            .and_then(|container| container.programs())
            .expect("programs");
        choose(programs, ComputeCapability::new(major, minor))
            .map(|program| format!("{:?} {}", program.kind, program.arch))
    }

    #[test]
    fn exact_machine_code_comes_first() {
        let all = [(PTX, 86, 0), (ELF, 80, 0), (ELF, 86, 0), (ELF, 90, 0)];
        assert_eq!(chosen(&all, 8, 6).as_deref(), Some("Elf 86"));
    }

    #[test]
    fn machine_code_of_an_earlier_minor_version_comes_before_ptx() {
        let all = [(PTX, 86, 0), (ELF, 80, 0), (ELF, 86, 0), (ELF, 75, 0)];
        assert_eq!(chosen(&all, 8, 9).as_deref(), Some("Elf 86"));
    }

    #[test]
    fn without_machine_code_the_newest_ptx_is_compiled() {
        let all = [(ELF, 80, 0), (PTX, 80, 0), (PTX, 90, 0), (PTX, 120, 0)];
        assert_eq!(chosen(&all, 10, 0).as_deref(), Some("Ptx 90"));
    }

    #[test]
    fn specific_code_is_for_its_device_and_preferred_there() {
        let all = [(ELF, 90, 0), (ELF, 90, SPECIFIC), (PTX, 90, 0)];
        assert_eq!(chosen(&all, 9, 0).as_deref(), Some("Elf 90a"));
        let all = [(ELF, 100, SPECIFIC), (PTX, 100, SPECIFIC), (PTX, 90, 0)];
        assert_eq!(chosen(&all, 10, 3).as_deref(), Some("Ptx 90"));
    }

    #[test]
    fn family_code_serves_its_family() {
        let all = [(ELF, 100, FAMILY), (PTX, 90, 0)];
        assert_eq!(chosen(&all, 10, 3).as_deref(), Some("Elf 100f"));
        assert_eq!(chosen(&all, 12, 0).as_deref(), Some("Ptx 90"));
    }

    #[test]
    fn nothing_that_fits_is_nothing() {
        assert_eq!(
            chosen(&[(ELF, 90, 0), (PTX, 90, 0), (8, 75, 0)], 8, 0),
            None
        );
    }

    #[test]
    fn a_device_of_ptx_takes_what_fits_or_asks_for_least() {
        let text = |numbers: &[(u16, u32)]| {
            let entries: Vec<_> = numbers
                .iter()
                .map(|&(kind, number)| entry(kind, number, 0, b"", 0))
                .collect();
            let bytes = container(&entries);
            let programs = Container::parse(&bytes)
                .and_then(|container| container.programs())
                .expect("programs");
            choose_text(programs, ComputeCapability::new(7, 5)).map(|program| program.arch.number)
        };
        assert_eq!(
            text(&[(ELF, 75), (PTX, 52), (PTX, 70), (PTX, 80)]),
            Some(70)
        );
        assert_eq!(text(&[(PTX, 120), (PTX, 80), (PTX, 90)]), Some(80));
        assert_eq!(text(&[(ELF, 75)]), None);
    }

    #[test]
    fn unlike_devices_find_their_entries_in_one_container() {
        let (old, new) = (entry(ELF, 80, 0, b"old", 0), entry(ELF, 90, 0, b"new", 0));
        let text = entry(PTX, 75, 0, b"text", 0);
        let bytes = container(&[old.clone(), new.clone(), text.clone()]);
        let device = |major| (ComputeCapability::new(major, 0), true);
        let of = |devices: &[_]| select_for(&bytes, devices.iter().copied()).expect("a container");
        assert_eq!(
            of(&[device(9)]),
            Some(container(std::slice::from_ref(&new)))
        );
        assert_eq!(
            of(&[device(9), device(8), device(9)]),
            Some(container(&[new.clone(), old]))
        );
        let software = (ComputeCapability::new(9, 0), false);
        assert_eq!(of(&[device(9), software]), Some(container(&[new, text])));
        assert_eq!(of(&[device(5)]), None);
    }

    #[test]
    fn the_first_of_equals_is_chosen() {
        let bytes = container(&[
            entry(ELF, 90, 0, b"first", 0),
            entry(ELF, 90, 0, b"second", 0),
        ]);
        let alone = select(&bytes, ComputeCapability::new(9, 0)).expect("a container");
        assert_eq!(alone, Some(container(&[entry(ELF, 90, 0, b"first", 0)])));
    }
}
