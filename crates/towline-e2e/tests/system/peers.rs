//! Servers that list each other: buffers of one context go from one to the other without the client.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;

use crate::support::{Client, Finished, Server, free_addresses, opencl_program};

/// Bytes of the buffer of `passes`, which changes sides five times.
const BUFFER: f64 = (8 << 20) as f64;
/// More than all that a session of `passes` says besides payload.
const SMALL: f64 = (1 << 20) as f64;

/// What the report says of a session.
#[derive(Clone, Copy, Debug)]
struct Traffic {
    sent: f64,
    received: f64,
    directly: f64,
}

/// Bytes in the report's words, "4.5 KiB" for instance.
fn bytes(words: &str) -> f64 {
    let (number, unit) = words.trim().split_once(' ').expect("a number and a unit");
    let powers = ["B", "KiB", "MiB", "GiB"];
    let power = powers.iter().position(|known| *known == unit);
    let number: f64 = number.parse().expect("a number");
    number * 1024_f64.powi(power.expect("a unit of bytes") as i32)
}

/// What went where, by server.
fn traffic(finished: &Finished, server: &Server) -> Traffic {
    let mut lines = finished.errors.lines();
    let head = format!("towline: {}: ", server.address());
    let line = lines.find_map(|line| line.strip_prefix(&head));
    let line = line.unwrap_or_else(|| panic!("no report in {:?}", finished.errors));
    let fields: Vec<&str> = line.split(", ").collect();
    let directly = lines
        .next()
        .and_then(|line| line.strip_prefix("towline:   sent to other servers directly: "));
    Traffic {
        sent: bytes(fields[1].trim_end_matches(" sent")),
        received: bytes(fields[2].split_once(" received").expect("bytes received").0),
        directly: directly.map_or(0.0, bytes),
    }
}

/// Two servers, each of which lists the addresses of the other that are given, at these places.
fn serve(at: &[String; 2], lists: [&str; 2], more: &[&str]) -> [Server; 2] {
    [0, 1].map(|index| {
        let mut arguments = vec!["--peer", lists[index]];
        arguments.extend(more);
        if lists[index].is_empty() {
            arguments.drain(..2);
        }
        Server::start_at(&at[index], &arguments)
    })
}

fn passes(servers: &[&str], more: &[&str]) -> Client {
    let servers = servers.join(",");
    let options = [&["--report", "--server", &servers], more].concat();
    Client::with_options(&options, opencl_program("passes"))
}

fn assert_direct(finished: &Finished, servers: &[Server; 2]) {
    let [first, second] = [0, 1].map(|index| traffic(finished, &servers[index]));
    assert!(
        first.received < SMALL && second.sent < SMALL,
        "{first:?} {second:?}"
    );
    assert!(
        (first.directly, second.directly) == (3.0 * BUFFER, 2.0 * BUFFER),
        "{first:?} {second:?}"
    );
}

#[test]
fn buffer_goes_between_peers_without_the_client() {
    let at = free_addresses();
    let servers = serve(&at, [&at[1], &at[0]], &[]);
    let finished = passes(&[&at[0], &at[1]], &[]).run();
    assert_direct(&finished, &servers);
    assert_eq!(
        finished.lines_of_success().last().map(String::as_str),
        Some("right")
    );
}

#[test]
fn peers_with_a_token_prove_that_they_know_it() {
    let folder = tempfile::tempdir().expect("room for temporary files");
    let file = folder.path().join("token");
    std::fs::write(&file, "a token that both servers know").expect("room for a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))
        .expect("the file is ours");
    let token = ["--token-file", file.to_str().expect("a plain path")];
    let own = folder.path().join("own");
    std::fs::write(&own, "a token that servers alone know").expect("room for a file");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    let peer_token = ["--peer-token-file", own.to_str().expect("a plain path")];
    let at = free_addresses();
    let servers = serve(&at, [&at[1], &at[0]], &[token, peer_token].concat());
    let finished = passes(&[&at[0], &at[1]], &token).run();
    assert_direct(&finished, &servers);
    assert_eq!(
        finished.lines_of_success().last().map(String::as_str),
        Some("right")
    );
}

#[test]
fn buffer_goes_through_the_client_unless_both_list_each_other() {
    let at = free_addresses();
    for lists in [["", ""], [&at[1], ""], ["", &at[0]]] {
        let servers = serve(&at, lists, &[]);
        let finished = passes(&[&at[0], &at[1]], &[]).run();
        let [first, second] = [0, 1].map(|index| traffic(&finished, &servers[index]));
        assert!(
            first.received >= 3.0 * BUFFER && second.sent >= 3.0 * BUFFER,
            "{first:?} {second:?}"
        );
        assert!(
            (first.directly, second.directly) == (0.0, 0.0),
            "{first:?} {second:?}"
        );
        assert_eq!(
            finished.lines_of_success().last().map(String::as_str),
            Some("right")
        );
    }
}

/// Passes connections on, and cuts those of peers when so many bytes have gone one way.
fn cutting_proxy(to: &str, limit: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let to: SocketAddr = to.parse().expect("an address");
    std::thread::spawn(move || {
        for incoming in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let outgoing = TcpStream::connect(to).expect("the server listens");
                let mut magic = [0; 4];
                let mut incoming = incoming;
                if incoming.read_exact(&mut magic).is_err() {
                    return;
                }
                let limit = if &magic == b"TWLP" { limit } else { usize::MAX };
                (&outgoing).write_all(&magic).expect("the server reads");
                let back = [&outgoing, &incoming].map(|end| end.try_clone().expect("descriptors"));
                let [from, into] = back;
                std::thread::spawn(move || pump(from, into, usize::MAX));
                pump(incoming, outgoing, limit);
            });
        }
    });
    address
}

/// Passes bytes on until the end, or the limit, which ends both directions.
fn pump(mut from: TcpStream, mut to: TcpStream, limit: usize) {
    let (mut buffer, mut passed) = (vec![0; 64 << 10], 0);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        passed += count;
        if passed > limit || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Both fail only where the other pump was first.
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn connection_of_peers_cut_within_a_buffer_leaves_the_rest_to_the_client() {
    let at = free_addresses();
    // The first reaches the second through the proxy, and so does the client: that is its name.
    let second = cutting_proxy(&at[1], 3 << 20);
    let servers = serve(&at, [&second, &at[0]], &[]);
    let finished = passes(&[&at[0], &second], &[]).run();
    assert!(
        finished
            .errors
            .contains("a connection between servers broke"),
        "{}",
        finished.errors
    );
    let first = traffic(&finished, &servers[0]);
    assert!(
        first.received >= 3.0 * BUFFER && first.directly == 0.0,
        "{first:?}"
    );
    assert_eq!(
        finished.lines_of_success().last().map(String::as_str),
        Some("right")
    );
}

#[test]
fn peer_killed_between_steps_ends_the_program_and_not_the_other_server() {
    let at = free_addresses();
    let mut servers = serve(&at, [&at[1], &at[0]], &[]);
    let mut client = passes(&[&at[0], &at[1]], &[]).start();
    client.wait_for("passed");
    client.go_on();
    client.wait_for("passed");
    assert!(
        servers[0].log().contains("peer lane"),
        "{}",
        servers[0].log()
    );
    servers[1].kill();
    client.go_on();
    let finished = client.finish();
    assert_eq!(finished.status.code(), Some(3), "{}", finished.errors);
    Client::new(&[&servers[0]], opencl_program("steady"))
        .run()
        .lines_of_success();
}
