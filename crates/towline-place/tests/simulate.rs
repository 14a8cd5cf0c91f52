//! Programs and job mixes in the real simulator, which is built from `sim/` first.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use towline_place::cluster::preset;
use towline_place::program::Op;
use towline_place::program::collective::Call;
use towline_place::program::declared::Kernel;
use towline_place::score::{Sockets, score};
use towline_place::simulate::mix::{Mix, cheapest, compare};
use towline_place::simulate::{Run, Simulator};
use towline_place::{Cluster, Matrix, Placement, Policy, Program, Slot};

const LIMIT: Duration = Duration::from_secs(120);

fn simulator() -> Simulator {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let path = BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../sim/towline-sim.cpp");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("towline-sim");
        let mut compiler = Command::new("g++");
        compiler
            .args(["-std=c++17", "-O1", "-o"])
            .arg(&program)
            .arg(&source)
            .arg("-lsimgrid");
        let status = compiler.status().expect("g++ is there");
        assert!(
            status.success(),
            "towline-sim does not build: install libsimgrid-dev, or run `scripts/setup test`"
        );
        program
    });
    Simulator::find(Some(path), LIMIT).unwrap()
}

fn run(cluster: &Cluster, program: &Program, policy: Policy) -> Run {
    let placement = policy.place(cluster, program.ranks(), true).unwrap();
    simulator()
        .run(cluster, program, &Sockets::default(), &placement, None, 3)
        .unwrap()
}

/// Two nodes of two cores, links of 1 GB/s and 10 us; messages cost nothing beside.
fn small() -> Cluster {
    let text = "name = \"small\"\n[network]\nname = \"x\"\nbandwidth = \"1 GB/s\"\nlatency = \"10 us\"\noverhead = \"0 s\"\n\
        [memory]\nbandwidth = \"4 GB/s\"\nlatency = \"1 us\"\nsocket_link = \"2 GB/s\"\n\
        [[nodes]]\nnames = \"a,b\"\ncores = 2\ncore_speed = \"1 Gflop/s\"\nmemory_bandwidth = \"10 GB/s\"\n";
    Cluster::from_toml(text, "small").unwrap()
}

fn program(ops: Vec<Vec<Op>>) -> Program {
    Program {
        name: "test".to_owned(),
        body: vec![Vec::new(); ops.len()],
        start: ops,
        iterations: 0,
        memory_demand: 0.0,
        rated_speed: 0.0,
        communicators: Vec::new(),
    }
}

fn close(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() < 1e-6
}

#[test]
fn a_message_takes_latency_and_bandwidth_of_its_way() {
    let bytes = 100_000_000;
    let send = vec![
        vec![Op::Send {
            to: 1,
            tag: 0,
            bytes,
        }],
        vec![Op::Recv {
            from: 0,
            tag: 0,
            bytes,
        }],
    ];
    let (cluster, program) = (small(), program(send));
    let between = run(&cluster, &program, Policy::Cyclic).seconds;
    assert!(close(between, 0.1 + 10e-6), "{between}");
    let within = run(&cluster, &program, Policy::Block).seconds;
    assert!(close(within, 0.025 + 1e-6), "{within}");
}

#[test]
fn ranks_share_their_socket_s_memory_and_their_node_s_link() {
    let cluster = small();
    let mut work = program(vec![vec![Op::Compute { ops: 1e9 }]; 2]);
    work.memory_demand = 8e9;
    let (spread, together) = (
        run(&cluster, &work, Policy::Cyclic),
        run(&cluster, &work, Policy::Block),
    );
    assert!(
        close(spread.seconds, 1.0) && close(together.seconds, 1.6),
        "{spread:?} {together:?}"
    );
    // Two messages out of one node take twice as long as one.
    let (bytes, tag) = (100_000_000, 0);
    let send = |to| vec![Op::Send { to, tag, bytes }];
    let receive = |from| vec![Op::Recv { from, tag, bytes }];
    let pairs = program(vec![send(2), send(3), receive(0), receive(1)]);
    let seconds = run(&cluster, &pairs, Policy::Block).seconds;
    assert!(close(seconds, 0.2 + 10e-6), "{seconds}");
}

#[test]
fn a_small_message_does_not_wait_for_its_receiver_and_a_large_one_does() {
    let late = |bytes| {
        let first = vec![
            Op::Send {
                to: 1,
                tag: 0,
                bytes,
            },
            Op::Compute { ops: 1e9 },
        ];
        let second = vec![
            Op::Compute { ops: 1e9 },
            Op::Recv {
                from: 0,
                tag: 0,
                bytes,
            },
        ];
        run(&small(), &program(vec![first, second]), Policy::Cyclic).seconds
    };
    assert!(late(1000) < 1.01, "{}", late(1000));
    assert!(late(10_000_000) > 2.0, "{}", late(10_000_000));
}

#[test]
fn every_collective_ends_on_any_number_of_ranks() {
    let cluster = preset::cluster("study-qdr").unwrap();
    for ranks in [2_u32, 5, 12, 33] {
        let calls = [
            Call::Barrier,
            Call::Bcast {
                bytes: 100_000,
                root: 1,
            },
            Call::Reduce {
                bytes: 100,
                root: 1,
            },
            Call::Allreduce { bytes: 8 },
            Call::Allreduce { bytes: 1 << 20 },
            Call::Allgather { bytes: 1000 },
            Call::Alltoall { bytes: 10 },
            Call::Alltoall { bytes: 100_000 },
            Call::Alltoallv {
                send: vec![7; ranks as usize].into(),
                receive: vec![7; ranks as usize].into(),
            },
            Call::Gather {
                bytes: 100,
                root: 0,
            },
            Call::Scatter {
                bytes: 100_000,
                root: 1,
            },
            Call::ReduceScatter { bytes: 100 },
            Call::Scan { bytes: 8 },
        ];
        let ops: Vec<Op> = calls
            .map(|call| Op::Collective {
                call,
                communicator: 0,
            })
            .into();
        let ran = run(
            &cluster,
            &program(vec![ops; ranks as usize]),
            Policy::RoundRobin(2),
        );
        assert!(ran.seconds > 0.0 && ran.seconds < 1.0, "{ranks}: {ran:?}");
    }
}

#[test]
fn the_same_run_gives_the_same_digits() {
    let cluster = preset::cluster("study-gbe").unwrap();
    let program = Kernel::Cg.program(32).unwrap();
    let policy = Policy::RoundRobin(6);
    assert_eq!(
        run(&cluster, &program, policy),
        run(&cluster, &program, policy)
    );
}

#[test]
fn ranks_that_wait_for_each_other_are_an_error() {
    let (cluster, tag, bytes) = (small(), 0, 1_000_000);
    let wait = |peer| {
        vec![
            Op::Recv {
                from: peer,
                tag,
                bytes,
            },
            Op::Send {
                to: peer,
                tag,
                bytes,
            },
        ]
    };
    let placement = Policy::Block.place(&cluster, 2, false).unwrap();
    let stuck = program(vec![wait(1), wait(0)]);
    let error = simulator()
        .run(&cluster, &stuck, &Sockets::default(), &placement, None, 1)
        .unwrap_err();
    assert!(
        error.to_string().contains("the simulator failed"),
        "{error}"
    );
}

#[test]
fn iterations_that_are_not_played_are_in_the_time() {
    let cluster = preset::cluster("study-qdr").unwrap();
    let program = Kernel::Ft.program(16).unwrap();
    let placement = Policy::RoundRobin(1).place(&cluster, 16, false).unwrap();
    let all = |count| {
        simulator()
            .run(
                &cluster,
                &program,
                &Sockets::default(),
                &placement,
                None,
                count,
            )
            .unwrap()
    };
    let (few, whole) = (all(3), all(1000));
    assert_eq!((few.played, whole.played), (3, 20));
    assert!(
        (few.seconds / whole.seconds - 1.0).abs() < 1e-3,
        "{few:?} {whole:?}"
    );
}

/// The order that the cluster notes measured with a replay of CG on SimGrid's own MPI: memory decides on a fast network.
#[test]
fn a_full_socket_starves_what_its_memory_cannot_feed_and_nothing_else() {
    let cluster = preset::cluster("study-qdr").unwrap();
    let slower = |kernel: Kernel| {
        let program = kernel.program(16).unwrap();
        let seconds = |n| run(&cluster, &program, Policy::RoundRobin(n)).seconds;
        seconds(12) / seconds(1)
    };
    // A vectorized Himeno draws what a core can draw; LU computes in caches.
    let (starved, fed) = (slower(Kernel::HimenoIntel), slower(Kernel::Lu));
    assert!(starved > 2.0 && (fed - 1.0).abs() < 0.02, "{starved} {fed}");
}

#[test]
fn the_estimate_orders_clear_cases_as_the_simulator_does() {
    for (preset, kernel) in [
        ("study-qdr", Kernel::Himeno),
        ("study-gbe", Kernel::Ft),
        ("study-gbe", Kernel::Is),
    ] {
        let cluster = preset::cluster(preset).unwrap();
        let program = kernel.program(16).unwrap();
        let matrix = Matrix::of(&program);
        let [one, twelve] = [1, 12].map(|n| {
            let policy = Policy::RoundRobin(n);
            let placement = policy.place(&cluster, 16, false).unwrap();
            let estimate = score(&cluster, &matrix, &Sockets::default(), &placement).unwrap();
            (estimate.total_s, run(&cluster, &program, policy).seconds)
        });
        let (estimated, simulated) = (twelve.0 / one.0, twelve.1 / one.1);
        assert!(
            (simulated - 1.0).abs() > 0.05,
            "{kernel:?} is a clear case: {simulated}"
        );
        assert_eq!(
            estimated > 1.0,
            simulated > 1.0,
            "{kernel:?}: {estimated} {simulated}"
        );
    }
}

#[test]
fn gpus_that_are_shared_serve_one_after_another() {
    let cluster = preset::cluster("study-qdr").unwrap();
    let ops = vec![Op::Gpu {
        up: 0,
        seconds: 1.0,
        down: 0,
        calls: 1,
    }];
    let program = program(vec![ops; 4]);
    let slots = [0, 1, 6, 7].map(|core| Slot {
        node: 0,
        core,
        thread: 0,
    });
    let placement = Placement::new("x", slots.into(), &cluster).unwrap();
    let matrix = Matrix::of(&program);
    let gpus = towline_place::gpus::assign(
        &cluster,
        &matrix,
        &placement,
        towline_place::gpus::Pool::Local,
    )
    .unwrap();
    let ran = simulator()
        .run(
            &cluster,
            &program,
            &Sockets::default(),
            &placement,
            Some(&gpus),
            1,
        )
        .unwrap();
    assert!(
        (ran.seconds - 2.0).abs() < 0.01,
        "four kernels on two GPUs: {ran:?}"
    );
}

const MIX: &str = "name = \"m\"\n[[jobs]]\nname = \"md\"\ncount = 40\nevery = \"1 s\"\niterations = 20\ncompute = \"0.8 s\"\n\
    kernel = \"0.2 s\"\nupload = \"16 MiB\"\ndownload = \"1 MiB\"\n";

#[test]
fn few_servers_are_enough_for_gpus_that_are_seldom_busy() {
    let mut cluster = preset::cluster("study-qdr").unwrap();
    cluster.nodes.truncate(8);
    cluster.nodes.iter_mut().for_each(|node| node.gpus = 1);
    let mix = Mix::from_toml(MIX, "m").unwrap();
    let compared = compare(&simulator(), &cluster, &mix, 4).unwrap();
    assert!(compared.error.is_none());
    let outcomes = compared.outcomes;
    assert_eq!(outcomes.len(), 5);
    let (local, one) = (&outcomes[0], &outcomes[1]);
    assert_eq!((local.gpus, one.gpus), (8, 1));
    // Eight jobs at a time want 8 x 0.2 s of every second: one GPU is too few, two are just enough.
    assert!(one.slowdown > 1.3, "{one:?}");
    assert!(
        outcomes[2].slowdown < 1.3 && outcomes[2].slowdown <= one.slowdown,
        "{outcomes:?}"
    );
    assert!(outcomes[2].gpu_utilisation > local.gpu_utilisation);
    let best = cheapest(&outcomes, 1.3).unwrap();
    assert!(
        best.servers.unwrap() <= 3 && best.price < local.price + 2.0 * 6500.0,
        "{best:?}"
    );
}

/// Four nodes, and servers of one GPU and four cores. Numbers that make sums by hand easy.
const FOUR: &str = "name = \"four\"\n[network]\nname = \"x\"\nbandwidth = \"1 GB/s\"\nlatency = \"1 ns\"\noverhead = \"0 s\"\n\
    [memory]\nbandwidth = \"4 GB/s\"\nlatency = \"1 us\"\nsocket_link = \"2 GB/s\"\n\
    [gpu]\nlink = \"10 GB/s\"\nidle = \"20 W\"\nbusy = \"220 W\"\nprice = 3000\n\
    [[nodes]]\nnames = \"n[0-3]\"\ncores = 2\ngpus = 1\nidle = \"100 W\"\nbusy = \"300 W\"\nprice = 1000\n\
    [[gpu_servers]]\nnames = \"g0\"\ncores = 4\ngpus = 1\nidle = \"50 W\"\nbusy = \"150 W\"\nprice = 800\n";

/// Four jobs at once. An iteration computes 1 s, sends 0.1 s over the network or 0.01 s to a GPU beside, and computes 0.5 s there.
const AT_ONCE: &str = "name = \"at once\"\nshare = 0\n[[jobs]]\nname = \"job\"\ncount = 4\nevery = \"0 s\"\niterations = 3\n\
    compute = \"1 s\"\nupload = \"100 MB\"\nkernel = \"0.5 s\"\n";

#[test]
fn a_mix_takes_the_time_energy_and_price_that_a_sum_by_hand_gives() {
    let cluster = Cluster::from_toml(FOUR, "four").unwrap();
    let mix = Mix::from_toml(AT_ONCE, "m").unwrap();
    let compared = compare(&simulator(), &cluster, &mix, 4).unwrap();
    assert!(compared.error.is_none());
    let outcomes = compared.outcomes;
    let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-5;
    // Jobs on one server come at the same time: n of them share its link and its GPU, and an iteration takes 1 + 0.1 n + 0.5 n s.
    // Of three servers one has two jobs.
    let seconds = [4.53, 10.2, 6.6, 6.6, 4.8];
    let prices = [
        4.0 * 4000.0,
        4000.0 + 3800.0,
        4000.0 + 2.0 * 3800.0,
        4000.0 + 3.0 * 3800.0,
        4000.0 + 4.0 * 3800.0,
    ];
    for (outcome, (seconds, price)) in outcomes.iter().zip(seconds.into_iter().zip(prices)) {
        assert!(near(outcome.makespan_s, seconds), "{seconds}: {outcome:?}");
        assert!(near(outcome.slowdown, seconds / 4.53), "{outcome:?}");
        assert!(near(outcome.price, price), "{price}: {outcome:?}");
    }
    let turnaround: Vec<f64> = outcomes
        .iter()
        .map(|outcome| outcome.turnaround_s)
        .collect();
    // Two of the four jobs on three servers have a server each.
    assert!(
        near(turnaround[2], 6.6) && near(turnaround[3], (2.0 * 6.6 + 2.0 * 4.8) / 4.0),
        "{turnaround:?}"
    );
    // Nodes are busy for 3 s, GPUs for 1.5 s a job; a server's GPU keeps one of its four cores busy.
    let nodes = |seconds: f64| 4.0 * (100.0 * seconds + 200.0 * 3.0);
    let gpus = |seconds: f64, count: f64| 20.0 * seconds * count + 200.0 * 4.0 * 1.5;
    let local = nodes(4.53) + gpus(4.53, 4.0);
    let two = nodes(6.6) + gpus(6.6, 2.0) + 2.0 * (50.0 * 6.6 + 100.0 * 3.0 / 4.0);
    assert!(near(outcomes[0].energy_j, local), "{local}: {outcomes:?}");
    assert!(near(outcomes[2].energy_j, two), "{two}: {outcomes:?}");
    let busy = |outcome: usize| outcomes[outcome].gpu_utilisation;
    assert!(near(busy(0), 6.0 / (4.0 * 4.53)) && near(busy(2), 6.0 / (2.0 * 6.6)));
    // Two servers are 1.46 times slower, one 2.25 times, four 1.06 times.
    for (slowdown, servers) in [(1.05, None), (1.1, Some(4)), (1.5, Some(2)), (2.3, Some(1))] {
        let best = cheapest(&outcomes, slowdown).map(|best| best.servers.unwrap());
        assert_eq!(best, servers, "{slowdown}");
    }
}

#[test]
fn a_mix_is_the_same_to_the_last_digit_at_every_run() {
    let cluster = Cluster::from_toml(FOUR, "four").unwrap();
    let text = MIX.to_owned() + &AT_ONCE[AT_ONCE.find("[[jobs]]").unwrap()..];
    let mix = Mix::from_toml(&text, "m").unwrap();
    let once = || compare(&simulator(), &cluster, &mix, 3).unwrap().outcomes;
    assert_eq!(once(), once());
}

/// One GPU, one job on it at a time: the second waits until the first has ended, and does not slow it down.
#[test]
fn jobs_wait_for_a_gpu_whose_share_is_taken() {
    let cluster = Cluster::from_toml(FOUR, "four").unwrap();
    let mix = AT_ONCE
        .replace("share = 0", "share = 1")
        .replace("count = 4", "count = 2");
    let mix = Mix::from_toml(&mix, "m").unwrap();
    let compared = compare(&simulator(), &cluster, &mix, 1).unwrap();
    let one = &compared.outcomes[1];
    assert!(
        (one.makespan_s - 9.6).abs() < 1e-4 && (one.turnaround_s - 7.2).abs() < 1e-4,
        "{one:?}"
    );
}

/// Each job takes a place on a GPU from two nodes at once: one GPU with one place never starts it.
#[test]
fn impossible_server_counts_are_skipped_and_named() {
    let cluster = Cluster::from_toml(FOUR, "four").unwrap();
    let mix = AT_ONCE
        .replace("share = 0", "share = 1")
        .replace("count = 4", "count = 2\nnodes = 2");
    let mix = Mix::from_toml(&mix, "m").unwrap();
    let compared = compare(&simulator(), &cluster, &mix, 4).unwrap();
    assert!(compared.error.is_none(), "{:?}", compared.error);
    let [one] = &compared.impossible[..] else {
        panic!("{:?}", compared.impossible);
    };
    assert_eq!((one.servers, one.gpus), (1, 1));
    assert!(one.reason.contains("jobs `job`"), "{}", one.reason);
    let played: Vec<_> = compared
        .outcomes
        .iter()
        .map(|outcome| outcome.servers)
        .collect();
    assert_eq!(played, [None, Some(2), Some(3), Some(4)]);
    // Two servers play one job after the other; four play both at once.
    let best = |slowdown| cheapest(&compared.outcomes, slowdown).and_then(|best| best.servers);
    assert_eq!([best(2.5), best(1.1)], [Some(2), Some(4)]);
}

#[test]
fn shifted_arrivals_change_no_figure() {
    let cluster = Cluster::from_toml(FOUR, "four").unwrap();
    let figures = |first: &str| {
        let text = AT_ONCE.replace("count = 4", &format!("count = 2\nfirst = \"{first}\""));
        let mix = Mix::from_toml(&text, "m").unwrap();
        let outcomes = compare(&simulator(), &cluster, &mix, 2).unwrap().outcomes;
        outcomes.into_iter().flat_map(|outcome| {
            [
                outcome.makespan_s,
                outcome.turnaround_s,
                outcome.gpu_utilisation,
                outcome.energy_j,
                outcome.slowdown,
            ]
        })
    };
    let pairs: Vec<(f64, f64)> = figures("0 s").zip(figures("1000 s")).collect();
    assert_eq!(pairs.len(), 3 * 5);
    assert!(pairs.iter().all(|&(a, b)| close(a, b)), "{pairs:?}");
}
