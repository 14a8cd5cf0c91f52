use std::collections::BTreeMap;

use super::*;

#[test]
fn destdir_stands_before_the_prefix() {
    assert_eq!(
        within(Path::new("/tmp/pkg"), Path::new("/usr/local")),
        Path::new("/tmp/pkg/usr/local")
    );
    assert_eq!(
        within(Path::new(""), Path::new("/usr/local")),
        Path::new("/usr/local")
    );
}

#[test]
fn a_relative_prefix_is_refused_before_anything_is_built() {
    let workspace = Workspace::locate().unwrap();
    let error = install(&workspace, Path::new("usr"), Path::new(""))
        .unwrap_err()
        .to_string();
    assert!(error.contains("absolute"), "{error}");
}

#[test]
fn digests_name_every_file_as_sha256sum_does() {
    let folder = tempfile::tempdir().unwrap();
    write(&folder.path().join("b"), b"").unwrap();
    write(&folder.path().join("a/c"), b"x\n").unwrap();
    write_digests(folder.path()).unwrap();
    let checked = Command::new("sha256sum")
        .args(["--check", "--strict", "--quiet", "SHA256SUMS"])
        .current_dir(folder.path())
        .status();
    assert!(checked.unwrap().success());
    let text = fs::read_to_string(folder.path().join("SHA256SUMS")).unwrap();
    assert!(text.contains("  a/c\n") && text.contains("  b\n"), "{text}");
}

/// The files that packages are made of; programs and libraries can be executed.
const FILES: [&str; 13] = [
    "bin/towline",
    "lib/libtowline_cuda.so",
    "lib/libtowline_cudart12.so",
    "lib/libtowline_cudart13.so",
    "lib/libtowline_nccl.so",
    "lib/libtowline_nvml.so",
    "lib/libtowline_opencl.so",
    "lib/towline/python/towline_bench/__init__.py",
    "share/man/man1/towline.1",
    "share/bash-completion/completions/towline",
    "share/fish/vendor_completions.d/towline.fish",
    "share/zsh/site-functions/_towline",
    "share/doc/towline/README.md",
];
const LISTS: [&str; 3] = ["LICENSE", "THIRD-PARTY-LICENSES", "sbom.cdx.json"];
const ALL: [Target; 2] = [Target::X86_64, Target::Aarch64];

/// A made-up release for each target below a folder, packed there in all forms. Files are written in an order, then changed at a time,
/// with the modes that a umask leaves.
fn packed(folder: &Path, umask: u32, time: u64, is_reversed: bool) -> BTreeMap<PathBuf, Vec<u8>> {
    let workspace = Workspace::locate().unwrap();
    let packing = Packing {
        workspace: &workspace,
        dist: folder.join("dist"),
        time: "1700000000".to_owned(),
        version: "1.2.3".to_owned(),
    };
    empty_dir(&packing.dist).unwrap();
    let lists = LISTS.map(|name| format!("share/doc/towline/{name}"));
    let mut names: Vec<&str> = FILES
        .into_iter()
        .chain(lists.iter().map(String::as_str))
        .collect();
    if is_reversed {
        names.reverse();
    }
    for target in ALL {
        let tree = packing.scratch(&format!("towline-1.2.3-{}", target.triple()));
        empty_dir(&tree).unwrap();
        for name in &names {
            let file = tree.join(name);
            write(&file, format!("this is {name}\n").repeat(100).as_bytes()).unwrap();
            let is_executable = name.starts_with("bin") || name.ends_with(".so");
            let mode = if is_executable { 0o777 } else { 0o666 };
            fs::set_permissions(&file, Permissions::from_mode(mode & !umask)).unwrap();
            let time = UNIX_EPOCH + Duration::from_secs(time);
            fs::File::open(&file).unwrap().set_modified(time).unwrap();
        }
        packing
            .pack_tree(target, &tree, Form::value_variants())
            .unwrap();
    }
    write_digests(&packing.dist).unwrap();
    let files = files_below(&packing.dist).unwrap();
    let read = |file: PathBuf| {
        let bytes = fs::read(&file).unwrap();
        (file.strip_prefix(&packing.dist).unwrap().to_owned(), bytes)
    };
    files.into_iter().map(read).collect()
}

#[test]
#[ignore = "packs with what `scripts/setup test` puts into build/dist-tools"]
fn same_files_give_the_same_packages_anywhere() {
    let folder = tempfile::tempdir().unwrap();
    let first = packed(&folder.path().join("a"), 0o022, 1_600_000_000, false);
    // A tarball, a wheel, three packages of two kinds for each target; and the digests.
    assert_eq!(first.len(), 2 * 8 + 1, "{:?}", first.keys());
    // No packer's clock is finer than two seconds.
    std::thread::sleep(Duration::from_secs(2));
    let elsewhere = folder.path().join("another/place");
    let second = packed(&elsewhere, 0o077, 1_650_000_000, true);
    let is_other = |name: &&PathBuf| first[*name] != second[*name];
    assert_eq!(first.keys().filter(is_other).collect::<Vec<_>>(), [""; 0]);
    assert!(first.keys().eq(second.keys()));
}

/// A text in the header of an rpm package: a table of tags behind a lead, and behind a table of signatures that ends at a multiple of 8.
fn rpm_text(package: &[u8], tag: u32) -> String {
    let number = |at: usize| u32::from_be_bytes(package[at..at + 4].try_into().unwrap());
    let end = |at: usize| at + 16 + 16 * number(at + 8) as usize + number(at + 12) as usize;
    let header = end(96).next_multiple_of(8);
    let entries = (header + 16..)
        .step_by(16)
        .take(number(header + 8) as usize);
    let entry = entries
        .into_iter()
        .find(|&entry| number(entry) == tag)
        .expect("the tag is there");
    let text = header + 16 + 16 * number(header + 8) as usize + number(entry + 8) as usize;
    let text = package[text..].split(|byte| *byte == 0).next().unwrap();
    String::from_utf8(text.to_owned()).unwrap()
}

#[test]
#[ignore = "packs with what `scripts/setup test` puts into build/dist-tools"]
fn packages_name_their_architecture() {
    const ARCH: u32 = 1022;
    const BUILD_HOST: u32 = 1007;
    let folder = tempfile::tempdir().unwrap();
    let packages = packed(folder.path(), 0o022, 1_600_000_000, false);
    for target in ALL {
        let (arch, debian) = (target.arch(), target.debian_arch());
        for package in ["towline", "towline-client", "towline-server"] {
            let rpm = &packages[Path::new(&format!("{package}-1.2.3-1.{arch}.rpm"))];
            assert_eq!(rpm_text(rpm, ARCH), arch);
            assert_eq!(rpm_text(rpm, BUILD_HOST), "towline");
            let deb = folder
                .path()
                .join(format!("dist/{package}_1.2.3-1_{debian}.deb"));
            let said = Command::new("dpkg-deb")
                .arg("--field")
                .arg(&deb)
                .arg("Architecture")
                .output();
            assert_eq!(said.unwrap().stdout, format!("{debian}\n").into_bytes());
        }
        let wheel =
            format!("towline-1.2.3-py3-none-manylinux2014_{arch}.manylinux_2_17_{arch}.whl");
        assert!(packages.contains_key(Path::new(&wheel)), "{wheel}");
    }
}

#[test]
fn lists_of_contents_name_no_place_of_this_machine() {
    let workspace = Workspace::locate().unwrap();
    let lock = fs::read_to_string(workspace.root().join("Cargo.lock")).unwrap();
    let lists = || {
        let parts = Parts::of(&workspace, "aarch64-unknown-linux-gnu").unwrap();
        [
            parts.cyclonedx(&lock, "1.90.0").unwrap(),
            parts.licences().unwrap(),
        ]
    };
    let first = lists();
    assert_eq!(first, lists());
    let home = std::env::var("HOME").unwrap();
    let root = workspace.root().display().to_string();
    assert!(
        first
            .iter()
            .all(|list| !list.contains(&root) && !list.contains(&home))
    );
}
