//! The undocumented table that nvidia-smi asks for beside the documented functions.
//!
//! What its slots mean is known from observation of one version of that program (580.65) only. A slot that is missing would be jumped
//! through, so each has a function; all but two kinds refuse and touch nothing that they are given. A table that is not known is refused
//! with NULL written, as the vendor's library does.

use std::ffi::c_void;

use towline_backend::nvml::*;

use crate::library;

/// The table's id.
const TABLE_ID: [u8; 16] = [
    0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4,
];
/// More slots than any known version has.
const SLOTS: usize = 512;
/// A device by its number.
const DEVICE_BY_INDEX: usize = 81;
/// What comes with that number.
const BY_INDEX_WORD: usize = 0x22;
/// Lists of processes.
const FIRST_LIST: usize = 213;
const LAST_LIST: usize = 215;

type Slot = unsafe extern "C" fn(usize, *mut c_void, usize, usize) -> nvmlReturn_t;

static TABLE: [Slot; SLOTS] = table();

const fn table() -> [Slot; SLOTS] {
    let mut table: [Slot; SLOTS] = [refused; SLOTS];
    table[DEVICE_BY_INDEX] = device_by_index;
    let mut list = FIRST_LIST;
    while list <= LAST_LIST {
        table[list] = no_processes;
        list += 1;
    }
    table
}

unsafe extern "C" fn refused(_: usize, _: *mut c_void, _: usize, _: usize) -> nvmlReturn_t {
    NVML_ERROR_NOT_SUPPORTED
}

unsafe extern "C" fn device_by_index(
    index: usize,
    device: *mut c_void,
    word: usize,
    _: usize,
) -> nvmlReturn_t {
    let Ok(servers) = library::process().ready() else {
        return NVML_ERROR_UNINITIALIZED;
    };
    match servers.devices.get(index) {
        // Another version may mean something else by this slot: only what looks like the question is answered.
        Some(known) if word == BY_INDEX_WORD && !device.is_null() => {
            // SAFETY: the contract of the slot, whose question this is: a place for a handle.
            unsafe { device.cast::<nvmlDevice_t>().write(known.handle.to_raw()) };
            NVML_SUCCESS
        }
        _ => NVML_ERROR_INVALID_ARGUMENT,
    }
}

unsafe extern "C" fn no_processes(
    device: usize,
    count: *mut c_void,
    _: usize,
    _: usize,
) -> nvmlReturn_t {
    let handle = std::ptr::without_provenance_mut(device);
    match library::process().device(handle, |_| Ok(())) {
        Ok(()) if !count.is_null() => {
            // SAFETY: the contract of the slot, whose question this is: the count of a list, which says that nothing was written there.
            unsafe { count.cast::<u32>().write(0) };
            NVML_SUCCESS
        }
        _ => NVML_ERROR_NOT_SUPPORTED,
    }
}

/// Gives a table by its id.
///
/// # Safety
/// `table` is NULL or writable; `id` is NULL or 16 readable bytes.
#[cfg_attr(
    target_os = "linux",
    unsafe(export_name = "towline_nvmlInternalGetExportTable")
)]
#[cfg_attr(not(target_os = "linux"), unsafe(no_mangle))]
#[allow(unreachable_pub, reason = "programs reach it by its symbol")]
pub unsafe extern "C" fn nvmlInternalGetExportTable(
    table: *mut *const c_void,
    id: *const c_void,
) -> nvmlReturn_t {
    if table.is_null() || id.is_null() {
        return NVML_ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: the caller's contract.
    let wanted = unsafe { id.cast::<[u8; 16]>().read_unaligned() };
    let (found, status) = match wanted == TABLE_ID {
        true => (TABLE.as_ptr().cast(), NVML_SUCCESS),
        false => (std::ptr::null(), NVML_ERROR_FUNCTION_NOT_FOUND),
    };
    // SAFETY: the caller's contract.
    unsafe { table.write(found) };
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(id: &[u8; 16]) -> (nvmlReturn_t, *const c_void) {
        let mut table: *const c_void = std::ptr::dangling();
        // SAFETY: a place for the table, and 16 bytes.
        let status = unsafe { nvmlInternalGetExportTable(&raw mut table, id.as_ptr().cast()) };
        (status, table)
    }

    #[test]
    fn an_unknown_table_is_refused_and_null_is_written() {
        assert_eq!(
            ask(&[7; 16]),
            (NVML_ERROR_FUNCTION_NOT_FOUND, std::ptr::null())
        );
    }

    #[test]
    fn every_slot_of_the_known_table_can_be_called_and_writes_nothing_unasked() {
        let (status, table) = ask(&TABLE_ID);
        assert_eq!(status, NVML_SUCCESS);
        for slot in 0..SLOTS {
            // SAFETY: the table has so many slots.
            let slot = unsafe { table.cast::<Slot>().add(slot) };
            // SAFETY: as above.
            let slot = unsafe { slot.read() };
            let mut word = 0x5a5a_5a5a_usize;
            let place = (&raw mut word).cast();
            // SAFETY: functions of the table take four words; there is no device that the first could mean.
            let status = unsafe { slot(usize::MAX, place, 1, 1) };
            assert_ne!(status, NVML_SUCCESS);
            assert_eq!(word, 0x5a5a_5a5a);
        }
    }
}
