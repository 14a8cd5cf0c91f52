//! The files for people and other programs.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use serde::Serialize;

use crate::Summary;
use crate::error::TraceError;
use crate::matrix::Matrix;
use crate::pairs::Pair;

/// Writes `trace.json`.
pub(crate) fn summary(folder: &Path, summary: &Summary) -> Result<(), TraceError> {
    let path = folder.join("trace.json");
    let text = serde_json::to_string_pretty(summary).map_err(std::io::Error::other);
    text.and_then(|text| std::fs::write(&path, text + "\n"))
        .map_err(TraceError::io("write", &path))
}

/// Writes `matrix.json` and `matrix.csv`.
pub(crate) fn matrix(folder: &Path, matrix: &Matrix) -> Result<(), TraceError> {
    for (name, write) in [
        (
            "matrix.json",
            json as fn(&mut Output, &Matrix) -> std::io::Result<()>,
        ),
        ("matrix.csv", csv),
    ] {
        let path = folder.join(name);
        File::create(&path)
            .and_then(|file| {
                let mut output = BufWriter::new(file);
                write(&mut output, matrix)?;
                output.flush()
            })
            .map_err(TraceError::io("write", &path))?;
    }
    Ok(())
}

type Output = BufWriter<File>;

/// One line for each key, and for each communicator.
fn json(output: &mut Output, matrix: &Matrix) -> std::io::Result<()> {
    writeln!(output, "{{")?;
    member(output, "format", &"towline-matrix")?;
    member(output, "version", &1)?;
    member(output, "ranks", &matrix.ranks)?;
    member(output, "complete", &matrix.complete)?;
    member(output, "missing", &matrix.missing)?;
    member(output, "unfinished", &matrix.unfinished)?;
    member(output, "compute_seconds", &matrix.compute_seconds)?;
    member(output, "hosts", &matrix.hosts)?;
    member(output, "pairs", &["from", "to", "messages", "bytes"])?;
    member(output, "point_to_point", &matrix.point_to_point)?;
    member(output, "one_sided", &matrix.one_sided)?;
    member(output, "collective", &matrix.collective)?;
    write!(output, "  \"communicators\": [")?;
    for (index, communicator) in matrix.communicators.iter().enumerate() {
        write!(output, "{}\n    ", if index == 0 { "" } else { "," })?;
        serde_json::to_writer(&mut *output, communicator)?;
    }
    writeln!(output, "\n  ]\n}}")
}

fn member(output: &mut Output, key: &str, value: &impl Serialize) -> std::io::Result<()> {
    write!(output, "  \"{key}\": ")?;
    serde_json::to_writer(&mut *output, value)?;
    writeln!(output, ",")
}

fn csv(output: &mut Output, matrix: &Matrix) -> std::io::Result<()> {
    writeln!(output, "kind,from,to,messages,bytes")?;
    for (kind, pairs) in [
        ("point_to_point", &matrix.point_to_point),
        ("one_sided", &matrix.one_sided),
        ("collective", &matrix.collective),
    ] {
        for Pair {
            from,
            to,
            messages,
            bytes,
        } in pairs
        {
            writeln!(output, "{kind},{from},{to},{messages},{bytes}")?;
        }
    }
    Ok(())
}
