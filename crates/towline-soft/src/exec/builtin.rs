//! Functions that the device has: printing, memory of the kernel's own, assertions.

use towline_ptx::ir::Space;
use towline_ptx::ir::op::Call;

use super::access::{Env, locate, number as to_number};
use super::frame::{LANES, Lanes, lanes_of};
use super::step::Lane;
use super::warp::Warp;
use crate::fault::FaultKind;
use crate::memory::Purpose;

/// Longest text that is printed or told of an assertion.
const TEXT_LIMIT: usize = 64 << 10;

impl Warp {
    /// Carries out a function of the device's own for all lanes of a split.
    pub(super) fn built_in(
        &mut self,
        number: usize,
        name: &str,
        call: &Call,
        constants: &[Lanes],
        env: &mut Env<'_>,
    ) -> Result<(), (FaultKind, Lane)> {
        let mask = self.splits[number].mask;
        let mut out = [0; LANES];
        match name {
            "malloc" => {
                let sizes = self.argument(number, call, 0, constants);
                for lane in lanes_of(mask) {
                    out[lane] = allocate(env, sizes[lane]);
                }
                self.answer(number, call, &out);
            }
            "free" => {
                let addresses = self.argument(number, call, 0, constants);
                for lane in lanes_of(mask) {
                    let address = addresses[lane];
                    if address != 0 && env.launch.arena.free(address, Purpose::Heap).is_none() {
                        let kind = FaultKind::Address {
                            space: Space::Global,
                            address,
                            bytes: 0,
                            write: true,
                            near: ", which free() was given and malloc() did not give".into(),
                        };
                        return Err((kind, Lane::Number(lane)));
                    }
                }
                env.look_again();
            }
            "vprintf" => {
                let formats = self.argument(number, call, 0, constants);
                let arguments = self.argument(number, call, 1, constants);
                for lane in lanes_of(mask) {
                    if formats[lane] == 0 {
                        out[lane] = u32::MAX.into();
                        continue;
                    }
                    let (text, count) = self
                        .format(env, lane, number, formats[lane], arguments[lane])
                        .map_err(|fault| (fault, Lane::Number(lane)))?;
                    // Unlike the host's, it tells how many arguments it took.
                    out[lane] = count;
                    (env.launch.print)(&text);
                }
                self.answer(number, call, &out);
            }
            _ => {
                let lane = mask.trailing_zeros() as usize & 31;
                let mut text = |index: usize| -> String {
                    let address = self.argument(number, call, index, constants)[lane];
                    let bytes = self.text(env, lane, number, address).unwrap_or_default();
                    String::from_utf8_lossy(&bytes).into_owned()
                };
                let (condition, file, function) = (text(0), text(1), text(3));
                let line = self.argument(number, call, 2, constants)[lane] as u32;
                let kind = FaultKind::Assertion(format!(
                    "{file}:{line}: {function}: assertion `{condition}` failed"
                ));
                return Err((kind, Lane::Number(lane)));
            }
        }
        Ok(())
    }

    /// Reads bytes at a generic address.
    fn read(
        &mut self,
        env: &mut Env<'_>,
        lane: usize,
        number: usize,
        address: u64,
        bytes: &mut [u8],
    ) -> Result<(), FaultKind> {
        let len = bytes.len() as u64;
        let split = self.splits[number];
        let (space, at) = locate(Space::Generic, address);
        if space == Space::Global {
            env.span(split.pc, at, len, false)?.read(at, bytes);
            return Ok(());
        }
        let frame = super::warp::frame_mut(&mut self.frames, split.frame);
        let local = self.locals.get(lane).map_or(&[][..], Vec::as_slice);
        bytes.copy_from_slice(env.part(frame, local, lane, (space, at), len)?);
        Ok(())
    }

    /// Text that ends with a NUL.
    fn text(
        &mut self,
        env: &mut Env<'_>,
        lane: usize,
        number: usize,
        address: u64,
    ) -> Result<Vec<u8>, FaultKind> {
        let mut text = Vec::new();
        let mut byte = [0];
        while text.len() < TEXT_LIMIT {
            let at = address.wrapping_add(text.len() as u64);
            self.read(env, lane, number, at, &mut byte)?;
            match byte {
                [0] => break,
                [byte] => text.push(byte),
            }
        }
        Ok(text)
    }

    /// Formats the text that one lane prints, and counts its arguments. They lie one behind the other, each at a multiple of its size.
    fn format(
        &mut self,
        env: &mut Env<'_>,
        lane: usize,
        number: usize,
        format: u64,
        arguments: u64,
    ) -> Result<(Vec<u8>, u64), FaultKind> {
        let format = self.text(env, lane, number, format)?;
        let (mut out, mut count) = (Vec::new(), 0);
        let mut at = arguments;
        let mut rest = format.as_slice();
        while let Some((&byte, behind)) = rest.split_first() {
            rest = behind;
            if byte != b'%' || out.len() > TEXT_LIMIT {
                out.push(byte);
                continue;
            }
            let Some((mut what, behind)) = Conversion::parse(rest) else {
                out.push(byte);
                continue;
            };
            rest = behind;
            if what.conversion == b'%' {
                out.push(b'%');
                continue;
            }
            let mut next = |warp: &mut Self, env: &mut Env<'_>, bytes: usize| {
                at = at.next_multiple_of(bytes as u64);
                let mut value = [0; 8];
                let value = value.get_mut(..bytes).unwrap_or_default();
                warp.read(env, lane, number, at, value)?;
                at += bytes as u64;
                count += 1;
                Ok::<_, FaultKind>(to_number(value))
            };
            if what.width == Some(Amount::Argument) {
                let width = next(self, env, 4)? as u32 as i32;
                what.left |= width < 0;
                what.width = Some(Amount::Given(width.unsigned_abs() as usize));
            }
            if what.precision == Some(Amount::Argument) {
                let precision = next(self, env, 4)? as u32 as i32;
                what.precision = usize::try_from(precision).ok().map(Amount::Given);
            }
            match what.conversion {
                b's' => {
                    let address = next(self, env, 8)?;
                    let text = match address {
                        0 => b"(null)".to_vec(),
                        address => self.text(env, lane, number, address)?,
                    };
                    what.text(&text, &mut out);
                }
                _ => {
                    let value = next(self, env, what.bytes())?;
                    what.number(value, &mut out);
                }
            }
        }
        Ok((out, count))
    }
}

/// Memory for a kernel; 0 when there is none left.
fn allocate(env: &mut Env<'_>, size: u64) -> u64 {
    let launch = env.launch;
    let used = launch
        .arena
        .used(launch.device, |purpose| purpose == Purpose::Heap);
    if size == 0 || size > launch.heap_bytes.saturating_sub(used) {
        return 0;
    }
    let found = launch.arena.allocate(size, launch.device, Purpose::Heap);
    env.look_again();
    found.unwrap_or(0)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Amount {
    Argument,
    Given(usize),
}

/// `%-08.3lld`, without its percent sign.
#[derive(Debug, Clone, Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: Option<Amount>,
    precision: Option<Amount>,
    long: bool,
    conversion: u8,
}

impl Default for Amount {
    fn default() -> Self {
        Amount::Given(0)
    }
}

impl Conversion {
    fn parse(mut text: &[u8]) -> Option<(Self, &[u8])> {
        let mut what = Self::default();
        loop {
            let (&byte, behind) = text.split_first()?;
            match byte {
                b'-' => what.left = true,
                b'+' => what.plus = true,
                b' ' => what.space = true,
                b'#' => what.alternate = true,
                b'0' => what.zero = true,
                _ => break,
            }
            text = behind;
        }
        what.width = amount(&mut text);
        if let [b'.', behind @ ..] = text {
            text = behind;
            what.precision = Some(amount(&mut text).unwrap_or_default());
        }
        loop {
            let (&byte, behind) = text.split_first()?;
            text = behind;
            match byte {
                b'l' | b'j' | b'z' | b't' => what.long = true,
                b'h' => {}
                conversion => {
                    what.conversion = conversion;
                    return Some((what, text));
                }
            }
        }
    }

    /// Bytes of its argument.
    fn bytes(&self) -> usize {
        match self.conversion {
            b'a' | b'A' | b'e' | b'E' | b'f' | b'F' | b'g' | b'G' | b'p' => 8,
            _ if self.long => 8,
            _ => 4,
        }
    }

    fn width(&self) -> usize {
        match self.width {
            Some(Amount::Given(width)) => width.min(TEXT_LIMIT),
            _ => 0,
        }
    }

    fn precision(&self) -> Option<usize> {
        match self.precision {
            Some(Amount::Given(precision)) => Some(precision.min(TEXT_LIMIT)),
            _ => None,
        }
    }

    fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        let text = text
            .get(..self.precision().unwrap_or(text.len()))
            .unwrap_or(text);
        self.padded(b"", text, false, out);
    }

    /// A sign or prefix, digits, and what makes them as wide as asked.
    fn padded(&self, prefix: &[u8], digits: &[u8], zeros: bool, out: &mut Vec<u8>) {
        let missing = self.width().saturating_sub(prefix.len() + digits.len());
        let fill = |out: &mut Vec<u8>, byte| out.extend(std::iter::repeat_n(byte, missing));
        if !self.left && !zeros {
            fill(out, b' ');
        }
        out.extend_from_slice(prefix);
        if !self.left && zeros {
            fill(out, b'0');
        }
        out.extend_from_slice(digits);
        if self.left {
            fill(out, b' ');
        }
    }

    fn sign(&self, negative: bool) -> &'static [u8] {
        match () {
            () if negative => b"-",
            () if self.plus => b"+",
            () if self.space => b" ",
            () => b"",
        }
    }

    fn number(&self, value: u64, out: &mut Vec<u8>) {
        let wide = self.bytes() == 8;
        let unsigned = if wide { value } else { value & 0xffff_ffff };
        let signed = if wide {
            value as i64
        } else {
            value as u32 as i32 as i64
        };
        let alternate = |prefix: &'static [u8]| -> &'static [u8] {
            if self.alternate && unsigned != 0 {
                prefix
            } else {
                b""
            }
        };
        let (prefix, digits) = match self.conversion {
            b'd' | b'i' => (self.sign(signed < 0), signed.unsigned_abs().to_string()),
            b'u' => (&b""[..], unsigned.to_string()),
            b'o' => (alternate(b"0"), format!("{unsigned:o}")),
            b'x' => (alternate(b"0x"), format!("{unsigned:x}")),
            b'X' => (alternate(b"0X"), format!("{unsigned:X}")),
            b'p' => (&b"0x"[..], format!("{unsigned:x}")),
            b'c' => return self.padded(b"", &[value as u8], false, out),
            _ => return self.float(f64::from_bits(value), out),
        };
        let digits = match self.precision() {
            Some(0) if unsigned == 0 => String::new(),
            Some(precision) => format!(
                "{}{digits}",
                "0".repeat(precision.saturating_sub(digits.len()))
            ),
            None => digits,
        };
        let zeros = self.zero && self.precision.is_none();
        self.padded(prefix, digits.as_bytes(), zeros, out);
    }

    fn float(&self, value: f64, out: &mut Vec<u8>) {
        let upper = self.conversion.is_ascii_uppercase();
        let prefix = self.sign(value.is_sign_negative() && !value.is_nan());
        let magnitude = value.abs();
        if !value.is_finite() {
            let text = if value.is_nan() { "nan" } else { "inf" };
            let text = if upper {
                text.to_uppercase()
            } else {
                text.into()
            };
            return self.padded(prefix, text.as_bytes(), false, out);
        }
        // More digits than any value has are zeros.
        let precision = self.precision().unwrap_or(6).min(1100);
        let text = match self.conversion.to_ascii_lowercase() {
            b'e' => exponential(magnitude, precision),
            b'g' => general(magnitude, precision.max(1), self.alternate),
            b'a' => hexadecimal(magnitude),
            _ => format!("{magnitude:.precision$}"),
        };
        let text = if upper { text.to_uppercase() } else { text };
        self.padded(prefix, text.as_bytes(), self.zero, out);
    }
}

fn amount(text: &mut &[u8]) -> Option<Amount> {
    if let [b'*', behind @ ..] = *text {
        *text = behind;
        return Some(Amount::Argument);
    }
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, behind) = text.split_at(digits);
    *text = behind;
    let number = std::str::from_utf8(number).ok()?;
    (digits > 0).then(|| Amount::Given(number.parse().unwrap_or(TEXT_LIMIT)))
}

/// C's `%e`: an exponent of at least two digits.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = match exponent.strip_prefix('-') {
                Some(exponent) => ('-', exponent),
                None => ('+', exponent),
            };
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// C's `%g`.
fn general(value: f64, precision: usize, keep_zeros: bool) -> String {
    let scientific = format!("{value:.*e}", precision - 1);
    let exponent: i32 = scientific
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    let trimmed = |text: String| match text.contains('.') && !keep_zeros {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    };
    if exponent < -4 || exponent >= precision as i32 {
        let text = exponential(value, precision - 1);
        return match text.split_once('e') {
            Some((digits, exponent)) => format!("{}e{exponent}", trimmed(digits.to_owned())),
            None => text,
        };
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trimmed(format!("{value:.decimals$}"))
}

/// C's `%a`, without a precision.
fn hexadecimal(value: f64) -> String {
    let bits = value.to_bits();
    let (exponent, fraction) = ((bits >> 52 & 0x7ff) as i32, bits & ((1 << 52) - 1));
    let digits = format!("{fraction:013x}");
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    let (lead, exponent) = match (exponent, fraction) {
        (0, 0) => (0, 0),
        (0, _) => (0, -1022),
        (exponent, _) => (1, exponent - 1023),
    };
    format!("0x{lead}{point}{digits}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(format: &str, value: u64) -> String {
        let (what, rest) = Conversion::parse(&format.as_bytes()[1..]).expect("a conversion");
        let mut out = Vec::new();
        what.number(value, &mut out);
        out.extend_from_slice(rest);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn numbers_print_as_in_c() {
        for (format, value, expected) in [
            ("%d", -5_i32 as u32 as u64, "-5"),
            ("%5d|", 42, "   42|"),
            ("%-5d|", 42, "42   |"),
            ("%+05d", 42, "+0042"),
            ("%.3d", 7, "007"),
            ("%u", 0xffff_ffff, "4294967295"),
            ("%lld", u64::MAX, "-1"),
            ("%#x", 255, "0xff"),
            ("%08X", 0xbeef, "0000BEEF"),
            ("%p", 0x7f00, "0x7f00"),
            ("%c!", 65, "A!"),
        ] {
            assert_eq!(printed(format, value), expected, "{format}");
        }
        for (format, value, expected) in [
            ("%f", 1.5, "1.500000"),
            ("%.2f", 2.675, "2.67"),
            ("%8.3f", -3.25, "  -3.250"),
            ("%08.1f", -3.25, "-00003.2"),
            ("%e", 12345.678, "1.234568e+04"),
            ("%E", 0.0, "0.000000E+00"),
            ("%g", 0.0001, "0.0001"),
            ("%g", 1e-5, "1e-05"),
            ("%g", 123456789.0, "1.23457e+08"),
            ("%g", 100.0, "100"),
            ("%f", f64::INFINITY, "inf"),
            ("%a", 1.0, "0x1p+0"),
        ] {
            assert_eq!(printed(format, f64::to_bits(value)), expected, "{format}");
        }
    }

    #[test]
    fn conversions_that_do_not_end_are_none() {
        assert!(Conversion::parse(b"").is_none());
        assert!(Conversion::parse(b"-08.3ll").is_none());
    }
}
