//! Contents of a release: a CycloneDX list of the crates that are part of it, and the texts of their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use spdx::Expression;

use super::{PACKAGES, VERSION};
use crate::workspace::{Metadata, Package, Workspace};

/// Beginnings of the names of files with licences.
const LICENCE_FILES: [&str; 5] = ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE"];

/// The crates that are part of a release for one platform.
pub(super) struct Parts {
    metadata: Metadata,
    /// The dependencies of each, by the numbers that cargo gives packages.
    graph: BTreeMap<String, BTreeSet<String>>,
}

impl Parts {
    pub(super) fn of(workspace: &Workspace, triple: &str) -> Result<Self> {
        let metadata = workspace.metadata_for(triple)?;
        let graph = graph(&metadata);
        Ok(Self { metadata, graph })
    }

    fn foreign(&self) -> impl Iterator<Item = &Package> {
        let packages = self.metadata.packages.iter();
        packages.filter(|package| package.source.is_some() && self.graph.contains_key(&package.id))
    }

    /// CycloneDX 1.6, without times and numbers by chance. `lock` is the text of Cargo.lock, which has the digests.
    pub(super) fn cyclonedx(&self, lock: &str, compiler: &str) -> Result<String> {
        let digests = digests(lock)?;
        let mut components = vec![json!({
            "type": "library",
            "bom-ref": "rust-std",
            "name": "std",
            "version": compiler,
            "description": "Rust's standard library",
            "licenses": [{ "expression": "MIT OR Apache-2.0" }],
        })];
        for package in self.foreign() {
            let mut component = json!({
                "type": "library",
                "bom-ref": reference(package),
                "name": package.name,
                "version": package.version,
                "purl": reference(package),
            });
            if let Some(license) = &package.license {
                let expression =
                    Expression::canonicalize(license)?.unwrap_or_else(|| license.clone());
                component["licenses"] = json!([{ "expression": expression }]);
            }
            if let Some(digest) = digests.get(&(package.name.clone(), package.version.clone())) {
                component["hashes"] = json!([{ "alg": "SHA-256", "content": digest }]);
            }
            components.push(component);
        }
        let document = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": { "component": {
                "type": "application",
                "bom-ref": "towline",
                "name": "towline",
                "version": VERSION,
                "licenses": [{ "license": { "id": "Apache-2.0" } }],
            }},
            "components": components,
            "dependencies": self.dependencies(),
        });
        Ok(serde_json::to_string_pretty(&document)? + "\n")
    }

    /// Each foreign crate with those it depends on; our own crates are one component.
    fn dependencies(&self) -> Vec<Value> {
        let by_id: BTreeMap<_, _> = self.metadata.packages.iter().map(|p| (&p.id, p)).collect();
        let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let name = |id: &String| match by_id.get(id) {
            Some(package) if package.source.is_some() => reference(package),
            _ => "towline".to_owned(),
        };
        for (from, to) in &self.graph {
            let from = name(from);
            let to = to.iter().map(&name).filter(|to| *to != from);
            edges.entry(from.clone()).or_default().extend(to);
        }
        let edges = edges.into_iter();
        edges
            .map(|(from, to)| json!({ "ref": from, "dependsOn": to }))
            .collect()
    }

    /// Every licence text once, below the names of the crates that come with it.
    pub(super) fn licences(&self) -> Result<String> {
        let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let mut out = String::from(
            "Towline contains these packages, each under the licence that stands behind it. The texts that they come with follow.\n\n",
        );
        for package in self.foreign() {
            let of = format!("{} {}", package.name, package.version);
            let license = package.license.as_deref().unwrap_or("no expression");
            writeln!(out, "    {of}: {license}")?;
            let folder = package.manifest_path.parent().context("no folder")?;
            for text in licence_texts(folder)? {
                texts.entry(text).or_default().insert(of.clone());
            }
        }
        writeln!(out, "    Rust's standard library: MIT OR Apache-2.0")?;
        for (text, packages) in &texts {
            let packages: Vec<_> = packages.iter().map(String::as_str).collect();
            writeln!(
                out,
                "\n{}\n{}\n\n{text}",
                "-".repeat(80),
                packages.join(", ")
            )?;
        }
        Ok(out)
    }
}

fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// Crates that become part of the released programs and libraries: no build scripts' and tests' dependencies.
fn graph(metadata: &Metadata) -> BTreeMap<String, BTreeSet<String>> {
    let nodes: BTreeMap<_, _> = metadata.resolve.nodes.iter().map(|n| (&n.id, n)).collect();
    let released = metadata.packages.iter();
    let released = released.filter(|package| PACKAGES.contains(&package.name.as_str()));
    let mut left: Vec<&String> = released.map(|package| &package.id).collect();
    let mut graph = BTreeMap::new();
    while let Some(id) = left.pop() {
        if graph.contains_key(id) {
            continue;
        }
        let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let parts = dependencies.filter(|d| d.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        let parts: Vec<&String> = parts.map(|dependency| &dependency.pkg).collect();
        left.extend(&parts);
        graph.insert(id.clone(), parts.into_iter().cloned().collect());
    }
    graph
}

/// The digests of packages by name and version.
fn digests(lock: &str) -> Result<BTreeMap<(String, String), String>> {
    let lock: toml::Table = lock.parse().context("Cargo.lock")?;
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let text = |package: &toml::Value, key: &str| Some(package.get(key)?.as_str()?.to_owned());
    let entry = |package| {
        let key = (text(package, "name")?, text(package, "version")?);
        Some((key, text(package, "checksum")?))
    };
    Ok(packages.into_iter().flatten().filter_map(entry).collect())
}

fn licence_texts(folder: &Path) -> Result<BTreeSet<String>> {
    let mut texts = BTreeSet::new();
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.to_uppercase();
        let is_licence = LICENCE_FILES.iter().any(|start| name.starts_with(start));
        if is_licence && path.is_file() {
            let text =
                fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let text = String::from_utf8_lossy(&text);
            texts.insert(text.replace("\r\n", "\n").trim().to_owned());
        }
    }
    Ok(texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_the_release_are_listed_with_digests() {
        let workspace = Workspace::locate().unwrap();
        let parts = Parts::of(&workspace, "x86_64-unknown-linux-gnu").unwrap();
        let lock = fs::read_to_string(workspace.root().join("Cargo.lock")).unwrap();
        let text = parts.cyclonedx(&lock, "1.90.0").unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let components = document["components"].as_array().unwrap();
        let named = |name: &str| {
            components
                .iter()
                .find(|component| component["name"] == name)
        };
        assert_eq!(named("ring").unwrap()["hashes"][0]["alg"], "SHA-256");
        assert!(named("proptest").is_none(), "a test's dependency");
        assert!(named("towline-wire").is_none(), "part of towline itself");
        let dependencies = document["dependencies"].as_array().unwrap();
        let of = |name: &str| {
            let found = dependencies.iter().find(|entry| entry["ref"] == name);
            found.unwrap()["dependsOn"].as_array().unwrap().len()
        };
        assert!(of("towline") > 10);
    }

    #[test]
    fn licence_texts_name_their_crates() {
        let workspace = Workspace::locate().unwrap();
        let parts = Parts::of(&workspace, "x86_64-unknown-linux-gnu").unwrap();
        let text = parts.licences().unwrap();
        let mentions = text.lines().filter(|line| line.contains("ring 0."));
        assert!(mentions.count() >= 2, "once in the list, once at a text");
    }
}
