//! Compiled kernels that a tenant's later sessions find, and nobody else.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use rustix::process::Signal;

use crate::support::{PATIENCE, Server, holds_within};
use crate::tenants::Tenants;

/// A server of tenants with PoCL, which keeps kernels in a folder that outlives it.
fn serve(tenants: &Tenants, arguments: &[&str]) -> Server {
    let (file, kernels) = (tenants.file(), tenants.path("kernels"));
    let own = ["--tenants-file", &file, "--kernel-cache-folder", &kernels];
    Server::start_with(&[&own[..], arguments].concat(), &[])
}

/// Output of the program `keeps` for a tenant.
fn keeps(tenants: &Tenants, server: &Server, name: &str, what: &str) -> String {
    let client = tenants.program(server, [name, name], "keeps").args(&[what]);
    let lines = client.run().lines_of_success();
    lines.concat()
}

/// Files of each store on disk.
fn stores(tenants: &Tenants) -> BTreeMap<String, BTreeMap<String, SystemTime>> {
    let list = |folder: &Path| -> Vec<_> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let name = |path: &Path| {
        path.file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned()
    };
    let folder = tenants.path("kernels");
    let stores = list(Path::new(&folder)).into_iter();
    stores
        .map(|store| {
            let files = list(&store).into_iter();
            let born = |path: &Path| path.metadata().and_then(|data| data.created());
            let files = files.filter_map(|file| Some((name(&file), born(&file).ok()?)));
            (name(&store), files.collect())
        })
        .collect()
}

/// Waits until as many stores have kernels.
fn wait_for_stores(tenants: &Tenants, count: usize) {
    let have_kernels = || {
        let stores = stores(tenants);
        let is_whole = |store: &&BTreeMap<String, SystemTime>| {
            store.len() >= 2 && !store.keys().any(|file| file.ends_with(".new"))
        };
        stores.values().filter(is_whole).count() == count
    };
    assert!(
        holds_within(PATIENCE, have_kernels),
        "{:?}",
        stores(tenants)
    );
}

#[test]
fn second_session_of_a_tenant_compiles_nothing() {
    let tenants = Tenants::new();
    tenants.add("anna", &[]);
    let mut server = serve(&tenants, &[]);
    assert_eq!(keeps(&tenants, &server, "anna", "look"), "none");
    wait_for_stores(&tenants, 1);
    let first = stores(&tenants);
    assert_eq!(keeps(&tenants, &server, "anna", "look"), "none");
    // Kernels that are not saved yet are saved then.
    assert!(server.terminate());
    assert_eq!(stores(&tenants), first);
    let told = server.log();
    assert!(!told.contains("not kept"), "{told}");
}

#[test]
fn planted_file_reaches_sessions_of_its_tenant_alone() {
    let tenants = Tenants::new();
    tenants.add("anna", &[]);
    tenants.add("bert", &[]);
    let server = serve(&tenants, &[]);
    assert_eq!(keeps(&tenants, &server, "anna", "plant"), "planted");
    assert_eq!(keeps(&tenants, &server, "anna", "look"), "found");
    assert_eq!(keeps(&tenants, &server, "bert", "look"), "none");
    wait_for_stores(&tenants, 2);
}

#[test]
fn store_outlives_killed_workers_and_servers() {
    let tenants = Tenants::new();
    tenants.add("anna", &[]);
    let mut server = serve(&tenants, &[]);
    let client = tenants.program(&server, ["anna", "anna"], "keeps");
    let mut running = client.args(&["plant", "stay"]).start();
    running.wait_for("planted");
    wait_for_stores(&tenants, 1);
    let worker = server.worker_of(running.pid());
    rustix::process::kill_process(worker, Signal::KILL).expect("it lives");
    assert_eq!(keeps(&tenants, &server, "anna", "look"), "found");
    wait_for_stores(&tenants, 1);
    // With what was found once more.
    server.kill();
    let first = stores(&tenants);
    let mut next = serve(&tenants, &[]);
    assert_eq!(keeps(&tenants, &next, "anna", "look"), "found");
    assert!(next.terminate());
    assert_eq!(stores(&tenants), first);
}

#[test]
fn revoked_tenant_leaves_no_kernels() {
    let tenants = Tenants::new();
    tenants.add("anna", &[]);
    tenants.add("bert", &[]);
    let server = serve(&tenants, &[]);
    for name in ["anna", "bert"] {
        keeps(&tenants, &server, name, "plant");
    }
    wait_for_stores(&tenants, 2);
    tenants.tenant(&["revoke", "anna"]);
    wait_for_stores(&tenants, 1);
    std::fs::remove_file(tenants.path("anna")).expect("its token is there");
    tenants.add("anna", &[]);
    let is_none = || {
        let client = tenants.program(&server, ["anna", "anna"], "keeps").run();
        client.lines == ["none"]
    };
    assert!(holds_within(PATIENCE, is_none), "it has what another had");
    assert_eq!(keeps(&tenants, &server, "bert", "look"), "found");
}

#[test]
fn hostile_session_fills_no_more_than_the_limits() {
    let tenants = Tenants::new();
    tenants.add("anna", &[]);
    let limits = [
        "--session-temporary-storage",
        "48M",
        "--kernel-cache",
        "16M",
    ];
    let mut server = serve(&tenants, &limits);
    let told = keeps(&tenants, &server, "anna", "fill");
    let mib: u64 = told.trim_start_matches("full ").parse().expect("a number");
    assert!((32..=48).contains(&mib), "{told}");
    let status = tenants.status(&server, "anna");
    let limits = status["limits"].as_object().expect("an object");
    assert_eq!(limits["kernel_cache_bytes"]["value"], 16 << 20);
    // The file that was too large is not kept, and the tenant can go on.
    assert_eq!(keeps(&tenants, &server, "anna", "look"), "none");
    assert!(server.terminate());
    let folder = tenants.path("kernels");
    let mut kept = 0;
    for (store, files) in stores(&tenants) {
        let place = Path::new(&folder).join(store);
        let bytes = |file: &String| place.join(file).metadata().map_or(0, |data| data.len());
        kept += files.keys().map(bytes).sum::<u64>();
    }
    assert!(kept > 0 && kept <= 16 << 20, "{kept}");
}
