//! Applying and undoing on an emulated kernel, with the run killed at every change.

mod fake;
mod shape;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use fake::{FakeWorld, Kill};
use shape::Shape;
use towline_node::apply::{Applied, ApplyError, ApplyOptions, UndoOptions};
use towline_node::{Request, Root, apply, apply_plan, inspect, plan, undo};

fn request(name: &str) -> Request {
    let file = format!("{}/tests/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    Request::parse(&fs::read_to_string(file).unwrap()).unwrap()
}

/// The machine of a plan, with what update-grub and update-initramfs would have left before.
fn shape_of(name: &str) -> Shape {
    let shape = Shape::named(name.split_once("--").unwrap().0);
    shape.write("/boot/grub/grub.cfg", "generated ");
    let modules =
        fs::read_to_string(shape.path("/etc/initramfs-tools/modules")).unwrap_or_default();
    shape.write("/boot/initrd.img", &format!("generated {}", modules.trim()));
    shape
}

fn run(world: &mut FakeWorld<'_>, request: &Request) -> Result<Applied, ApplyError> {
    let take = request.take_in_use.clone();
    apply(world, request, &ApplyOptions { take }, &mut |_| {})
}

fn take_back(world: &mut FakeWorld<'_>) -> Result<Vec<String>, ApplyError> {
    undo(world, UndoOptions::default(), &mut |_| {})
}

/// What differs, for people.
fn difference(a: &BTreeMap<PathBuf, Vec<u8>>, b: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<String> {
    let text = |bytes: Option<&Vec<u8>>| {
        bytes.map(|bytes| {
            String::from_utf8_lossy(bytes)
                .trim()
                .chars()
                .take(80)
                .collect::<String>()
        })
    };
    a.keys()
        .chain(b.keys())
        .filter(|path| a.get(*path) != b.get(*path))
        .map(|path| {
            format!(
                "{}: {:?} and {:?}",
                path.display(),
                text(a.get(path)),
                text(b.get(path))
            )
        })
        .collect()
}

/// What is killed at each change in `make test`; between them they have every kind of action.
const KILLED: [&str; 3] = ["drives--one", "single-intel--one", "single-intel--persist"];
/// What is beside in `make test-long`.
const KILLED_LONG: [&str; 7] = [
    "amd--one",
    "arm--one",
    "busy--taken",
    "drives--two",
    "dual-switches--two",
    "ib-sriov--six",
    "study--one",
];

#[test]
fn killed_at_any_change_undo_leaves_the_host_as_it_was() {
    undo_after_each_kill(&KILLED);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn killed_at_any_change_undo_leaves_the_host_as_it_was_in_every_shape() {
    undo_after_each_kill(&KILLED_LONG);
}

fn undo_after_each_kill(names: &[&str]) {
    for name in names {
        let shape = shape_of(name);
        let request = request(name);
        let before = FakeWorld::snapshot(&shape);
        let mut world = FakeWorld::new(&shape);
        run(&mut world, &request).unwrap_or_else(|error| panic!("{name}: {error:#?}"));
        let changes = world.changes;
        assert!(changes > 6, "{name} makes {changes} changes only");
        take_back(&mut FakeWorld::new(&shape)).unwrap();
        assert_eq!(
            difference(&before, &FakeWorld::snapshot(&shape)),
            [""; 0],
            "{name}"
        );
        for change in 0..changes {
            for kill in [Kill::Before, Kill::After, Kill::Torn] {
                let mut world = FakeWorld::killed_at(&shape, change, kill);
                assert!(
                    run(&mut world, &request).is_err(),
                    "{name} survives change {change}"
                );
                let undone = take_back(&mut FakeWorld::new(&shape));
                assert!(
                    undone.is_ok(),
                    "{name}, killed {kill:?} change {change}: {undone:?}"
                );
                let after = FakeWorld::snapshot(&shape);
                assert_eq!(
                    difference(&before, &after),
                    [""; 0],
                    "{name}, killed {kill:?} change {change}"
                );
            }
        }
    }
}

#[test]
fn killed_at_any_change_applying_again_completes_it() {
    apply_after_each_kill(&KILLED);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn killed_at_any_change_applying_again_completes_it_in_every_shape() {
    apply_after_each_kill(&KILLED_LONG);
}

fn apply_after_each_kill(names: &[&str]) {
    for name in names {
        let shape = shape_of(name);
        let request = request(name);
        let before = FakeWorld::snapshot(&shape);
        let mut world = FakeWorld::new(&shape);
        let outcome = run(&mut world, &request).unwrap();
        let changes = world.changes;
        let complete = FakeWorld::snapshot(&shape);
        take_back(&mut FakeWorld::new(&shape)).unwrap();
        for change in 0..changes {
            for kill in [Kill::Before, Kill::After, Kill::Torn] {
                let mut world = FakeWorld::killed_at(&shape, change, kill);
                assert!(run(&mut world, &request).is_err());
                let again = run(&mut FakeWorld::new(&shape), &request);
                assert_eq!(
                    again.as_ref().ok(),
                    Some(&outcome),
                    "{name}, killed {kill:?} change {change}: {again:?}"
                );
                let after = FakeWorld::snapshot(&shape);
                assert_eq!(
                    difference(&complete, &after),
                    [""; 0],
                    "{name}, killed {kill:?} change {change}"
                );
                take_back(&mut FakeWorld::new(&shape)).unwrap();
            }
        }
        assert_eq!(
            difference(&before, &FakeWorld::snapshot(&shape)),
            [""; 0],
            "{name}"
        );
    }
}

#[test]
fn undo_killed_at_any_change_completes_when_run_again() {
    undo_after_each_kill_of_undo(&KILLED);
}

#[test]
#[ignore = "takes minutes: make test-long"]
fn undo_killed_at_any_change_completes_when_run_again_in_every_shape() {
    undo_after_each_kill_of_undo(&KILLED_LONG);
}

fn undo_after_each_kill_of_undo(names: &[&str]) {
    for name in names {
        let shape = shape_of(name);
        let request = request(name);
        let before = FakeWorld::snapshot(&shape);
        run(&mut FakeWorld::new(&shape), &request).unwrap();
        let mut world = FakeWorld::new(&shape);
        take_back(&mut world).unwrap();
        let changes = world.changes;
        for change in 0..changes {
            for kill in [Kill::Before, Kill::After, Kill::Torn] {
                run(&mut FakeWorld::new(&shape), &request).unwrap();
                let mut world = FakeWorld::killed_at(&shape, change, kill);
                assert!(take_back(&mut world).is_err());
                let again = take_back(&mut FakeWorld::new(&shape));
                assert!(
                    again.is_ok(),
                    "{name}, killed {kill:?} change {change}: {again:?}"
                );
                let after = FakeWorld::snapshot(&shape);
                assert_eq!(
                    difference(&before, &after),
                    [""; 0],
                    "{name}, killed {kill:?} change {change}"
                );
            }
        }
    }
}

#[test]
fn applying_twice_changes_nothing_the_second_time() {
    let shape = shape_of("dual-switches--two");
    let request = request("dual-switches--two");
    assert_eq!(
        run(&mut FakeWorld::new(&shape), &request).unwrap(),
        Applied::Complete
    );
    let mut world = FakeWorld::new(&shape);
    assert_eq!(run(&mut world, &request).unwrap(), Applied::Complete);
    assert_eq!(world.log, [""; 0]);
}

#[test]
fn what_is_applied_needs_no_further_step() {
    for name in ["single-intel--one", "dual-switches--two", "ib-sriov--six"] {
        let shape = shape_of(name);
        let request = request(name);
        run(&mut FakeWorld::new(&shape), &request).unwrap();
        let again = plan(&inspect(&Root::new(shape.folder())), &request);
        let left: Vec<&str> = again.steps.iter().map(|step| step.title.as_str()).collect();
        // Addresses cannot be read without asking `ip`; interrupt 130 is the kernel's own.
        let left: Vec<&&str> = left
            .iter()
            .filter(|title| !title.contains("addresses") && !title.contains("interrupts"))
            .collect();
        assert!(
            left.is_empty() && again.obstacles.is_empty(),
            "{name}: {left:?} {:?}",
            again.obstacles
        );
    }
}

#[test]
fn steps_for_the_next_start_come_first_and_the_rest_after_it() {
    let text = "vms = 1\ncores = 2\nmemory = \"4 GiB\"\nisolate = true\n";
    let shape = shape_of("single-intel--one");
    let request = Request::parse(text).unwrap();
    let before = FakeWorld::snapshot(&shape);
    assert_eq!(
        run(&mut FakeWorld::new(&shape), &request).unwrap(),
        Applied::RestartNeeded
    );
    let pages = "/sys/devices/system/node/node0/hugepages/hugepages-1048576kB/nr_hugepages";
    assert_eq!(fs::read_to_string(shape.path(pages)).unwrap().trim(), "0");
    // The host starts again, with what was written.
    let line = fs::read_to_string(shape.path("/proc/cmdline")).unwrap();
    shape.write(
        "/proc/sys/kernel/random/boot_id",
        "99999999-0000-0000-0000-000000000000",
    );
    shape.write(
        "/proc/cmdline",
        &format!(
            "{} isolcpus=managed_irq,domain,1-2,9-10 nohz_full=1-2,9-10 rcu_nocbs=1-2,9-10",
            line.trim()
        ),
    );
    assert_eq!(
        run(&mut FakeWorld::new(&shape), &request).unwrap(),
        Applied::Complete
    );
    assert_eq!(fs::read_to_string(shape.path(pages)).unwrap().trim(), "4");
    take_back(&mut FakeWorld::new(&shape)).unwrap();
    let after = FakeWorld::snapshot(&shape);
    let changed: Vec<String> = difference(&before, &after)
        .into_iter()
        .filter(|line| !line.contains("/proc/"))
        .collect();
    assert_eq!(changed, [""; 0]);
}

#[test]
fn a_restart_undoes_what_lasts_until_it_and_undo_knows() {
    let shape = shape_of("dual-switches--two");
    let fresh = shape_of("dual-switches--two");
    run(&mut FakeWorld::new(&shape), &request("dual-switches--two")).unwrap();
    let journal = fs::read_to_string(shape.path("/var/lib/towline-node/journal")).unwrap();
    fresh.write("/var/lib/towline-node/journal", &journal);
    fresh.write(
        "/proc/sys/kernel/random/boot_id",
        "99999999-0000-0000-0000-000000000000",
    );
    let mut world = FakeWorld::new(&fresh);
    assert_eq!(take_back(&mut world).unwrap(), [""; 0]);
    let made: Vec<&String> = world
        .log
        .iter()
        .filter(|line| !line.contains("journal"))
        .collect();
    assert!(made.is_empty(), "{made:?}");
}

#[test]
fn after_a_restart_another_drive_may_have_the_name_and_is_left_alone() {
    let shape = shape_of("drives--two");
    run(&mut FakeWorld::new(&shape), &request("drives--two")).unwrap();
    let journal = fs::read_to_string(shape.path("/var/lib/towline-node/journal")).unwrap();
    let file = format!("{}/tests/shapes/drives.host", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(file).unwrap();
    let fresh = Shape::of(
        &text
            .replace("ctrl=nvme1", "ctrl=nvme9")
            .replace("ctrl=nvme2", "ctrl=nvme1"),
    );
    fresh.write("/var/lib/towline-node/journal", &journal);
    fresh.write(
        "/proc/sys/kernel/random/boot_id",
        "99999999-0000-0000-0000-000000000000",
    );
    // As if it had given something away, of which undo knows nothing.
    let other = r#"{"functions":{},"next":[4,2],"primary":[4,2],"total":[8,4]}"#;
    fresh.write("/fake/nvme1", other);
    let mut world = FakeWorld::new(&fresh);
    assert_eq!(take_back(&mut world).unwrap(), [""; 0]);
    assert!(
        world.log.iter().all(|line| !line.starts_with("nvme")),
        "{:?}",
        world.log
    );
    assert_eq!(
        fs::read_to_string(fresh.path("/fake/nvme1"))
            .unwrap()
            .trim(),
        other
    );
}

#[test]
fn what_somebody_else_changed_is_neither_applied_over_nor_undone() {
    let shape = shape_of("dual-switches--two");
    let request = request("dual-switches--two");
    run(&mut FakeWorld::new(&shape), &request).unwrap();
    let path = "/sys/bus/pci/devices/0000:1a:00.2/driver_override";
    shape.write(path, "uio_pci_generic");
    let error = take_back(&mut FakeWorld::new(&shape)).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Drift { found, .. } if found == "uio_pci_generic"),
        "{error}"
    );
    let error = run(&mut FakeWorld::new(&shape), &request).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Drift { .. } | ApplyError::Other),
        "{error}"
    );
    let options = UndoOptions { skip_drifted: true };
    let left = undo(&mut FakeWorld::new(&shape), options, &mut |_| {}).unwrap();
    assert!(
        left.len() == 1 && left[0].contains("uio_pci_generic"),
        "{left:?}"
    );
}

#[test]
fn a_plan_for_another_start_is_refused() {
    let shape = shape_of("dual-switches--two");
    let request = request("dual-switches--two");
    let plan = plan(&inspect(&Root::new(shape.folder())), &request);
    shape.write(
        "/proc/sys/kernel/random/boot_id",
        "99999999-0000-0000-0000-000000000000",
    );
    let error = apply_plan(
        &mut FakeWorld::new(&shape),
        &plan,
        &ApplyOptions::default(),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(matches!(error, ApplyError::OtherHost { .. }), "{error}");
}

#[test]
fn a_plan_that_the_host_has_moved_away_from_is_refused() {
    let shape = shape_of("dual-switches--two");
    let plan = plan(
        &inspect(&Root::new(shape.folder())),
        &request("dual-switches--two"),
    );
    shape.write(
        "/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages",
        "64",
    );
    let error = apply_plan(
        &mut FakeWorld::new(&shape),
        &plan,
        &ApplyOptions::default(),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        matches!(&error, ApplyError::Drift { found, .. } if found == "64"),
        "{error}"
    );
}

#[test]
fn another_request_is_refused_until_the_first_is_undone() {
    let shape = shape_of("dual-switches--two");
    run(&mut FakeWorld::new(&shape), &request("dual-switches--two")).unwrap();
    let error = run(
        &mut FakeWorld::new(&shape),
        &request("dual-switches--three-strict"),
    )
    .unwrap_err();
    assert!(matches!(error, ApplyError::Other), "{error}");
    take_back(&mut FakeWorld::new(&shape)).unwrap();
    run(
        &mut FakeWorld::new(&shape),
        &request("dual-switches--three-strict"),
    )
    .unwrap();
}

#[test]
fn a_device_that_somebody_opened_since_is_not_taken() {
    let shape = shape_of("dual-switches--two");
    let request = request("dual-switches--two");
    let plan = plan(&inspect(&Root::new(shape.folder())), &request);
    shape.write("/proc/4711/comm", "python3");
    shape.link("/proc/4711/fd/9", "/dev/nvidia2");
    let error = apply_plan(
        &mut FakeWorld::new(&shape),
        &plan,
        &ApplyOptions::default(),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(error.to_string().contains("python3 (4711)"), "{error}");
    take_back(&mut FakeWorld::new(&shape)).unwrap();
}

#[test]
fn what_a_machine_has_is_not_taken_back_from_it() {
    let shape = shape_of("drives--two");
    let request = request("drives--two");
    let before = FakeWorld::snapshot(&shape);
    run(&mut FakeWorld::new(&shape), &request).unwrap();
    let group = fs::read_link(shape.path("/sys/bus/pci/devices/0000:21:00.1/iommu_group")).unwrap();
    let node = format!("/dev/vfio/{}", group.file_name().unwrap().to_str().unwrap());
    shape.write("/proc/4711/comm", "qemu-system-x86");
    shape.link("/proc/4711/fd/9", &node);
    let error = take_back(&mut FakeWorld::new(&shape)).unwrap_err();
    assert!(
        matches!(&error, ApplyError::Held { .. })
            && error
                .to_string()
                .contains(&format!("qemu-system-x86 (4711) has {node} open")),
        "{error}"
    );
    fs::remove_dir_all(shape.path("/proc/4711")).unwrap();
    take_back(&mut FakeWorld::new(&shape)).unwrap();
    assert_eq!(difference(&before, &FakeWorld::snapshot(&shape)), [""; 0]);
}

#[test]
fn a_drive_with_too_little_to_share_is_told_before_anything_is_made() {
    let shape = shape_of("drives--two");
    shape.write(
        "/fake/nvme1",
        r#"{"functions":{},"next":[1,4],"primary":[1,4],"total":[1,4]}"#,
    );
    let before = FakeWorld::snapshot(&shape);
    let error = run(&mut FakeWorld::new(&shape), &request("drives--two")).unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(
        source,
        "nvme1 has 1 queues to share, too few for 2 functions and itself"
    );
    assert_eq!(
        fs::read_to_string(shape.path("/sys/bus/pci/devices/0000:21:00.0/sriov_numvfs"))
            .unwrap()
            .trim(),
        "0"
    );
    take_back(&mut FakeWorld::new(&shape)).unwrap();
    assert_eq!(difference(&before, &FakeWorld::snapshot(&shape)), [""; 0]);
}

#[test]
fn a_write_that_hangs_ends_with_the_holders_named() {
    let shape = shape_of("dual-switches--two");
    let before = FakeWorld::snapshot(&shape);
    let mut request = request("dual-switches--two");
    let gpu = "0000:99:00.0".parse().unwrap();
    request.take_in_use = vec![gpu];
    shape.write("/proc/4711/comm", "python3");
    shape.link("/proc/4711/fd/9", "/dev/nvidia2");
    let mut world = FakeWorld::new(&shape);
    world.held = vec!["0000:99:00.0".to_owned()];
    let error = apply(
        &mut world,
        &request,
        &ApplyOptions { take: vec![gpu] },
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("python3 (4711) has /dev/nvidia2 open"),
        "{error}"
    );
    fs::remove_dir_all(shape.path("/proc/4711")).unwrap();
    take_back(&mut FakeWorld::new(&shape)).unwrap();
    assert_eq!(difference(&before, &FakeWorld::snapshot(&shape)), [""; 0]);
}

#[test]
fn what_carries_the_default_route_has_to_be_named_twice() {
    let shape = shape_of("busy--taken");
    let mut once = request("busy--taken");
    let error = apply(
        &mut FakeWorld::new(&shape),
        &once,
        &ApplyOptions::default(),
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("default route (enp2s0)"),
        "{error}"
    );
    let take = std::mem::take(&mut once.take_in_use);
    let error = apply(
        &mut FakeWorld::new(&shape),
        &once,
        &ApplyOptions { take },
        &mut |_| {},
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("default route (enp2s0)"),
        "{error}"
    );
}

#[test]
fn fewer_huge_pages_than_asked_for_are_an_error_and_are_given_back() {
    let shape = shape_of("dual-switches--two");
    let before = FakeWorld::snapshot(&shape);
    let mut world = FakeWorld::new(&shape);
    world.pages = 7;
    let error = run(&mut world, &request("dual-switches--two")).unwrap_err();
    assert!(error.to_string().contains("less in one piece"), "{error}");
    take_back(&mut FakeWorld::new(&shape)).unwrap();
    assert_eq!(difference(&before, &FakeWorld::snapshot(&shape)), [""; 0]);
}

#[test]
fn a_journal_that_was_changed_is_not_believed() {
    let shape = shape_of("dual-switches--two");
    run(&mut FakeWorld::new(&shape), &request("dual-switches--two")).unwrap();
    let journal = shape.path("/var/lib/towline-node/journal");
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.replacen("nvidia", "nvidib", 1)).unwrap();
    let error = take_back(&mut FakeWorld::new(&shape)).unwrap_err();
    assert!(error.to_string().contains("damaged in line 1"), "{error}");
}

#[test]
fn what_others_could_have_written_is_not_done() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("var/lib/towline-node");
    let lock = || towline_node::world::lock(&Root::new(folder.path()));
    drop(lock().unwrap());
    assert_eq!(
        fs::metadata(&state).unwrap().permissions().mode() & 0o777,
        0o700
    );
    fs::set_permissions(&state, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(
        lock()
            .unwrap_err()
            .to_string()
            .contains("others could have")
    );
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    // Not followed, and not emptied.
    let target = folder.path().join("target");
    fs::write(&target, "whole").unwrap();
    fs::remove_file(state.join("lock")).unwrap();
    symlink(&target, state.join("lock")).unwrap();
    lock().unwrap_err();
    assert_eq!(fs::read_to_string(&target).unwrap(), "whole");
    // The folder is another one.
    fs::remove_dir_all(&state).unwrap();
    symlink(folder.path(), &state).unwrap();
    assert!(
        lock()
            .unwrap_err()
            .to_string()
            .contains("others could have")
    );
}
