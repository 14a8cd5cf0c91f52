//! Files that a program's source includes: the compiler runs on the server, the files lie here.
//!
//! Before a build, the source is searched for `#include`, and what it names is looked for where a compiler here would: beside the
//! including file, in the folders of `-I`, in the working folder. What is found goes along and is compiled from a copy on the
//! server. Whether a line is active only the compiler knows, so a file may go along in vain; what is not found here may be the
//! server's own.
//!
//! Sources may come from strangers, and a server sees what goes along. So a file goes along only if it lies in the working folder or in
//! one of `-I`, after all `..` and links: what the user named, not what a source names.

use std::collections::{BTreeMap, VecDeque};
use std::io::Read;
use std::path::{Component, Path, PathBuf};

use towline_wire::opencl::files::{File, Files};

/// Most files, and bytes of all of them: more than any kernel's headers take.
const FILE_LIMIT: usize = 4096;
const BYTES_LIMIT: usize = 32 << 20;

/// What a build takes along.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Includes {
    /// The files, encoded.
    pub(super) files: Vec<u8>,
    /// The build options without folders of this machine.
    pub(super) options: Vec<u8>,
}

/// The files that a source includes, if there are any here.
pub(super) fn collect(source: &[u8], options: &[u8]) -> Option<Includes> {
    if !mentioned(source) {
        return None;
    }
    let (mut folders, options) = folders(options);
    // Compilers look for quoted names in the working folder too.
    folders.push(PathBuf::from("."));
    let roots = folders.iter().map(|folder| folder.canonicalize().ok());
    let mut search = Search {
        folders: &folders,
        roots: &roots.collect::<Vec<_>>(),
        found: BTreeMap::new(),
        bytes: 0,
        unread: VecDeque::new(),
    };
    search.names_in(source, None);
    while let Some((folder, path)) = search.unread.pop_front() {
        let Some(text) = search.found.get(&(folder, path.clone())).cloned() else {
            continue;
        };
        search.names_in(&text, Some((folder, &path)));
    }
    if search.found.is_empty() {
        return None;
    }
    let files = Files {
        folders: folders.len() as u32,
        files: search
            .found
            .into_iter()
            .map(|((folder, path), text)| File { folder, path, text })
            .collect(),
    };
    Some(Includes {
        files: files.encode(),
        options,
    })
}

/// Whether a source may include anything.
pub(super) fn mentioned(source: &[u8]) -> bool {
    const WORD: &[u8] = b"include";
    source.windows(WORD.len()).any(|window| window == WORD)
}

/// Folders named by `-I`, and the other options.
fn folders(options: &[u8]) -> (Vec<PathBuf>, Vec<u8>) {
    let text = String::from_utf8_lossy(options);
    let (mut folders, mut others) = (Vec::new(), Vec::new());
    let mut words = words(&text).into_iter();
    while let Some(word) = words.next() {
        let plain = word.replace('"', "");
        match plain.strip_prefix("-I") {
            Some("") => folders.extend(words.next().map(|next| next.replace('"', "").into())),
            Some(folder) => folders.push(folder.into()),
            None => others.push(word),
        }
    }
    (folders, others.join(" ").into_bytes())
}

/// Words of an option string; quotes hold words together.
fn words(text: &str) -> Vec<&str> {
    let mut quoted = false;
    let between = move |letter: char| {
        quoted ^= letter == '"';
        letter.is_ascii_whitespace() && !quoted
    };
    text.split(between)
        .filter(|word| !word.is_empty())
        .collect()
}

struct Search<'a> {
    folders: &'a [PathBuf],
    /// The same without links; `None` for those that there are not.
    roots: &'a [Option<PathBuf>],
    /// Text by folder and path in it.
    found: BTreeMap<(u32, String), Vec<u8>>,
    bytes: usize,
    unread: VecDeque<(u32, String)>,
}

impl Search<'_> {
    /// Looks for all that a text includes; `from` is the file that holds it.
    fn names_in(&mut self, text: &[u8], from: Option<(u32, &str)>) {
        for name in included(&String::from_utf8_lossy(text)) {
            let beside = from.and_then(|(folder, path)| {
                let near = Path::new(path).parent()?.join(&name);
                Some((folder, near))
            });
            let folders = (0_u32..).take(self.folders.len());
            let places = beside
                .into_iter()
                .chain(folders.map(|folder| (folder, PathBuf::from(&name))));
            for (folder, path) in places {
                if self.take(folder, &path) {
                    break;
                }
            }
        }
    }

    /// Whether a path without links lies in a folder that the user named.
    fn is_inside(&self, place: &Path) -> bool {
        self.roots
            .iter()
            .flatten()
            .any(|root| place.starts_with(root))
    }

    /// Takes a file along; `false` if there is none, or none that may go.
    fn take(&mut self, folder: u32, path: &Path) -> bool {
        let Some(path) = within(path) else {
            return false;
        };
        let key = (folder, path);
        if self.found.contains_key(&key) {
            return true;
        }
        let Some(root) = self.folders.get(folder as usize) else {
            return false;
        };
        let Ok(place) = root.join(&key.1).canonicalize() else {
            return false;
        };
        if !place.is_file() || self.found.len() >= FILE_LIMIT {
            return false;
        }
        if !self.is_inside(&place) {
            log::warn!(
                "a source includes {}, which lies outside of the working folder and of the folders of -I: it is not sent; name its \
                 folder with -I",
                place.display()
            );
            return false;
        }
        match read_up_to(&place, BYTES_LIMIT - self.bytes) {
            Ok(Some(text)) => {
                self.bytes += text.len();
                self.unread.push_back(key.clone());
                self.found.insert(key, text);
                true
            }
            Ok(None) => {
                log::warn!("{} is too much to take along for a build", place.display());
                false
            }
            Err(error) => {
                log::warn!("cannot read {}: {error}", place.display());
                false
            }
        }
    }
}

/// What is in a file, unless that is more than the limit: nobody knows what a source names.
fn read_up_to(place: &Path, limit: usize) -> std::io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let file = std::fs::File::open(place)?;
    file.take(limit as u64 + 1).read_to_end(&mut text)?;
    Ok((text.len() <= limit).then_some(text))
}

/// A relative path without detours, if it stays within the levels that the server leaves above a folder.
fn within(path: &Path) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            Component::ParentDir => parts.push(".."),
            Component::Normal(name) => parts.push(name.to_str()?),
            // An absolute name means the same file on the server, or none.
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    let path = parts.join("/");
    Files::allows(&path).then_some(path)
}

/// Names in the `#include` lines of a text.
fn included(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let rest = line.trim_start().strip_prefix('#')?.trim_start();
        let rest = rest.strip_prefix("include")?.trim_start();
        let close = match rest.as_bytes().first()? {
            b'"' => '"',
            b'<' => '>',
            _ => return None,
        };
        let rest = rest.get(1..)?;
        Some(rest.get(..rest.find(close)?)?.to_owned())
    };
    text.lines().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_taken_out_of_the_options() {
        let (folders, options) =
            folders(b"-DN=4 -I kernels -Iinclude -I\"two words\" -cl-mad-enable");
        let expected: [PathBuf; 3] = ["kernels".into(), "include".into(), "two words".into()];
        assert_eq!(folders, expected);
        assert_eq!(options, b"-DN=4 -cl-mad-enable");
    }

    #[test]
    fn a_file_beyond_the_limit_is_not_read_to_its_end() {
        // Sparse: who read all of it would run out of memory.
        let file = tempfile::NamedTempFile::new().expect("a file");
        file.as_file().set_len(1 << 40).expect("room for a hole");
        assert_eq!(read_up_to(file.path(), 4096).expect("readable"), None);
        file.as_file().set_len(3).expect("cut");
        assert_eq!(
            read_up_to(file.path(), 3).expect("readable"),
            Some(vec![0; 3])
        );
    }

    #[test]
    fn names_of_include_lines_are_found() {
        let text = "#include \"a.h\"\n  #  include <b/c.h> // why\n#include MACRO\nint include;\n#include \"open";
        assert_eq!(included(text), ["a.h", "b/c.h"]);
    }

    #[test]
    fn detours_are_straightened_and_flights_refused() {
        assert_eq!(within(Path::new("a/../b/./c.h")).as_deref(), Some("b/c.h"));
        assert_eq!(within(Path::new("../x.h")).as_deref(), Some("../x.h"));
        assert_eq!(within(Path::new("/etc/passwd")), None);
        assert_eq!(within(Path::new("../../../../../../../../../x.h")), None);
    }

    #[test]
    fn files_are_found_through_files() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        std::fs::create_dir(root.join("sub")).expect("a folder");
        std::fs::write(root.join("a.h"), "#include \"sub/b.h\"\n").expect("written");
        std::fs::write(root.join("sub/b.h"), "#include \"c.h\"\n#include \"a.h\"\n")
            .expect("written");
        std::fs::write(root.join("sub/c.h"), "#include \"../a.h\"\n").expect("written");
        let options = format!("-I{} -DX", root.display());
        let includes = collect(
            b"#include <a.h>\n#include <missing.h>\n",
            options.as_bytes(),
        )
        .expect("there are files");
        assert_eq!(includes.options, b"-DX");
        let files = Files::decode(&includes.files).expect("well formed");
        let names: Vec<(u32, &str)> = files
            .files
            .iter()
            .map(|file| (file.folder, file.path.as_str()))
            .collect();
        assert_eq!(names, [(0, "a.h"), (0, "sub/b.h"), (0, "sub/c.h")]);
        assert_eq!(files.folders, 2);
    }

    /// The files that go along from the folder `project`, by what a source includes.
    fn taken(folders: &[&Path], line: &str) -> Vec<String> {
        let options: String = folders
            .iter()
            .map(|folder| format!("-I{} ", folder.display()))
            .collect();
        let source = format!("#if 0\n{line}\n#endif\n");
        let Some(includes) = collect(source.as_bytes(), options.as_bytes()) else {
            return Vec::new();
        };
        let files = Files::decode(&includes.files).expect("well formed");
        files.files.into_iter().map(|file| file.path).collect()
    }

    #[test]
    fn files_outside_of_the_named_folders_stay() {
        let folder = tempfile::tempdir().expect("a folder");
        let (project, secret) = (folder.path().join("project"), folder.path().join("secret"));
        for folder in [&project, &secret] {
            std::fs::create_dir(folder).expect("a folder");
        }
        std::fs::write(secret.join("id_rsa"), "key").expect("written");
        std::fs::write(project.join("own.h"), "").expect("written");
        for (link, target) in [("way", secret.clone()), ("key.h", secret.join("id_rsa"))] {
            std::os::unix::fs::symlink(target, project.join(link)).expect("a link");
        }
        let absolute = format!("#include \"{}\"", secret.join("id_rsa").display());
        for line in [
            "#include \"../secret/id_rsa\"",
            "#include <../project/../secret/id_rsa>",
            "#include \"way/id_rsa\"",
            "#include \"key.h\"",
            &absolute,
        ] {
            assert_eq!(taken(&[&project], line), Vec::<String>::new(), "{line}");
        }
        assert_eq!(
            taken(&[&project], "#include \"../project/own.h\""),
            ["../project/own.h"]
        );
        let named = [project.as_path(), secret.as_path()];
        assert_eq!(
            taken(&named, "#include \"../secret/id_rsa\""),
            ["../secret/id_rsa"]
        );
        assert_eq!(taken(&named, "#include \"key.h\""), ["key.h"]);
    }

    #[test]
    fn a_source_that_includes_nothing_takes_nothing_along() {
        assert_eq!(collect(b"kernel void k() {}", b"-I."), None);
        assert_eq!(collect(b"#include <opencl-c.h>", b""), None);
    }
}
