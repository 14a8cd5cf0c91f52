//! Files that a build takes along from the client's machine.

use crate::codec::{Decoder, Scalar, put_blob};
use crate::error::DecodeError;

/// Most files of a build.
const FILE_LIMIT: usize = 4096;
/// Most folders that are searched.
const FOLDER_LIMIT: u32 = 1024;
/// How many levels a path may leave its folder upwards.
pub const LEVELS: usize = 8;

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Number of the folder that it lies in.
    pub folder: u32,
    /// Path from there, as [`Files::allows`] it.
    pub path: String,
    /// What is in it.
    pub text: Vec<u8>,
}

/// The files of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// How many folders the compiler searches, in order.
    pub folders: u32,
    /// The files.
    pub files: Vec<File>,
}

impl Files {
    /// Whether a path is relative, without detours, and at most [`LEVELS`] up.
    pub fn allows(path: &str) -> bool {
        let mut parts = path.split('/').skip_while(|part| *part == "..").peekable();
        let up = path.split('/').take_while(|part| *part == "..").count();
        up <= LEVELS
            && parts.peek().is_some()
            && parts.all(|part| !matches!(part, "" | "." | "..") && !part.contains(['\0', '\\']))
    }

    /// The bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.folders.put(&mut out);
        (self.files.len() as u32).put(&mut out);
        for file in &self.files {
            file.folder.put(&mut out);
            put_blob(&mut out, file.path.as_bytes());
            put_blob(&mut out, &file.text);
        }
        out
    }

    /// Reads files; a path that [`Files::allows`] does not is malformed.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        let folders = decoder.scalar::<u32>()?;
        let count = decoder.scalar::<u32>()?;
        for (what, value, limit) in [
            ("folders", folders, FOLDER_LIMIT),
            ("files", count, FILE_LIMIT as u32),
        ] {
            if value > limit {
                return Err(DecodeError::TooLong {
                    what,
                    len: value.into(),
                    limit: limit.into(),
                });
            }
        }
        let mut files = Vec::new();
        for _ in 0..count {
            let folder = decoder.scalar::<u32>()?;
            let path = std::str::from_utf8(decoder.blob()?).map_err(|_| DecodeError::BadText)?;
            if folder >= folders || !Self::allows(path) {
                return Err(DecodeError::BadValue {
                    what: "the place of a file",
                    value: folder.into(),
                });
            }
            let path = path.to_owned();
            let text = decoder.blob()?.to_vec();
            files.push(File { folder, path, text });
        }
        decoder.finish()?;
        Ok(Self { folders, files })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_survive_the_wire_and_no_cut_decodes() {
        let files = Files {
            folders: 2,
            files: vec![
                File {
                    folder: 1,
                    path: "a/b.h".into(),
                    text: b"int x;".into(),
                },
                File {
                    folder: 0,
                    path: "../c.h".into(),
                    text: Vec::new(),
                },
            ],
        };
        let bytes = files.encode();
        assert_eq!(Files::decode(&bytes).as_ref(), Ok(&files));
        for cut in 0..bytes.len() {
            assert!(Files::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn paths_stay_where_they_belong() {
        for path in ["a.h", "a/b.h", "../a.h", "../../../../../../../../a.h"] {
            assert!(Files::allows(path), "{path}");
        }
        for path in [
            "", "/a.h", "a//b.h", "a/../b.h", "./a.h", "..", "../", "a\0.h",
        ] {
            assert!(!Files::allows(path), "{path}");
        }
        assert!(!Files::allows("../../../../../../../../../a.h"));
    }

    #[test]
    fn a_file_outside_the_folders_is_malformed() {
        let files = Files {
            folders: 1,
            files: vec![File {
                folder: 1,
                path: "a.h".into(),
                text: Vec::new(),
            }],
        };
        assert!(Files::decode(&files.encode()).is_err());
    }
}
