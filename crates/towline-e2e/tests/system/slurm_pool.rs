//! Jobs of Slurm with devices of standing servers, by licences: a real controller and four nodes' daemons on this machine. Each node has
//! a `/tmp` of its own, where its Prolog keeps what jobs have to know.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::leases::Pool;
use crate::slurm::cluster::Slurm;
use crate::support::{Random, holds_within, opencl_program, towline};

const LIMIT: Duration = Duration::from_secs(60);
const FOLDER: &str = "/tmp/towline-jobs";
const FILES: [&str; 4] = [
    "towline",
    "libtowline_opencl.so",
    "libtowline_cuda.so",
    "libtowline_nvml.so",
];

/// A cluster whose jobs have a pool's devices.
struct Cluster {
    pool: Pool,
    slurm: Slurm,
}

impl Cluster {
    fn new(devices: &[u32]) -> Option<Self> {
        let pool = Pool::new(devices);
        let slurm = Slurm::configured(&["1x4"], |folder| {
            let release = towline();
            let release = release.parent().expect("it lies in a folder");
            let files = FILES.map(|name| release.join(name));
            for file in files.iter().chain(&[opencl_program("cuda_takes")]) {
                let name = file.file_name().expect("it is a file");
                fs::copy(file, folder.join(name)).expect("the folder takes it");
            }
            fs::write(folder.join("devices"), DEVICES).expect("the folder takes it");
            fs::copy(pool.path("operators"), folder.join("operators")).expect("it takes it");
            let conf = folder.join("conf");
            let out = Command::new(folder.join("towline"))
                .args(["slurm", "setup", "--out"])
                .arg(&conf)
                .args(["--folder", FOLDER])
                .args(access(&pool, folder))
                .output()
                .expect("towline is a program");
            assert!(
                out.status.success(),
                "{}",
                String::from_utf8_lossy(&out.stderr)
            );
            let submit = conf.join("job_submit.lua");
            fs::copy(submit, folder.join("job_submit.lua")).expect("it takes it");
            let include = conf.join("towline.conf").display().to_string();
            format!("include {include}\nJobSubmitPlugins=lua\nGresTypes=rgpu\n")
        });
        Some(Self {
            pool,
            slurm: slurm?,
        })
    }

    /// Has a job run to its end, and answers what it wrote.
    fn job(&self, options: &str, text: &str) -> String {
        self.submit(&format!("--wait {options}"), text);
        self.said()
    }

    fn submit(&self, options: &str, text: &str) -> String {
        self.submit_with(options, "", text)
    }

    /// With a line for sbatch in the script.
    fn submit_with(&self, options: &str, line: &str, text: &str) -> String {
        let folder = self.slurm.path("");
        let text = format!("#!/bin/sh\n{line}\ncd {}\n{text}\n", folder.display());
        fs::write(self.slurm.path("job"), text).expect("the folder takes it");
        let options = format!("--parsable --output=job.out {options} job");
        let options: Vec<_> = options.split_whitespace().collect();
        let output = Command::new("timeout")
            .args(["120", "sbatch"])
            .args(options)
            .current_dir(&folder)
            .env("SLURM_CONF", self.slurm.path("slurm.conf"))
            .output()
            .expect("sbatch is a program");
        // With --wait its status is the job's.
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.slurm.path("job.out")).unwrap_or_default()
    }

    /// `towline slurm` with the pool's options.
    fn towline(&self, command: &str) -> String {
        let program = self.slurm.path("towline");
        let access = access(&self.pool, &self.slurm.path(""));
        let mut arguments = vec!["slurm", command, "--folder", FOLDER];
        arguments.extend(access.iter().map(String::as_str));
        self.slurm
            .run(program.to_str().expect("plain letters"), &arguments)
    }

    fn has_no_lease(&self) -> bool {
        self.pool.lease(&["list"]) == Ok("no leases\n".into())
    }

    /// The use that jobs made, as `towline slurm account` has it.
    fn account(&self) -> Vec<serde_json::Value> {
        let out = Command::new(self.slurm.path("towline"))
            .args(["slurm", "account", "--json"])
            .args(self.pool.audits())
            .output()
            .expect("towline is a program");
        serde_json::from_slice(&out.stdout).expect("it is JSON")
    }
}

/// Takes what `towline devices --json` prints, and gives server and UUID of each device, one a line.
const DEVICES: &str = r#"sed -n 's/.*"\(server\|uuid\)": "\(.*\)".*/\2/p' | paste -d+ - -
"#;

/// Options of an admin whose token lies in a folder that all nodes see.
fn access(pool: &Pool, folder: &Path) -> [String; 6] {
    let token = folder.join("operators").display().to_string();
    let texts = ["--tenant", "operators", "--token-file", "--server"];
    let [tenant, operators, token_file, server] = texts.map(str::to_owned);
    [
        tenant,
        operators,
        token_file,
        token,
        server,
        pool.addresses(),
    ]
}

#[test]
fn job_has_the_devices_that_its_licenses_say() {
    let Some(cluster) = Cluster::new(&[3]) else {
        return;
    };
    let check = cluster.towline("check");
    assert!(!check.contains("ERROR"), "{check}");
    let text = "srun sh -c 'echo $(hostname) $(./towline devices --json | sh devices | wc -l)'\n\
        echo batch $(./towline devices --json | sh devices | wc -l)\n\
        printf '\\n\\n' | ./cuda_takes 1\n\
        squeue --version > /dev/null; echo folder $(stat -c %a $(dirname $TOWLINE_TOKEN_FILE))";
    let said = cluster.job("-N2 -w n0,n1 --licenses=rgpu:2", text);
    for line in [
        "n0 2",
        "n1 2",
        "batch 2",
        "has 1 of 64, free 63",
        "freed",
        "folder 700",
    ] {
        assert!(said.contains(line), "no {line} in {said}");
    }
    assert!(holds_within(LIMIT, || cluster.has_no_lease()));
    let account = cluster.account();
    assert_eq!(
        (account[0]["job"].as_u64(), account[0]["sessions"].as_u64()),
        (Some(1), Some(1))
    );
    let said = cluster.job("-N1", "echo variables $(env | grep -c TOWLINE_SERVERS)");
    assert_eq!(said, "variables 0\n");
    // The same in the words for a node's own devices.
    let devices = "echo devices $(./towline devices --json | sh devices | wc -l)";
    assert_eq!(cluster.job("-N1 --gres=rgpu:3", devices), "devices 3\n");
    assert_eq!(cluster.job("-N1 --gres=rgpu", devices), "devices 1\n");
    let part = "-N1 --licenses=rgpu_gib:1";
    let refused = Command::new("sbatch")
        .args(part.split_whitespace())
        .args(["--wrap", "true"])
        .env("SLURM_CONF", cluster.slurm.path("slurm.conf"))
        .output()
        .expect("sbatch is a program");
    assert!(
        !refused.status.success(),
        "the pool has no licences for parts"
    );
}

#[test]
fn job_without_its_devices_is_told_and_no_node_drained() {
    let Some(cluster) = Cluster::new(&[2]) else {
        return;
    };
    let arguments = [
        "give",
        "somebody",
        "--devices",
        "1",
        "--token-out",
        &cluster.pool.path("out"),
    ];
    cluster.pool.lease(&arguments).unwrap();
    let said = cluster.job("-N1 --licenses=rgpu:2", "echo computes");
    assert!(said.contains("this job has no devices"), "{said}");
    assert!(said.contains("1 of 2 are free"), "{said}");
    let states = cluster.slurm.run("sinfo", &["--noheader", "--format=%T"]);
    assert!(
        !states.contains("drain") && !states.contains("down"),
        "{states}"
    );
    let said = cluster.job(
        "-N1 --licenses=rgpu:1",
        "echo devices $(./towline devices --json | sh devices | wc -l)",
    );
    assert!(said.contains("devices 1"), "{said}");
}

#[test]
fn leases_of_jobs_that_are_gone_are_swept() {
    let Some(mut cluster) = Cluster::new(&[2]) else {
        return;
    };
    let id = cluster.submit("-N1 --time=5 --licenses=rgpu:1", "echo begun; sleep 300");
    assert!(holds_within(LIMIT, || cluster.said().contains("begun")));
    let lease = format!("slurm-towline-{id}");
    assert_eq!(cluster.pool.devices_of(&lease).len(), 1);
    // Of a job that no node's Epilog has ended.
    let stale = ["give", "slurm-towline-999", "--devices", "1", "--token-out"];
    let out = cluster.pool.path("out");
    cluster.pool.lease(&[&stale[..], &[&out]].concat()).unwrap();
    let until = || {
        let leases = cluster.pool.lease(&["list", "--json"]).unwrap();
        let leases: serde_json::Value = serde_json::from_str(&leases).unwrap();
        leases[0]["until"].as_str().map(str::to_owned)
    };
    let before = until();
    cluster.towline("sweep");
    assert_eq!(cluster.pool.devices_of("slurm-towline-999"), [""; 0]);
    assert_eq!(until(), before);
    // A job that gets more time keeps its devices for it.
    let update = ["update", &format!("JobId={id}"), "TimeLimit=60"];
    cluster.slurm.run("scontrol", &update);
    cluster.towline("sweep");
    assert!(until() > before, "{:?}", until());
    // Its lease is ended by another slurmd than the one that had it given.
    cluster.slurm.restart("n0");
    let idle = || {
        let states = cluster
            .slurm
            .run("sinfo", &["--noheader", "--nodes=n0", "--format=%T"]);
        !states.contains('*') && !states.contains("down")
    };
    assert!(holds_within(LIMIT, idle));
    cluster.slurm.run("scancel", &[&id]);
    assert!(holds_within(LIMIT, || cluster.has_no_lease()));
}

#[test]
fn requeued_job_has_devices_again() {
    let Some(cluster) = Cluster::new(&[2]) else {
        return;
    };
    // A name that looks like fields of the job.
    let name = "#SBATCH --job-name='x Licenses=rgpu:1 EndTime=Unknown UserId=x(7)'";
    let text = "echo run $SLURM_RESTART_COUNT has $(./towline devices --json | sh devices | wc -l)";
    let options = "--requeue --open-mode=append --time=5 --licenses=rgpu:2";
    let id = cluster.submit_with(options, name, &format!("{text}; sleep 300"));
    assert!(holds_within(LIMIT, || cluster.said().contains("run has 2")));
    cluster.slurm.run("scontrol", &["requeue", &id]);
    assert!(holds_within(LIMIT, || cluster.has_no_lease()));
    // As after a node's death: no Epilog has ended the first run's lease.
    let lease = format!("slurm-towline-{id}");
    let out = cluster.pool.path("out");
    let stale = ["give", &lease, "--devices", "2", "--token-out", &out];
    cluster.pool.lease(&stale).unwrap();
    // A node that has just had the job would run no Prolog: Slurm itself waits for two minutes.
    let job = format!("JobId={id}");
    let update = ["update", &job, "StartTime=now", "ReqNodeList=n1"];
    cluster.slurm.run("scontrol", &update);
    assert!(
        holds_within(LIMIT, || cluster.said().contains("run 1 has 2")),
        "{}",
        cluster.said()
    );
    assert_eq!(cluster.pool.devices_of(&lease), [""; 0]);
    assert_eq!(cluster.pool.devices_of(&format!("{lease}.1")).len(), 2);
    cluster.towline("sweep");
    assert_eq!(cluster.pool.devices_of(&format!("{lease}.1")).len(), 2);
    cluster.slurm.run("scancel", &[&id]);
    assert!(holds_within(LIMIT, || cluster.has_no_lease()));
}

/// Tells when a job has which devices.
const RANDOM_JOB: &str = "
until ./towline devices --json > devices.$SLURM_JOB_ID; do sleep 0.2; done
uuids=$(sh devices < devices.$SLURM_JOB_ID | tr '\\n' ' ')
echo $SLURM_JOB_ID begins $uuids >> devices.log
printf '\\n\\n' | ./cuda_takes 1 > /dev/null 2>&1
sleep $1
echo $SLURM_JOB_ID ends $uuids >> devices.log
";

#[test]
fn no_device_is_given_twice_to_random_jobs() {
    random_jobs(50);
}

#[test]
#[ignore = "a thousand jobs of Slurm: ten minutes"]
fn no_device_is_given_twice_to_a_thousand_jobs() {
    random_jobs(1000);
}

/// Jobs of all sizes on four servers of eight devices, of which some are cancelled, and a server is killed meanwhile.
fn random_jobs(count: u64) {
    const EACH: u32 = 8;
    let Some(mut cluster) = Cluster::new(&[EACH; 4]) else {
        return;
    };
    let mut random = Random::new();
    let folder = cluster.slurm.path("");
    let text = format!("#!/bin/sh\ncd {}\n{RANDOM_JOB}", folder.display());
    fs::write(folder.join("random"), text).expect("the folder takes it");
    let mut wanted = BTreeMap::new();
    for number in 0..count {
        let devices = 1 + random.below(6);
        let licenses = format!("--licenses=rgpu:{devices}");
        let seconds = format!("0.{}", random.below(10));
        let fixed = ["--parsable", "--output=/dev/null", "--time=5"];
        let job = [&fixed[..], &[&licenses, "random", &seconds]].concat();
        let id = cluster.slurm.run("sbatch", &job);
        let id: u64 = id.trim().parse().expect("it is a number");
        wanted.insert(id, devices as usize);
        if random.below(8) == 0 {
            cluster.slurm.run("scancel", &[&id.to_string()]);
            wanted.remove(&id);
        }
        if number == count / 2 {
            // Jobs that run are to outlive it; a job that starts meanwhile would have to do without.
            let waiting = ["--noheader", "--states=PENDING,CONFIGURING"];
            let none_waits = || cluster.slurm.run("squeue", &waiting).trim().is_empty();
            assert!(holds_within(4 * LIMIT, none_waits));
            cluster.pool.restart(random.below(4) as usize, EACH);
        }
    }
    let all_ended = || {
        cluster
            .slurm
            .run("squeue", &["--noheader"])
            .trim()
            .is_empty()
    };
    let limit = LIMIT + Duration::from_secs(2 * count);
    assert!(holds_within(limit, all_ended), "jobs are left");
    let log = fs::read_to_string(cluster.slurm.path("devices.log")).unwrap_or_default();
    check_log(&log, &wanted);
    cluster.towline("sweep");
    assert!(
        cluster.has_no_lease(),
        "{:?}",
        cluster.pool.lease(&["list"])
    );
    let account = cluster.account();
    let has_sessions = |id: &&u64| account.iter().any(|account| account["job"] == **id);
    // Sessions that a killed server had under way are in nobody's account.
    let counted = wanted.keys().filter(has_sessions).count();
    assert!(counted + 8 >= wanted.len(), "{counted} of {}", wanted.len());
}

/// All jobs had as many devices as they wanted, and none had one that another had at that time. Those that are not in `wanted` were
/// cancelled at some time, and may not have told their end.
fn check_log(log: &str, wanted: &BTreeMap<u64, usize>) {
    let (mut held, mut begun) = (BTreeMap::new(), 0);
    for line in log.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let [id, what, devices @ ..] = words.as_slice() else {
            panic!("{line}")
        };
        let id: u64 = id.parse().expect("it is a number");
        if *what == "ends" {
            for device in devices {
                held.remove(*device);
            }
            continue;
        }
        for device in devices {
            let before = held.insert(*device, id);
            let is_cancelled = |id: u64| !wanted.contains_key(&id);
            assert!(
                before.is_none_or(is_cancelled),
                "{device} is {id}'s and {before:?}'s"
            );
        }
        if let Some(count) = wanted.get(&id) {
            assert_eq!(devices.len(), *count, "{line}");
            begun += 1;
        }
    }
    assert_eq!(begun, wanted.len(), "{log}");
}
