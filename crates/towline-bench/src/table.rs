//! Tables for people: columns as wide as their contents, numbers to the right, and no wider than the terminal.

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

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text; columns of which no row has anything are left out.
    pub fn render(&self) -> String {
        self.render_within(None, &[])
    }

    /// The text, at most `columns` wide: columns named in `spare` are left out, the first ones first, and then the widest is cut.
    pub fn render_within(&self, columns: Option<usize>, spare: &[&str]) -> String {
        let cell = |row: &[String], column: usize| {
            let text = row.get(column).map_or("", String::as_str);
            // Names of devices, servers and programs come from others: they must not move the cursor.
            text.replace(char::is_control, "?")
        };
        let names: Vec<String> = self
            .heading
            .iter()
            .map(|name| name.trim_start_matches('>').to_owned())
            .collect();
        let lines = || std::iter::once(names.as_slice()).chain(self.rows.iter().map(Vec::as_slice));
        let width_of = |column| {
            let widths = lines().map(|line| cell(line, column).chars().count());
            widths.max().unwrap_or(0)
        };
        let mut shown: Vec<(usize, usize)> = (0..names.len())
            .filter(|column| {
                self.is_empty() || self.rows.iter().any(|row| !cell(row, *column).is_empty())
            })
            .map(|column| (column, width_of(column)))
            .collect();
        let columns = columns.unwrap_or(usize::MAX);
        let excess = |shown: &[(usize, usize)]| {
            let total: usize = shown.iter().map(|(_, width)| width + GAP).sum();
            total.saturating_sub(GAP).saturating_sub(columns)
        };
        for name in spare {
            if excess(&shown) > 0 {
                shown.retain(|(column, _)| names[*column] != *name);
            }
        }
        let excess = excess(&shown);
        if let Some((column, width)) = shown.iter_mut().max_by_key(|(_, width)| *width) {
            let least = names[*column].chars().count();
            *width = width.saturating_sub(excess).max(least);
        }
        let mut text = String::new();
        for line in lines() {
            let mut rendered = String::new();
            for &(column, width) in &shown {
                let cell = cut(cell(line, column), width);
                // Writing to a string cannot fail.
                let _ = match self.heading[column].starts_with('>') {
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
fn cut(text: String, width: usize) -> String {
    match text.chars().count() > width {
        true => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .collect(),
        false => text,
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
    fn narrow_terminal_gets_fewer_columns() {
        let mut table = Table::new(["NAME", ">SIZE", "KIND"]);
        table.add(vec!["a-long-name".into(), "1".into(), "GPU".into()]);
        let width = |columns, spare: &[&str]| {
            let text = table.render_within(Some(columns), spare);
            text.lines().map(|line| line.chars().count()).max().unwrap()
        };
        assert_eq!(width(80, &["SIZE"]), 23);
        assert_eq!(
            table.render_within(Some(20), &["SIZE", "KIND"]),
            "NAME         KIND\na-long-name  GPU\n"
        );
        assert_eq!(
            table.render_within(Some(14), &["SIZE"]),
            "NAME      KIND\na-long-…  GPU\n"
        );
        assert_eq!(width(1, &["SIZE"]), 10);
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
