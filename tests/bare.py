"""./dev test bare: the tests in a Debian root that has nothing but Python, git and certificates.

  ./dev test bare                       every default stage, one after the other
  ./dev test bare unit package          these stages
  ./dev test bare --suite trixie unit   another release
  ./dev test bare --shell               a shell in such a root, with the clone at /root/gpusetup

The root is made by mmdebstrap and thrown away afterwards. It has processes, mounts, and a network of its own, so the lab's hosts
there meet none of this machine. The clone is of the last commit. What this machine's apt and pip are told about mirrors,
certificates and proxies comes along. Needs root, and this machine's kernel does the work: no systemd runs in the root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.lab import mirror
from tests.lab.places import CACHE, CHECKOUT, LabError, locked
from tests.lab.process import run
from tests.programs import install, lacking

INCLUDED = ("python3", "git", "ca-certificates")
"""What the README asks for, and what gets the checkout onto the machine."""
NEEDS = {"mmdebstrap": "mmdebstrap", "slirp4netns": "slirp4netns", "unshare": "util-linux", "git": "git"}
CLONE = "root/gpusetup"
MAX_AGE_DAYS = 7
ENTER = """
set -e
cd "$1"
shift
mount -t proc proc proc
mount -t sysfs sysfs sys
mount --rbind /sys/fs/cgroup sys/fs/cgroup
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs dev/shm
hostname bare
exec chroot . /usr/bin/env -i HOME=/root TERM="${TERM:-dumb}" LANG=C.UTF-8 \\
  PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
"""


def _tar(suite: str) -> Path:
    """The packed root, made when there is none or an old one."""
    tar = CACHE / "bare" / f"{suite}.tar"
    with locked(f"bare-{suite}"):
        if tar.exists() and time.time() - tar.stat().st_mtime < MAX_AGE_DAYS * 86400:
            return tar
        print(f"bare: making a root of {suite}, a minute or two", file=sys.stderr, flush=True)
        tar.parent.mkdir(parents=True, exist_ok=True)
        part = tar.with_suffix(".part.tar")
        options = [f"--aptopt={line}" for line in _apt_settings().splitlines()]
        argv = ["mmdebstrap", "--variant=minbase", f"--include={','.join(INCLUDED)}", *options, suite, part]
        sources = "\n".join(mirror.sources(suite))
        run([*argv, *(["-"] if sources else [])], timeout=1800, text=sources + "\n" if sources else None)
        part.rename(tar)
    return tar


def _apt_settings() -> str:
    """How this machine's apt fetches: proxies, and whether dates of mirrors count."""
    return run(["apt-config", "dump", "Acquire"], check=False).stdout


def _settle(root: Path) -> tuple[list[str], list[Path]]:
    """Give the root this machine's ways to mirrors and package indexes: the environment and the folders that go with them."""
    (root / "etc/apt/apt.conf.d/90this-machine").write_text(_apt_settings())
    shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copy(certificates, root / str(certificates)[1:])
    environment, folders = [], []
    for line in run([sys.executable, "-m", "pip", "config", "list"], check=False).stdout.splitlines():
        key, _, value = line.partition("=")
        value = value.strip("'\"")
        environment.append(f"PIP_{key.rpartition('.')[2].upper().replace('-', '_')}={value}")
        indexes = [Path(word.removeprefix("file://")).parent for word in value.split() if word.startswith("file:///")]
        folders += [place for place in (*indexes, Path(value)) if place.is_absolute() and place.is_dir()]
    return environment, folders


def _clone(root: Path) -> None:
    run(["git", "clone", "--quiet", "--no-hardlinks", CHECKOUT, root / CLONE], timeout=300)
    if run(["git", "-C", CHECKOUT, "status", "--porcelain"]).stdout.strip():
        print("bare: what is not committed is left out", file=sys.stderr)


def _inside(root: Path, folders: list[Path], argv: list[str]) -> int:
    """Run a command in the root, with a network behind this machine's."""
    mounts = "".join(
        f'mkdir -p "$1{place}" && mount --bind "{place}" "$1{place}" && mount -o remount,bind,ro "$1{place}"\n'
        for place in sorted(set(folders))
    )
    apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc", "--uts", "--net"]
    reading, writing = os.pipe()
    script = f"set -e\nread -r _ <&{reading}\nmount --make-rprivate /\n{mounts}{ENTER}"
    running = subprocess.Popen([*apart, "sh", "-c", script, "sh", str(root), *argv], pass_fds=[reading])
    os.close(reading)
    try:
        network = _network_of(running.pid)
        os.write(writing, b"\n")
        os.close(writing)
        try:
            return running.wait()
        finally:
            network.terminate()
            network.wait()
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()


def _network_of(unshared: int) -> subprocess.Popen[bytes]:
    """Connect the new network, which only the child of `unshare` is in, to this machine's."""
    children = Path(f"/proc/{unshared}/task/{unshared}/children")
    for _ in range(200):
        if words := children.read_text().split():
            break
        time.sleep(0.05)
    else:
        raise LabError("unshare started nothing within ten seconds")
    ready, tell = os.pipe()
    argv = [
        "slirp4netns", "--configure", "--mtu=65520", "--disable-host-loopback", f"--ready-fd={tell}", words[0],
        "tap0",
    ]  # fmt: skip
    network = subprocess.Popen(argv, pass_fds=[tell], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(tell)
    with os.fdopen(ready, "rb") as stream:
        if not stream.read(1):
            raise LabError("slirp4netns gave the root no network")
    return network


def main(arguments: list[str]) -> int:
    """Run the stages; exit with what they ended with."""
    parser = argparse.ArgumentParser(prog="./dev test bare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("stages", nargs="*", metavar="STAGE", help="default: those of ./dev test")
    parser.add_argument("--suite", default="bookworm", help="Debian's release (bookworm)")
    parser.add_argument("--shell", action="store_true", help="a shell instead of the tests")
    parser.add_argument("--keep", action="store_true", help="keep the root, and say where it is")
    told = parser.parse_args(arguments)
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        parser.error("a bare root is made and entered by root, on Debian or Ubuntu")
    try:
        if lacking(NEEDS):
            install(lacking(NEEDS).values())
        tar = _tar(told.suite)
    except LabError as error:
        print(f"bare: {error}", file=sys.stderr)
        return 5
    folder = Path(tempfile.mkdtemp(prefix="gpusetup-bare-", dir="/var/tmp"))
    root = folder / "root"
    try:
        root.mkdir()
        run(["tar", "-C", root, "--numeric-owner", "-xpf", tar], timeout=300)
        environment, folders = _settle(root)
        _clone(root)
        script = "cd && cd gpusetup && exec bash" if told.shell else 'cd && cd gpusetup && exec bash .ci/run "$@"'
        return _inside(root, folders, [*environment, "bash", "-c", script, "bare", *told.stages])
    finally:
        if told.keep:
            print(f"bare: kept in {root}", file=sys.stderr)
        else:
            shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
