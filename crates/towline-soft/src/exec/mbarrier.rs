//! Barriers that lie in shared memory: eight bytes that programs do not look into.
//!
//! From the lowest bit: threads that are expected in later phases, threads that are missing in this one, bytes that are expected and have not come, as
//! a number with a sign, and the number of the phase. A phase is over when no thread is missing, and no byte.

use towline_ptx::ir::op::Arrival;

const COUNT: u64 = (1 << Arrival::COUNT_BITS) - 1;
const BYTES_SHIFT: u32 = 2 * Arrival::COUNT_BITS;
const BYTES_BITS: u32 = Arrival::PHASE_SHIFT - BYTES_SHIFT;

/// The barrier's state after a change.
pub(super) fn changed(op: Arrival, old: u64, number: u64) -> u64 {
    let number = u64::from(number as u32);
    let (mut expected, mut missing) = (old & COUNT, old >> Arrival::COUNT_BITS & COUNT);
    let mut bytes = ((old << (64 - Arrival::PHASE_SHIFT)) as i64) >> (64 - BYTES_BITS);
    let mut phase = old >> Arrival::PHASE_SHIFT;
    match op {
        Arrival::Init => {
            expected = number & COUNT;
            (missing, bytes, phase) = (expected, 0, 0);
        }
        Arrival::Expect => bytes += number as i64,
        Arrival::Complete => bytes -= number as i64,
        Arrival::Arrive => missing = missing.saturating_sub(number),
        Arrival::ArriveDrop => {
            expected = expected.saturating_sub(number);
            missing = missing.saturating_sub(number);
        }
    }
    let is_over = missing == 0 && bytes == 0;
    if is_over && !matches!(op, Arrival::Init | Arrival::Expect) {
        missing = expected;
        phase += 1;
    }
    let bytes = bytes as u64 & ((1 << BYTES_BITS) - 1);
    expected | missing << Arrival::COUNT_BITS | bytes << BYTES_SHIFT | phase << Arrival::PHASE_SHIFT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(state: u64) -> u64 {
        state >> Arrival::PHASE_SHIFT
    }

    #[test]
    fn a_phase_ends_with_its_last_thread() {
        let made = changed(Arrival::Init, u64::MAX, 3);
        let one = changed(Arrival::Arrive, made, 2);
        assert_eq!((phase(made), phase(one)), (0, 0));
        let next = changed(Arrival::Arrive, one, 1);
        assert_eq!(phase(next), 1);
        // It begins anew, for as many.
        assert_eq!(phase(changed(Arrival::Arrive, next, 2)), 1);
        assert_eq!(phase(changed(Arrival::Arrive, next, 3)), 2);
    }

    #[test]
    fn bytes_are_waited_for_in_either_order() {
        let made = changed(Arrival::Init, 0, 1);
        for steps in [
            [
                (Arrival::Expect, 512),
                (Arrival::Arrive, 1),
                (Arrival::Complete, 512),
            ],
            [
                (Arrival::Complete, 512),
                (Arrival::Expect, 512),
                (Arrival::Arrive, 1),
            ],
        ] {
            let [first, second, third] = steps;
            let before = [first, second]
                .iter()
                .fold(made, |old, (op, n)| changed(*op, old, *n));
            assert_eq!(phase(before), 0, "{steps:?}");
            assert_eq!(phase(changed(third.0, before, third.1)), 1, "{steps:?}");
        }
    }

    #[test]
    fn threads_that_drop_out_are_not_expected_again() {
        let made = changed(Arrival::Init, 0, 2);
        let next = changed(Arrival::Arrive, changed(Arrival::ArriveDrop, made, 1), 1);
        assert_eq!(phase(next), 1);
        assert_eq!(phase(changed(Arrival::Arrive, next, 1)), 2);
    }

    #[test]
    fn phases_are_counted_around() {
        let made = changed(Arrival::Init, 0, 1);
        let ninth = (0..9).fold(made, |old, _| changed(Arrival::Arrive, old, 1));
        assert_eq!((phase(ninth), ninth & COUNT), (1, 1));
    }
}
