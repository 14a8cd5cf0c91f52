//! The files for Slurm, given to a real controller with four nodes' daemons on this machine: `tests/slurm/cluster`.
//!
//! It needs root and the packages munge, slurmctld, slurmd and slurm-client; Debian's slurm-wlm-emulator must not be there, since it
//! takes the daemons' names. Everything runs below a folder of its own, on ports of its own, and ends with the test.

#[path = "../../../tests/slurm/cluster.rs"]
mod cluster;
mod support;

use std::fs;
use std::path::{Path, PathBuf};

use cluster::Slurm;
use support::{Places, mpi_program, nodes, nodes_and_cores, said};
use towline_place::choose::Wishes;
use towline_place::cluster::slurm;
use towline_place::program::declared::scrambled_halo;
use towline_place::score::Sockets;
use towline_place::{Cluster, Matrix, Placement, Policy, Slot, launcher, search};

impl Slurm {
    /// Its nodes as `towline place --slurm` reads them.
    fn cluster(&self) -> Cluster {
        let nodes = self.run("scontrol", &["--oneliner", "show", "nodes"]);
        slurm::cluster(&nodes, None, "scontrol").unwrap()
    }

    /// The files for a placement, in a folder of its name.
    fn write(&self, cluster: &Cluster, placement: &Placement) -> PathBuf {
        let folder = self.path(&placement.name.replace(':', ""));
        launcher::files(cluster, placement, None)
            .write(&folder)
            .unwrap();
        folder
    }

    /// The same for nodes whose cores are not there: nothing can be bound to these.
    fn write_unbound(&self, cluster: &Cluster, placement: &Placement) -> PathBuf {
        let folder = self.write(cluster, placement);
        for name in ["README", "slurm.sbatch"] {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).unwrap();
            let text = text
                .replace("./on-core ", "")
                .replace("\"$folder\"/on-core ", "");
            fs::write(&path, text).unwrap();
        }
        folder
    }

    /// Runs a batch script to its end, and answers where its ranks said they were.
    fn batch(&self, folder: &Path, arguments: &[&str]) -> Places {
        let options = ["--wait", "--output=job.out"];
        self.run_in("sbatch", &[&options, arguments].concat(), folder);
        said(&fs::read_to_string(folder.join("job.out")).unwrap())
    }
}

/// What the README of a folder says for a launcher.
fn command(folder: &Path, what: &str) -> String {
    let readme = fs::read_to_string(folder.join("README")).unwrap();
    let line = readme
        .split_once(&format!("{what}:\n"))
        .map(|(_, rest)| rest);
    line.and_then(|rest| rest.lines().next())
        .unwrap_or_else(|| panic!("{what} in {readme}"))
        .trim()
        .to_owned()
}

#[test]
fn slurm_follows_its_hostfile_and_batch_script() {
    let Some(slurm) = Slurm::start(&["2x3"]) else {
        return;
    };
    let cluster = slurm.cluster();
    let shape: Vec<_> = cluster
        .nodes
        .iter()
        .map(|node| (node.name.as_str(), node.sockets.clone()))
        .collect();
    assert_eq!(
        shape,
        ["n0", "n1", "n2", "n3"].map(|name| (name, vec![3, 3]))
    );

    let matrix = Matrix::of(&scrambled_halo(4, 4, 100_000));
    let mapped =
        search::search(&cluster, &matrix, &Sockets::default(), &Wishes::default()).unwrap();
    let turns = Policy::RoundRobin(2).place(&cluster, 14, false).unwrap();
    let few = Policy::Block.place(&cluster, 8, false).unwrap();
    for placement in [mapped, turns, few] {
        let folder = slurm.write_unbound(&cluster, &placement);
        let expected = nodes(&cluster, &placement);
        let say = "sh -c 'echo at $SLURM_PROCID $(hostname)'";
        let direct = command(&folder, "Slurm, in an exclusive allocation of these nodes")
            .replace("srun", "srun --exclusive")
            .replace("PROGRAM", say);
        let text = slurm.run_in("sh", &["-c", &direct], &folder);
        assert_eq!(said(&text), expected, "{}: {text}", placement.name);
        let words = [
            "slurm.sbatch",
            "sh",
            "-c",
            "echo at $SLURM_PROCID $(hostname)",
        ];
        assert_eq!(slurm.batch(&folder, &words), expected, "{}", placement.name);
    }
}

/// Ranks of real MPI programs, bound to the two cores that there are: by srun, and by mpirun within a job.
#[test]
fn mpi_programs_are_bound_to_their_cores_in_slurm_s_jobs() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        eprintln!("skipped: this machine has one core");
        return;
    }
    let Some(slurm) = Slurm::start(&["1x2", "bind"]) else {
        return;
    };
    let cluster = slurm.cluster();
    let slot = |(node, core)| Slot {
        node,
        core,
        thread: 0,
    };
    // Neither nodes nor cores in order, and a node that is not filled.
    let turned = [(2, 1), (0, 1), (2, 0), (0, 0), (3, 1)].map(slot);
    let placement = Placement::new("turned", turned.into(), &cluster).unwrap();
    // Nodes that differ, which Slurm's own list of processors cannot say.
    let mixed = [(2, 1), (0, 0), (2, 0), (0, 1)].map(slot);
    let mixed = Placement::new("mixed", mixed.into(), &cluster).unwrap();
    let mixed_folder = slurm.write(&cluster, &mixed);
    let folder = slurm.write(&cluster, &placement);
    let expected = nodes_and_cores(&cluster, &placement);

    let open_mpi = mpi_program("mpicc.openmpi", "libopenmpi-dev", &folder);
    let mpich = mpi_program("mpicc.mpich", "libmpich-dev", &folder);
    for (program, plugin) in [(&open_mpi, "pmix"), (&mpich, "pmi2")] {
        let with_plugin = format!("--export=ALL,SLURM_MPI_TYPE={plugin}");
        let words = [&with_plugin, "slurm.sbatch", program.to_str().unwrap()];
        assert_eq!(slurm.batch(&folder, &words), expected, "srun with {plugin}");
        let text = fs::read_to_string(mixed_folder.join("slurm.sbatch")).unwrap();
        assert!(text.contains("/on-core "), "{text}");
        let places = nodes_and_cores(&cluster, &mixed);
        assert_eq!(
            slurm.batch(&mixed_folder, &words),
            places,
            "by the script, with {plugin}"
        );
    }

    let mpirun = |what: &str| {
        let command = command(&folder, what)
            .replace("mpirun", "mpirun.openmpi")
            .replace("PROGRAM", open_mpi.to_str().unwrap());
        let script = format!(
            "#!/bin/sh\nexport OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1\n\
             export OMPI_MCA_btl_vader_single_copy_mechanism=none\n{command}\n"
        );
        fs::write(folder.join("job"), script).unwrap();
        let allocation = ["--nodelist=n0,n2,n3", "--ntasks=5", "--exclusive", "job"];
        slurm.batch(&folder, &allocation)
    };
    assert_eq!(mpirun("Open MPI 4, ranks on their cores"), expected);
    let by_node = mpirun("Open MPI 4, ranks on their nodes, cores left to the system");
    let unbound = |place: String| place + " 0,1";
    let expected: Places = nodes(&cluster, &placement)
        .into_iter()
        .map(|(rank, node)| (rank, unbound(node)))
        .collect();
    assert_eq!(by_node, expected);
}
