//! A lease as a device of the Container Device Interface (CDI), version 0.6.0 of its specification: what a container needs to use it.
//! <https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md>

use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use super::Given;
use crate::run;

const VERSION: &str = "0.6.0";
/// The kind of the devices.
const KIND: &str = "towline.dev/lease";
/// Places of our libraries and of the lease's token in a container.
const LIBRARIES: &str = "/opt/towline/lib";
const TOKEN: &str = "/run/towline/token";

/// The file for a container engine's folder, such as /var/run/cdi/towline-NAME.json.
pub(super) fn specification(name: &str, given: &[Given], token: &Path) -> anyhow::Result<Value> {
    let servers: Vec<_> = given.iter().map(|given| given.server.to_string()).collect();
    let libraries = run::container_libraries()?.into_iter();
    let mounts = libraries.map(|(name, file)| mount(&file, &format!("{LIBRARIES}/{name}")));
    let mut mounts = mounts.collect::<anyhow::Result<Vec<_>>>()?;
    mounts.push(mount(token, TOKEN)?);
    Ok(json!({
        "cdiVersion": VERSION,
        "kind": KIND,
        "devices": [{
            "name": name,
            "containerEdits": {
                "env": [
                    format!("TOWLINE_SERVERS={}", servers.join(",")),
                    format!("TOWLINE_TENANT={name}"),
                    format!("TOWLINE_TOKEN_FILE={TOKEN}"),
                    format!("LD_LIBRARY_PATH={LIBRARIES}"),
                    // Of ocl-icd and of Khronos' loader.
                    format!("OCL_ICD_VENDORS={LIBRARIES}/{}", run::LIBRARY),
                    format!("OCL_ICD_FILENAMES={LIBRARIES}/{}", run::LIBRARY),
                ],
                "mounts": mounts,
            },
        }],
    }))
}

fn mount(from: &Path, to: &str) -> anyhow::Result<Value> {
    let from = std::path::absolute(from)?;
    let from = from.to_str().context("a path that is no text")?;
    Ok(
        json!({ "hostPath": from, "containerPath": to, "options": ["ro", "nosuid", "nodev", "bind"] }),
    )
}
