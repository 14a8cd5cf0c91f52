"""Real surroundings on this machine: a Slurm cluster, and another machine that ssh reaches."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def _need(*programs: str) -> None:
    missing = [program for program in programs if shutil.which(program) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"it needs root and {', '.join(missing or programs)}")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Start nodes n0 to n3 with two cores each; they share ``tmp_path``, and nothing else below /tmp."""
    _need("slurmctld", "slurmd", "munged", "sbatch")
    daemons = subprocess.Popen(
        [ROOT / "tests/slurm/cluster", tmp_path, "1x2"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert daemons.stdin is not None
    assert daemons.stdout is not None
    try:
        assert daemons.stdout.readline() == "ready\n"
        monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
        yield tmp_path
    finally:
        daemons.communicate()


SSHD = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PasswordAuthentication no
"""

SSH = """\
Host far
  HostName 127.0.0.1
  Port {port}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
"""


@dataclass(frozen=True)
class Far:
    """Another machine: what ssh calls it, and what it calls itself."""

    host: str
    name: str


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """Start an sshd of our own, on loopback, under another machine's name; ``ssh far`` reaches it by a key."""
    _need("sshd", "ssh", "ssh-keygen")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for key in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    (folder / "sshd_config").write_text(SSHD.format(port=port, folder=folder))
    (folder / "ssh_config").write_text(SSH.format(port=port, folder=folder))
    # The suite calls `ssh`; this one differs from the real one by its configuration only.
    wrapper = folder / "bin/ssh"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/ssh_config "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    # A folder that sshd wants below /run is made for it alone.
    start = 'mount -t tmpfs none /run && mkdir -m 755 /run/sshd && hostname far-away && exec "$@"'
    sshd = [str(shutil.which("sshd")), "-D", "-e", "-f", str(folder / "sshd_config")]
    with (folder / "log").open("wb") as log:
        alone = ["setpriv", "--pdeathsig", "KILL", "unshare", "--uts", "--mount", "sh", "-c", start, "sh", *sshd]
        server = subprocess.Popen(alone, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        subprocess.run(["ssh", "-o", "ConnectionAttempts=60", "far", "true"], check=True, timeout=90)
        yield Far("far", "far-away")
    finally:
        server.terminate()
        server.wait()
