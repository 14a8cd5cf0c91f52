//! The Python wheel. Its data scheme is the release's tree, so that `bin`, `lib` and `share` of an environment become a prefix.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::deflate::recompress;
use super::target::Target;
use super::{Packing, copy_tree, create_dir, empty_dir, succeed, write};

/// The most bytes that a wheel may have.
const MAX_BYTES: u64 = 15_000_000;

pub(super) fn pack(packing: &Packing<'_>, target: Target, tree: &Path) -> Result<()> {
    let version = &packing.version;
    let arch = target.arch();
    let unpacked = packing.scratch(&format!("wheel-{arch}"));
    empty_dir(&unpacked)?;
    let data = unpacked.join(format!("towline-{version}.data"));
    let info = unpacked.join(format!("towline-{version}.dist-info"));
    create_dir(&data.join("scripts"))?;
    for entry in fs::read_dir(tree).with_context(|| format!("cannot read {}", tree.display()))? {
        let (from, name) = entry.map(|entry| (entry.path(), entry.file_name()))?;
        match name.to_str() {
            Some("bin") => copy_tree(&from, &data.join("scripts"))?,
            _ => copy_tree(&from, &data.join("data").join(name))?,
        }
    }
    // Where tools look for them, and nowhere else: they are long.
    let documents = data.join("data/share/doc/towline");
    for (from, to) in [
        ("LICENSE", "licenses/LICENSE"),
        ("THIRD-PARTY-LICENSES", "licenses/THIRD-PARTY-LICENSES"),
        ("sbom.cdx.json", "sboms/towline.cdx.json"),
    ] {
        let from = documents.join(from);
        write(&info.join(to), &fs::read(&from)?)?;
        fs::remove_file(&from)?;
    }
    let readme = fs::read_to_string(packing.workspace.root().join("README.md"))?;
    write(
        &info.join("METADATA"),
        metadata(version, &readme).as_bytes(),
    )?;
    write(
        &info.join("WHEEL"),
        format!(
            "Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: py3-none-manylinux2014_{arch}\n\
             Tag: py3-none-manylinux_2_17_{arch}\n"
        )
        .as_bytes(),
    )?;
    packing.settle(&unpacked)?;
    succeed(
        packing
            .tool("python")
            .args(["-m", "wheel", "pack", "--dest-dir"])
            .arg(&packing.dist)
            .arg(&unpacked),
    )?;
    let name = format!("towline-{version}-py3-none-manylinux2014_{arch}.manylinux_2_17_{arch}.whl");
    let wheel = packing.dist.join(name);
    let packed = fs::read(&wheel).with_context(|| format!("there is no {}", wheel.display()))?;
    let packed =
        recompress(&packed).with_context(|| format!("cannot shrink {}", wheel.display()))?;
    write(&wheel, &packed)?;
    let bytes = packed.len() as u64;
    ensure!(
        bytes <= MAX_BYTES,
        "{} has {bytes} bytes, more than the {MAX_BYTES} that a wheel may have",
        wheel.display()
    );
    Ok(())
}

fn metadata(version: &str, readme: &str) -> String {
    format!(
        "Metadata-Version: 2.4\nName: towline\nVersion: {version}\nSummary: Use GPUs and other OpenCL devices of other machines\n\
         Home-page: {}\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\nLicense-File: THIRD-PARTY-LICENSES\n\
         Requires-Python: >=3.7\nClassifier: Operating System :: POSIX :: Linux\nDescription-Content-Type: text/markdown\n\n{}",
        env!("CARGO_PKG_REPOSITORY"),
        with_absolute_links(readme)
    )
}

/// The page for PyPI, which has none of the files that README's links lead to.
fn with_absolute_links(readme: &str) -> String {
    let mut pieces = readme.split("](");
    let mut page = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        page.push_str("](");
        if !piece.starts_with("https://") && !piece.starts_with('#') {
            page.push_str(concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/"));
        }
        page.push_str(piece);
    }
    page
}

#[cfg(test)]
mod tests {
    use super::with_absolute_links;

    #[test]
    fn links_to_files_lead_to_the_repository() {
        assert_eq!(
            with_absolute_links("a [b](docs/b.md#c), [d](https://e) and [f](#g)"),
            "a [b](https://github.com/towline/towline/blob/main/docs/b.md#c), [d](https://e) and [f](#g)"
        );
    }
}
