//! The stages, in the order in which they run: cheap and telling ones first.

use std::fmt;
use std::process::{Command, Stdio};

use super::Tier;
use crate::workspace::Workspace;

/// One command whose exit status counts.
pub(super) struct Stage {
    /// Also the name of its log.
    pub(super) name: &'static str,
    pub(super) tiers: &'static [Tier],
    /// Stages without whose results this one means nothing.
    pub(super) needs: &'static [&'static str],
    /// What not every machine has: without one of them the stage is skipped.
    pub(super) tools: &'static [Tool],
    /// For the shell, in the workspace's root: what one types to run the stage by hand.
    pub(super) command: &'static str,
    /// A stage that takes longer hangs.
    pub(super) limit_s: u32,
    /// It leaves a processor idle, and runs in the second row.
    pub(super) beside: bool,
}

/// What a stage needs beside the toolchain that built this program.
#[derive(Clone, Copy)]
pub(super) enum Tool {
    /// A command that answers when asked for its `--version`.
    Command(&'static str),
    /// A platform that the toolchain has a standard library for.
    Target(&'static str),
}

const AARCH64: &str = "aarch64-unknown-linux-gnu";
const MACOS: &str = "x86_64-apple-darwin";
const WINDOWS: &str = "x86_64-pc-windows-gnu";

const CHECK: &[Tier] = &[Tier::Check];
const TEST: &[Tier] = &[Tier::Test, Tier::Long];
const LONG: &[Tier] = &[Tier::Long];
const EVERY: &[Tier] = &[Tier::Check, Tier::Test, Tier::Long];

/// What a stage is unless it says otherwise.
pub(super) const STAGE: Stage = Stage {
    name: "",
    tiers: EVERY,
    needs: &[],
    tools: &[],
    command: "",
    limit_s: 1800,
    beside: false,
};

pub(super) const STAGES: &[Stage] = &[
    Stage {
        name: "fmt",
        tools: &[Tool::Command("cargo fmt")],
        command: "cargo fmt --all --check",
        ..STAGE
    },
    Stage {
        // No package owns these files, so that `cargo fmt` does not see them.
        name: "fmt-api",
        tools: &[Tool::Command("rustfmt")],
        command: "find api crates/towline-api/tests/declarations -name '*.rs' -exec rustfmt --check {} +",
        ..STAGE
    },
    Stage {
        name: "clippy",
        tools: &[Tool::Command("cargo clippy")],
        command: "cargo clippy --workspace --all-targets --locked -- ${TOWLINE_LINTS--D warnings}",
        ..STAGE
    },
    Stage {
        name: "unit",
        tiers: CHECK,
        command: "cargo test --workspace --lib --bins --locked --no-fail-fast",
        ..STAGE
    },
    Stage {
        name: "build",
        tiers: TEST,
        command: "cargo build --release --locked -p towline-cli -p towline-cuda -p towline-cudart12 -p towline-cudart13 -p towline-nccl -p towline-nvml -p towline-opencl",
        ..STAGE
    },
    Stage {
        name: "tests",
        tiers: TEST,
        needs: &["build"],
        command: "cargo test --workspace --locked --no-fail-fast",
        limit_s: 3600,
        ..STAGE
    },
    Stage {
        // As on machines with four cores and more: threads look for work before they sleep, and who calls sends for a thread that sleeps.
        // Sessions of all kinds; hostile input finds nothing else here than in `tests`. Of the whole workspace, since another choice of
        // packages means other features, and minutes.
        name: "tests-looking",
        tiers: TEST,
        needs: &["tests"],
        command: "TOWLINE_SPIN_US=50 cargo test --workspace --locked --no-fail-fast --test arrays --test boxes --test cuda --test faults \
            --test graphs --test heap --test images --test links --test mirrors --test null --test operations --test peers --test rebuild \
            --test registered --test round_trips --test servers --test shared --test sharing --test transfers --test waits",
        ..STAGE
    },
    Stage {
        name: "api",
        tiers: TEST,
        needs: &["build"],
        command: "cargo xtask api check --header /usr/include/CL/cl.h",
        ..STAGE
    },
    Stage {
        // Private items as well: who reads these pages works on the code, and a module's page may point at what it is made of.
        name: "docs",
        tiers: TEST,
        command: "RUSTDOCFLAGS=\"${TOWLINE_LINTS--D warnings} -A rustdoc::private-intra-doc-links\" \
            cargo doc --workspace --no-deps --document-private-items --locked",
        ..STAGE
    },
    Stage {
        // The OpenCL client is to build for other systems. Nothing is linked: ring's C needs no compiler for them here.
        name: "portable",
        tiers: TEST,
        tools: &[Tool::Target(MACOS), Tool::Target(WINDOWS)],
        command: "CC_x86_64_apple_darwin=true AR_x86_64_apple_darwin=true CC_x86_64_pc_windows_gnu=true AR_x86_64_pc_windows_gnu=true \
            RUSTFLAGS=\"${TOWLINE_LINTS--D warnings}\" \
            cargo check --locked --target x86_64-apple-darwin --target x86_64-pc-windows-gnu -p towline-opencl -p towline-nvml",
        ..STAGE
    },
    Stage {
        // Links and headings of every page, and docs/ as a site.
        name: "site",
        tiers: TEST,
        tools: &[Tool::Command("build/site-tools/bin/zensical")],
        command: "python3 -m unittest tests/docs/test_promises.py tests/docs/test_site.py && site/build",
        limit_s: 300,
        beside: true,
        ..STAGE
    },
    Stage {
        // Also where dependencies come from: deny.toml.
        name: "licences",
        tiers: TEST,
        tools: &[Tool::Command("build/cargo-deny/bin/cargo-deny")],
        command: "build/cargo-deny/bin/cargo-deny --locked check licenses bans sources",
        ..STAGE
    },
    Stage {
        // On a real kernel, in an emulated host: inspect, plan, apply, undo.
        name: "node",
        tiers: TEST,
        needs: &["build"],
        tools: &[Tool::Command("qemu-system-x86_64")],
        command: "tests/node/emulated-host tests/node/apply-undo.sh \"$TOWLINE_BIN_DIR/towline\" once",
        beside: true,
        ..STAGE
    },
    Stage {
        // A drive's virtual function to a machine on the emulated host and back, with data through it; and what the kernel refuses.
        name: "node-drives",
        tiers: LONG,
        needs: &["node"],
        tools: &[Tool::Command("qemu-system-x86_64"), Tool::Command("nvme")],
        command: "TOWLINE_EMULATED_LIMIT_S=1500 tests/node/drive-function \"$TOWLINE_BIN_DIR/towline\" once",
        beside: true,
        ..STAGE
    },
    Stage {
        // libvirt's own QEMU driver takes a domain and starts it, emulated.
        name: "node-libvirt",
        tiers: TEST,
        needs: &["node"],
        tools: &[Tool::Command("libvirtd")],
        command: "tests/node/libvirt-start",
        beside: true,
        ..STAGE
    },
    Stage {
        // The commands of the tutorial and other pages, word for word; and no page names a command that there is not.
        name: "tutorial",
        tiers: TEST,
        needs: &["build"],
        tools: &[Tool::Command("clinfo")],
        command: "python3 tests/docs/test_pages.py && python3 tests/docs/test_commands.py",
        limit_s: 600,
        ..STAGE
    },
    Stage {
        // Programs on a server's devices, a transport and a backend of one's own, a trace: docs/examples.md.
        name: "examples",
        tiers: TEST,
        needs: &["build", "tests"],
        command: "tests/programs/check-examples.sh \"$TOWLINE_BIN_DIR\"",
        ..STAGE
    },
    Stage {
        name: "workloads",
        tiers: TEST,
        command: "make -C workloads/opencl check",
        beside: true,
        ..STAGE
    },
    Stage {
        // An MPI that knows CUDA is given pointers to memory of devices in software. Without UCX for CUDA, from PyPI, 77 says so.
        name: "mpi-device",
        tiers: LONG,
        needs: &["build"],
        tools: &[Tool::Command("mpirun.openmpi")],
        command: "workloads/mpi/check-device.sh \"$TOWLINE_BIN_DIR\"",
        ..STAGE
    },
    Stage {
        // From an emulated virtual machine to this machine's server; and the transports' suite over vsock, which that machine has.
        name: "node-guest",
        tiers: LONG,
        needs: &["node", "workloads"],
        tools: &[Tool::Command("qemu-system-x86_64")],
        command: "tests/node/guest-session \"$TOWLINE_BIN_DIR\" build/workloads \"$(cargo test --locked -p towline-transport \
            --test conformance --no-run 2>&1 | sed -n 's/.*Executable .*(\\(.*\\))/\\1/p')\"",
        beside: true,
        ..STAGE
    },
    Stage {
        // A server's control groups, on the kernel of an emulated virtual machine.
        name: "node-limits",
        tiers: TEST,
        needs: &["node", "workloads"],
        tools: &[Tool::Command("qemu-system-x86_64")],
        command: "tests/node/guest-limits \"$TOWLINE_BIN_DIR\"",
        beside: true,
        ..STAGE
    },
    Stage {
        // Packages of what `build` built, installed as their users do. Without what packs them, from PyPI, there are none.
        name: "packages",
        tiers: TEST,
        needs: &["build"],
        tools: &[Tool::Command("build/dist-tools/bin/nfpm")],
        command: "cargo test --locked --workspace --bin xtask dist:: -- --ignored && cargo xtask dist --quick && packaging/tests/wheel build/dist-quick && packaging/tests/tarball build/dist-quick",
        ..STAGE
    },
    Stage {
        // The same as released: for glibc 2.17, in a fresh Debian, with an upgrade.
        name: "packages-fresh",
        tiers: LONG,
        needs: &["packages"],
        tools: &[
            Tool::Command("build/dist-tools/bin/nfpm"),
            Tool::Command("mmdebstrap"),
            Tool::Command("rpm"),
        ],
        command: "cargo xtask dist --target x86_64 && packaging/tests/rpm build/dist && packaging/tests/wheel build/dist && \
            TOWLINE_DIST_VERSION=0.0.1 cargo xtask dist --quick && packaging/tests/deb build/dist build/dist-quick",
        limit_s: 3600,
        ..STAGE
    },
    Stage {
        // A second build in another folder gives the same packages.
        name: "packages-again",
        tiers: LONG,
        needs: &["packages-fresh"],
        command: "packaging/tests/again build/dist",
        limit_s: 3600,
        ..STAGE
    },
    Stage {
        // Images of those packages, unpacked and run without a daemon.
        name: "packages-images",
        tiers: LONG,
        needs: &["packages-fresh"],
        tools: &[Tool::Command("mmdebstrap"), Tool::Command("umoci")],
        command: "packaging/images build/dist && packaging/tests/images build/dist",
        ..STAGE
    },
    Stage {
        // What the CUDA workloads share with their kernels; and the suite of GPU machines, with programs that need none.
        name: "cuda-workloads",
        tiers: TEST,
        command: "make -C workloads/cuda check-host && PYTHONDONTWRITEBYTECODE=1 python3 -m unittest discover -s tests/gpu",
        beside: true,
        ..STAGE
    },
    Stage {
        // nvcc's programs with our runtime library, on devices in software. Without nvcc there is nothing to build them with.
        name: "cuda-soft",
        tiers: TEST,
        needs: &["build"],
        command: "workloads/cuda/check-soft.sh \"$TOWLINE_BIN_DIR\"",
        ..STAGE
    },
    Stage {
        // Programs and workers that are killed while devices in software are busy.
        name: "cuda-kills",
        tiers: TEST,
        needs: &["build"],
        command: "tests/gpu/kills-soft.sh \"$TOWLINE_BIN_DIR\"",
        ..STAGE
    },
    Stage {
        // Every instruction that devices in software carry out, in both tiers, against what an H200 left of it.
        name: "cuda-goldens",
        tiers: TEST,
        needs: &["build"],
        command: "tests/gpu/goldens.sh soft \"$TOWLINE_BIN_DIR\"",
        ..STAGE
    },
    Stage {
        // Random sequences of calls of driver and runtime library: recorded answers, and the same over TCP, shared memory and request by request.
        name: "cuda-differ",
        tiers: TEST,
        needs: &["build"],
        command: "tests/gpu/differ.sh soft \"$TOWLINE_BIN_DIR\"",
        ..STAGE
    },
    Stage {
        // Numba's programs bring PTX, which the driver links.
        name: "numba",
        tiers: TEST,
        needs: &["build"],
        command: "tests/programs/check-numba.sh \"$TOWLINE_BIN_DIR\"",
        beside: true,
        ..STAGE
    },
    Stage {
        // What we print of compilers' PTX is right for ptxas. Whether it judges statements as we do is among `tests`.
        name: "ptxas",
        tiers: TEST,
        command: "tests/programs/check-ptxas.sh",
        beside: true,
        ..STAGE
    },
    Stage {
        // Beside their own checks: molecular dynamics on the devices of servers, against the processor.
        name: "workloads-mpi",
        tiers: TEST,
        needs: &["build"],
        tools: &[Tool::Command("mpirun.openmpi")],
        command: "make -C workloads/mpi OPENCL=1 check && workloads/mpi/check-towline.sh \"$TOWLINE_BIN_DIR\"",
        beside: true,
        ..STAGE
    },
    Stage {
        // Without SimGrid there is nothing to build, and 77 says so.
        name: "sim",
        tiers: TEST,
        command: "printf '#include <simgrid/s4u.hpp>\\n' | g++ -E -x c++ - >/dev/null 2>&1 || \
            { echo 'no SimGrid: scripts/setup test installs it'; exit 77; }; \
            make -C sim CXXFLAGS='-O2 -Wall -Wextra -Werror' && sim/towline-sim --version",
        beside: true,
        ..STAGE
    },
    Stage {
        // Format, lints, types and tests of the benchmark suite; its sweeps use what `build` and `sim` built.
        name: "python",
        tiers: TEST,
        needs: &["build"],
        tools: &[Tool::Command("build/python/bin/python")],
        command: "python/check",
        beside: true,
        ..STAGE
    },
    Stage {
        name: "workloads-mpi-long",
        tiers: LONG,
        needs: &["workloads-mpi"],
        tools: &[Tool::Command("mpirun.openmpi")],
        command: "make -C workloads/mpi check-long",
        ..STAGE
    },
    Stage {
        // From an emulated virtual machine to this machine's server over its kernel's vsock.
        name: "node-vsock",
        tiers: LONG,
        needs: &["node", "workloads"],
        tools: &[Tool::Command("qemu-system-x86_64")],
        command: "tests/node/guest-vsock \"$TOWLINE_BIN_DIR\" build/workloads",
        ..STAGE
    },
    Stage {
        // The transport over RDMA in software, which the kernel of an emulated machine has: its suite, programs, kills, limits.
        name: "rdma",
        tiers: LONG,
        needs: &["node", "workloads"],
        tools: &[Tool::Command("qemu-system-x86_64")],
        command: "tests/node/guest-rdma \"$TOWLINE_BIN_DIR\" build/workloads \"$(cargo test --locked -p towline-transport \
            --test conformance --no-run 2>&1 | sed -n 's/.*Executable .*(\\(.*\\))/\\1/p')\"",
        ..STAGE
    },
    Stage {
        // A benchmark natively and in an emulated machine, killed in the middle.
        name: "node-prove",
        tiers: LONG,
        needs: &["node", "workloads-mpi"],
        tools: &[Tool::Command("qemu-system-x86_64")],
        command: "tests/node/prove-guest \"$TOWLINE_BIN_DIR/towline\" build/workloads/mpi",
        ..STAGE
    },
    Stage {
        // Each fuzz target runs its committed corpus as a plain test.
        name: "fuzz-corpus",
        tiers: TEST,
        command: "cargo test --manifest-path fuzz/Cargo.toml --locked --no-fail-fast",
        ..STAGE
    },
    Stage {
        // The same tests go on from the corpus by mutation for this long each.
        name: "fuzz",
        tiers: LONG,
        needs: &["fuzz-corpus"],
        command: "TOWLINE_FUZZ_SECONDS=180 \
            cargo test --manifest-path fuzz/Cargo.toml --release --locked --no-fail-fast --features soft",
        limit_s: 7200,
        ..STAGE
    },
    Stage {
        // Whole programs in sessions whose messages are changed, each test for so long, from seeds by chance that its log names.
        name: "mutated-sessions",
        tiers: LONG,
        command: "TOWLINE_FUZZ_SECONDS=180 cargo test --locked --no-fail-fast -p towline-test -p towline-cuda --test mutated \
            -- --nocapture --test-threads 1",
        ..STAGE
    },
    Stage {
        // The same libraries for Windows, run by Wine.
        name: "windows",
        tiers: LONG,
        needs: &["build"],
        tools: &[
            Tool::Target(WINDOWS),
            Tool::Command("x86_64-w64-mingw32-gcc"),
            Tool::Command("wine"),
        ],
        command: "tests/windows/check \"$TOWLINE_BIN_DIR\"",
        ..STAGE
    },
    Stage {
        // No documentation tests: there `ignore` means that the example cannot run. Those of `served` are for `tests/gpu/goldens.sh`, one
        // is for a GPU, and three are what other tests run in processes of their own.
        name: "slow-tests",
        tiers: LONG,
        needs: &["build"],
        command: "cargo test --workspace --lib --bins --tests --locked --no-fail-fast -- --ignored --skip served:: \
            --skip the_vendors_driver_serves_a_session --skip shm::tests::victim --skip crash::tests::crash \
            --skip process::tests::supervisor",
        limit_s: 7200,
        ..STAGE
    },
    Stage {
        // Random sequences of OpenCL calls, others each day, natively and through Towline.
        name: "walks",
        tiers: LONG,
        needs: &["build"],
        command: "TOWLINE_WALK_SECONDS=900 TOWLINE_WALK_SEED=$(date +%Y%m%d0000) \
            cargo test -p towline-e2e --test system --locked random_sequences -- --nocapture",
        ..STAGE
    },
    Stage {
        // Each call of OpenCL with more hostile arguments than `tests` draws.
        name: "hostile-calls",
        tiers: LONG,
        command: "TOWLINE_HOSTILE_DRAWS=1000 cargo test -p towline-opencl --test hostile --locked",
        ..STAGE
    },
    Stage {
        // Sessions with one bit changed on the way: five minutes, most of it in waiting for the rest of records that never comes.
        name: "flipped-bits",
        tiers: LONG,
        command: "TOWLINE_FLIPS=10000 cargo test -p towline-server --test supervisor --locked flipped_bits",
        ..STAGE
    },
    Stage {
        // Two machines with an adapter's function each, from bare host to cluster and back. Fetches a newer QEMU where need be.
        name: "node-cluster",
        tiers: LONG,
        needs: &["node", "node-libvirt"],
        tools: &[
            Tool::Command("qemu-system-x86_64"),
            Tool::Command("libvirtd"),
        ],
        command: "TOWLINE_EMULATED_LIMIT_S=1500 tests/node/node-cluster \"$TOWLINE_BIN_DIR/towline\"",
        ..STAGE
    },
    Stage {
        // The same, killed at every change. One start of each emulated host serves all of its kills.
        name: "node-kills",
        tiers: LONG,
        needs: &["node"],
        tools: &[Tool::Command("qemu-system-x86_64")],
        // Half an hour beside much other work.
        command: "TOWLINE_EMULATED_LIMIT_S=4500 \
            tests/node/emulated-host tests/node/apply-undo.sh \"$TOWLINE_BIN_DIR/towline\" all",
        limit_s: 4800,
        ..STAGE
    },
    Stage {
        name: "node-drives-kills",
        tiers: LONG,
        needs: &["node-drives"],
        tools: &[Tool::Command("qemu-system-x86_64"), Tool::Command("nvme")],
        command: "TOWLINE_EMULATED_LIMIT_S=3000 tests/node/drive-function \"$TOWLINE_BIN_DIR/towline\" all",
        limit_s: 3600,
        ..STAGE
    },
    Stage {
        name: "miri",
        tiers: LONG,
        tools: &[Tool::Command("rustup run nightly cargo miri")],
        // proptest asks for the current directory, and its usual 256 cases would take Miri most of a day.
        command: "MIRIFLAGS=-Zmiri-disable-isolation PROPTEST_CASES=2 \
            rustup run nightly cargo miri test --lib --locked --no-fail-fast -p towline-wire -p towline-session && \
            rustup run nightly cargo miri test --lib --locked --no-fail-fast -p towline-transport shm::ring",
        limit_s: 7200,
        ..STAGE
    },
    Stage {
        // Clients on Arm use servers of any kind: what they run has to build there.
        name: "aarch64-check",
        tiers: LONG,
        tools: &[Tool::Target(AARCH64)],
        command: "cargo check --target aarch64-unknown-linux-gnu --locked -p towline-cli -p towline-cuda -p towline-cudart12 -p towline-cudart13 -p towline-nccl -p towline-nvml -p towline-opencl",
        ..STAGE
    },
    Stage {
        name: "aarch64-tests",
        tiers: LONG,
        tools: &[
            Tool::Target(AARCH64),
            Tool::Command("aarch64-linux-gnu-gcc"),
            Tool::Command("qemu-aarch64"),
        ],
        // The usual 256 cases take an emulator over half an hour.
        command: "PROPTEST_CASES=16 CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
            CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER='qemu-aarch64 -L /usr/aarch64-linux-gnu' \
            cargo test --target aarch64-unknown-linux-gnu --lib --locked -p towline-wire -p towline-session",
        ..STAGE
    },
];

impl Tool {
    pub(super) fn is_there(&self, workspace: &Workspace) -> bool {
        let probe = match self {
            Self::Command(command) => format!("{command} --version"),
            Self::Target(target) => {
                format!("test -d \"$(rustc --print target-libdir --target {target})\"")
            }
        };
        Command::new("sh")
            .arg("-c")
            .arg(probe)
            .current_dir(workspace.root())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command(command) => write!(f, "no `{command}`"),
            Self::Target(target) => write!(f, "no standard library for {target}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_is_missing_is_noticed() {
        let workspace = Workspace::locate().unwrap();
        assert!(Tool::Command("cargo").is_there(&workspace));
        assert!(!Tool::Command("cargo no-such-command-of-cargo").is_there(&workspace));
        assert!(!Tool::Command("no-such-program-at-all").is_there(&workspace));
    }

    #[test]
    fn a_target_that_is_missing_is_noticed() {
        let workspace = Workspace::locate().unwrap();
        assert!(!Tool::Target("no-such-target").is_there(&workspace));
    }

    #[test]
    fn names_are_unique() {
        for (index, stage) in STAGES.iter().enumerate() {
            assert!(
                STAGES[..index].iter().all(|other| other.name != stage.name),
                "{} twice",
                stage.name
            );
        }
    }
}
