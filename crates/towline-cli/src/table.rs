//! Tables for people: columns as wide as their contents, numbers to the right, and no wider than the terminal.

use std::fmt::Write;
use std::io::IsTerminal;

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

/// Rows of text below a heading.
pub(crate) struct Table {
    /// Name of each column; a name that starts with `>` aligns to the right.
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(heading: &[&'static str]) -> Self {
        Self {
            heading: heading.to_vec(),
            rows: Vec::new(),
        }
    }

    pub(crate) fn add(&mut self, row: Vec<String>) {
        debug_assert_eq!(row.len(), self.heading.len());
        // What servers and clients call themselves must not move the cursor.
        self.rows.push(
            row.into_iter()
                .map(|cell| cell.replace(char::is_control, "?"))
                .collect(),
        );
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, at most `columns` wide: columns named in `spare` are left out, the first ones first, and then the widest is cut.
    pub(crate) fn render(&self, columns: Option<usize>, spare: &[&str]) -> String {
        let heading: Vec<String> = self
            .heading
            .iter()
            .map(|name| name.trim_start_matches('>').to_owned())
            .collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&heading).chain(&self.rows).collect();
        let mut widths: Vec<usize> = (0..heading.len())
            .map(|column| {
                lines
                    .iter()
                    .map(|line| line[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let columns = columns.unwrap_or(usize::MAX);
        let mut shown = vec![true; heading.len()];
        let total = |shown: &[bool], widths: &[usize]| {
            let widths = shown.iter().zip(widths).filter(|(shown, _)| **shown);
            widths
                .map(|(_, width)| width + GAP)
                .sum::<usize>()
                .saturating_sub(GAP)
        };
        for name in spare {
            if total(&shown, &widths) > columns
                && let Some(column) = heading.iter().position(|other| other == name)
            {
                shown[column] = false;
            }
        }
        let excess = total(&shown, &widths).saturating_sub(columns);
        let widest = (0..widths.len())
            .filter(|column| shown[*column])
            .max_by_key(|column| widths[*column]);
        if let Some(widest) = widest {
            widths[widest] = widths[widest]
                .saturating_sub(excess)
                .max(heading[widest].chars().count());
        }
        let mut text = String::new();
        for line in lines {
            let mut rendered = String::new();
            for (column, name) in self
                .heading
                .iter()
                .enumerate()
                .filter(|(column, _)| shown[*column])
            {
                let (cell, width) = (cut(&line[column], widths[column]), widths[column]);
                let _ = match name.starts_with('>') {
                    true => write!(rendered, "{cell:>width$}  "),
                    false => write!(rendered, "{cell:<width$}  "),
                };
            }
            text.push_str(rendered.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Blanks between columns.
const GAP: usize = 2;

/// A text of at most `width` characters, with a mark where something is left out.
fn cut(text: &str, width: usize) -> String {
    match text.chars().count() > width {
        true => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text.to_owned(),
    }
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
    fn columns_align() {
        let mut table = Table::new(&["NAME", ">SIZE"]);
        table.add(vec!["a".into(), "1".into()]);
        table.add(vec!["longer\x1b[2J".into(), "100".into()]);
        assert_eq!(
            table.render(None, &[]),
            "NAME        SIZE\na              1\nlonger?[2J   100\n"
        );
    }

    #[test]
    fn narrow_terminal_gets_fewer_columns() {
        let mut table = Table::new(&["NAME", ">SIZE", "KIND"]);
        table.add(vec!["a-long-name".into(), "1".into(), "GPU".into()]);
        let width = |columns, spare: &[&str]| {
            let text = table.render(Some(columns), spare);
            text.lines().map(|line| line.chars().count()).max().unwrap()
        };
        assert_eq!(width(80, &["SIZE"]), 23);
        assert_eq!(
            table.render(Some(20), &["SIZE", "KIND"]),
            "NAME         KIND\na-long-name  GPU\n"
        );
        assert_eq!(
            table.render(Some(14), &["SIZE"]),
            "NAME      KIND\na-long-…  GPU\n"
        );
        assert_eq!(width(1, &["SIZE"]), 10);
    }

    #[test]
    fn bytes_have_suitable_units() {
        assert_eq!(
            [bytes(0), bytes(1023), bytes(1536), bytes(150 << 30)],
            ["0 B", "1023 B", "1.5 KiB", "150.0 GiB"]
        );
    }

    #[test]
    fn durations_have_suitable_units() {
        assert_eq!(duration(1_250), "1.2 s");
        assert_eq!(duration(61_000), "1 min 1 s");
        assert_eq!(duration(90_000_000), "1 d 1 h");
    }
}
