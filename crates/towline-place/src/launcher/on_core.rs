//! A script that binds its rank, for placements that a launcher's own options cannot say: nodes that differ, nodes with several turns,
//! hardware threads.
//!
//! Which processor of the system is a node's core is found out where the rank runs. Cores count as hwloc counts them: by socket, then
//! by NUMA node, then in the system's order; a core's hardware threads in the system's order.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::Placement;

pub(super) const NAME: &str = "on-core";

const HEAD: &str = "#!/bin/sh\n\
    # Runs a program on the core that `towline place` gave to this rank: ./on-core PROGRAM ARGUMENT...\n\
    rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:?no launcher says which rank this is}}}}\n\
    case $rank in\n";

const TAIL: &str = r#"*) echo "on-core: the placement has no rank $rank" >&2; exit 1 ;;
esac
cpu=$(lscpu -p=SOCKET,NODE,CORE,CPU | sed '/^#/d' | sort -t, -n -k1,1 -k2,2 -k3,3 -k4,4 |
  awk -F, -v "core=$core" -v "thread=$thread" '
    $1 "," $3 != last { last = $1 "," $3; cores++; threads = 0 }
    { if (cores == core + 1 && threads == thread) print $4; threads++ }')
[ -n "$cpu" ] || { echo "on-core: $(hostname) has no core $core with a hardware thread $thread, which rank $rank was given" >&2; exit 1; }
exec taskset -c "$cpu" "$@"
"#;

pub(super) fn script(placement: &Placement) -> String {
    let mut ranks: BTreeMap<(u32, u32), Vec<String>> = BTreeMap::new();
    for (rank, slot) in placement.slots.iter().enumerate() {
        let place = (slot.core, slot.thread);
        ranks.entry(place).or_default().push(rank.to_string());
    }
    let mut text = String::from(HEAD);
    for ((core, thread), ranks) in ranks {
        let ranks = ranks.join("|");
        let _ = writeln!(text, "{ranks}) core={core} thread={thread} ;;");
    }
    text + TAIL
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::process::Command;

    use super::*;
    use crate::Slot;
    use crate::cluster::sample;

    fn executable(path: &Path, text: &str) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// What a rank is bound to where `lscpu` prints these lines, or the script's error.
    fn bound(slots: &[(u32, u32)], rank: &str, processors: &str) -> Result<String, String> {
        let cluster = sample(1, 2, 4);
        let slot = |&(core, thread): &(u32, u32)| Slot {
            node: 0,
            core,
            thread,
        };
        let slots = slots.iter().map(slot).collect();
        let placement = Placement::new("x", slots, &cluster).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        executable(&path(NAME), &script(&placement));
        let processors = format!("#!/bin/sh\necho '# Socket,Node,Core,CPU\n{processors}'\n");
        executable(&path("lscpu"), &processors);
        executable(&path("taskset"), "#!/bin/sh\necho \"$@\"\n");
        let search = std::env::var("PATH").unwrap_or_default();
        let output = Command::new(path(NAME))
            .args(["program", "two words"])
            .env("PATH", format!("{}:{search}", folder.path().display()))
            .env("OMPI_COMM_WORLD_RANK", rank)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Two sockets whose cores the system counts in turns, and their second threads after all cores.
    const TURNS: &str = "0,0,0,0\n1,1,2,1\n0,0,1,2\n1,1,3,3\n0,0,0,4\n1,1,2,5\n0,0,1,6\n1,1,3,7";

    #[test]
    fn cores_count_by_socket_whatever_the_system_s_order() {
        let slots = [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)];
        let found = ["0", "1", "2", "3", "4"].map(|rank| bound(&slots, rank, TURNS).unwrap());
        let expected = ["0", "2", "1", "3", "7"].map(|cpu| format!("-c {cpu} program two words"));
        assert_eq!(found, expected);
    }

    #[test]
    fn machines_without_numa_nodes_have_cores_too() {
        let found = bound(&[(1, 0)], "0", "0,,0,0\n0,,1,1").unwrap();
        assert_eq!(found, "-c 1 program two words");
    }

    #[test]
    fn what_is_not_there_is_told() {
        let few = bound(&[(5, 0)], "0", TURNS).unwrap_err();
        assert!(few.contains("has no core 5"), "{few}");
        let thread = bound(&[(1, 0), (1, 1)], "1", "0,0,0,0\n0,0,1,1").unwrap_err();
        assert!(thread.contains("a hardware thread 1"), "{thread}");
        let other = bound(&[(0, 0)], "7", TURNS).unwrap_err();
        assert!(other.contains("no rank 7"), "{other}");
    }
}
