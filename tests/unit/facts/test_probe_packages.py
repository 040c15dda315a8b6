"""Packages, sources and candidates, from the texts that real tools print."""

import fcntl
import subprocess
import sys

import pytest

from gpusetup.content import host_code
from tests.stored import stored

packages = host_code("gpu_probe.packages")
candidates = host_code("gpu_probe.candidates")


def stanza(name, status="install ok installed", maintainer="X <x@debian.org>"):
    return (
        f"Package: {name}\nStatus: {status}\nPriority: optional\nArchitecture: amd64\nVersion: 1.0\n"
        f"Maintainer: {maintainer}\nDescription: something\n a longer text: with a colon\n"
    )


def test_reducing_the_status_twice_is_reducing_it_once():
    driver = stanza("nvidia-driver", maintainer="A B <a.person@nvidia.com>")
    once = packages.reduce_status("\n".join([stanza("bash"), driver, stanza("zsh", status="install ok unpacked")]))
    assert packages.reduce_status(once) == once
    assert "a.person" not in once
    assert "maintainer@nvidia.com" in once
    assert "bash" not in once
    assert "Package: zsh" in once


def test_version_locks_of_both_dnfs(machine):
    locks = "# a comment\nnvidia-kmod-common-3:580.142-1.el9.*\n!excluded-0:1.*\n"
    machine.put("/etc/dnf/plugins/versionlock.list", locks)
    machine.put("/etc/dnf/versionlock.toml", 'version = "1.0"\n[[packages]]\nname = "nvidia-driver"\n')
    machine.put("/usr/bin/rpm").says("rpm", "").answer("machine-rpm", "x86_64")
    assert packages.collect(machine.host(), "redhat")["held"] == ["nvidia-driver", "nvidia-kmod-common"]


def test_unattended_upgrades(machine):
    machine.put("/etc/apt/apt.conf.d/20auto-upgrades", 'APT::Periodic::Unattended-Upgrade "1";\n')
    assert packages.automatic_upgrades(machine.host()) == {"enabled": False, "excludes_nvidia": False}
    machine.put("/usr/bin/unattended-upgrade")
    for name, comment in (("10periodic", ""), ("30periodic.dpkg-old", ""), ("40own", "// ")):  # none of them counts
        machine.put(f"/etc/apt/apt.conf.d/{name}", f'{comment}APT::Periodic::Unattended-Upgrade "0";\n')
    assert packages.automatic_upgrades(machine.host())["enabled"] is True
    machine.put("/etc/apt/apt.conf.d/52gpusetup", 'Unattended-Upgrade::Package-Blacklist {\n  "nvidia-.*";\n};\n')
    assert packages.automatic_upgrades(machine.host()) == {"enabled": True, "excludes_nvidia": True}


@pytest.mark.parametrize("opens", [True, False])
def test_somebody_else_holds_the_package_lock(tmp_path, monkeypatch, opens):
    """Root asks the kernel; an ordinary user cannot open the file, and reads the kernel's list."""
    lock = tmp_path / "var/lib/dpkg/lock-frontend"
    lock.parent.mkdir(parents=True)
    lock.touch()
    if not opens:

        def refused(path, *_flags):
            raise PermissionError(13, "Permission denied", path)

        monkeypatch.setattr(packages.os, "open", refused)
    assert packages.lock_holder(str(tmp_path)) is None
    script = f"import fcntl,sys;f=open({str(lock)!r},'w');fcntl.lockf(f,fcntl.LOCK_EX);print('held',flush=True);sys.stdin.read()"
    argv = [sys.executable, "-c", "password='hush';" + script]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        found = packages.lock_holder(str(tmp_path))
        other.communicate()
    assert (found["file"], found["pid"]) == ("/var/lib/dpkg/lock-frontend", other.pid)
    assert "python" in found["command"]
    assert "password=(masked)" in found["command"]
    assert "hush" not in found["command"]
    assert packages.lock_holder(str(tmp_path)) is None


def test_looking_does_not_take_the_lock(tmp_path):
    lock = tmp_path / "var/lib/rpm/.rpm.lock"
    lock.parent.mkdir(parents=True)
    with lock.open("w") as handle:
        assert packages.lock_holder(str(tmp_path)) is None
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_sources_of_every_kind(machine):
    machine.put(
        "/etc/apt/sources.list",
        "# deb http://old /\ndeb [arch=amd64 signed-by=/usr/share/k.gpg] https://user:pw@m.example/debian bookworm main contrib # x\ndeb-src http://x y main\n",
    )
    machine.put(
        "/etc/apt/sources.list.d/cuda.sources",
        "Types: deb\nURIs: https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/\nSuites: /\n"
        "Signed-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n x\n\nTypes: deb\nURIs: http://off\nSuites: x\nEnabled: no\n",
    )
    machine.put("/etc/apt/sources.list.d/old.list.save", "deb http://saved /\n")
    machine.put(
        "/etc/yum.repos.d/cuda.repo",
        "[cuda]\nbaseurl=https://m/cuda/repos/rhel9\ngpgkey=https://m/key\n[off]\nenabled=0\nbaseurl=http://off\n"
        "[no]\nenabled = False\nbaseurl=http://no\n",
    )
    told = packages.sources(machine.host())
    assert [(item["uri"], item["signed_by"], item["nvidia"]) for item in told] == [
        ("https://m.example/debian", "/usr/share/k.gpg", False),
        ("https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/", "(embedded key)", True),
        ("https://m/cuda/repos/rhel9", "https://m/key", True),
    ]
    assert told[0]["components"] == ["main", "contrib"]
    assert packages.disabled_sources(machine.host()) == ["off", "no"]


def test_no_password_leaves_a_sources_file():
    text = "[r]\nbaseurl=https://me:secret@m/x\nusername=me\npassword=secret\nproxy_password = secret\n# secret\n"
    assert "secret" not in packages.without_secrets(text)


POLICY = stored("probe_packages_policy.txt")
SHOW = stored("probe_packages_show.txt")


def test_candidates_of_apt(machine):
    names = {"names": ["nvidia-driver-570-server", "nvidia-open", "virtual-thing"], "why": None}
    machine.answer("apt-names", names).says("apt-policy", POLICY).says("apt-show", SHOW)
    told = candidates.collect(machine.host(), "apt", "6.8.0-60-generic")
    assert sorted(told) == ["nvidia-driver-570-server", "nvidia-open"]
    stub, real = told["nvidia-driver-570-server"], told["nvidia-open"]
    assert (stub["transitional"], stub["size"], stub["needs"]) == (True, 12345, ["nvidia-driver-580-server"])
    assert (real["transitional"], real["installed"], real["size"]) == (False, "580.95.05-1ubuntu1", 6789)
    assert [version["version"] for version in real["versions"]] == ["590.44.01-1ubuntu1", "580.95.05-1ubuntu1"]
    assert stub["versions"][0]["sources"] == ["http://archive.ubuntu.com/ubuntu noble-updates/restricted"]


def test_candidates_of_dnf(machine):
    lines = (
        "nvidia-open 3:580.95.05-1.el9 cuda-rhel9-x86_64 9000", "nvidia-open 3:580.159.04-1.el9 cuda-rhel9-x86_64 9001",
        "dkms 0:3.2.1-1.el9 epel 100",
    )  # fmt: skip
    machine.says("dnf-repoquery", "\n".join(lines).replace(" ", "\t"))
    told = candidates.collect(machine.host(), "dnf", "5.14.0")
    assert (told["nvidia-open"]["candidate"], told["nvidia-open"]["size"]) == ("3:580.159.04-1.el9", 9001)
    assert told["dkms"]["candidate"] == "3.2.1-1.el9"
