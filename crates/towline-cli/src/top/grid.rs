//! Rows in columns: which rows a filter leaves, their order, and which columns fit the terminal.

use std::cmp::Ordering;

use ratatui::text::Span;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Column {
    pub(super) name: &'static str,
    /// Numbers go to the right.
    pub(super) right: bool,
    /// Columns go as there is no room: the lowest rank first, `u8::MAX` never.
    pub(super) rank: u8,
}

impl Column {
    pub(super) const fn left(name: &'static str, rank: u8) -> Self {
        let right = false;
        Self { name, right, rank }
    }

    pub(super) const fn right(name: &'static str, rank: u8) -> Self {
        let right = true;
        Self { name, right, rank }
    }
}

/// Content of a column in a row.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    Text(String),
    /// A number and how it is written; without a number it comes last.
    Number(Option<f64>, String),
}

impl Cell {
    pub(super) fn text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Number(_, text) => text,
        }
    }

    /// Texts from A to Z, numbers from the largest.
    fn order(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Number(one, _), Self::Number(two, _)) => {
                let value = |number: &Option<f64>| number.unwrap_or(f64::NEG_INFINITY);
                value(two).total_cmp(&value(one))
            }
            (one, two) => one.text().to_lowercase().cmp(&two.text().to_lowercase()),
        }
    }
}

/// The thing that a row tells of: a server by its number, and of that server a session by its id, or another thing by its place.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct Key {
    pub(super) server: usize,
    pub(super) item: u64,
}

/// A row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) cells: Vec<Cell>,
    /// Stands in the place of all cells but the first: why there are none.
    pub(super) failure: Option<String>,
}

/// Rows of the same columns.
#[derive(Clone, Debug)]
pub(super) struct Grid {
    pub(super) columns: &'static [Column],
    pub(super) rows: Vec<Row>,
}

impl Grid {
    /// Leaves the rows with a cell that has `wanted` in it, in whatever case.
    pub(super) fn filter(&mut self, wanted: &str) {
        let wanted = wanted.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        self.rows.retain(|row| {
            let texts = row.cells.iter().map(Cell::text);
            texts.chain(row.failure.as_deref()).any(has)
        });
    }

    /// Orders the rows by a column; those that are equal in it by what they tell of.
    pub(super) fn sort(&mut self, column: usize, reverse: bool) {
        self.rows.sort_by(|one, two| {
            let order = match (one.cells.get(column), two.cells.get(column)) {
                (Some(first), Some(second)) => first.order(second),
                (first, second) => second.is_some().cmp(&first.is_some()),
            };
            let order = if reverse { order.reverse() } else { order };
            order.then(one.key.cmp(&two.key))
        });
    }

    /// The columns that fit so many cells of a terminal, with the width of each. Columns that are empty in all rows are left out.
    /// The name of the `marked` one has a mark behind it.
    pub(super) fn fit(&self, width: u16, marked: Option<usize>) -> Vec<(usize, usize)> {
        let is_used = |column: usize| {
            let mut cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            self.rows.iter().all(|row| row.failure.is_some())
                || cells.any(|cell| !cell.text().is_empty())
        };
        let width_of = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            let widths = cells.map(|cell| Span::raw(cell.text()).width());
            let mark = usize::from(marked == Some(column));
            widths.fold(self.columns[column].name.len() + mark, usize::max)
        };
        let mut fitting: Vec<(usize, usize)> = (0..self.columns.len())
            .filter(|column| is_used(*column))
            .map(|column| (column, width_of(column)))
            .collect();
        let excess = |fitting: &[(usize, usize)]| {
            let total: usize = fitting.iter().map(|(_, width)| width + 1).sum();
            total.saturating_sub(usize::from(width) + 1)
        };
        // Long texts are cut before columns go.
        let cut = |fitting: &mut Vec<(usize, usize)>, least: usize| {
            let over = excess(fitting);
            let texts = fitting.iter_mut();
            let texts = texts.filter(|(column, _)| !self.columns[*column].right);
            if let Some((_, widest)) = texts.max_by_key(|(_, width)| *width) {
                *widest = widest.saturating_sub(over).max(least.min(*widest));
            }
        };
        loop {
            for _ in 0..self.columns.len() {
                if excess(&fitting) > 0 {
                    cut(&mut fitting, LEAST_TEXT);
                }
            }
            let spare = fitting.iter().map(|(column, _)| self.columns[*column].rank);
            match spare.min() {
                Some(rank) if rank < u8::MAX && excess(&fitting) > 0 => {
                    fitting.retain(|(column, _)| self.columns[*column].rank != rank);
                    for (column, width) in &mut fitting {
                        *width = width_of(*column);
                    }
                }
                _ => return fitting,
            }
        }
    }

    /// A row as a line of text; `None` gives the heading, in which `mark` stands behind the name of a column.
    pub(super) fn line(
        &self,
        row: Option<&Row>,
        fitting: &[(usize, usize)],
        mark: Option<(usize, char)>,
    ) -> String {
        let mut line = String::new();
        for (place, (column, width)) in fitting.iter().enumerate() {
            if place > 0 {
                line.push(' ');
            }
            let text = match row {
                Some(row) => row.cells.get(*column).map_or("", Cell::text).to_owned(),
                None => heading(self.columns[*column].name, *column, mark),
            };
            let text = cut(&text, *width);
            let blanks = " ".repeat(width.saturating_sub(Span::raw(&text).width()));
            match self.columns[*column].right {
                true => line.extend([blanks, text]),
                false => line.extend([text, blanks]),
            }
            if let Some(failure) = row.and_then(|row| row.failure.as_deref()) {
                line.push(' ');
                line.push_str(failure);
                break;
            }
        }
        line
    }
}

/// Columns of text are cut down to this before a column goes.
const LEAST_TEXT: usize = 16;

fn heading(name: &str, column: usize, mark: Option<(usize, char)>) -> String {
    match mark {
        Some((marked, mark)) if marked == column => format!("{name}{mark}"),
        _ => name.to_owned(),
    }
}

/// A text of at most `width` cells, with a mark where something is left out.
fn cut(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut shown = String::new();
    for character in text.chars() {
        shown.push(character);
        if Span::raw(&shown).width() >= width {
            shown.pop();
            break;
        }
    }
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 3] = [
        Column::left("NAME", u8::MAX),
        Column::right("COUNT", u8::MAX),
        Column::left("NOTE", 0),
    ];

    fn grid(rows: &[(&str, Option<f64>)]) -> Grid {
        let rows = (0..).zip(rows).map(|(item, (name, count))| Row {
            key: Key { server: 0, item },
            cells: vec![
                Cell::Text((*name).to_owned()),
                Cell::Number(*count, count.map_or("-".into(), |count| count.to_string())),
                Cell::Text("noted".to_owned()),
            ],
            failure: None,
        });
        Grid {
            columns: &COLUMNS,
            rows: rows.collect(),
        }
    }

    fn names(grid: &Grid) -> Vec<&str> {
        grid.rows.iter().map(|row| row.cells[0].text()).collect()
    }

    const ROWS: [(&str, Option<f64>); 4] = [
        ("python", Some(9.0)),
        ("Anna", None),
        ("bert", Some(10.0)),
        ("nbody", Some(9.0)),
    ];

    #[test]
    fn largest_numbers_come_first_and_unknown_ones_last() {
        let mut grid = grid(&ROWS);
        grid.sort(1, false);
        assert_eq!(names(&grid), ["bert", "python", "nbody", "Anna"]);
        grid.sort(1, true);
        assert_eq!(names(&grid), ["Anna", "python", "nbody", "bert"]);
    }

    #[test]
    fn texts_sort_from_a_to_z_in_any_case() {
        let mut grid = grid(&ROWS);
        grid.sort(0, false);
        assert_eq!(names(&grid), ["Anna", "bert", "nbody", "python"]);
    }

    #[test]
    fn filter_looks_at_all_cells_in_any_case() {
        let mut filtered = grid(&ROWS);
        filtered.filter("ANN");
        assert_eq!(names(&filtered), ["Anna"]);
        let mut filtered = grid(&ROWS);
        filtered.filter("10");
        assert_eq!(names(&filtered), ["bert"]);
        filtered.filter("");
        assert_eq!(names(&filtered), ["bert"]);
    }

    #[test]
    fn narrow_terminal_lacks_spare_columns() {
        let grid = grid(&ROWS);
        let columns = |width| {
            let fitting = grid.fit(width, None);
            fitting
                .iter()
                .map(|(column, _)| *column)
                .collect::<Vec<_>>()
        };
        assert_eq!(columns(80), [0, 1, 2]);
        assert_eq!(columns(14), [0, 1]);
        assert_eq!(columns(3), [0, 1]);
    }

    #[test]
    fn long_text_is_cut_before_columns_go() {
        let grid = grid(&[("a program with a long name", Some(1.0))]);
        let fitting = grid.fit(30, Some(1));
        assert_eq!(fitting, [(0, 17), (1, 6), (2, 5)]);
        let line = grid.line(grid.rows.first(), &fitting, None);
        assert_eq!(line, "a program with a…      1 noted");
    }

    #[test]
    fn wide_characters_take_two_cells() {
        assert_eq!(cut("世界世界", 5), "世界…");
        assert_eq!(cut("世界", 4), "世界");
    }
}
