//! The runtime library's check of the driver, for interoperability with a user's own licensed GPUs; see `docs/legal.md`.
//!
//! The runtime computes a digest over what it knows of the process and its devices and wants the same from the driver. Every input is
//! the process's own or a public attribute. It is answered only while **every** device of the process is served by NVIDIA's own
//! driver, which has its licence where the device is; and the operator can switch it off.

use std::sync::Once;

use hmac::{KeyInit, Mac, SimpleHmac};
use md2::Md2;
use towline_backend::cuda::*;
use towline_client::raw::Out;

use crate::driver::{Driver, tell};

/// Switches the answer off when it is `0`.
const SWITCH: &str = "TOWLINE_CUDART_HANDSHAKE";

const KEY: [u8; 16] = [
    0x14, 0x6a, 0xdd, 0xae, 0x53, 0xa9, 0xa7, 0x52, 0xaa, 0x08, 0x41, 0x36, 0x0b, 0xf5, 0x5a, 0x9f,
];

/// What the first two schemes want.
const FIXED: [u128; 2] = [
    0x5c67_cb03_1c18_4133_e8d1_4c1f_aa83_d38e,
    0x5c67_cb03_1c18_4118_e8d1_4c1f_aa83_d38e,
];

/// Addresses of this process that the digest covers.
pub(crate) struct Addresses {
    pub(crate) runtime_table: u64,
    pub(crate) check_table: u64,
    pub(crate) check: u64,
}

/// The digest that the runtime wants, or why it gets none.
pub(crate) fn answer(
    driver: &Driver,
    version: u32,
    time: u64,
    addresses: &Addresses,
) -> Result<[u8; 16], CUresult> {
    let started = driver.started()?;
    let wanted = std::env::var(SWITCH).map_or(true, |value| value.trim() != "0");
    permitted(started.genuine, wanted)?;
    // The runtime asks three times, once for each scheme that it knows; the last digit tells which. The first two are constants.
    if let Some(constant) = FIXED.get((version % 10) as usize) {
        return Ok(constant.to_be_bytes());
    }
    let devices = started
        .devices()
        .iter()
        .map(|device| (device.facts.uuid, device.place()));
    // SAFETY: has no requirements.
    let thread = unsafe { libc::pthread_self() };
    let text = message(
        [
            started.version as u32,
            version,
            std::process::id(),
            thread as u32,
        ],
        addresses,
        time,
        devices,
    );
    Ok(digest(&text))
}

fn permitted(genuine: bool, wanted: bool) -> Result<(), CUresult> {
    static TOLD: Once = Once::new();
    let why = match (genuine, wanted) {
        (true, true) => return Ok(()),
        (false, _) => {
            "a device is not served by NVIDIA's own driver, and for such devices it is never answered"
        }
        (true, false) => "TOWLINE_CUDART_HANDSHAKE=0 (--no-cudart-handshake)",
    };
    TOLD.call_once(|| {
        log::error!(
            "the CUDA runtime library asks the driver to identify itself and gets no answer: {why}. Programs that use the runtime \
             library stop here; programs that use only the driver API run, and so do those that are linked with -cudart shared when \
             `towline run --cudart` gives them Towline's runtime library"
        );
    });
    Err(CUDA_ERROR_NOT_SUPPORTED)
}

/// What the digest covers, little endian.
fn message(
    words: [u32; 4],
    addresses: &Addresses,
    time: u64,
    devices: impl Iterator<Item = ([u8; 16], [i32; 3])>,
) -> Vec<u8> {
    let mut text = Vec::new();
    for word in words {
        text.extend(word.to_le_bytes());
    }
    for word in [
        addresses.runtime_table,
        addresses.check_table,
        addresses.check,
        time,
    ] {
        text.extend(word.to_le_bytes());
    }
    for (uuid, place) in devices {
        text.extend(uuid);
        for number in place {
            text.extend(number.to_le_bytes());
        }
    }
    text
}

fn digest(text: &[u8]) -> [u8; 16] {
    let mut mac = SimpleHmac::<Md2>::new_from_slice(&KEY).expect("any length of key will do");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

/// The runtime's check: slot 1 of its table.
pub(crate) extern "C" fn check(version: u32, time: u64, result: Out<[u8; 16]>) -> CUresult {
    crate::tables::slot("check", 1, |driver| {
        let addresses = crate::tables::addresses();
        tell(result, answer(driver, version, time, &addresses))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use md2::Digest;

    /// HMAC as RFC 2104 describes it, over blocks of 16 bytes.
    fn by_hand(key: [u8; 16], text: &[u8]) -> Vec<u8> {
        let pad = |with: u8| key.map(|byte| byte ^ with);
        let inner = Md2::digest([&pad(0x36)[..], text].concat());
        Md2::digest([&pad(0x5c)[..], &inner[..]].concat()).to_vec()
    }

    #[test]
    fn the_digest_is_an_hmac_over_md2_with_blocks_of_16_bytes() {
        for length in [0, 7, 48, 76, 104] {
            let text: Vec<u8> = (0..length).map(|byte: u8| byte.wrapping_mul(3)).collect();
            assert_eq!(digest(&text).to_vec(), by_hand(KEY, &text), "{length}");
        }
    }

    #[test]
    fn the_message_is_48_bytes_and_28_more_for_each_device() {
        let addresses = Addresses {
            runtime_table: 0x1111,
            check_table: 0x2222,
            check: 0x3333,
        };
        let devices = [([7; 16], [0, 25, 1]), ([8; 16], [1, 26, 2])];
        let text = message(
            [13_000, 12_082, 42, 43],
            &addresses,
            99,
            devices.into_iter(),
        );
        assert_eq!(text.len(), 48 + 2 * 28);
        assert_eq!(text[..4], 13_000_u32.to_le_bytes());
        assert_eq!(text[12..16], 43_u32.to_le_bytes());
        assert_eq!(text[16..24], 0x1111_u64.to_le_bytes());
        assert_eq!(text[40..48], 99_u64.to_le_bytes());
        assert_eq!(text[48..64], [7; 16]);
        assert_eq!(text[68..72], 25_i32.to_le_bytes());
    }

    #[test]
    fn a_device_that_is_not_nvidias_or_an_operator_who_says_no_gets_no_answer() {
        assert_eq!(permitted(true, true), Ok(()));
        assert_eq!(permitted(false, true), Err(CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(permitted(false, false), Err(CUDA_ERROR_NOT_SUPPORTED));
        assert_eq!(permitted(true, false), Err(CUDA_ERROR_NOT_SUPPORTED));
    }
}
