//! Proving with nodes that play recorded outputs.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use towline_node::prove::cause::{self, Finding, State};
use towline_node::prove::plot::plots;
use towline_node::prove::report::{Report, report};
use towline_node::prove::run::{ProveError, load, prove};
use towline_node::prove::spec::Spec;
use towline_node::prove::{Output, Runner};
use towline_node::{Root, inspect};

mod shape;

use shape::Shape;

const SPEC: &str = r#"
runs = 4
nodes = [1, 2, 4]
gpus = 1
[native]
reach = [["n0"], ["n1"], ["n2"], ["n3"]]
hosts = ["n0", "n1", "n2", "n3"]
[vm]
reach = [["v0"], ["v1"], ["v2"], ["v3"]]
hosts = ["v0", "v1", "v2", "v3"]
[[benchmark]]
kind = "lammps-lj"
sizes = ["32k", "512k"]
per_gpu = [1, 8]
[[benchmark]]
kind = "bandwidth"
[[benchmark]]
kind = "hoomd-lj"
nodes = [4]
[[benchmark]]
kind = "hoomd-lj-gpudirect"
nodes = [4]
"#;

/// Nodes that answer from a table, and count.
struct Fake {
    /// What each node says of itself, beside what all say.
    facts: BTreeMap<String, String>,
    /// The share of native that machines reach, in benchmarks.
    share: f64,
    /// What is not installed.
    absent: Vec<&'static str>,
    /// What hosts answer, by a part of the line.
    hosts: Vec<(&'static str, String)>,
    /// Benchmarks that were run: where and what.
    runs: Vec<(String, String)>,
    /// Fails from this run on.
    dies_at: usize,
}

impl Fake {
    fn new(share: f64) -> Self {
        Self {
            facts: BTreeMap::new(),
            share,
            absent: Vec::new(),
            hosts: Vec::new(),
            runs: Vec::new(),
            dies_at: usize::MAX,
        }
    }
}

const FACTS: &str = "kernel=6.1.0-25-amd64\ndriver=580.1\nofed=\nmpi=mpirun (Open MPI) 4.1.4\ngpu=1 NVIDIA H200\n\
                     processor=Xeon\ncores=8\nnuma=1\n";
const KVM: &str = "guest=yes\nhypervisor=KVM\nmaker=QEMU\nclock=kvm-clock\ntopology=/etc/towline/nccl-topology.xml\n";

impl Runner for Fake {
    fn run(&mut self, prefix: &[String], line: &str, _limit: Duration) -> Result<Output, String> {
        let node = prefix.first().cloned().unwrap_or_default();
        let said = |text: String| {
            Ok(Output {
                status: Some(0),
                text,
            })
        };
        if let Some((_, answer)) = self.hosts.iter().find(|(part, _)| line.contains(part)) {
            return said(answer.clone());
        }
        let is_vm = node.starts_with('v');
        if line.contains("uname -r") {
            let more = self.facts.get(&node).cloned().unwrap_or_default();
            let kvm = if is_vm { KVM } else { "clock=tsc\n" };
            // The last of several lines with a name counts.
            return said(format!("{FACTS}{kvm}{more}"));
        }
        if line.starts_with("command -v") || line.contains("import hoomd") {
            let is_absent = self.absent.iter().any(|what| line.contains(what));
            return Ok(Output {
                status: Some(i32::from(is_absent)),
                text: String::new(),
            });
        }
        if self.runs.len() >= self.dies_at {
            return Err("the network is gone".to_owned());
        }
        self.runs.push((node, line.to_owned()));
        // Each run a little other than the last, on both sides alike.
        let drift = 1.0 + (self.runs.len() / 2 % 3) as f64 / 1000.0;
        let share = if is_vm { self.share } else { 1.0 };
        let nodes = ["n3:", "v3:"].iter().any(|name| line.contains(name));
        let rate = share * drift * if nodes { 3.6 } else { 1.0 };
        said(match () {
            () if line.contains("lmp") => format!(
                "Loop time of {} on 8 procs for 100 steps with 32000 atoms\n",
                1.0 / rate
            ),
            () if line.contains("pingpong") => {
                format!(
                    "{{\"latency_us\":1.5,\"bandwidth_mb_per_s\":{},\"check\":\"pass\"}}\n",
                    12000.0 * rate
                )
            }
            () => {
                let direct = if line.contains("DIRECT=1") { 1.09 } else { 1.0 };
                format!("TPS: {}\n", 800.0 * rate * direct)
            }
        })
    }
}

fn quiet() -> impl FnMut(&str) {
    |_: &str| {}
}

fn proven(fake: &mut Fake, spec: &Spec) -> Report {
    let folder = tempfile::tempdir().unwrap();
    let results = prove(spec, folder.path(), fake, &mut quiet()).unwrap();
    report(spec, &results, || {
        cause::look(spec, &results.stage.vm, fake)
    })
}

#[test]
fn machines_near_native_are_shown_beside_the_study() {
    let spec = Spec::parse(SPEC).unwrap();
    let mut fake = Fake::new(0.985);
    let report = proven(&mut fake, &spec);
    assert!(report.is_comparable && report.findings.is_empty());
    // 2 sizes, 2 mappings, 3 counts of nodes; a pair of nodes; HOOMD twice.
    assert_eq!(report.cases.len(), 12 + 1 + 2);
    assert_eq!(fake.runs.len(), 15 * 2 * 4);
    for case in &report.cases {
        let share = case.efficiency.unwrap();
        assert!(
            (share.mean - 0.985).abs() < 0.002,
            "{}: {share:?}",
            case.case
        );
        assert!(share.low <= share.mean && share.mean <= share.high && share.count == 4);
    }
    let text = report.text();
    assert!(text.contains("98.5 % (LAMMPS LJ 8:1, all sizes)"), "{text}");
    assert!(
        text.contains("growth: lammps-lj 512k, 8:1, 4 nodes: 3.60 times natively"),
        "{text}"
    );
    assert!(text.contains("GPUDirect on 4 nodes: +9."), "{text}");
    let plots = plots(&report);
    let names: Vec<&str> = plots.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "bandwidth.svg",
            "hoomd-lj-gpudirect.svg",
            "hoomd-lj.svg",
            "lammps-lj.svg"
        ]
    );
    for (name, svg) in &plots {
        let document =
            roxmltree::Document::parse(svg).unwrap_or_else(|error| panic!("{name}: {error}"));
        let lines = document
            .descendants()
            .filter(|node| node.has_tag_name("polyline"));
        assert!(lines.count() >= 2, "{name}");
    }
}

#[test]
fn the_sides_take_turns_and_who_begins_alternates() {
    let spec = Spec::parse(SPEC).unwrap();
    let mut fake = Fake::new(1.0);
    proven(&mut fake, &spec);
    let sides: String = fake
        .runs
        .iter()
        .take(8)
        .map(|(node, _)| &node[..1])
        .collect();
    assert_eq!(sides, "nvvnnvvn");
}

#[test]
fn what_differs_is_refused_unless_it_is_allowed() {
    let mut fake = Fake::new(0.9);
    fake.facts
        .insert("v2".to_owned(), "kernel=5.14.0\n".to_owned());
    let spec = Spec::parse(SPEC).unwrap();
    let refused = proven(&mut fake, &spec);
    assert!(!refused.is_comparable);
    assert!(
        refused
            .cases
            .iter()
            .all(|case| case.efficiency.is_none() && case.vm.is_some())
    );
    let text = refused.text();
    assert!(
        text.contains(
            "NOT COMPARABLE: kernel of node 2: `6.1.0-25-amd64` natively, `5.14.0` in the machine"
        ),
        "{text}"
    );
    let spec = Spec::parse(&format!("may_differ = [\"kernel\"]\n{SPEC}")).unwrap();
    let allowed = proven(&mut fake, &spec);
    assert!(allowed.is_comparable && allowed.cases.iter().all(|case| case.efficiency.is_some()));
    assert!(
        allowed
            .text()
            .contains("differs, as the specification allows: kernel")
    );
}

#[test]
fn what_was_cut_off_is_gone_on_with_and_nothing_is_run_twice() {
    let spec = Spec::parse(SPEC).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut fake = Fake::new(0.98);
    fake.dies_at = 30;
    let results = prove(&spec, folder.path(), &mut fake, &mut quiet()).unwrap();
    assert_eq!(
        results
            .runs
            .iter()
            .filter(|run| run.figure.is_some())
            .count(),
        30
    );
    // Killed in the middle of a line.
    let file = folder.path().join("results.jsonl");
    let text = fs::read_to_string(&file).unwrap();
    let cut: String = text
        .lines()
        .take(21)
        .map(|line| format!("{line}\n"))
        .collect();
    fs::write(&file, &cut[..cut.len() - 10]).unwrap();
    let mut fake = Fake::new(0.98);
    let results = prove(&spec, folder.path(), &mut fake, &mut quiet()).unwrap();
    assert_eq!(fake.runs.len(), 120 - 20);
    assert_eq!(results.runs.len(), 120);
    assert!(results.runs.iter().all(|run| run.figure.is_some()));
    let kept: Vec<_> = load(folder.path())
        .unwrap()
        .runs
        .into_iter()
        .map(|run| (run.case, run.side, run.number))
        .collect();
    let made: Vec<_> = results
        .runs
        .into_iter()
        .map(|run| (run.case, run.side, run.number))
        .collect();
    assert_eq!(kept, made);
    // With everything there nothing is run.
    let mut fake = Fake::new(0.98);
    prove(&spec, folder.path(), &mut fake, &mut quiet()).unwrap();
    assert_eq!(fake.runs, []);
}

#[test]
fn results_of_something_else_are_not_mixed_in() {
    let spec = Spec::parse(SPEC).unwrap();
    let folder = tempfile::tempdir().unwrap();
    prove(&spec, folder.path(), &mut Fake::new(1.0), &mut quiet()).unwrap();
    let mut other = Fake::new(1.0);
    other
        .facts
        .insert("n0".to_owned(), "driver=590.0\n".to_owned());
    let error = prove(&spec, folder.path(), &mut other, &mut quiet()).unwrap_err();
    assert!(matches!(error, ProveError::Changed { .. }), "{error}");
    let spec = Spec::parse(&SPEC.replace("runs = 4", "runs = 5")).unwrap();
    let error = prove(&spec, folder.path(), &mut Fake::new(1.0), &mut quiet()).unwrap_err();
    assert!(matches!(error, ProveError::Changed { .. }), "{error}");
    fs::write(folder.path().join("results.jsonl"), "{}\n").unwrap();
    let error = load(folder.path()).unwrap_err();
    assert!(error.to_string().contains("line 1"), "{error}");
}

#[test]
fn what_is_not_installed_is_left_out_with_its_reason() {
    let spec = Spec::parse(SPEC).unwrap();
    let mut fake = Fake::new(1.0);
    fake.absent = vec!["lmp", "hoomd"];
    let report = proven(&mut fake, &spec);
    assert_eq!(report.cases.len(), 1);
    let text = report.text();
    assert!(
        text.contains("not run: lammps-lj: not on every node of [native]: lmp"),
        "{text}"
    );
    assert_eq!(fake.runs.iter().filter(|(node, _)| node == "v0").count(), 4);
}

fn state(findings: &[Finding], cause: &str) -> State {
    let found = findings
        .iter()
        .find(|finding| finding.cause.contains(cause));
    found
        .unwrap_or_else(|| panic!("{cause}: {findings:?}"))
        .state
}

#[test]
fn an_emulated_machine_is_named_as_such() {
    let spec = Spec::parse(SPEC).unwrap();
    let mut fake = Fake::new(0.05);
    for node in ["v0", "v1", "v2", "v3"] {
        let facts = "hypervisor=\nclock=hpet\ntopology=\n".to_owned();
        fake.facts.insert(node.to_owned(), facts);
    }
    let report = proven(&mut fake, &spec);
    for cause in [
        "processor is emulated",
        "timer is emulated",
        "topology file",
    ] {
        assert_eq!(state(&report.findings, cause), State::Found, "{cause}");
    }
    assert_eq!(state(&report.findings, "pinned"), State::Unseen);
    let text = report.text();
    assert!(text.contains("below 95 % of native"), "{text}");
    assert!(
        text.contains("cause: the processor is emulated (node 0)"),
        "{text}"
    );
    assert!(text.contains("not looked at: ACS"), "{text}");
}

/// A machine as `towline vm` describes it, on the host of a shape, and what causes are seen then.
fn findings(change: impl Fn(String) -> String, acs: &str) -> Vec<Finding> {
    let text = fs::read_to_string(format!(
        "{}/tests/shapes/dual-switches.host",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap();
    let shape = Shape::of(&text.replace("acs=5f:1d", acs));
    let host = inspect(&Root::new(shape.folder()));
    let xml = fs::read_to_string(format!(
        "{}/tests/golden/dual-switches--two.xml",
        env!("CARGO_MANIFEST_DIR")
    ))
    .unwrap();
    // This host has no virtual functions yet: the physical one stands for the one that it would have.
    let function = "bus='0x1a' slot='0x00' function=";
    let xml = xml.replace(&format!("{function}'0x2'"), &format!("{function}'0x0'"));
    let mut fake = Fake::new(0.5);
    fake.hosts = vec![
        ("dumpxml", change(xml)),
        ("node inspect", serde_json::to_string(&host).unwrap()),
    ];
    let spec = Spec::parse(&format!(
        "{SPEC}[[hypervisors]]\nreach = [\"ssh\", \"gpu1\"]\ndomain = \"node0\"\n"
    ))
    .unwrap();
    let report = proven(&mut fake, &spec);
    assert!(
        report
            .findings
            .iter()
            .any(|finding| finding.machine == "node0")
    );
    report
        .findings
        .into_iter()
        .filter(|finding| finding.machine == "node0")
        .collect()
}

#[test]
fn each_cause_is_seen_where_it_is_and_only_there() {
    const TRANSLATED: &str = "acs=5f:5d";
    let causes = [
        "pinned",
        "4 KiB",
        "NUMA",
        "ACS",
        "ATS",
        "is emulated",
        "topology",
    ];
    let found = |findings: &[Finding]| -> Vec<&str> {
        let is_found = |cause: &&str| state(findings, cause) == State::Found;
        causes.into_iter().filter(is_found).collect()
    };
    assert_eq!(found(&findings(|xml| xml, TRANSLATED)), [""; 0]);
    assert_eq!(found(&findings(|xml| xml, "acs=5f:1d")), ["ACS"]);
    let unpinned = |xml: String| {
        let lines: Vec<&str> = xml
            .lines()
            .filter(|line| !line.contains("vcpupin"))
            .collect();
        lines.join("\n")
    };
    assert_eq!(found(&findings(unpinned, TRANSLATED)), ["pinned"]);
    let small = |xml: String| {
        xml.replace("<hugepages>", "<nosuch>")
            .replace("</hugepages>", "</nosuch>")
    };
    assert_eq!(found(&findings(small, TRANSLATED)), ["4 KiB"]);
    let far = |xml: String| {
        xml.replace(
            "<memory mode='strict' nodeset='0'/>",
            "<memory mode='strict' nodeset='1'/>",
        )
    };
    assert_eq!(found(&findings(far, TRANSLATED)), ["NUMA"]);
}
