//! Progress of commands that take long: one line on the terminal with the work and the time so far.
//!
//! It is on standard error, so that results can go to a file or a pipe, and nowhere but on a terminal that can move its cursor
//! (`TERM` is not `dumb`). It has no colours.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

/// Pause between two drawings of the time so far.
const TICK: Duration = Duration::from_millis(200);

/// The line; it goes away with this.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    /// Begins the lines that are written where there is no terminal; `None` for no lines.
    name: Option<&'static str>,
}

impl Progress {
    /// A line, if it is wanted: with `--json` nobody looks.
    pub fn new(is_wanted: bool) -> Self {
        let bar = match is_wanted {
            true => ProgressBar::new_spinner(),
            false => ProgressBar::hidden(),
        };
        if !bar.is_hidden() {
            let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
            let style = style.expect("the template has only known keys");
            bar.set_style(style.tick_chars("|/-\\ "));
            bar.enable_steady_tick(TICK);
        }
        Self { bar, name: None }
    }

    /// Has [`tell`](Self::tell) print `NAME: WORK ...` where no line is shown, for logs.
    #[must_use]
    pub fn or_lines(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Shows what is being done.
    pub fn tell(&self, work: impl Into<String>) {
        let work = work.into();
        match self.name.filter(|_| self.bar.is_hidden()) {
            Some(name) => eprintln!("{name}: {work} ..."),
            None => self.bar.set_message(work),
        }
    }

    /// Ends the display before results are printed.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }

    /// Does something that prints while the line is away.
    pub fn aside<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
