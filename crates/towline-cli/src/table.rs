//! Tables for people: columns as wide as their contents, numbers to the right.

use std::fmt::Write;

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

    pub(crate) fn render(&self) -> String {
        let heading: Vec<String> = self
            .heading
            .iter()
            .map(|name| name.trim_start_matches('>').to_owned())
            .collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&heading).chain(&self.rows).collect();
        let widths: Vec<usize> = (0..heading.len())
            .map(|column| {
                lines
                    .iter()
                    .map(|line| line[column].chars().count())
                    .max()
                    .unwrap_or(0)
            })
            .collect();
        let mut text = String::new();
        for line in lines {
            let mut rendered = String::new();
            for ((cell, width), name) in line.iter().zip(&widths).zip(&self.heading) {
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
            table.render(),
            "NAME        SIZE\na              1\nlonger?[2J   100\n"
        );
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
