//! Views: which columns each has, and what servers have told as its rows.

use std::time::Instant;

use towline_wire::control::{SHOWN_NAME, SHOWN_TEXT, printable};

use super::grid::{Cell, Column, Grid, Key, Row};
use super::model::{Pace, Rates, Server};
use crate::status::moment;
use crate::table;

/// A list that fills the screen.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum View {
    Sessions,
    Servers,
    Devices,
    Tenants,
}

impl View {
    /// All of them, in the order of Tab.
    pub(super) const ALL: [Self; 4] = [Self::Sessions, Self::Servers, Self::Devices, Self::Tenants];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sessions => "sessions",
            Self::Servers => "servers",
            Self::Devices => "devices",
            Self::Tenants => "tenants",
        }
    }

    pub(super) fn columns(self) -> &'static [Column] {
        match self {
            Self::Sessions => &SESSIONS,
            Self::Servers => &SERVERS,
            Self::Devices => &DEVICES,
            Self::Tenants => &TENANTS,
        }
    }

    /// The column that rows are sorted by until the user says otherwise.
    pub(super) fn usual_column(self) -> usize {
        let name = match self {
            Self::Sessions | Self::Tenants => "BUSY%",
            Self::Servers | Self::Devices => "SERVER",
        };
        let found = self.columns().iter().position(|column| column.name == name);
        found.expect("each view has its column")
    }

    /// Rows of the view, not sorted.
    pub(super) fn grid(self, servers: &[Server], now: Instant) -> Grid {
        let rows = servers.iter().enumerate().flat_map(|(number, server)| {
            // A single server needs no name in each row.
            let named = match servers.len() {
                0 | 1 => String::new(),
                _ => server.address.clone(),
            };
            match self {
                Self::Sessions => sessions(number, server, &named),
                Self::Servers => vec![row_of_server(number, server, now)],
                Self::Devices => devices(number, server, &named),
                Self::Tenants => tenants(number, server, &named),
            }
        });
        Grid {
            columns: self.columns(),
            rows: rows.collect(),
        }
    }
}

const SESSIONS: [Column; 17] = [
    Column::left("SERVER", 10),
    Column::right("ID", u8::MAX),
    Column::left("PROGRAM", u8::MAX),
    Column::right("PID", 6),
    Column::left("HOST", 9),
    Column::left("TENANT", 11),
    Column::right("UNTIL", 1),
    Column::right("AGE", 8),
    Column::right("BUSY", 5),
    Column::right("BUSY%", u8::MAX),
    Column::left("BUSY PAST", 4),
    Column::right("LAUNCHES", 2),
    Column::right("LAUNCH/S", 7),
    Column::right("BYTES", 3),
    Column::right("BYTES/S", u8::MAX),
    Column::left("BYTES PAST", 0),
    Column::right("MEMORY", u8::MAX),
];

const SERVERS: [Column; 10] = [
    Column::left("SERVER", u8::MAX),
    Column::left("NAME", 4),
    Column::left("VERSION", 3),
    Column::right("UP", 2),
    Column::right("SESSIONS", u8::MAX),
    Column::right("REFUSED", 5),
    Column::right("CRASHED", 1),
    Column::right("BUSY%", u8::MAX),
    Column::right("BYTES/S", 6),
    Column::left("STATE", 7),
];

const DEVICES: [Column; 5] = [
    Column::left("SERVER", u8::MAX),
    Column::left("DEVICE", u8::MAX),
    Column::right("USED%", u8::MAX),
    Column::right("MEMORY", u8::MAX),
    Column::right("OF", u8::MAX),
];

const TENANTS: [Column; 13] = [
    Column::left("SERVER", 6),
    Column::left("TENANT", u8::MAX),
    Column::right("SESSIONS", u8::MAX),
    Column::right("MOST", 7),
    Column::right("BUSY", 3),
    Column::right("BUSY%", u8::MAX),
    Column::right("SHARE%", 6),
    Column::right("MEMORY", u8::MAX),
    Column::right("LIMIT", 5),
    Column::right("UNTIL", 4),
    Column::right("STARTED", 1),
    Column::right("CRASHED", 0),
    Column::right("REFUSED", 2),
];

fn sessions(number: usize, server: &Server, named: &str) -> Vec<Row> {
    let tenants = server.told.as_ref().map(|told| &told.status.tenants[..]);
    let tenants = tenants.unwrap_or_default();
    let listed = !tenants.is_empty();
    let rows = server.sessions().iter().map(|session| {
        let pace = server.pace_of_session(session.session_id);
        let rates = pace.and_then(Pace::now);
        let moved = session.received_bytes.saturating_add(session.sent_bytes);
        let past = |rate: fn(Rates) -> f64, least: f64| {
            let past = pace.into_iter().flat_map(Pace::past).map(rate);
            Cell::Text(bars(&past.collect::<Vec<_>>(), least))
        };
        let cells = vec![
            Cell::Text(named.to_owned()),
            number_of(session.session_id),
            match (session.away_ms, session.swapped_bytes) {
                (0, 0) => name(&session.program),
                (0, _) => name(&format!("{} (swapped out)", session.program)),
                _ => name(&format!("{} (cut off)", session.program)),
            },
            number_of(session.client_pid.into()),
            name(&session.hostname),
            match listed {
                true => name(&session.tenant),
                false => Cell::Text(String::new()),
            },
            until(
                tenants
                    .iter()
                    .find(|tenant| tenant.name == session.tenant)
                    .map_or(0, |tenant| tenant.until_s),
            ),
            span(session.age_ms),
            span(session.device_time_us / 1000),
            percent(rates.map(|rates| rates.busy * 100.0)),
            past(|rates| rates.busy, 1.0),
            amount(Some(session.launches as f64)),
            amount(rates.map(|rates| rates.launches)),
            bytes(Some(moved)),
            bytes(rates.map(|rates| rates.bytes as u64)),
            past(|rates| rates.bytes, 0.0),
            bytes(Some(session.device_memory_bytes)),
        ];
        Row {
            key: Key {
                server: number,
                item: session.session_id,
            },
            cells,
            failure: None,
        }
    });
    rows.collect()
}

fn row_of_server(number: usize, server: &Server, now: Instant) -> Row {
    let key = Key {
        server: number,
        item: 0,
    };
    let address = Cell::Text(server.address.clone());
    let silent = server.silence(now).as_secs();
    let Some(told) = &server.told else {
        let failure = match &server.failure {
            Some(reason) => printable(reason, SHOWN_TEXT),
            None => format!("no answer yet, for {silent} s"),
        };
        return Row {
            key,
            cells: vec![address],
            failure: Some(failure),
        };
    };
    let (status, rates) = (&told.status, server.rates());
    let sessions = format!("{}/{}", status.sessions.len(), status.max_sessions);
    let state = match status.draining {
        _ if server.is_late(now) => format!("silent for {silent} s"),
        true => "shutting down".to_owned(),
        false => String::new(),
    };
    let cells = vec![
        address,
        name(&told.identity.name),
        name(told.identity.software.trim_start_matches("towline ")),
        span(status.uptime_ms),
        Cell::Number(Some(status.sessions.len() as f64), sessions),
        number_of(status.rejected),
        number_of(status.sessions_crashed),
        percent(Some(rates.busy * 100.0)),
        bytes(Some(rates.bytes as u64)),
        Cell::Text(state),
    ];
    Row {
        key,
        cells,
        failure: None,
    }
}

fn devices(number: usize, server: &Server, named: &str) -> Vec<Row> {
    let devices = server.told.iter().flat_map(|told| &told.devices);
    let rows = (0..).zip(devices).map(|(item, device)| Row {
        key: Key {
            server: number,
            item,
        },
        cells: vec![
            Cell::Text(named.to_owned()),
            name(&device.name),
            percent(device.utilisation.map(f64::from)),
            bytes(device.used_bytes),
            bytes(device.total_bytes),
        ],
        failure: None,
    });
    rows.collect()
}

fn tenants(number: usize, server: &Server, named: &str) -> Vec<Row> {
    let tenants = server.told.iter().flat_map(|told| &told.status.tenants);
    let or_none = |limit: u64, shown: Cell| match limit {
        0 => Cell::Number(None, "none".to_owned()),
        _ => shown,
    };
    let rows = (0..).zip(tenants).map(|(item, tenant)| {
        let rates = server.pace_of_tenant(&tenant.name).and_then(Pace::now);
        let (most, limit) = (tenant.max_sessions.into(), tenant.device_memory_limit);
        Row {
            key: Key {
                server: number,
                item,
            },
            cells: vec![
                Cell::Text(named.to_owned()),
                name(&tenant.name),
                number_of(tenant.sessions.into()),
                or_none(most, number_of(most)),
                span(tenant.device_time_us / 1000),
                percent(rates.map(|rates| rates.busy * 100.0)),
                percent(tenant.time.percent.map(f64::from)),
                bytes(Some(tenant.device_memory_bytes)),
                or_none(limit, bytes(Some(limit))),
                until(tenant.until_s),
                number_of(tenant.sessions_started),
                number_of(tenant.sessions_crashed),
                number_of(tenant.rejected),
            ],
            failure: None,
        }
    });
    rows.collect()
}

fn name(name: &str) -> Cell {
    Cell::Text(printable(name, SHOWN_NAME))
}

fn number_of(number: u64) -> Cell {
    Cell::Number(Some(number as f64), number.to_string())
}

/// Not known is a dash.
fn written(value: Option<f64>, write: impl Fn(f64) -> String) -> Cell {
    Cell::Number(value, value.map_or("-".to_owned(), write))
}

fn percent(value: Option<f64>) -> Cell {
    written(value, |value| format!("{value:.0}"))
}

fn bytes(count: Option<u64>) -> Cell {
    written(count.map(|count| count as f64), |count| {
        table::bytes(count as u64)
    })
}

/// The end of a tenant's time; nothing where it has none.
fn until(seconds: u64) -> Cell {
    match moment(seconds) {
        Some(until) => Cell::Number(Some(seconds as f64), until.to_string()),
        None => Cell::Number(None, String::new()),
    }
}

/// A number in few characters.
fn amount(value: Option<f64>) -> Cell {
    written(value, |value| match value {
        ..10_000.0 => format!("{value:.0}"),
        ..10_000_000.0 => format!("{:.0}k", value / 1e3),
        _ => format!("{:.0}M", value / 1e6),
    })
}

/// A time span in few characters.
fn span(ms: u64) -> Cell {
    let seconds = ms / 1000;
    let text = match seconds {
        0..60 => format!("{seconds}.{}s", ms % 1000 / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    };
    Cell::Number(Some(ms as f64), text)
}

/// A bar for each value; a whole one stands for the largest of them and `least`.
fn bars(values: &[f64], least: f64) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let whole = values.iter().copied().fold(least, f64::max);
    let bar = |value: &f64| match whole > 0.0 {
        true => BARS[((value / whole * 8.0).ceil() as usize).min(8)],
        false => BARS[0],
    };
    values.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_reach_from_nothing_to_largest() {
        assert_eq!(bars(&[0.0, 0.01, 0.5, 1.0], 1.0), " ▁▄█");
        assert_eq!(bars(&[2.0, 4.0], 1.0), "▄█");
        assert_eq!(bars(&[0.0, 0.0], 0.0), "  ");
    }

    #[test]
    fn figures_are_short_and_sort_by_their_value() {
        let text = |cell: Cell| cell.text().to_owned();
        assert_eq!(
            [1_900, 125_000, 7_500_000, 90_000_000].map(|ms| text(span(ms))),
            ["1.9s", "2m05s", "2h05m", "1d01h"]
        );
        let amounts = [Some(9_999.0), Some(123_456.0), Some(2.5e9), None];
        assert_eq!(
            amounts.map(|value| text(amount(value))),
            ["9999", "123k", "2500M", "-"]
        );
        assert_eq!(span(90_000), Cell::Number(Some(90_000.0), "1m30s".into()));
    }
}
