//! `towline vm cluster`: the files of machines on several hosts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use towline_node::vm::cloud::{self, Cluster, KeyPair};
use towline_node::vm::{Settings, domain, topology};
use towline_node::{Host, Plan};

use super::{ClusterOptions, Files};
use crate::node;

/// A cluster as its file says it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    cluster: Cluster,
    #[serde(default)]
    settings: Settings,
    #[serde(rename = "host")]
    hosts: Vec<HostEntry>,
}

/// A host: reached by ssh, or looked at before.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostEntry {
    /// What `ssh` calls it.
    #[serde(default)]
    ssh: Option<String>,
    /// What `towline node inspect --json` wrote there.
    #[serde(default)]
    facts: Option<PathBuf>,
    /// What is wanted of it, beside the cluster's file.
    request: PathBuf,
}

pub(super) fn run(options: &ClusterOptions) -> anyhow::Result<ExitCode> {
    let shown = options.cluster.display();
    let text =
        fs::read_to_string(&options.cluster).with_context(|| format!("cannot read {shown}"))?;
    let description: Description =
        toml::from_str(&text).with_context(|| format!("{shown} describes no cluster"))?;
    let folder = options.cluster.parent().unwrap_or(Path::new("."));
    let mut hosts: Vec<(Host, Plan)> = Vec::new();
    for entry in &description.hosts {
        let request = node::request(&folder.join(&entry.request))?;
        let host = facts(entry, folder)?;
        let plan = towline_node::plan(&host, &request);
        if let Some(obstacle) = plan.obstacles.first() {
            bail!(
                "{}: {}; would help: {}",
                host.system.name,
                obstacle.what,
                obstacle.remedy
            );
        }
        hosts.push((host, plan));
    }
    let members = cloud::members(&description.cluster, &hosts)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    let keys = key_pair(&options.out)?;
    let mut written = Files::new(options.json);
    written.write(options.out.join("hostfile"), &cloud::hostfile(&members))?;
    for member in &members {
        let folder = options.out.join(&member.vm.name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let seed = cloud::seed(&description.cluster, &members, member, &keys)?;
        written.write(
            folder.join("domain.xml"),
            &domain(member.host, member.vm, &description.settings)?,
        )?;
        written.write(
            folder.join("nccl-topology.xml"),
            &topology(member.host, member.vm)?,
        )?;
        written.write(folder.join("meta-data"), &seed.meta_data)?;
        written.write(folder.join("network-config"), &seed.network_config)?;
        written.write(folder.join("user-data"), &seed.user_data)?;
        if let Some(image) = disk(&folder, &member.vm.name)? {
            written.add(image);
        }
    }
    written.finish()
}

fn facts(entry: &HostEntry, folder: &Path) -> anyhow::Result<Host> {
    match (&entry.ssh, &entry.facts) {
        (None, Some(path)) => Ok(node::host(Some(&folder.join(path)), Path::new("/"))?.0),
        (Some(target), None) => {
            ensure!(!target.starts_with('-'), "`{target}` is no host");
            let output = Command::new("ssh")
                .args([
                    "-o",
                    "BatchMode=yes",
                    target,
                    "towline",
                    "node",
                    "inspect",
                    "--json",
                ])
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output()
                .context("cannot run ssh")?;
            ensure!(
                output.status.success(),
                "`ssh {target} towline node inspect --json` failed ({}): towline has to be installed there, and a key to let us in",
                output.status
            );
            serde_json::from_slice(&output.stdout)
                .with_context(|| format!("{target} answered something else than facts of a host"))
        }
        _ => bail!("each [[host]] needs either `ssh` or `facts`"),
    }
}

/// The keys that the machines use among each other; made once.
fn key_pair(folder: &Path) -> anyhow::Result<KeyPair> {
    let private = folder.join("id_ed25519");
    if !private.exists() {
        let status = Command::new("ssh-keygen")
            .args([
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "towline-cluster",
                "-f",
            ])
            .arg(&private)
            .stdin(Stdio::null())
            .status()
            .context("cannot run ssh-keygen; Debian has it in openssh-client")?;
        ensure!(status.success(), "ssh-keygen failed ({status})");
    }
    let read = |path: &Path| {
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
    };
    Ok(KeyPair {
        private: read(&private)?,
        public: read(&private.with_extension("pub"))?,
    })
}

/// Puts a machine's files on a disk that cloud-init finds by its name, where there is a program for that.
fn disk(folder: &Path, name: &str) -> anyhow::Result<Option<PathBuf>> {
    let image = format!("{name}-seed.iso");
    let made = Command::new("genisoimage")
        .args([
            "-quiet", "-output", &image, "-volid", "cidata", "-joliet", "-rock",
        ])
        .args(["user-data", "meta-data", "network-config"])
        .current_dir(folder)
        .stdin(Stdio::null())
        .status();
    match made {
        Ok(status) if status.success() => Ok(Some(folder.join(&image))),
        Ok(status) => bail!("genisoimage failed ({status})"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!(
                "towline: no genisoimage here: put user-data, meta-data and network-config of {} on a disk named cidata",
                folder.display()
            );
            Ok(None)
        }
        Err(error) => Err(error).context("cannot run genisoimage"),
    }
}
