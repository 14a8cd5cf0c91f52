//! Screens of 80 cells by 24, and what keys do.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use towline_wire::control::{ServerIdentity, SessionStatus, Status, TenantStatus};

use super::feed::{Device, News, Told};
use super::grid::Key;
use super::model::Server;
use super::screen::{Request, Screen};

fn session(id: u64, program: &str, seconds: u64) -> SessionStatus {
    SessionStatus {
        session_id: id,
        program: program.into(),
        hostname: "laptop".into(),
        client_pid: 4700 + id as u32,
        age_ms: seconds * 1000,
        // Session 2 is busy all the time, 1 half of it.
        device_time_us: seconds * 500_000 * id,
        launches: seconds * 1000,
        received_bytes: seconds << 20,
        device_memory_bytes: id << 30,
        ..SessionStatus::default()
    }
}

fn told(sessions: Vec<SessionStatus>) -> News {
    let status = Status {
        uptime_ms: 7_500_000,
        max_sessions: 8,
        rejected: 3,
        sessions,
        ..Status::default()
    };
    let identity = ServerIdentity {
        name: "node7".into(),
        software: "towline 0.1.0".into(),
        key_lasts: true,
        collectives: false,
    };
    let device = Device {
        name: "NVIDIA H200".into(),
        utilisation: Some(87),
        used_bytes: Some(3 << 30),
        total_bytes: Some(140 << 30),
    };
    News::Told(
        0,
        Ok(Box::new(Told {
            identity,
            status,
            devices: vec![device],
        })),
    )
}

fn screen_of(servers: &[&str], colour: bool) -> Screen {
    let servers = servers.iter();
    let servers = servers.map(|name| Server::new((*name).into(), Duration::from_secs(2)));
    Screen::new(servers.collect(), colour)
}

/// Two sessions of one server, told of twice.
fn busy() -> Screen {
    let mut screen = screen_of(&["gpu1"], true);
    for seconds in [10, 12] {
        screen.hear(told(vec![
            session(1, "nbody", seconds),
            session(2, "python", seconds),
        ]));
    }
    screen
}

fn drawn(screen: &mut Screen, width: u16, height: u16) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let frame = terminal.draw(|frame| screen.draw(frame, Instant::now()));
    frame.unwrap().buffer.clone()
}

fn lines(screen: &mut Screen, width: u16, height: u16) -> Vec<String> {
    let buffer = drawn(screen, width, height);
    let row = |y| {
        (0..width)
            .map(|x| buffer[(x, y)].symbol())
            .collect::<String>()
    };
    (0..height).map(|y| row(y).trim_end().to_owned()).collect()
}

fn press(screen: &mut Screen, keys: &[KeyCode]) -> Request {
    let press = |key: &KeyCode| screen.press(KeyEvent::new(*key, KeyModifiers::NONE));
    keys.iter().map(press).last().unwrap()
}

fn type_in(screen: &mut Screen, text: &str) -> Request {
    let keys: Vec<KeyCode> = text.chars().map(KeyCode::Char).collect();
    press(screen, &keys)
}

#[test]
fn sessions_fit_eighty_columns() {
    let lines = lines(&mut busy(), 80, 24);
    assert_eq!(
        lines[..8],
        [
            "towline top: sessions  1 server, 2 sessions  busy 150 %  2.0 MiB/s",
            "SERVER NAME  VERSION    UP SESSIONS REFUSED CRASHED BUSY% BYTES/S",
            "gpu1   node7 0.1.0   2h05m      2/8       3       0   150 2.0 MiB",
            "DEVICE      USED%  MEMORY        OF",
            "NVIDIA H200    87 3.0 GiB 140.0 GiB",
            "ID PROGRAM  PID HOST     AGE  BUSY BUSY%▼ BUSY PAST LAUNCH/S BYTES/S  MEMORY",
            " 2 python  4702 laptop 12.0s 12.0s    100 █             1000 1.0 MiB 2.0 GiB",
            " 1 nbody   4701 laptop 12.0s  6.0s     50 ▄             1000 1.0 MiB 1.0 GiB",
        ]
    );
    assert!(lines[23].starts_with("q quit"), "{lines:?}");
}

#[test]
fn wide_terminal_has_sparklines() {
    let lines = lines(&mut busy(), 160, 40);
    let heading = lines.iter().find(|line| line.contains("PROGRAM")).unwrap();
    for column in ["BUSY PAST", "BYTES PAST", "LAUNCHES"] {
        assert!(heading.contains(column), "{heading}");
    }
    let python = lines.iter().find(|line| line.contains("python")).unwrap();
    let nbody = lines.iter().find(|line| line.contains("nbody")).unwrap();
    assert!(python.contains('█') && nbody.contains('▄'), "{lines:?}");
}

#[test]
fn narrow_terminal_keeps_what_tells_most() {
    let lines = lines(&mut busy(), 44, 10);
    let heading = lines.iter().find(|line| line.contains("PROGRAM")).unwrap();
    assert_eq!(heading, "ID PROGRAM HOST   BUSY%▼ BYTES/S  MEMORY");
}

#[test]
fn tiny_terminals_are_drawn() {
    for (width, height) in [(1, 1), (10, 3), (80, 4), (300, 100)] {
        let mut screen = busy();
        assert_eq!(lines(&mut screen, width, height).len(), usize::from(height));
        press(&mut screen, &[KeyCode::Char('?')]);
        assert_eq!(lines(&mut screen, width, height).len(), usize::from(height));
    }
}

#[test]
fn silent_server_stands_there_with_its_reason() {
    let mut screen = screen_of(&["gpu1", "gpu2", "gpu3"], true);
    screen.hear(told(vec![session(1, "nbody", 1)]));
    screen.hear(News::Told(1, Err("could not connect: refused".into())));
    let buffer = drawn(&mut screen, 80, 24);
    let lines = lines(&mut screen, 80, 24);
    assert_eq!(lines[2], "gpu2   could not connect: refused");
    assert_eq!(lines[3], "gpu3   no answer yet, for 0 s");
    assert!(lines[4].starts_with("gpu1   node7"), "{lines:?}");
    assert_eq!(buffer[(0, 2)].fg, Color::Red);
    let nbody = lines.iter().find(|line| line.contains("nbody")).unwrap();
    assert!(nbody.starts_with("gpu1"), "{lines:?}");
}

#[test]
fn no_color_means_none() {
    let mut screen = screen_of(&["gpu1", "gpu2"], false);
    screen.hear(told(vec![session(1, "nbody", 1)]));
    screen.hear(News::Told(1, Err("refused".into())));
    let buffer = drawn(&mut screen, 80, 24);
    let cells = buffer.content.iter();
    let mut coloured = cells.filter(|cell| (cell.fg, cell.bg) != (Color::Reset, Color::Reset));
    assert_eq!(coloured.next(), None);
}

#[test]
fn tenants_have_a_view_of_their_own() {
    let mut screen = busy();
    press(&mut screen, &[KeyCode::BackTab]);
    assert!(
        lines(&mut screen, 80, 24)
            .iter()
            .any(|line| line.starts_with("no tenants"))
    );
    let tenant = TenantStatus {
        name: "physics".into(),
        sessions: 1,
        max_sessions: 4,
        device_time_us: 90_000_000,
        ..TenantStatus::default()
    };
    let News::Told(server, Ok(mut answer)) = told(vec![session(1, "nbody", 1)]) else {
        panic!("it is an answer")
    };
    answer.status.tenants = vec![tenant];
    answer.status.sessions[0].tenant = "physics".into();
    screen.hear(News::Told(server, Ok(answer)));
    let lines_of_tenants = lines(&mut screen, 80, 24);
    assert_eq!(
        lines_of_tenants[1..3],
        [
            "TENANT  SESSIONS MOST  BUSY BUSY%▼ SHARE% MEMORY LIMIT STARTED CRASHED REFUSED",
            "physics        1    4 1m30s      -      -    0 B  none       0       0       0",
        ]
    );
    press(&mut screen, &[KeyCode::Tab]);
    let sessions = lines(&mut screen, 80, 24);
    assert!(
        sessions
            .iter()
            .any(|line| line.contains("nbody") && line.contains("physics"))
    );
}

#[test]
fn end_of_tenants_time_shows_in_wide_terminals() {
    let mut screen = busy();
    let News::Told(server, Ok(mut answer)) = told(vec![session(1, "nbody", 1)]) else {
        panic!("it is an answer")
    };
    answer.status.tenants = vec![TenantStatus {
        name: "physics".into(),
        until_s: 1_896_112_800,
        ..TenantStatus::default()
    }];
    answer.status.sessions[0].tenant = "physics".into();
    screen.hear(News::Told(server, Ok(answer)));
    let shows = |screen: &mut Screen, width| {
        let lines = lines(screen, width, 24);
        lines
            .iter()
            .any(|line| line.contains("physics") && line.contains("2030-01-31T18:00:00Z"))
    };
    assert!(!shows(&mut screen, 80) && shows(&mut screen, 160));
    press(&mut screen, &[KeyCode::BackTab]);
    assert!(shows(&mut screen, 80));
}

#[test]
fn keys_sort_filter_and_choose() {
    let mut screen = busy();
    let order = |screen: &mut Screen| {
        let lines = lines(screen, 80, 24);
        let programs = lines
            .iter()
            .filter_map(|line| line.split_whitespace().nth(1));
        let programs = programs.filter(|program| ["nbody", "python"].contains(program));
        programs.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(order(&mut screen), ["python", "nbody"]);
    type_in(&mut screen, "r");
    assert_eq!(order(&mut screen), ["nbody", "python"]);
    type_in(&mut screen, "rS");
    // By the time that they were busy, then by age, host, pid and program, of which the last differs.
    type_in(&mut screen, "SSSS");
    assert_eq!(order(&mut screen), ["nbody", "python"]);
    type_in(&mut screen, "/PYTH");
    press(&mut screen, &[KeyCode::Enter]);
    assert_eq!(order(&mut screen), ["python"]);
    press(&mut screen, &[KeyCode::Esc]);
    assert_eq!(order(&mut screen), ["nbody", "python"]);
    // A q of the filter does not quit.
    assert_eq!(type_in(&mut screen, "/q"), Request::None);
    press(&mut screen, &[KeyCode::Esc]);
    assert_eq!(type_in(&mut screen, "q"), Request::Quit);
}

#[test]
fn kill_asks_first_and_names_session() {
    let mut screen = busy();
    drawn(&mut screen, 80, 24);
    assert_eq!(press(&mut screen, &[KeyCode::Down]), Request::None);
    assert_eq!(type_in(&mut screen, "k"), Request::None);
    let question = "end session 1 of gpu1 (nbody, pid 4701 on laptop)? y/n";
    assert_eq!(lines(&mut screen, 80, 24)[23], question);
    assert_eq!(type_in(&mut screen, "n"), Request::None);
    assert_eq!(type_in(&mut screen, "y"), Request::None);
    let chosen = Key { server: 0, item: 1 };
    assert_eq!(type_in(&mut screen, "ky"), Request::Kill(chosen));
    screen.hear(News::Killed(0, 1, Ok(())));
    assert_eq!(lines(&mut screen, 80, 24)[23], "session 1 of gpu1 is gone");
    screen.hear(told(vec![session(2, "python", 13)]));
    assert_eq!(type_in(&mut screen, "k"), Request::None);
    drawn(&mut screen, 80, 24);
    screen.hear(News::Killed(0, 2, Err("no session 2\u{1b}[2J".into())));
    type_in(&mut screen, "n");
    screen.hear(News::Killed(0, 2, Err("no session 2\u{1b}[2J".into())));
    assert_eq!(lines(&mut screen, 80, 24)[23], "no session 2\\u{1b}[2J");
}

#[test]
fn move_offers_another_server_and_takes_any() {
    let mut screen = screen_of(&["gpu1", "gpu2"], true);
    screen.hear(told(vec![session(1, "nbody", 10)]));
    drawn(&mut screen, 80, 24);
    type_in(&mut screen, "m");
    let question = "move session 1 of gpu1 to (Esc: do not): gpu2_";
    assert_eq!(lines(&mut screen, 80, 24)[23], question);
    assert_eq!(press(&mut screen, &[KeyCode::Esc]), Request::None);
    let chosen = Key { server: 0, item: 1 };
    let there = Request::Migrate(chosen, "gpu2".into());
    type_in(&mut screen, "m");
    assert_eq!(press(&mut screen, &[KeyCode::Enter]), there);
    type_in(&mut screen, "m");
    press(&mut screen, &[KeyCode::Backspace]);
    type_in(&mut screen, "7");
    let elsewhere = Request::Migrate(chosen, "gpu7".into());
    assert_eq!(press(&mut screen, &[KeyCode::Enter]), elsewhere);
    screen.hear(News::Moved(0, 1, Ok("gpu7".into())));
    let last = lines(&mut screen, 80, 24).remove(23);
    assert_eq!(last, "session 1 of gpu1 has moved to gpu7");
    screen.hear(News::Moved(0, 1, Err("it has pipes".into())));
    assert_eq!(lines(&mut screen, 80, 24)[23], "it has pipes");
}

#[test]
fn choice_stays_with_its_session_and_in_sight() {
    let mut screen = screen_of(&["gpu1"], true);
    let many = |seconds| {
        (1..=40)
            .map(move |id| session(id, "program", seconds))
            .collect()
    };
    screen.hear(told(many(10)));
    screen.hear(told(many(12)));
    drawn(&mut screen, 80, 24);
    press(&mut screen, &[KeyCode::End]);
    // Sorted by how busy they are, session 1 comes last.
    let lines = lines(&mut screen, 80, 24);
    assert!(lines[22].trim_start().starts_with("1 program"), "{lines:?}");
    type_in(&mut screen, "r");
    drawn(&mut screen, 80, 24);
    assert_eq!(
        type_in(&mut screen, "ky"),
        Request::Kill(Key { server: 0, item: 1 })
    );
    press(&mut screen, &[KeyCode::PageDown]);
    assert_ne!(
        type_in(&mut screen, "ky"),
        Request::Kill(Key { server: 0, item: 1 })
    );
}
