//! Tables for people: columns as wide as their contents, numbers to the right.

use std::fmt::Write;

/// Rows of text below a heading.
#[derive(Debug)]
pub struct Table {
    /// Name of each column; a name that starts with `>` aligns to the right.
    heading: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table; a column whose name starts with `>` aligns to the right.
    pub fn new<T: Into<String>>(heading: impl IntoIterator<Item = T>) -> Self {
        Self {
            heading: heading.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row; missing cells are empty.
    pub fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The text; columns in which no row has anything are left out.
    pub fn render(&self) -> String {
        let cell = |row: &[String], column: usize| {
            let text = row.get(column).map_or("", String::as_str);
            // Names of devices come from others: they must not move the cursor.
            text.replace(char::is_control, "?")
        };
        let names: Vec<String> = self
            .heading
            .iter()
            .map(|name| name.trim_start_matches('>').to_owned())
            .collect();
        let columns: Vec<usize> = (0..names.len())
            .filter(|column| self.rows.iter().any(|row| !cell(row, *column).is_empty()))
            .collect();
        let lines = || std::iter::once(names.as_slice()).chain(self.rows.iter().map(Vec::as_slice));
        let mut text = String::new();
        for line in lines() {
            let mut rendered = String::new();
            for column in &columns {
                let width = lines()
                    .map(|line| cell(line, *column).chars().count())
                    .max()
                    .unwrap_or(0);
                let cell = cell(line, *column);
                // Writing to a string cannot fail.
                let _ = match self.heading[*column].starts_with('>') {
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

/// A number with three significant digits, or more where it is large.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if value == 0.0 => "0".into(),
        0.0..0.001 => format!("{value:.1e}"),
        0.001..0.1 => format!("{value:.4}"),
        0.1..10.0 => format!("{value:.2}"),
        10.0..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A power of two as people write it: 4 KiB, 256 MiB.
pub fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{} GiB", bytes >> 30),
        _ if bytes >= 1 << 20 && bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ if bytes >= 1 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        _ => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_empty_ones_vanish() {
        let mut table = Table::new(["what", ">native", ">remote", "bar"]);
        table.add(vec!["launch".into(), "1.2".into(), String::new()]);
        table.add(vec!["long name\x1b[2J".into(), "100".into()]);
        assert_eq!(
            table.render(),
            "what           native\nlaunch            1.2\nlong name?[2J     100\n"
        );
    }

    #[test]
    fn numbers_keep_what_matters() {
        let texts = [0.0, 0.00012, 0.0123, 1.234, 12.34, 123.4, 12345.6].map(number);
        assert_eq!(
            texts,
            ["0", "1.2e-4", "0.0123", "1.23", "12.3", "123", "12346"]
        );
    }

    #[test]
    fn sizes_have_the_largest_even_unit() {
        assert_eq!(
            [4, 4096, 256 << 20, 1536, 1 << 30].map(size),
            ["4 B", "4 KiB", "256 MiB", "1536 B", "1 GiB"]
        );
    }
}
