//! The screen: what is chosen in it, what keys do, and how it is drawn.

use std::time::Instant;

use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use towline_wire::control::{SHOWN_NAME, SHOWN_TEXT, printable};

use super::feed::News;
use super::grid::{Grid, Key, Row};
use super::model::Server;
use super::views::View;
use crate::table;

/// Request of a key to the program.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Request {
    None,
    Quit,
    /// End a session of a server.
    Kill(Key),
    /// Move a session of a server to the one at an address.
    Migrate(Key, String),
}

/// Meaning of keys at the moment.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Mode {
    Browse,
    /// The filter is being written.
    Filter,
    Help,
    /// Whether to end the session of this key is asked.
    Kill(Key),
    /// The address that it is to move to is being written.
    Migrate(Key, String),
}

/// See the module's text.
pub(super) struct Screen {
    pub(super) servers: Vec<Server>,
    colour: bool,
    view: View,
    /// By view: the column that rows are sorted by, and whether the other way round.
    orders: [(usize, bool); View::ALL.len()],
    filter: String,
    mode: Mode,
    selected: Option<Key>,
    /// The place of the selected row, and of the first one on the screen.
    cursor: usize,
    first: usize,
    /// Rows on the screen when it was last drawn.
    page: usize,
    message: String,
}

const HELP: &str = "\
up, down, PgUp, PgDn, Home, End   choose a row
Tab, Shift-Tab                    sessions, servers, devices, tenants
s, S                              sort by the next, previous column
r                                 sort the other way round
/                                 show rows with a text; Esc shows all
k                                 end the session chosen
m                                 move it to another server
?                                 this help
q, Ctrl-C                         quit

BUSY      time for which the session kept devices busy
BUSY%     the same in the last interval; 200 for two devices
SHARE%    of devices' time that other tenants use too
LAUNCH/S  kernel launches a second; BYTES/S to and from the client
PAST      the last eight intervals";

impl Screen {
    /// One that has heard of no server yet.
    pub(super) fn new(servers: Vec<Server>, colour: bool) -> Self {
        Self {
            servers,
            colour,
            view: View::Sessions,
            orders: View::ALL.map(|view| (view.usual_column(), false)),
            filter: String::new(),
            mode: Mode::Browse,
            selected: None,
            cursor: 0,
            first: 0,
            page: 1,
            message: String::new(),
        }
    }

    /// Takes what a thread has heard.
    pub(super) fn hear(&mut self, news: News) {
        match news {
            News::Told(server, told) => self.servers[server].hear(told.map(|told| *told)),
            News::Killed(server, session, Ok(())) => {
                let address = &self.servers[server].address;
                self.message = format!("session {session} of {address} is gone");
            }
            News::Moved(server, session, Ok(to)) => {
                let address = &self.servers[server].address;
                self.message = format!("session {session} of {address} has moved to {to}");
            }
            News::Killed(_, _, Err(reason)) | News::Moved(_, _, Err(reason)) => {
                self.message = printable(&reason, SHOWN_TEXT);
            }
        }
    }

    /// Does what a key asks for.
    pub(super) fn press(&mut self, key: KeyEvent) -> Request {
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Request::Quit;
        }
        self.message.clear();
        match self.mode.clone() {
            Mode::Browse => return self.browse(key.code),
            Mode::Filter => match key.code {
                KeyCode::Enter => self.mode = Mode::Browse,
                KeyCode::Esc => {
                    self.filter.clear();
                    self.mode = Mode::Browse;
                }
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Char(character) => self.filter.push(character),
                _ => {}
            },
            Mode::Help => self.mode = Mode::Browse,
            Mode::Kill(session) => {
                self.mode = Mode::Browse;
                if key.code == KeyCode::Char('y') {
                    self.message = format!("ending session {} ...", session.item);
                    return Request::Kill(session);
                }
            }
            Mode::Migrate(session, mut to) => {
                self.mode = Mode::Browse;
                match key.code {
                    KeyCode::Enter if !to.is_empty() => {
                        self.message = format!("moving session {} to {to} ...", session.item);
                        return Request::Migrate(session, to);
                    }
                    KeyCode::Enter | KeyCode::Esc => return Request::None,
                    KeyCode::Backspace => drop(to.pop()),
                    KeyCode::Char(character) => to.push(character),
                    _ => {}
                }
                self.mode = Mode::Migrate(session, to);
            }
        }
        Request::None
    }

    fn browse(&mut self, key: KeyCode) -> Request {
        let last = usize::MAX;
        match key {
            KeyCode::Char('q') => return Request::Quit,
            KeyCode::Char('?') => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Tab => self.turn_to(1),
            KeyCode::BackTab => self.turn_to(View::ALL.len() - 1),
            KeyCode::Char('s') => self.sort_by(1),
            KeyCode::Char('S') => self.sort_by(self.view.columns().len() - 1),
            KeyCode::Char('r') => {
                let order = &mut self.orders[self.view as usize];
                order.1 = !order.1;
            }
            KeyCode::Char('k') => match (self.view, self.selected) {
                (View::Sessions, Some(session)) => self.mode = Mode::Kill(session),
                (View::Sessions, None) => self.message = "there is no session to end".to_owned(),
                _ => self.message = "k ends the session chosen among the sessions: Tab".to_owned(),
            },
            KeyCode::Char('m') => match (self.view, self.selected) {
                (View::Sessions, Some(session)) => {
                    self.mode = Mode::Migrate(session, self.other_server(session));
                }
                (View::Sessions, None) => self.message = "there is no session to move".to_owned(),
                _ => self.message = "m moves the session chosen among the sessions: Tab".to_owned(),
            },
            KeyCode::Up => self.choose(self.cursor.saturating_sub(1)),
            KeyCode::Down => self.choose(self.cursor + 1),
            KeyCode::PageUp => self.choose(self.cursor.saturating_sub(self.page)),
            KeyCode::PageDown => self.choose(self.cursor + self.page),
            KeyCode::Home => self.choose(0),
            KeyCode::End => self.choose(last),
            _ => {}
        }
        Request::None
    }

    /// The first of the other servers that are watched, if there is one.
    fn other_server(&self, session: Key) -> String {
        let others = self.servers.iter().enumerate();
        let mut others = others.filter(|(number, _)| *number != session.server);
        others
            .next()
            .map_or_else(String::new, |(_, server)| server.address.clone())
    }

    fn turn_to(&mut self, further: usize) {
        self.view = View::ALL[(self.view as usize + further) % View::ALL.len()];
        self.selected = None;
        self.cursor = 0;
    }

    /// Sorts by another of the columns that are shown in some row.
    fn sort_by(&mut self, further: usize) {
        let grid = self.grid(Instant::now());
        let shown = grid.fit(u16::MAX, None);
        let count = self.view.columns().len();
        let column = &mut self.orders[self.view as usize].0;
        for _ in 0..count {
            *column = (*column + further) % count;
            if shown.iter().any(|(shown, _)| shown == column) {
                return;
            }
        }
    }

    fn choose(&mut self, place: usize) {
        let rows = self.grid(Instant::now()).rows;
        self.cursor = place.min(rows.len().saturating_sub(1));
        self.selected = rows.get(self.cursor).map(|row| row.key);
    }

    /// The rows of the view, filtered and sorted.
    fn grid(&self, now: Instant) -> Grid {
        let mut grid = self.view.grid(&self.servers, now);
        grid.filter(&self.filter);
        let (column, reverse) = self.orders[self.view as usize];
        grid.sort(column, reverse);
        grid
    }

    /// Draws all of it.
    pub(super) fn draw(&mut self, frame: &mut Frame<'_>, now: Instant) {
        let mut rest = frame.area();
        let mut top = |lines: usize| {
            let height = u16::try_from(lines).unwrap_or(u16::MAX).min(rest.height);
            let area = Rect { height, ..rest };
            rest.y += height;
            rest.height -= height;
            area
        };
        frame.render_widget(bold(self.title()), top(1));
        let height = usize::from(frame.area().height);
        if self.view == View::Sessions {
            let servers = View::Servers.grid(&self.servers, now);
            let most = height / 4;
            let area = top(servers.rows.len().min(most) + 1);
            frame.render_widget(self.overview(&servers, area), area);
            let devices = View::Devices.grid(&self.servers, now);
            // Names alone can wait for the view of devices where there is little room.
            let is_known = devices.rows.iter().any(|row| row.cells[2].text() != "-");
            if !devices.rows.is_empty() && (is_known || height >= 40) {
                let area = top(devices.rows.len().min(most) + 1);
                frame.render_widget(self.overview(&devices, area), area);
            }
        }
        let foot = Rect {
            y: rest.bottom().saturating_sub(1),
            height: rest.height.min(1),
            ..rest
        };
        rest.height = rest.height.saturating_sub(1);
        self.draw_rows(frame, rest, now);
        frame.render_widget(self.foot(), foot);
        if self.mode == Mode::Help {
            draw_help(frame);
        }
    }

    fn title(&self) -> Line<'static> {
        let count = |count: usize, name: &str| match count {
            1 => format!("1 {name}"),
            _ => format!("{count} {name}s"),
        };
        let sessions = self.servers.iter().map(|server| server.sessions().len());
        let rates = self.servers.iter().map(Server::rates);
        let (busy, bytes) = rates.fold((0.0, 0.0), |(busy, bytes), rates| {
            (busy + rates.busy, bytes + rates.bytes)
        });
        Line::from(format!(
            "towline top: {}  {}, {}  busy {:.0} %  {}/s",
            self.view.name(),
            count(self.servers.len(), "server"),
            count(sessions.sum(), "session"),
            busy * 100.0,
            table::bytes(bytes as u64),
        ))
    }

    /// Rows without a choice, as many as there is room for.
    fn overview(&self, grid: &Grid, area: Rect) -> Paragraph<'static> {
        let fitting = grid.fit(area.width, None);
        let room = usize::from(area.height).saturating_sub(1);
        let mut lines = vec![self.heading(grid.line(None, &fitting, None))];
        // One that fails is what the user has to know of first.
        let (failing, working): (Vec<_>, Vec<_>) =
            grid.rows.iter().partition(|row| row.failure.is_some());
        let rows: Vec<&Row> = failing.into_iter().chain(working).collect();
        for row in rows.iter().take(room) {
            lines.push(self.row(grid, row, &fitting, false));
        }
        if let (true, Some(last)) = (rows.len() > room, lines.last_mut()) {
            let more = rows.len() - room + 1;
            *last = Line::from(format!("... and {more} more: Tab"));
        }
        Paragraph::new(lines)
    }

    fn draw_rows(&mut self, frame: &mut Frame<'_>, area: Rect, now: Instant) {
        let grid = self.grid(now);
        // The choice follows what it is of; where that has gone, the row in its place is chosen.
        let found = grid
            .rows
            .iter()
            .position(|row| Some(row.key) == self.selected);
        let last = grid.rows.len().saturating_sub(1);
        self.cursor = found.unwrap_or(self.cursor.min(last));
        self.selected = grid.rows.get(self.cursor).map(|row| row.key);
        let (column, reverse) = self.orders[self.view as usize];
        let mark = match reverse {
            true => '▲',
            false => '▼',
        };
        let fitting = grid.fit(area.width, Some(column));
        let mut lines = vec![self.heading(grid.line(None, &fitting, Some((column, mark))))];
        self.page = usize::from(area.height).saturating_sub(1).max(1);
        let lowest = self.cursor.saturating_sub(self.page - 1);
        self.first = self.first.clamp(lowest, self.cursor);
        let shown = grid.rows.iter().enumerate();
        for (place, row) in shown.skip(self.first).take(self.page) {
            lines.push(self.row(&grid, row, &fitting, place == self.cursor));
        }
        if grid.rows.is_empty() {
            lines.push(Line::from(self.emptiness()));
        }
        frame.render_widget(Paragraph::new(lines), area);
        // A long reason has all of the room below the rows.
        let used = u16::try_from(grid.rows.len() + 1).unwrap_or(u16::MAX);
        let chosen = grid.rows.get(self.cursor);
        if let Some(reason) = chosen.and_then(|row| row.failure.clone()) {
            let below = Rect {
                y: area.y.saturating_add(used),
                height: area.height.saturating_sub(used),
                ..area
            };
            frame.render_widget(Paragraph::new(reason).wrap(Wrap { trim: true }), below);
        }
    }

    /// Reason for a table without rows.
    fn emptiness(&self) -> &'static str {
        let answered = self.servers.iter().any(|server| server.told.is_some());
        match self.view {
            _ if !self.filter.is_empty() => "nothing here has that in it; Esc shows all",
            _ if !answered => "no server has answered",
            View::Sessions => "no sessions",
            View::Servers => "no servers",
            View::Devices => "no devices",
            View::Tenants => "no tenants: the servers have one token for all clients, or none",
        }
    }

    fn foot(&self) -> Line<'static> {
        match &self.mode {
            Mode::Filter => bold(Line::from(format!("/{}_", self.filter))),
            Mode::Kill(session) => bold(Line::from(self.question(*session))),
            Mode::Migrate(session, to) => {
                let server = &self.servers[session.server].address;
                let text = format!(
                    "move session {} of {server} to (Esc: do not): {to}_",
                    session.item
                );
                bold(Line::from(text))
            }
            _ if !self.message.is_empty() => bold(Line::from(self.message.clone())),
            _ => {
                let (column, _) = self.orders[self.view as usize];
                let filter = match self.filter.as_str() {
                    "" => String::new(),
                    filter => format!("  /{filter} (Esc: all)"),
                };
                Line::from(format!(
                    "q quit  Tab next  s sort ({})  r reverse  / filter  k end  m move  ? help{filter}",
                    self.view.columns()[column].name
                ))
            }
        }
    }

    fn question(&self, key: Key) -> String {
        let server = &self.servers[key.server];
        let sessions = server.sessions().iter();
        let mut session = sessions.filter(|session| session.session_id == key.item);
        let program = session.next().map_or(String::new(), |session| {
            let [program, host] =
                [&session.program, &session.hostname].map(|name| printable(name, SHOWN_NAME));
            format!(" ({program}, pid {} on {host})", session.client_pid)
        });
        format!(
            "end session {} of {}{program}? y/n",
            key.item, server.address
        )
    }

    fn row(
        &self,
        grid: &Grid,
        row: &Row,
        fitting: &[(usize, usize)],
        chosen: bool,
    ) -> Line<'static> {
        let line = Line::from(grid.line(Some(row), fitting, None));
        let failed = row.failure.is_some() && self.colour;
        let style = match failed {
            true => Style::new().fg(Color::Red),
            false => Style::new(),
        };
        match chosen {
            true => line.style(style.reversed()),
            false => line.style(style),
        }
    }

    fn heading(&self, text: String) -> Line<'static> {
        let style = match self.colour {
            true => Style::new().fg(Color::Cyan),
            false => Style::new(),
        };
        Line::from(text).style(style.bold())
    }
}

fn bold(line: Line<'static>) -> Line<'static> {
    line.style(Style::new().bold())
}

fn draw_help(frame: &mut Frame<'_>) {
    let (width, height) = (72, HELP.lines().count() as u16 + 2);
    let all = frame.area();
    let area = Rect {
        x: all.width.saturating_sub(width) / 2,
        y: all.height.saturating_sub(height) / 2,
        width: width.min(all.width),
        height: height.min(all.height),
    };
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys and columns; any key goes back ");
    frame.render_widget(Paragraph::new(HELP).block(block), area);
}
