//! Parts of tables for people: the terminal's width, and figures in units that suit them.

use std::io::IsTerminal;

pub(crate) use towline_bench::table::Table;

/// Columns of the terminal that is standard output: what `COLUMNS` says, else what the terminal says. No limit for files and pipes.
pub(crate) fn terminal_columns() -> Option<usize> {
    if !std::io::stdout().is_terminal() {
        return None;
    }
    let said = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    let asked = || rustix::termios::tcgetwinsize(rustix::stdio::stdout()).ok();
    let columns = said.or_else(|| asked().map(|size| usize::from(size.ws_col)));
    columns.filter(|columns| *columns > 0)
}

/// A number of bytes in a unit that suits it.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = count as f64;
    let mut unit = "B";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    match unit {
        "B" => format!("{count} B"),
        _ => format!("{value:.1} {unit}"),
    }
}

/// A number of things, as in `1 session` and `2 sessions`.
pub(crate) fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {thing}{plural}")
}

/// A time span in the two largest units that matter.
pub(crate) fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{}.{} s", seconds, ms % 1000 / 100),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_suitable_units() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(150 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "150.0 GiB"]
        );
    }

    #[test]
    fn counts_and_durations_have_suitable_units() {
        assert_eq!(counted(1, "client"), "1 client");
        assert_eq!(counted(0, "client"), "0 clients");
        assert_eq!(duration(1_250), "1.2 s");
        assert_eq!(duration(61_000), "1 min 1 s");
        assert_eq!(duration(90_000_000), "1 d 1 h");
    }
}
