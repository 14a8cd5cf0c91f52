//! `towline devices`: what servers offer.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use serde::Serialize;
use towline_client::access::Access;
use towline_transport::Address;
use towline_wire::cuda;
use towline_wire::cuda::snapshot::uuid_text;
use towline_wire::opencl::*;
use towline_wire::snapshot::{self, Snapshot};

use crate::FAILURE;
use crate::ask::{self, Server};
use crate::cli::DevicesOptions;
use crate::servers;
use crate::table::{self, Table};

/// One device, as `--json` prints it.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Device {
    server: String,
    /// Through which API: a GPU may be there for both.
    api: &'static str,
    /// Its number on its server for that API, as `towline serve --device` takes it there.
    index: usize,
    name: String,
    vendor: String,
    platform: String,
    version: String,
    driver_version: String,
    #[serde(rename = "type")]
    kind: &'static str,
    compute_units: u64,
    clock_mhz: u64,
    global_memory_bytes: u64,
    local_memory_bytes: u64,
    max_allocation_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    /// Its server shuts down and begins no session.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    draining: bool,
}

pub(crate) fn run(options: &DevicesOptions) -> anyhow::Result<ExitCode> {
    let chosen = servers::choose(&options.servers)?;
    let access = servers::access(&chosen.settings)?;
    let servers = chosen.servers;
    let results = ask::on_all(&servers, |address| of(address, &access));
    let mut devices = Vec::new();
    let mut failed = false;
    for (address, result) in servers.iter().zip(results) {
        match result {
            Ok(found) => devices.extend(found),
            Err(error) => {
                failed = true;
                let text = ask::told("could not list the devices of", address, &error);
                eprintln!("towline: {text}");
            }
        }
    }
    let text = match options.json {
        true => serde_json::to_string_pretty(&devices)? + "\n",
        false => render(&devices, table::terminal_columns()),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::from(if failed { FAILURE } else { 0 }))
}

/// The devices of a server that its client is told of.
pub(crate) fn of(address: &Address, access: &Access) -> anyhow::Result<Vec<Device>> {
    let mut server = Server::connect(address, access)?;
    let mut devices = list(address, &server.snapshot)?;
    match server.cuda_devices()? {
        Ok(snapshot) => devices.extend(list_cuda(address, &snapshot)?),
        Err(reason) => log::info!("{address}: {reason}"),
    }
    if server.status()?.draining {
        devices.iter_mut().for_each(|device| device.draining = true);
    }
    Ok(devices)
}

fn list(address: &Address, snapshot: &[u8]) -> anyhow::Result<Vec<Device>> {
    let snapshot = Snapshot::decode(snapshot).context("its list of devices cannot be read")?;
    let describe = |(index, device): (usize, &snapshot::Device)| {
        let answers = &device.answers;
        let text = |query| answers.text(query).unwrap_or_default().trim().to_owned();
        let number = |query| answers.number(query).unwrap_or_default();
        let platform = snapshot.platforms.get(device.platform as usize);
        Device {
            server: address.to_string(),
            api: "opencl",
            index,
            name: text(CL_DEVICE_NAME),
            vendor: text(CL_DEVICE_VENDOR),
            platform: platform
                .and_then(|platform| platform.text(CL_PLATFORM_NAME))
                .unwrap_or_default(),
            version: text(CL_DEVICE_VERSION),
            driver_version: text(CL_DRIVER_VERSION),
            kind: kind(number(CL_DEVICE_TYPE)),
            compute_units: number(CL_DEVICE_MAX_COMPUTE_UNITS),
            clock_mhz: number(CL_DEVICE_MAX_CLOCK_FREQUENCY),
            global_memory_bytes: number(CL_DEVICE_GLOBAL_MEM_SIZE),
            local_memory_bytes: number(CL_DEVICE_LOCAL_MEM_SIZE),
            max_allocation_bytes: number(CL_DEVICE_MAX_MEM_ALLOC_SIZE),
            uuid: None,
            draining: false,
        }
    };
    Ok(snapshot.devices.iter().enumerate().map(describe).collect())
}

fn list_cuda(address: &Address, snapshot: &[u8]) -> anyhow::Result<Vec<Device>> {
    let snapshot = cuda::snapshot::Snapshot::decode(snapshot)
        .context("its list of CUDA devices cannot be read")?;
    let driver = snapshot.driver_version;
    let describe = |(index, device): (usize, &cuda::snapshot::Device)| {
        let number = |attribute| {
            let value = device.attribute(attribute).unwrap_or(0);
            u64::try_from(value).unwrap_or(0)
        };
        Device {
            server: address.to_string(),
            api: "cuda",
            index,
            name: String::from_utf8_lossy(&device.name).into_owned(),
            vendor: match snapshot.genuine {
                true => "NVIDIA Corporation".to_owned(),
                false => String::new(),
            },
            platform: "CUDA".to_owned(),
            version: format!(
                "compute capability {}.{}",
                number(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                number(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
            ),
            driver_version: format!("CUDA {}.{}", driver / 1000, driver % 1000 / 10),
            kind: "GPU",
            compute_units: number(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            clock_mhz: number(cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE) / 1000,
            global_memory_bytes: device.total_bytes,
            local_memory_bytes: number(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
            max_allocation_bytes: device.total_bytes,
            uuid: Some(format!("GPU-{}", uuid_text(&device.uuid))),
            draining: false,
        }
    };
    Ok(snapshot.devices.iter().enumerate().map(describe).collect())
}

fn kind(bits: u64) -> &'static str {
    let has = |bit: cl_device_type| bits & bit != 0;
    if has(CL_DEVICE_TYPE_GPU) {
        "GPU"
    } else if has(CL_DEVICE_TYPE_ACCELERATOR) {
        "accelerator"
    } else if has(CL_DEVICE_TYPE_CPU) {
        "CPU"
    } else {
        "other"
    }
}

/// Columns that a narrow terminal lacks, the least telling first.
const SPARE: [&str; 4] = ["VERSION", "DRIVER", "UNITS", "TYPE"];

fn render(devices: &[Device], columns: Option<usize>) -> String {
    let mut table = Table::new([
        "SERVER", "API", ">#", "DEVICE", "TYPE", ">UNITS", ">MEMORY", "VERSION", "DRIVER",
    ]);
    for device in devices {
        table.add(vec![
            match device.draining {
                true => format!("{} (shuts down)", device.server),
                false => device.server.clone(),
            },
            match device.api {
                "cuda" => "CUDA",
                _ => "OpenCL",
            }
            .to_owned(),
            device.index.to_string(),
            device.name.clone(),
            device.kind.to_owned(),
            device.compute_units.to_string(),
            table::bytes(device.global_memory_bytes),
            device.version.clone(),
            device.driver_version.clone(),
        ]);
    }
    match table.is_empty() {
        true => "No devices.\n".to_owned(),
        false => table.render_within(columns, &SPARE),
    }
}

#[cfg(test)]
mod tests {
    use towline_wire::snapshot::Answers;

    use super::*;

    #[test]
    fn snapshot_becomes_a_list() {
        let number = |value: u64| value.to_le_bytes().to_vec();
        let snapshot = Snapshot {
            platforms: vec![Answers(vec![(
                CL_PLATFORM_NAME,
                b"Vendor Platform\0".to_vec(),
            )])],
            devices: vec![snapshot::Device {
                handle: 1,
                platform: 0,
                answers: Answers(vec![
                    (CL_DEVICE_NAME, b"  H200\0".to_vec()),
                    (CL_DEVICE_TYPE, number(CL_DEVICE_TYPE_GPU)),
                    (CL_DEVICE_GLOBAL_MEM_SIZE, number(1 << 37)),
                ]),
            }],
        };
        let devices = list(&"gpu1:7000".parse().unwrap(), &snapshot.encode()).unwrap();
        assert_eq!(
            (
                devices[0].name.as_str(),
                devices[0].kind,
                devices[0].global_memory_bytes
            ),
            ("H200", "GPU", 1 << 37)
        );
        assert_eq!(devices[0].platform, "Vendor Platform");
        let text = render(&devices, None);
        assert!(
            text.contains("128.0 GiB") && !text.contains("shuts down"),
            "{text}"
        );
        let mut draining = devices;
        draining[0].draining = true;
        let text = render(&draining, None);
        assert!(text.contains("tcp://gpu1:7000 (shuts down)"), "{text}");
    }

    #[test]
    fn cuda_devices_stand_beside_the_others() {
        let snapshot = cuda::snapshot::Snapshot {
            driver_version: 12_040,
            genuine: true,
            devices: vec![cuda::snapshot::Device {
                name: b"NVIDIA H200".into(),
                uuid: [0xab; 16],
                total_bytes: 1 << 37,
                attributes: vec![
                    (cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9),
                    (cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132),
                ],
                ..cuda::snapshot::Device::default()
            }],
        };
        let devices = list_cuda(&"gpu1:7000".parse().unwrap(), &snapshot.encode()).unwrap();
        assert_eq!(
            devices[0].uuid.as_deref(),
            Some("GPU-abababab-abab-abab-abab-abababababab")
        );
        let table = render(&devices, None);
        for part in [
            "CUDA",
            "NVIDIA H200",
            "132",
            "128.0 GiB",
            "compute capability 9.0",
            "CUDA 12.4",
        ] {
            assert!(table.contains(part), "no {part} in {table}");
        }
    }

    #[test]
    fn table_fits_eighty_columns() {
        let snapshot = Snapshot {
            platforms: vec![Answers(vec![])],
            devices: vec![snapshot::Device {
                handle: 1,
                platform: 0,
                answers: Answers(vec![
                    (
                        CL_DEVICE_NAME,
                        b"pthread-Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz\0".to_vec(),
                    ),
                    (
                        CL_DEVICE_VERSION,
                        b"OpenCL 3.0 PoCL HSTR: pthread-x86_64-pc-linux-gnu-sapphirerapids\0"
                            .to_vec(),
                    ),
                ]),
            }],
        };
        let devices = list(&"gpu1:7000".parse().unwrap(), &snapshot.encode()).unwrap();
        let table = render(&devices, Some(80));
        assert!(
            table.lines().all(|line| line.chars().count() <= 80),
            "{table}"
        );
        assert!(table.contains("pthread-Intel(R)"), "{table}");
    }

    #[test]
    fn unreadable_snapshot_is_an_error() {
        assert!(list(&"gpu1:7000".parse().unwrap(), b"\xff\xff\xff\xff").is_err());
    }
}
