//! The page of metrics. docs/metrics.md lists what is on it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::prometheus_text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use towline_wire::control::{RejectCode, SUPPORTED_VERSIONS};
use towline_wire::snapshot::Snapshot;

use super::super::Shared;
use super::super::ending::Cause;
use super::super::monitor::Figures;
use super::super::pool::WorkerPool;
use super::super::session::Api;
use super::super::swap::SwapSpace;
use super::super::tenant::{Tenant, TenantLimits, Usage};
use super::TimingFamilies;

/// Bytes of a MiB, in which DCGM counts memory.
const MIB: f64 = (1 << 20) as f64;

type Labels = Vec<(&'static str, String)>;

fn labels<const N: usize>(labels: [(&'static str, &str); N]) -> Labels {
    labels.map(|(name, value)| (name, value.to_owned())).into()
}

/// A name and its meaning.
type Named = (&'static str, &'static str);

/// The metrics of a page, which it forgets.
#[derive(Default)]
struct Page {
    registry: Registry,
    /// Those with DCGM's names.
    devices: Registry,
}

impl Page {
    fn counter(&mut self, (name, help): Named, samples: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Family::<Labels, Counter>::default();
        for (labels, value) in samples {
            family.get_or_create(&labels).inc_by(value);
        }
        self.registry.register(name, help, family);
    }

    fn gauge(
        &mut self,
        (name, help): Named,
        unit: Option<Unit>,
        samples: impl IntoIterator<Item = (Labels, u64)>,
    ) {
        let family = Family::<Labels, Gauge<u64, AtomicU64>>::default();
        for (labels, value) in samples {
            family.get_or_create(&labels).set(value);
        }
        match unit {
            Some(unit) => self.registry.register_with_unit(name, help, unit, family),
            None => self.registry.register(name, help, family),
        }
    }

    fn device(
        &mut self,
        (name, help): Named,
        figures: &[Figures],
        figure: fn(&Figures) -> Option<f64>,
    ) {
        let family = Family::<Labels, Gauge<f64, AtomicU64>>::default();
        for (index, device) in figures.iter().enumerate() {
            let Some(value) = figure(device) else {
                continue;
            };
            let labels = labels([
                ("gpu", &index.to_string()),
                ("UUID", &device.uuid),
                ("modelName", &device.name),
            ]);
            family.get_or_create(&labels).set(value);
        }
        self.devices.register(name, help, family);
    }
}

/// Makes a page of how things are now.
pub(super) fn make(shared: &Shared, timings: &TimingFamilies) -> Result<String, fmt::Error> {
    let mut page = Page {
        registry: Registry::with_prefix("towline"),
        devices: Registry::default(),
    };
    server(&mut page, shared);
    workers(&mut page, shared, timings);
    tenants(&mut page, shared);
    if let Some(swap) = &shared.swap {
        swapped(&mut page, swap);
    }
    let figures = shared.monitor.as_ref();
    let figures = figures.map_or_else(Vec::new, |monitor| monitor.figures());
    devices(&mut page, &figures);
    let mut text = String::new();
    encode(&mut text, &page.registry)?;
    encode(&mut text, &page.devices)?;
    Ok(text)
}

fn server(page: &mut Page, shared: &Shared) {
    let build = labels([
        ("version", env!("CARGO_PKG_VERSION")),
        ("protocol", &SUPPORTED_VERSIONS.max.to_string()),
    ]);
    page.gauge(
        (
            "build_info",
            "Release of the server, and its newest protocol",
        ),
        None,
        [(build, 1)],
    );
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let started = since_1970.map_or(0, |now| {
        now.saturating_sub(shared.started.elapsed()).as_secs()
    });
    page.gauge(
        ("start_time", "Start of the server, since 1970"),
        Some(Unit::Seconds),
        [(Labels::new(), started)],
    );
    let draining = u64::from(shared.draining.load(Ordering::Acquire));
    page.gauge(
        ("draining", "1 while new sessions are refused"),
        None,
        [(Labels::new(), draining)],
    );
    page.gauge(
        ("sessions_limit", "Most sessions at once"),
        None,
        [(Labels::new(), shared.sessions.in_use().1)],
    );
    // From 0 on, so that the first ones are an increase.
    let codes = RejectCode::ALL.iter().map(|code| (code.name(), 0));
    let mut refused: BTreeMap<_, _> = codes.collect();
    refused.extend(shared.refusals.counts());
    page.counter(
        (
            "refused_connections",
            "Connections that were refused, by reason",
        ),
        refused
            .into_iter()
            .map(|(reason, count)| (labels([("reason", &snake_case(reason))]), count)),
    );
}

/// `TooManySessions` as `too_many_sessions`.
fn snake_case(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}

fn workers(page: &mut Page, shared: &Shared, timings: &TimingFamilies) {
    let pools: [(Api, Option<&Arc<WorkerPool>>); 2] = [
        (Api::Cuda, shared.cuda_pool.as_ref()),
        (Api::OpenCl, shared.pool.as_ref().ok()),
    ];
    let pools = pools
        .into_iter()
        .filter_map(|(api, pool)| Some((api, pool?)));
    let pools: Vec<_> = pools
        .map(|(api, pool)| (api, pool.snapshot(), pool.census()))
        .collect();
    let of = |api: &Api| labels([("api", api.name())]);
    page.gauge(
        (
            "devices",
            "Devices that are offered, once a worker has seen them",
        ),
        None,
        pools
            .iter()
            .filter_map(|(api, snapshot, _)| Some((of(api), count_devices(*api, snapshot)?))),
    );
    page.gauge(
        ("workers_starting", "Workers that are getting ready"),
        None,
        pools
            .iter()
            .map(|(api, _, census)| (of(api), census.starting as u64)),
    );
    page.gauge(
        ("workers_ready", "Workers that wait for a client"),
        None,
        pools
            .iter()
            .map(|(api, _, census)| (of(api), census.ready as u64)),
    );
    page.gauge(
        ("clients_waiting", "Clients that wait for a worker"),
        None,
        pools
            .iter()
            .map(|(api, _, census)| (of(api), census.clients as u64)),
    );
    page.counter(
        ("worker_start_failures", "Workers that did not get ready"),
        pools
            .iter()
            .map(|(api, _, census)| (of(api), census.failures)),
    );
    page.registry.register_with_unit(
        "worker_start",
        "Time between the start of a worker and its being ready",
        Unit::Seconds,
        timings.start.clone(),
    );
    page.registry.register_with_unit(
        "worker_wait",
        "Time that admitted clients waited for a worker",
        Unit::Seconds,
        timings.wait.clone(),
    );
}

/// The devices in what a worker has seen; `None` where none has.
fn count_devices(api: Api, snapshot: &[u8]) -> Option<u64> {
    let count = match api {
        Api::Cuda => towline_wire::cuda::snapshot::Snapshot::decode(snapshot)
            .ok()?
            .devices
            .len(),
        Api::OpenCl => Snapshot::decode(snapshot).ok()?.devices.len(),
    };
    Some(count as u64)
}

fn tenants(page: &mut Page, shared: &Shared) {
    // First: the sessions tell their tenants what they have used.
    let sessions = shared.sessions.statistics(None);
    let tenants: Vec<(String, Usage, TenantLimits)> = shared
        .config
        .tenants
        .all()
        .iter()
        .map(|tenant| (tenant.name().to_owned(), tenant.usage(), tenant.limits()))
        .collect();
    let of = |name: &str| labels([("tenant", name)]);
    let of_api = |name: &str, api: Api| labels([("tenant", name), ("api", api.name())]);

    let mut running: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    let mut memory: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, ..) in &tenants {
        memory.insert(name, 0);
        for api in Api::ALL {
            running.insert((name, api.name()), 0);
        }
    }
    for (session, statistics) in &sessions {
        let tenant: &Tenant = &session.tenant;
        *running
            .entry((tenant.name(), session.api().name()))
            .or_default() += 1;
        let held = memory.entry(tenant.name()).or_default();
        *held = held.saturating_add(statistics.device_memory_bytes);
    }
    page.gauge(
        ("sessions", "Sessions that have a worker"),
        None,
        running
            .iter()
            .map(|((tenant, api), count)| (labels([("tenant", tenant), ("api", api)]), *count)),
    );
    page.gauge(
        (
            "device_memory",
            "Device memory that sessions hold, over all devices",
        ),
        Some(Unit::Bytes),
        memory.iter().map(|(tenant, bytes)| (of(tenant), *bytes)),
    );
    page.gauge(
        (
            "tenant_device_memory_limit",
            "Most device memory of a tenant's sessions together, where there is a limit",
        ),
        Some(Unit::Bytes),
        tenants
            .iter()
            .filter_map(|(name, _, limits)| Some((of(name), limits.memory?))),
    );
    page.gauge(
        (
            "tenant_sessions_limit",
            "Most sessions of a tenant at once, where there is a limit",
        ),
        None,
        tenants
            .iter()
            .filter_map(|(name, _, limits)| Some((of(name), limits.sessions?.into()))),
    );
    page.gauge(
        (
            "tenant_share_percent",
            "Share of devices' time, of those tenants that have one",
        ),
        None,
        tenants
            .iter()
            .filter_map(|(name, _, limits)| Some((of(name), limits.time.percent?.into()))),
    );
    page.counter(
        ("sessions_started", "Sessions that got a worker"),
        tenants.iter().flat_map(|(name, usage, _)| {
            Api::ALL.map(|api| (of_api(name, api), usage.begun[api as usize]))
        }),
    );
    page.counter(
        ("sessions_ended", "Sessions that have ended, by reason"),
        tenants.iter().flat_map(|(name, usage, _)| {
            Cause::ALL.map(|cause| {
                let labels = labels([("tenant", name), ("reason", cause.name())]);
                (labels, usage.ended[cause as usize])
            })
        }),
    );
    let mut sum = |named: Named, sum: fn(&Usage) -> u64| {
        page.counter(
            named,
            tenants
                .iter()
                .map(|(name, usage, _)| (of(name), sum(usage))),
        );
    };
    sum(
        (
            "tenant_refused_sessions",
            "Sessions that were refused because the tenant had as many as it may",
        ),
        |usage| usage.refused,
    );
    sum(
        ("requests", "Requests of clients that were carried out"),
        |usage| usage.calls,
    );
    sum(
        ("launches", "Kernels and graphs that were launched"),
        |usage| usage.launches,
    );
    sum(
        ("received_bytes", "Bytes that came from clients"),
        |usage| usage.received_bytes,
    );
    sum(("sent_bytes", "Bytes that went to clients"), |usage| {
        usage.sent_bytes
    });
    let seconds = Family::<Labels, Counter<f64, AtomicU64>>::default();
    for (name, usage, _) in &tenants {
        let busy = usage.device_time_us as f64 / 1e6;
        seconds.get_or_create(&of(name)).inc_by(busy);
    }
    page.registry.register_with_unit(
        "device_time",
        "Time for which devices were busy for sessions, added up over devices",
        Unit::Seconds,
        seconds,
    );
    let seconds = Family::<Labels, Counter<f64, AtomicU64>>::default();
    for (name, usage, _) in &tenants {
        let waited = usage.wait_us as f64 / 1e6;
        seconds.get_or_create(&of(name)).inc_by(waited);
    }
    page.registry.register_with_unit(
        "turn_wait",
        "Time for which sessions with work waited for turns on shared devices, added up over devices",
        Unit::Seconds,
        seconds,
    );
}

fn swapped(page: &mut Page, swap: &SwapSpace) {
    page.gauge(
        (
            "swapped",
            "Device memory that sessions have given up for others and keep on the host",
        ),
        Some(Unit::Bytes),
        [(Labels::new(), swap.in_use())],
    );
    page.counter(
        (
            "swaps",
            "How often sessions have given their device memory up for others",
        ),
        [(Labels::new(), swap.given())],
    );
}

/// The devices themselves, under the names of NVIDIA's DCGM exporter and with its units.
fn devices(page: &mut Page, figures: &[Figures]) {
    page.device(
        ("DCGM_FI_DEV_GPU_UTIL", "GPU utilisation, in %"),
        figures,
        |device| device.utilisation.map(f64::from),
    );
    page.device(
        (
            "DCGM_FI_DEV_FB_USED",
            "Device memory in use, without what the driver reserves, in MiB",
        ),
        figures,
        |device| device.used_bytes.map(|bytes| bytes as f64 / MIB),
    );
    page.device(
        ("DCGM_FI_DEV_FB_FREE", "Free device memory, in MiB"),
        figures,
        |device| device.free_bytes.map(|bytes| bytes as f64 / MIB),
    );
    page.device(
        ("DCGM_FI_DEV_POWER_USAGE", "Power draw, in W"),
        figures,
        |device| device.power_mw.map(|mw| f64::from(mw) / 1e3),
    );
    page.device(
        ("DCGM_FI_DEV_GPU_TEMP", "Temperature of the GPU, in C"),
        figures,
        |device| device.celsius.map(f64::from),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_reasons_are_in_snake_case() {
        assert_eq!(snake_case("TooManySessions"), "too_many_sessions");
        assert_eq!(snake_case("Lane"), "lane");
    }
}
