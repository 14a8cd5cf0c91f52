//! Files that a client sends along for a build.

use towline_wire::opencl::files::{File, Files};

use crate::Seed;
use crate::memory::{bounded, proportional};

/// Files have one encoding, and no place is outside their folders.
pub fn target(bytes: &[u8]) {
    if let Ok(files) = bounded(proportional(bytes), || Files::decode(bytes)) {
        assert_eq!(files.encode(), bytes);
        for file in &files.files {
            assert!(file.folder < files.folders && Files::allows(&file.path));
        }
    }
}

/// None, and files in two folders and above one.
pub fn seeds() -> Vec<Seed> {
    let file = |folder, path: &str| File {
        folder,
        path: path.into(),
        text: b"#define N 4\n".into(),
    };
    let files = Files {
        folders: 2,
        files: vec![file(0, "a.h"), file(1, "deep/b.h"), file(1, "../c.h")],
    };
    vec![
        Seed::new("empty", Files::default().encode()),
        Seed::new("three", files.encode()),
    ]
}
