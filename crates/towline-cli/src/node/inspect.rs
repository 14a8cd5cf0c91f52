//! `towline node inspect`: what a host has.

use std::io::Write as _;
use std::process::ExitCode;

use towline_node::Host;
use towline_node::host::Kind;

use super::InspectOptions;
use crate::table::{self, Table};

pub(super) fn run(options: &InspectOptions) -> anyhow::Result<ExitCode> {
    let host = towline_node::inspect(&options.root.root());
    let text = if options.json {
        serde_json::to_string_pretty(&host)? + "\n"
    } else if options.table {
        devices(&host, options.all)
    } else {
        // Names of interfaces, processes and mount points come from others.
        towline_node::picture(&host, options.all)
            .replace(|c: char| c.is_control() && c != '\n', "?")
    };
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn devices(host: &Host, all: bool) -> String {
    let mut table = Table::new([
        "ADDRESS", "ID", "KIND", "NODE", "GROUP", "SWITCH", "DRIVER", ">BAR", "ATS", "VFS",
        "NAMES", "IN USE",
    ]);
    let known =
        |value: Option<u32>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
    for device in &host.devices {
        let matters = !matches!(device.kind, Kind::Bridge | Kind::Other) || !device.uses.is_empty();
        if !matters && !all {
            continue;
        }
        let names: Vec<&str> = device
            .interfaces
            .iter()
            .chain(&device.rdma)
            .map(String::as_str)
            .collect();
        let uses: Vec<String> = device.uses.iter().map(ToString::to_string).collect();
        table.add(vec![
            device.address.to_string(),
            device.id(),
            format!("{:?}", device.kind).to_lowercase(),
            known(device.node),
            known(device.group),
            host.switch(device)
                .map_or_else(|| "-".to_owned(), |switch| switch.to_string()),
            device.driver.clone().unwrap_or_else(|| "-".to_owned()),
            table::bytes(device.bars.iter().map(|bar| bar.bytes).max().unwrap_or(0)),
            match device.ats {
                Some(ats) if ats.enabled => "on".to_owned(),
                Some(_) => "off".to_owned(),
                None => "-".to_owned(),
            },
            device.sriov.as_ref().map_or_else(
                || "-".to_owned(),
                |sriov| format!("{}/{}", sriov.count, sriov.total),
            ),
            names.join(" "),
            uses.join("; "),
        ]);
    }
    table.render()
}
