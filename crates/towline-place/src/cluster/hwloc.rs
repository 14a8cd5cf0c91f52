//! Nodes from hwloc's XML, as `lstopo --of xml` writes it: one file per node, or one for many nodes that are alike.

use std::collections::BTreeSet;
use std::path::Path;

use roxmltree::{Document, Node as Xml};

use super::{Cluster, Node, text};
use crate::{Error, Result};

/// A cluster of the nodes that the files describe; network and speeds are assumed, to be changed in the TOML.
///
/// With `names`, there is one file and each name is a node like it.
pub fn cluster(files: &[(String, String)], names: &[String]) -> Result<Cluster> {
    let mut nodes = Vec::new();
    match (files, names) {
        (files, []) => {
            for (what, text) in files {
                nodes.push(node(text, what)?);
            }
        }
        ([(what, text)], names) => {
            let model = node(text, what)?;
            for name in names {
                nodes.push(Node {
                    name: name.clone(),
                    ..model.clone()
                });
            }
        }
        _ => {
            return Err(Error::Size(
                "give either one hwloc file and the nodes that are like it, or one file per node"
                    .to_owned(),
            ));
        }
    }
    let (memory, gpu, network) = text::defaults();
    let cluster = Cluster {
        name: "from hwloc".to_owned(),
        network,
        memory,
        nodes,
        gpu_servers: Vec::new(),
        switches: Vec::new(),
        gpu,
    };
    cluster.check("the hwloc files")?;
    Ok(cluster)
}

/// Reads files and makes a cluster of them.
pub fn from_files<P: AsRef<Path>>(paths: &[P], names: &[String]) -> Result<Cluster> {
    let mut files = Vec::new();
    for path in paths {
        let path = path.as_ref();
        files.push((path.display().to_string(), crate::read_text(path)?));
    }
    cluster(&files, names)
}

fn node(text: &str, what: &str) -> Result<Node> {
    let fail = |reason: String| Error::Cluster {
        what: what.to_owned(),
        reason,
    };
    // lstopo names a DTD; it is not read.
    let options = roxmltree::ParsingOptions {
        allow_dtd: true,
        nodes_limit: 1 << 20,
        ..Default::default()
    };
    let document = Document::parse_with_options(text, options)
        .map_err(|error| fail(format!("not XML: {error}")))?;
    let is = |kind: &'static str| {
        move |xml: &Xml<'_, '_>| xml.has_tag_name("object") && xml.attribute("type") == Some(kind)
    };
    let root = document.root();
    let machine = root.descendants().find(is("Machine")).ok_or_else(|| {
        fail("no object of type Machine: is it what `lstopo --of xml` wrote?".to_owned())
    })?;
    let packages: Vec<Xml<'_, '_>> = machine.descendants().filter(is("Package")).collect();
    // Some virtual machines tell no packages.
    let packages = match packages.is_empty() {
        true => vec![machine],
        false => packages,
    };
    let count = |xml: &Xml<'_, '_>, kind| xml.descendants().filter(is(kind)).count() as u32;
    let sockets: Vec<u32> = packages
        .iter()
        .map(|package| count(package, "Core"))
        .collect();
    let cores: u32 = sockets.iter().sum();
    if cores == 0 {
        return Err(fail("it has no cores".to_owned()));
    }
    let threads = (count(&machine, "PU") / cores).max(1);
    let name = info(machine, "HostName").ok_or_else(|| {
        fail("it does not name its host: give the names of the nodes that are like it".to_owned())
    })?;
    Ok(text::plain_node(
        name.to_owned(),
        sockets,
        threads,
        gpus(machine),
    ))
}

fn info<'a>(object: Xml<'a, '_>, key: &str) -> Option<&'a str> {
    object
        .children()
        .find(|child| child.has_tag_name("info") && child.attribute("name") == Some(key))?
        .attribute("value")
}

/// Co-processors, each counted once though NVML, CUDA and OpenCL may each have found it.
fn gpus(machine: Xml<'_, '_>) -> u32 {
    let mut devices = BTreeSet::new();
    let mut elsewhere = 0;
    for object in machine.descendants() {
        let is_gpu = object.attribute("type") == Some("OSDev")
            && object.attribute("osdev_type") == Some("5")
            && info(object, "CoProcType") != Some("CPU");
        if !is_gpu {
            continue;
        }
        let pci = object
            .ancestors()
            .find(|above| above.attribute("type") == Some("PCIDev"))
            .and_then(|above| above.attribute("pci_busid"));
        match pci {
            Some(bus) => {
                devices.insert(bus.to_owned());
            }
            None => elsewhere += 1,
        }
    }
    devices.len() as u32 + elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;

    const XML: &str = r#"<?xml version="1.0"?><!DOCTYPE topology SYSTEM "hwloc2.dtd"><topology version="2.0">
      <object type="Machine"><info name="HostName" value="n7"/>
        <object type="Package"><object type="Core"><object type="PU"/><object type="PU"/></object></object>
        <object type="Package"><object type="Core"><object type="PU"/><object type="PU"/></object></object>
        <object type="PCIDev" pci_busid="0000:03:00.0">
          <object type="OSDev" osdev_type="5" name="cuda0"/><object type="OSDev" osdev_type="5" name="opencl0d0"/>
        </object>
      </object></topology>"#;

    #[test]
    fn packages_cores_threads_and_gpus_are_counted() {
        let cluster = cluster(&[("a".to_owned(), XML.to_owned())], &[]).unwrap();
        let node = &cluster.nodes[0];
        assert_eq!((node.name.as_str(), &node.sockets[..]), ("n7", &[1, 1][..]));
        assert_eq!((node.threads, node.gpus), (2, 1));
    }

    #[test]
    fn one_file_may_stand_for_many_nodes() {
        let names = ["a".to_owned(), "b".to_owned()];
        let cluster = cluster(&[("x".to_owned(), XML.to_owned())], &names).unwrap();
        assert_eq!(cluster.nodes.len(), 2);
    }

    #[test]
    fn other_files_are_refused() {
        for text in [
            "",
            "<topology/>",
            "<topology><object type='Machine'/></topology>",
            "<a",
            "{}",
        ] {
            assert!(
                cluster(&[("x".to_owned(), text.to_owned())], &[]).is_err(),
                "{text}"
            );
        }
    }
}
