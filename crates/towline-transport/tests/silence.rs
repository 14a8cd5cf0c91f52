//! Peers that fall silent, in real time: hosts that vanish are found within 30 s, slow readers are left alone.
//!
//! These take half a minute each, so `cargo test` leaves them out: `cargo test -p towline-transport --test silence --
//! --ignored`, as root for the network namespaces.

#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use towline_transport::tcp::TcpTransport;
use towline_transport::{ConnectOptions, Connection, Transport, TransportError, recv_exact};

const SERVER: &str = "10.213.7.2:7000";

/// Two hosts with a cable between them, as network namespaces.
struct Hosts {
    client: String,
    server: String,
}

impl Hosts {
    fn new() -> Self {
        let hosts = Self {
            client: format!("towline-client-{}", std::process::id()),
            server: format!("towline-server-{}", std::process::id()),
        };
        ip(&format!("netns add {}", hosts.client));
        ip(&format!("netns add {}", hosts.server));
        ip(&format!(
            "link add cable netns {} type veth peer name cable netns {}",
            hosts.client, hosts.server
        ));
        for (host, address) in [
            (&hosts.client, "10.213.7.1/24"),
            (&hosts.server, "10.213.7.2/24"),
        ] {
            ip(&format!("-n {host} address add {address} dev cable"));
            ip(&format!("-n {host} link set cable up"));
        }
        hosts
    }

    /// Runs `action` on one of the hosts. What it connects stays there.
    fn on<T: Send>(host: &str, action: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| {
            let inside = scope.spawn(|| {
                let namespace = File::open(format!("/run/netns/{host}")).unwrap();
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                    .unwrap();
                action()
            });
            inside.join().unwrap()
        })
    }

    fn pull_the_cable(&self) {
        ip(&format!("-n {} link set cable down", self.server));
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        ip(&format!("netns delete {}", self.client));
        ip(&format!("netns delete {}", self.server));
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split(' '))
        .status()
        .expect("`ip` of iproute2 is installed");
    assert!(
        status.success() || thread::panicking(),
        "`ip {arguments}` failed: are you root?"
    );
}

#[test]
#[ignore = "takes half a minute, needs root"]
fn vanished_host_is_found_within_30_s_idle_or_not() {
    let hosts = Hosts::new();
    let listener = Hosts::on(&hosts.server, || {
        TcpTransport.listen(&SERVER.parse().unwrap()).unwrap()
    });
    let connect = |options: ConnectOptions| -> (Arc<dyn Connection>, Arc<dyn Connection>) {
        let client = Hosts::on(&hosts.client, || {
            TcpTransport
                .connect(&SERVER.parse().unwrap(), &options)
                .unwrap()
        });
        (client, listener.accept().unwrap())
    };
    let (idle_lane, accepted) = connect(ConnectOptions::default());
    let adopted = TcpTransport
        .adopt(accepted.descriptor().unwrap().try_clone_to_owned().unwrap())
        .unwrap();
    let (busy_control, busy_accepted) = connect(ConnectOptions::control());
    hosts.pull_the_cable();
    let start = Instant::now();
    busy_control
        .send(&[IoSlice::new(b"are you there?")])
        .unwrap();
    busy_accepted
        .send(&[IoSlice::new(b"are you there?")])
        .unwrap();
    thread::scope(|scope| {
        let found = [&idle_lane, &adopted, &busy_control, &busy_accepted].map(|end| {
            scope.spawn(move || {
                let received = end.recv(&mut [0; 1]);
                (received, start.elapsed())
            })
        });
        for end in found {
            let (received, after) = end.join().unwrap();
            assert!(
                matches!(received, Err(TransportError::Lost { .. })),
                "{received:?}"
            );
            assert!(after <= Duration::from_secs(30), "{after:?}");
        }
    });
}

#[test]
#[ignore = "takes 40 s"]
fn peer_that_does_not_read_for_longer_than_the_limit_is_not_given_up() {
    let listener = TcpTransport
        .listen(&"127.0.0.1:0".parse().unwrap())
        .unwrap();
    let client = TcpTransport
        .connect(&listener.local_address(), &ConnectOptions::default())
        .unwrap();
    let accepted = listener.accept().unwrap();
    let server = TcpTransport
        .adopt(accepted.descriptor().unwrap().try_clone_to_owned().unwrap())
        .unwrap();
    let payload = vec![7; 32 << 20];
    thread::scope(|scope| {
        for (sender, reader) in [(&client, &server), (&server, &client)] {
            scope.spawn(|| sender.send(&[IoSlice::new(&payload)]).unwrap());
            scope.spawn(|| {
                // A long kernel holds the buffers that this payload is for.
                thread::sleep(Duration::from_secs(40));
                let mut received = vec![0; payload.len()];
                recv_exact(&**reader, &mut received).unwrap();
                assert!(received == payload);
            });
        }
    });
}
