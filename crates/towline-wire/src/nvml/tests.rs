//! Every generated message of NVML.

use proptest::prelude::*;

use super::DeviceHandle;
use crate::sample::Source;

proptest! {
    #[test]
    fn every_message_survives_the_wire(seed in 1..u64::MAX) {
        super::round_trips(&mut Source::new(seed));
    }

    #[test]
    fn no_input_makes_a_decoder_panic(id in proptest::sample::select(super::CALL_IDS), body in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = super::describe(id, &body);
        let _ = super::recode_request(id, &body);
        let _ = super::recode_reply(id, &body);
    }
}

#[test]
fn a_handle_has_its_server_and_its_device() {
    let handle = DeviceHandle::of(3, 7);
    assert_eq!((handle.server(), handle.number()), (3, Some(7)));
    assert_eq!(DeviceHandle(0).number(), None);
    assert_eq!(DeviceHandle(5 << 32).number(), None);
}

#[test]
fn structures_have_the_sizes_of_c() {
    assert_eq!(size_of::<super::nvmlMemory_v2_t>(), 40);
    assert_eq!(size_of::<super::nvmlPciInfo_t>(), 68);
    assert_eq!(size_of::<super::nvmlFieldValue_t>(), 40);
    assert_eq!(size_of::<super::nvmlProcessInfo_v2_t>(), 24);
    assert_eq!(size_of::<super::nvmlEventData_t>(), 32);
}

#[test]
fn every_status_has_its_name() {
    assert_eq!(super::status_name(3), Some("NVML_ERROR_NOT_SUPPORTED"));
    assert_eq!(super::status_name(999), Some("NVML_ERROR_UNKNOWN"));
    assert_eq!(super::status_name(31), None);
}
