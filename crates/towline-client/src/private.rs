//! Files that are for their owner alone, where the system has modes. On Windows they are for those that their folder is for.

use std::fs::{DirBuilder, OpenOptions};
use std::io;
use std::path::Path;

/// Options of a file that nobody else reads or writes.
pub(crate) fn options() -> OpenOptions {
    #[cfg_attr(not(unix), allow(unused_mut))]
    let mut options = OpenOptions::new();
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// Makes a folder that nobody else enters, and those above it.
pub(crate) fn create_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}
