//! One action on a world: how far it is, doing it, undoing it.

use serde_json::Value;

use crate::address::PciAddress;
use crate::drive;
use crate::inspect;
use crate::step::{Action, Form};
use crate::world::{World, WorldError};

/// How far an action is, by what the host shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum State {
    /// Done
    After,
    /// Not done
    Before,
    /// Partly done, as amounts can be
    Between,
    /// What it is about is not there
    Gone,
    /// Neither, says this
    Other(String),
}

/// Reads how far an action is. `None` for a command, which leaves no trace that could be read.
pub(crate) fn state(
    world: &mut dyn World,
    action: &Action,
    found: Option<&str>,
) -> Result<Option<State>, WorldError> {
    let root = world.root();
    Ok(Some(match action {
        Action::Attribute {
            path,
            from,
            to,
            form,
        } => match root.text(path) {
            None => State::Gone,
            Some(text) => attribute(&text, from, to, *form),
        },
        Action::Unbind { device, driver } => {
            match (exists(world, *device), driver_of(world, *device)) {
                (false, _) => State::Gone,
                (true, None) => State::After,
                (true, Some(bound)) if bound == *driver => State::Before,
                (true, Some(bound)) => State::Other(format!("{bound} drives {device}")),
            }
        }
        Action::Probe { device, driver } => {
            match (exists(world, *device), driver_of(world, *device)) {
                (false, _) => State::Gone,
                (true, None) => State::Before,
                (true, Some(bound)) if bound == *driver => State::After,
                (true, Some(bound)) => State::Other(format!("{bound} drives {device}")),
            }
        }
        Action::Module { name } if root.exists(&module_folder(name)) => State::After,
        Action::Module { .. } if !brought(world, found).is_empty() => State::Between,
        Action::Module { .. } => State::Before,
        Action::Service { name } => match inspect::services(root).contains(name) {
            true => State::Before,
            false => State::After,
        },
        Action::InterfaceUp { interface } => {
            match root.hexadecimal(&format!("/sys/class/net/{interface}/flags")) {
                None => State::Gone,
                Some(flags) if flags & 1 == 1 => State::After,
                Some(_) => State::Before,
            }
        }
        Action::VirtualFunction { interface, to, .. } => {
            if !root.exists(&format!("/sys/class/net/{interface}")) {
                return Ok(Some(State::Gone));
            }
            match setting(world, action)? {
                None => State::Gone,
                Some(present) if present == *to => State::After,
                Some(present) if found.is_none_or(|found| found == present) => State::Before,
                Some(present) => State::Other(present),
            }
        }
        Action::DriveShare { .. } => drive::state(world, action, found)?,
        Action::Register {
            device,
            offset,
            mask,
            from,
            to,
        } => match register(world, *device, *offset) {
            None => State::Gone,
            Some(present) if present & mask == *to => State::After,
            Some(present) if present & mask == *from => State::Before,
            Some(present) => State::Other(format!("{present:#x}")),
        },
        Action::File { path, from, to } => match root
            .bytes(path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        {
            present if present.as_ref() == Some(to) => State::After,
            present if present == *from => State::Before,
            None => State::Other("no such file".to_owned()),
            Some(_) => State::Other("other contents".to_owned()),
        },
        Action::Run { .. } => return Ok(None),
    }))
}

/// What only the host knows of before, and undoing needs.
pub(crate) fn found(world: &mut dyn World, action: &Action) -> Result<Option<String>, WorldError> {
    match action {
        Action::VirtualFunction { stays: true, .. } => setting(world, action),
        Action::Module { .. } => Ok(Some(family(world).join(" "))),
        Action::DriveShare { .. } => drive::present(world, action),
        _ => Ok(None),
    }
}

fn attribute(text: &str, from: &str, to: &str, form: Form) -> State {
    let present = match (form, text) {
        (Form::DriverName, "(null)") => "",
        (_, text) => text,
    };
    let processors = |list: &str| crate::root::numbers(list);
    match form {
        Form::Processors if processors(present) == processors(to) => State::After,
        Form::Processors if processors(present) == processors(from) => State::Before,
        Form::Amount => match (
            present.parse::<u64>(),
            from.parse::<u64>(),
            to.parse::<u64>(),
        ) {
            (Ok(present), _, Ok(to)) if present == to => State::After,
            (Ok(present), Ok(from), _) if present == from => State::Before,
            (Ok(present), Ok(from), Ok(to)) if (from.min(to)..=from.max(to)).contains(&present) => {
                State::Between
            }
            _ => State::Other(present.to_owned()),
        },
        _ if present == to => State::After,
        _ if present == from => State::Before,
        _ => State::Other(present.to_owned()),
    }
}

/// Does an action.
pub(crate) fn forward(world: &mut dyn World, action: &Action) -> Result<(), WorldError> {
    match action {
        Action::Attribute { path, to, .. } => write(world, path, to),
        Action::Unbind { device, driver } => {
            write(world, &driver_file(driver, "unbind"), &device.to_string())
        }
        Action::Probe { device, .. } => {
            write(world, "/sys/bus/pci/drivers_probe", &device.to_string())
        }
        Action::Module { name } => run(world, &["modprobe", name]),
        Action::Service { name } => run(world, &["systemctl", "stop", name]),
        Action::InterfaceUp { interface } => {
            run(world, &["ip", "link", "set", "dev", interface, "up"])
        }
        Action::VirtualFunction { to, .. } => set(world, action, to),
        Action::DriveShare { .. } => drive::forward(world, action),
        Action::Register {
            device,
            offset,
            mask,
            to,
            ..
        } => set_register(world, *device, *offset, *mask, *to),
        Action::File { path, to, .. } => world.replace(path, Some(to)),
        Action::Run { forward, .. } => command(world, forward.as_ref()),
    }
}

/// Undoes an action, whether it was done in whole or in part.
pub(crate) fn backward(
    world: &mut dyn World,
    action: &Action,
    found: Option<&str>,
) -> Result<(), WorldError> {
    match action {
        Action::Attribute { path, from, .. } => write(world, path, from),
        Action::Unbind { device, driver } => {
            write(world, &driver_file(driver, "bind"), &device.to_string())
        }
        Action::Probe { device, driver } => {
            write(world, &driver_file(driver, "unbind"), &device.to_string())
        }
        Action::Module { name } => {
            if world.root().exists(&module_folder(name)) {
                run(world, &["modprobe", "-r", name])?;
            }
            // What it brought along and `modprobe -r` leaves: vfio_virqfd of Linux 6.1.
            for name in brought(world, found) {
                run(world, &["modprobe", "-r", &name])?;
            }
            Ok(())
        }
        Action::Service { name } => run(world, &["systemctl", "start", name]),
        Action::InterfaceUp { interface } => {
            run(world, &["ip", "link", "set", "dev", interface, "down"])
        }
        Action::VirtualFunction { .. } => match found {
            Some(found) => set(world, action, found),
            None => Ok(()),
        },
        Action::DriveShare { .. } => drive::backward(world, action, found),
        Action::Register {
            device,
            offset,
            mask,
            from,
            ..
        } => set_register(world, *device, *offset, *mask, *from),
        Action::File { path, from, .. } => world.replace(path, from.as_deref()),
        Action::Run { backward, .. } => command(world, backward.as_ref()),
    }
}

/// The device that an action is about: whose users are told when it fails.
pub(crate) fn device(action: &Action) -> Option<PciAddress> {
    match action {
        Action::Unbind { device, .. }
        | Action::Probe { device, .. }
        | Action::DriveShare { device, .. }
        | Action::Register { device, .. } => Some(*device),
        Action::Attribute { path, .. } => path
            .strip_prefix("/sys/bus/pci/devices/")?
            .split('/')
            .next()?
            .parse()
            .ok(),
        _ => None,
    }
}

fn module_folder(name: &str) -> String {
    format!("/sys/module/{}", name.replace('-', "_"))
}

/// The modules of vfio that are loaded; those that are built in have no state.
fn family(world: &dyn World) -> Vec<String> {
    let root = world.root();
    let mut names = root.entries("/sys/module");
    names.retain(|name| {
        name.starts_with("vfio") && root.exists(&format!("/sys/module/{name}/initstate"))
    });
    names
}

/// Those of them that were not loaded before.
fn brought(world: &dyn World, found: Option<&str>) -> Vec<String> {
    let Some(found) = found else {
        return Vec::new();
    };
    let mut names = family(world);
    names.retain(|name| found.split(' ').all(|before| before != name));
    names
}

/// What an action changes: of several with the same, only the last one's state is there to be seen.
pub(crate) fn target(action: &Action) -> String {
    match action {
        Action::Attribute { path, .. } | Action::File { path, .. } => path.clone(),
        Action::Unbind { device, .. } | Action::Probe { device, .. } => {
            format!("driver of {device}")
        }
        Action::Module { name } => format!("module {name}"),
        Action::Service { name } => format!("service {name}"),
        Action::InterfaceUp { interface } => format!("interface {interface}"),
        Action::VirtualFunction {
            interface,
            index,
            setting,
            ..
        } => format!("{setting} of {interface} {index}"),
        Action::DriveShare {
            device,
            function,
            share,
            ..
        } => format!("{} of {device} {function:?}", share.name()),
        Action::Register { device, offset, .. } => format!("register {offset} of {device}"),
        Action::Run { .. } => String::new(),
    }
}

/// A line end makes "nothing" something that can be written: a write of no bytes never reaches the kernel.
fn write(world: &mut dyn World, path: &str, value: &str) -> Result<(), WorldError> {
    world.write(path, &format!("{value}\n"))
}

fn driver_file(driver: &str, file: &str) -> String {
    format!("/sys/bus/pci/drivers/{driver}/{file}")
}

fn exists(world: &dyn World, device: PciAddress) -> bool {
    world
        .root()
        .exists(&format!("/sys/bus/pci/devices/{device}"))
}

fn driver_of(world: &dyn World, device: PciAddress) -> Option<String> {
    world
        .root()
        .link_name(&format!("/sys/bus/pci/devices/{device}/driver"))
}

fn register(world: &dyn World, device: PciAddress, offset: u16) -> Option<u16> {
    let bytes = world
        .root()
        .bytes(&format!("/sys/bus/pci/devices/{device}/config"))?;
    let offset = usize::from(offset);
    let field = bytes.get(offset..offset.checked_add(2)?)?;
    Some(u16::from_le_bytes(field.try_into().ok()?))
}

fn set_register(
    world: &mut dyn World,
    device: PciAddress,
    offset: u16,
    mask: u16,
    bits: u16,
) -> Result<(), WorldError> {
    let Some(present) = register(world, device, offset) else {
        return Err(WorldError::Io {
            path: format!("/sys/bus/pci/devices/{device}/config"),
            cause: std::io::ErrorKind::NotFound.into(),
        });
    };
    world.write_register(device, offset, present & !mask | bits & mask)
}

fn run(world: &mut dyn World, words: &[&str]) -> Result<(), WorldError> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    world.run(&words)
}

fn command(world: &mut dyn World, words: Option<&Vec<String>>) -> Result<(), WorldError> {
    match words {
        Some(words) => world.run(words),
        None => Ok(()),
    }
}

fn set(world: &mut dyn World, action: &Action, value: &str) -> Result<(), WorldError> {
    let Action::VirtualFunction {
        interface,
        index,
        setting,
        ..
    } = action
    else {
        return Ok(());
    };
    run(
        world,
        &[
            "ip",
            "link",
            "set",
            "dev",
            interface,
            "vf",
            &index.to_string(),
            setting,
            value,
        ],
    )
}

/// What `ip` tells of a virtual function; older ones do not tell everything.
fn setting(world: &mut dyn World, action: &Action) -> Result<Option<String>, WorldError> {
    let Action::VirtualFunction {
        interface,
        index,
        setting,
        ..
    } = action
    else {
        return Ok(None);
    };
    let words = ["ip", "-j", "link", "show", "dev", interface].map(str::to_owned);
    let text = world.ask(&words)?;
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    let functions = value
        .get(0)
        .and_then(|link| link.get("vfinfo_list"))
        .and_then(Value::as_array);
    let function = functions
        .into_iter()
        .flatten()
        .find(|function| function.get("vf").and_then(Value::as_u64) == Some(u64::from(*index)));
    // The names that `ip` sets by are not all those that it prints.
    let names: &[&str] = match setting.as_str() {
        "mac" => &["address", "mac"],
        "node_guid" => &["node guid", "node_guid"],
        "port_guid" => &["port guid", "port_guid"],
        other => &[other],
    };
    let value = function.and_then(|function| names.iter().find_map(|name| function.get(*name)));
    Ok(value.and_then(|value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(on) => Some(if *on { "on" } else { "off" }.to_owned()),
        _ => None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_by_their_form() {
        assert_eq!(
            attribute("(null)", "", "vfio-pci", Form::DriverName),
            State::Before
        );
        assert_eq!(
            attribute("0,1-3", "0-3", "4", Form::Processors),
            State::Before
        );
        assert_eq!(attribute("7", "0", "20", Form::Amount), State::Between);
        assert_eq!(
            attribute("21", "0", "20", Form::Amount),
            State::Other("21".to_owned())
        );
        assert_eq!(
            attribute("4", "0", "2", Form::Exact),
            State::Other("4".to_owned())
        );
    }
}
