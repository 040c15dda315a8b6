"""What zypper 1.14 was seen to print and to end with, and what is made of it."""

from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    process,
    sources,
    zypper,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import packages as probed
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost

from tests.modules.stand_ins import refused, replace, write
from tests.stored import stored

SUMMARY = stored("zypper_summary.xml")
PROBLEM = stored("zypper_problem.xml")
UNSIGNED = stored("zypper_unsigned.xml")


class Answers:
    """A host that gives one answer to each of zypper's commands, and rpm's list."""

    def __init__(self, monkeypatch, **answers):
        self.answers, self.said, self.env = answers, [], {}
        self.installed = {"nvidia-modprobe": "3:580.178.04-1", "nvidia-persistenced": "3:580.159.04-1"}
        replace(monkeypatch, process, output=self.output, stream=self.stream, which="/usr/bin/{}".format)
        monkeypatch.setattr(zypper.Zypper, "architecture", lambda _self: "x86_64")

    def output(self, argv, env, *_more, **_named):
        self.said.append(list(argv))
        if list(argv[:2]) == ["rpm", "-qa"]:
            return 0, "".join(f"{name}\t{version}\tx86_64\n" for name, version in self.installed.items()), ""
        if "ZYPP_CONF" in env:
            self.env = {"ZYPP_CONF": Path(env["ZYPP_CONF"]).read_text(encoding="utf-8")}
        code, text = next((self.answers[word] for word in argv if word in self.answers), (0, ""))
        return code, text, ""

    def stream(self, argv, env, on_line, *_more, **_named):
        code, text, _error = self.output(argv, env)
        for line in text.splitlines():
            on_line(line)
        return code, text.splitlines()


def test_a_summary_is_read_as_a_plan():
    assert zypper.plan(SUMMARY, "x86_64") == {
        "install": {"dkms": "3.0.10-1"},
        "upgrade": {"libx:i586": ["1-1", "2-1"]},
        "downgrade": {"nvidia-modprobe": ["3:580.178.04-1", "3:570.211.01-1"]},
        "remove": {"nvidia-persistenced": "3:580.159.04-1"},
        "download_bytes": 6607,
        "disk_bytes": -488,
    }
    nothing = zypper.plan('<install-summary download-size="0" packages-to-change="0">\n</install-summary>', "x86_64")
    assert not any(nothing.values())
    closed = '<message type="x"/><to-install><solvable name="a"></solvable></to-install>'
    assert list(zypper.solvables(closed)) == [("to-install", {"name": "a"})]
    assert zypper.plan(PROBLEM, "x86_64") is None


def test_a_list_with_another_key_is_trouble_that_names_the_repository(monkeypatch):
    Answers(monkeypatch, refresh=(4, UNSIGNED))
    trouble = zypper.Zypper().refresh()
    assert any("http://mirror/x" in line and "Signature verification failed" in line for line in trouble)


@pytest.mark.parametrize("key", [None, b"\0\0\0"], ids=["gone", "damaged"])
def test_a_key_that_cannot_be_read_is_trouble_that_names_the_repository(monkeypatch, tmp_path, key):
    Answers(monkeypatch)
    text = f"# Written by gpusetup.\n[ours]\nrepo_gpgcheck=1\ngpgkey=file://{tmp_path}/key\n"
    index, there = "cache/raw/ours/repodata/repomd.xml", {"key": key} if key else {}
    write(tmp_path, {"etc/zypp/repos.d/ours.repo": text, index: "<repomd/>", **there})
    (tmp_path / "etc/zypp/repos.d/old").mkdir()
    (trouble,) = zypper.Zypper(looking=str(tmp_path)).refresh()
    assert trouble.startswith(f"Error: ours: its key {tmp_path}/key cannot be read")


def test_what_goes_alone_takes_nothing_along(monkeypatch):
    seen = Answers(monkeypatch)
    assert zypper.Zypper().purge(["nvidia-persistenced", "gone-already"])[0]
    assert seen.said[-1][-3:] == ["remove", "--no-clean-deps", "nvidia-persistenced=3:580.159.04-1"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("(1/2) Installing: nvidia-modprobe-3:580.178.04-1.x86_64 [....done]", ("install", 50)),
        ("Retrieving package nvidia-modprobe-3:580.1-1.x86_64 (1/4),   6.5 KiB (   81   B unpacked)", ("download", 25)),
        ("Retrieving: nvidia-modprobe-580.1-1.x86_64 (cuda) (2/4), 6.5 KiB", ("download", 50)),
    ],
)
def test_how_far_it_is(line, told):
    said = []
    zypper.Zypper(tell=lambda *words: said.append(words))._line(line)
    assert [(step, percent) for step, _text, percent in said] == [told]


LOCKS = stored("zypper_locks.txt")


def test_locks_by_name_and_by_pattern(tmp_path):
    write(tmp_path, {"etc/zypp/locks": LOCKS})
    names = ["libnvidia-ml", "libcuda", "dkms", "nvidia-persistenced", "mylibnvidia-x"]
    locked = ["libnvidia-ml", "nvidia-modprobe", "nvidia-persistenced"]
    assert probed.zypper_locks(FolderHost(str(tmp_path)), names) == locked


@pytest.mark.parametrize(
    ("gpgcheck", "lines"),
    [(True, "gpgcheck=1\nrepo_gpgcheck=1\npkg_gpgcheck=1"), (False, "repo_gpgcheck=1\npkg_gpgcheck=0")],
)
def test_a_repository_of_zypper(gpgcheck, lines):
    source = {"name": "cuda-x", "kind": "zypper", "uris": ["http://x/y"], "gpgcheck": gpgcheck, "priority": 90}
    sources.check(source)
    with refused():
        sources.check({**source, "gpgcheck": False, "repo_gpgcheck": False})
    text, _mode = sources.render(source, b"\x99\x00\x00", sources.Layout(), [])["/etc/zypp/repos.d/cuda-x.repo"]
    key = "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-cuda-x\n"
    assert [line for line in (lines, "baseurl=http://x/y\n", key, "priority=90\n") if line not in text] == []
