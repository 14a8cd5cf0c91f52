//! Machines in libvirt, by `virsh`: one program that runs on bare hosts is worth more than a library there.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use towline_node::vm::{Settings, domain, openstack as cloud};
use towline_node::{Host, Plan};

use super::{MachinesOptions, NamesOptions, OpenstackOptions, PlanOptions};
use crate::node;

pub(super) fn xml(options: &MachinesOptions) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    for (_, text) in domains(options)? {
        out.write_all(text.as_bytes())?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn define(options: &MachinesOptions) -> anyhow::Result<ExitCode> {
    for (name, text) in domains(options)? {
        virsh(
            &options.connect,
            &["define", "--validate", "/dev/stdin"],
            Some(&text),
        )
        .with_context(|| format!("cannot define {name}"))?;
        println!("{name} is defined");
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn on_each(options: &NamesOptions, words: &[&str]) -> anyhow::Result<ExitCode> {
    for name in &options.names {
        // A name is not an option.
        let mut words = words.to_vec();
        words.extend(["--domain", name]);
        virsh(&options.connect, &words, None)
            .with_context(|| format!("cannot {} {name}", words.first().unwrap_or(&"")))?;
        println!("{name}: {} done", words.first().unwrap_or(&""));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn openstack(options: &OpenstackOptions) -> anyhow::Result<ExitCode> {
    let (host, plan) = planned(&options.plan)?;
    let files = cloud::openstack(&host, &plan, &options.network)?;
    fs::create_dir_all(&options.out)
        .with_context(|| format!("cannot make {}", options.out.display()))?;
    for (name, text) in [
        ("nova.conf", &files.nova),
        ("sriov_agent.ini", &files.neutron_agent),
        ("commands.sh", &files.commands),
    ] {
        write(&options.out.join(name), text)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    println!("{}", path.display());
    Ok(())
}

/// The plan's machines, or the one that is named.
fn domains(options: &MachinesOptions) -> anyhow::Result<Vec<(String, String)>> {
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
            found.push((vm.name.clone(), domain(&host, vm, &settings)?));
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
