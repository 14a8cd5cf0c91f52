//! Machines in libvirt, by `virsh`: one program that runs on bare hosts is worth more than a library there.

use std::fs;
use std::io::Write as _;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use serde::Serialize;
use towline_node::vm::{Settings, domain, openstack as cloud};
use towline_node::{Host, Plan};

use super::{Files, MachinesOptions, NamesOptions, OpenstackOptions, PlanOptions};
use crate::node::{self, print_json, tell};

/// A machine as `xml --json` prints it.
#[derive(Debug, Serialize)]
struct Domain {
    name: String,
    xml: String,
}

/// Answer of `--json` for commands that change machines.
#[derive(Debug, Serialize)]
struct Done {
    /// libvirt's word for it.
    action: String,
    machines: Vec<String>,
}

pub(super) fn xml(options: &MachinesOptions) -> anyhow::Result<ExitCode> {
    let domains = domains(options)?;
    if options.json {
        print_json(&domains)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = std::io::stdout().lock();
    for domain in domains {
        out.write_all(domain.xml.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn define(options: &MachinesOptions) -> anyhow::Result<ExitCode> {
    let mut machines = Vec::new();
    for Domain { name, xml } in domains(options)? {
        virsh(
            &options.connect,
            &["define", "--validate", "/dev/stdin"],
            Some(&xml),
        )
        .with_context(|| format!("cannot define {name}"))?;
        tell(options.json, &format!("{name} is defined"));
        machines.push(name);
    }
    finish(options.json, "define", machines)
}

pub(super) fn on_each(options: &NamesOptions, words: &[&str]) -> anyhow::Result<ExitCode> {
    let action = words.first().unwrap_or(&"");
    for name in &options.names {
        // A name is not an option.
        let mut words = words.to_vec();
        words.extend(["--domain", name]);
        virsh(&options.connect, &words, None).with_context(|| format!("cannot {action} {name}"))?;
        tell(options.json, &format!("{name}: {action} done"));
    }
    finish(options.json, action, options.names.clone())
}

fn finish(json: bool, action: &str, machines: Vec<String>) -> anyhow::Result<ExitCode> {
    if json {
        let action = action.to_owned();
        print_json(&Done { action, machines })?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn openstack(options: &OpenstackOptions) -> anyhow::Result<ExitCode> {
    let (host, plan) = planned(&options.plan)?;
    let files = cloud::openstack(&host, &plan, &options.network)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    let mut written = Files::new(options.json);
    for (name, text) in [
        ("nova.conf", &files.nova),
        ("sriov_agent.ini", &files.neutron_agent),
        ("commands.sh", &files.commands),
    ] {
        written.write(options.out.join(name), text)?;
    }
    written.finish()
}

/// The plan's machines, or the one that is named.
fn domains(options: &MachinesOptions) -> anyhow::Result<Vec<Domain>> {
    let (host, plan) = planned(&options.plan)?;
    let settings = Settings {
        images: options.images.clone(),
        bridge: options.bridge.clone(),
        uefi: !options.bios,
        socket: options.socket.clone(),
        vsock: !options.no_vsock,
    };
    let mut found = Vec::new();
    for vm in &plan.vms {
        if options.only.as_ref().is_none_or(|only| *only == vm.name) {
            found.push(Domain {
                name: vm.name.clone(),
                xml: domain(&host, vm, &settings)?,
            });
        }
    }
    if found.is_empty() {
        let names: Vec<&str> = plan.vms.iter().map(|vm| vm.name.as_str()).collect();
        bail!("the plan has no such machine; it has {}", names.join(", "));
    }
    Ok(found)
}

/// What is applied, if this request is; else what would be.
///
/// A host whose machines run has no room for them any more: then only the journal knows what they were given.
fn planned(options: &PlanOptions) -> anyhow::Result<(Host, Plan)> {
    let request = node::request(&options.request)?;
    let (host, root) = node::host(options.host.as_deref(), &options.root)?;
    let applied = root.and_then(|root| towline_node::journal::applied(&root));
    let plan = match applied {
        Some(plan) if plan.request == request => plan,
        _ => towline_node::plan(&host, &request),
    };
    if let Some(obstacle) = plan.obstacles.first() {
        bail!(
            "{}; would help: {} (`towline node plan` shows everything)",
            obstacle.what,
            obstacle.remedy
        );
    }
    Ok((host, plan))
}

fn virsh(connect: &str, words: &[&str], input: Option<&str>) -> anyhow::Result<()> {
    let mut child = Command::new("virsh")
        .args(["--quiet", "--connect", connect])
        .args(words)
        .stdin(Stdio::piped())
        .spawn()
        .context("cannot run virsh; Debian has it in libvirt-clients")?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that has failed already does not read; its status tells.
        let _ = stdin.write_all(input.unwrap_or_default().as_bytes());
    }
    let status = child.wait().context("cannot wait for virsh")?;
    match status.success() {
        true => Ok(()),
        false => bail!("virsh {} failed ({status})", words.join(" ")),
    }
}
