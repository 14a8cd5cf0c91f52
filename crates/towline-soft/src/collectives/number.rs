//! Types of data, and reductions of them.

use towline_backend::nccl::result;

/// A floating-point format of at most 16 bits.
struct Small {
    exponent: u32,
    mantissa: u32,
    /// The largest exponent has numbers too, and but one pattern that is none; there is no infinity.
    finite: bool,
}

const F16: Small = Small {
    exponent: 5,
    mantissa: 10,
    finite: false,
};
const BF16: Small = Small {
    exponent: 8,
    mantissa: 7,
    finite: false,
};
const E4M3: Small = Small {
    exponent: 4,
    mantissa: 3,
    finite: true,
};
const E5M2: Small = Small {
    exponent: 5,
    mantissa: 2,
    finite: false,
};

impl Small {
    fn bias(&self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn top(&self) -> u32 {
        (1 << self.exponent) - 1
    }

    fn widen(&self, bits: u32) -> f64 {
        let mantissa = bits & ((1 << self.mantissa) - 1);
        let exponent = bits >> self.mantissa & self.top();
        let negative = bits >> (self.mantissa + self.exponent) & 1 == 1;
        let all_ones = mantissa == (1 << self.mantissa) - 1;
        let part = f64::from(mantissa) / f64::from(1_u32 << self.mantissa);
        let size = match exponent {
            0 => part * 2_f64.powi(1 - self.bias()),
            top if top == self.top() && self.finite && all_ones => f64::NAN,
            top if top == self.top() && !self.finite => match mantissa {
                0 => f64::INFINITY,
                _ => f64::NAN,
            },
            exponent => (1.0 + part) * 2_f64.powi(exponent as i32 - self.bias()),
        };
        if negative { -size } else { size }
    }

    /// The nearest number, of two the even one.
    fn narrow(&self, value: f64) -> u32 {
        let sign = u32::from(value.is_sign_negative()) << (self.mantissa + self.exponent);
        let not_a_number = (self.top() << self.mantissa) | ((1 << self.mantissa) - 1);
        if value.is_nan() {
            return sign | not_a_number;
        }
        let size = value.abs();
        let least = 1 - self.bias();
        let exponent = match size {
            0.0 => least,
            size => ((size.to_bits() >> 52) as i32 - 1023).max(least),
        };
        let unit = 2_f64.powi(exponent - self.mantissa as i32);
        let steps = (size / unit).round_ties_even();
        if !steps.is_finite() {
            return sign | self.largest();
        }
        // Steps of one more bit carry into the exponent by themselves.
        let hidden = 1_u64 << self.mantissa;
        let base = ((exponent - least) as u64) << self.mantissa;
        let bits = base + steps as u64;
        debug_assert!(steps as u64 <= 2 * hidden);
        sign | u32::try_from(bits).map_or(self.largest(), |bits| bits.min(self.largest()))
    }

    /// Stands for all that is too large: infinity, or the largest number where there is none.
    fn largest(&self) -> u32 {
        match self.finite {
            true => (self.top() << self.mantissa) | ((1 << self.mantissa) - 2),
            false => self.top() << self.mantissa,
        }
    }
}

/// Ways in which values become one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reduction {
    Sum,
    Product,
    Largest,
    Least,
    /// The sum, divided by how many there are; of real numbers, of parts that were divided.
    Average,
}

impl Reduction {
    /// NCCL's built-in ones, by their numbers.
    pub(super) fn of(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Sum,
            1 => Self::Product,
            2 => Self::Largest,
            3 => Self::Least,
            4 => Self::Average,
            _ => return None,
        })
    }
}

/// Bytes of an element.
pub(super) fn size_of_type(datatype: i32) -> Result<usize, i32> {
    match datatype {
        0 | 1 | 10 | 11 => Ok(1),
        6 | 9 => Ok(2),
        2 | 3 | 7 => Ok(4),
        4 | 5 | 8 => Ok(8),
        _ => Err(result::INVALID_ARGUMENT),
    }
}

/// Multiplies all by a factor of their type, with which its bytes begin.
pub(super) fn scale(datatype: i32, data: Vec<u8>, factor: &[u8]) -> Result<Vec<u8>, i32> {
    let size = size_of_type(datatype)?;
    let factors = factor[..size].repeat(data.len() / size);
    reduce(datatype, Reduction::Product, &[data, factors])
}

/// Reduces what the ranks have, in their order; all are as long as the first.
pub(super) fn reduce(
    datatype: i32,
    reduction: Reduction,
    parts: &[Vec<u8>],
) -> Result<Vec<u8>, i32> {
    let size = size_of_type(datatype)?;
    let length = parts.first().map_or(0, Vec::len);
    let mut out = Vec::with_capacity(length);
    for at in (0..length).step_by(size) {
        let values = parts.iter().map(|part| &part[at..at + size]);
        match datatype {
            0..=5 => whole(datatype, size, reduction, values, &mut out),
            _ => real(datatype, size, reduction, values, &mut out),
        }
    }
    Ok(out)
}

fn bits_of(bytes: &[u8]) -> u64 {
    let mut all = [0; 8];
    all[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(all)
}

fn whole<'a>(
    datatype: i32,
    size: usize,
    reduction: Reduction,
    values: impl ExactSizeIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) {
    let is_signed = matches!(datatype, 0 | 2 | 4);
    let spare = 64 - 8 * size as u32;
    let widen = |bits: u64| match is_signed {
        true => i128::from((bits << spare) as i64 >> spare),
        false => i128::from(bits << spare >> spare),
    };
    let wrap = |value: i128| widen(value as u64);
    let count = values.len() as i128;
    let values = values.map(|bytes| widen(bits_of(bytes)));
    let value = values.reduce(|one, other| match reduction {
        Reduction::Product => wrap(one.wrapping_mul(other)),
        Reduction::Largest => one.max(other),
        Reduction::Least => one.min(other),
        _ => wrap(one + other),
    });
    let mut value = value.unwrap_or(0);
    if matches!(reduction, Reduction::Average) {
        value /= count;
    }
    out.extend(&(value as u64).to_le_bytes()[..size]);
}

fn real<'a>(
    datatype: i32,
    size: usize,
    reduction: Reduction,
    values: impl ExactSizeIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) {
    let small = match datatype {
        6 => Some(F16),
        9 => Some(BF16),
        10 => Some(E4M3),
        11 => Some(E5M2),
        _ => None,
    };
    let widen = |bits: u64| match (&small, datatype) {
        (Some(small), _) => small.widen(bits as u32),
        (None, 7) => f64::from(f32::from_bits(bits as u32)),
        (None, _) => f64::from_bits(bits),
    };
    let narrow = |value: f64| match (&small, datatype) {
        (Some(small), _) => u64::from(small.narrow(value)),
        (None, 7) => u64::from((value as f32).to_bits()),
        (None, _) => value.to_bits(),
    };
    // Each step gives a number of the type, as on a device.
    let round = |value: f64| widen(narrow(value));
    let count = values.len() as f64;
    // As NCCL: a sum of parts does not overflow where their average does not.
    let share = match reduction {
        Reduction::Average => round(1.0 / count),
        _ => 1.0,
    };
    let values = values.map(|bytes| round(widen(bits_of(bytes)) * share));
    let value = values.reduce(|one, other| match reduction {
        Reduction::Product => round(one * other),
        Reduction::Largest => one.max(other),
        Reduction::Least => one.min(other),
        _ => round(one + other),
    });
    let value = value.unwrap_or(0.0);
    out.extend(&narrow(value).to_le_bytes()[..size]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_small_number_survives() {
        for (small, bits) in [(F16, 16), (BF16, 16), (E4M3, 8), (E5M2, 8)] {
            for number in 0..1_u32 << bits {
                let value = small.widen(number);
                if value.is_nan() {
                    assert!(small.widen(small.narrow(value)).is_nan());
                } else {
                    assert_eq!(small.narrow(value), number, "{value}");
                }
            }
        }
    }

    #[test]
    fn small_numbers_are_the_known_ones() {
        let widened = [
            (F16.widen(0x3c00), 1.0),
            (F16.widen(0x7bff), 65504.0),
            (BF16.widen(0x4049), 3.140_625),
            (E4M3.widen(0x7e), 448.0),
            (E5M2.widen(0x7b), 57344.0),
        ];
        assert!(widened.iter().all(|(found, known)| found == known));
        // Halfway goes to the even one; too large is infinity, or the largest.
        assert_eq!(F16.narrow(2049.0), F16.narrow(2048.0));
        assert_eq!(F16.narrow(2051.0), F16.narrow(2052.0));
        assert_eq!((F16.narrow(1e9), E4M3.narrow(1e9)), (0x7c00, 0x7e));
    }

    #[test]
    fn whole_numbers_wrap_and_keep_their_signs() {
        let reduced = |datatype, reduction, parts: &[i8]| {
            let parts: Vec<_> = parts.iter().map(|part| vec![*part as u8]).collect();
            reduce(datatype, reduction, &parts).map(|out| out[0] as i8)
        };
        assert_eq!(reduced(0, Reduction::Sum, &[100, 100]), Ok(-56));
        assert_eq!(reduced(0, Reduction::Largest, &[-3, 2]), Ok(2));
        assert_eq!(reduced(1, Reduction::Largest, &[-3, 2]), Ok(-3));
        assert_eq!(reduced(0, Reduction::Average, &[-3, -4]), Ok(-3));
        assert_eq!(scale(0, vec![3, 0x80], &[2, 9]), Ok(vec![6, 0]));
        assert_eq!(
            reduced(12, Reduction::Sum, &[0]),
            Err(result::INVALID_ARGUMENT)
        );
    }

    #[test]
    fn real_numbers_are_rounded_at_each_step() {
        let parts: Vec<_> = [2048.0, 1.0, 1.0]
            .map(|value| (F16.narrow(value) as u16).to_le_bytes().to_vec())
            .into();
        let sum = reduce(6, Reduction::Sum, &parts);
        assert_eq!(sum, Ok((F16.narrow(2048.0) as u16).to_le_bytes().to_vec()));
        let parts = [1.5_f32, 2.5].map(|value| value.to_le_bytes().to_vec());
        let of = |reduction| reduce(7, reduction, &parts).map(|out| bits_of(&out) as u32);
        assert_eq!(of(Reduction::Average), Ok(2.0_f32.to_bits()));
        let large = (F16.narrow(60000.0) as u16).to_le_bytes().to_vec();
        let average = reduce(6, Reduction::Average, &[large.clone(), large.clone()]);
        assert_eq!(average, Ok(large));
        assert_eq!(of(Reduction::Product), Ok(3.75_f32.to_bits()));
        let twice = scale(7, parts.concat(), &2.0_f32.to_le_bytes());
        assert_eq!(twice, Ok([3.0_f32, 5.0].map(f32::to_le_bytes).concat()));
    }
}
