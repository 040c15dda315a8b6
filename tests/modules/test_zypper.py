"""What zypper 1.14 was seen to print and to end with, and what is made of it."""

from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    packages,
    planning,
    process,
    sources,
    zypper,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import packages as probed
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost

from tests.modules.rpm_host import wish
from tests.modules.stand_ins import refused, replace, write
from tests.stored import stored

SUMMARY = stored("zypper_summary.xml")
PROBLEM = stored("zypper_problem.xml")
FOUND = stored("zypper_found.txt")
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


def test_of_headers_side_by_side_one_goes_or_both(monkeypatch):
    there = {"kernel-devel-1-1": "0:1-1", "kernel-devel-2-1": "0:2-1", "bash": "0:5-1"}
    rows = [f'<solvable type="package" name="kernel-devel" edition="{n}-1" arch="x86_64"/>' for n in (1, 2)]
    for going in (rows[:1], rows):
        text = '<install-summary packages-to-change="1"><to-remove>' + "".join(going) + "</to-remove></install-summary>"
        host = zypper.Zypper()
        replace(monkeypatch, host, architecture=lambda: "x86_64", installed=lambda: there)
        monkeypatch.setattr(host, "_ask", lambda _words, _env, text=text: (0, text))
        gone = list(there)[: len(going)]
        plan = planning.plan_for(host, [], gone, there)
        assert list(plan["remove"]) == gone
        assert packages.forbidden(plan["remove"], [], gone) == []
        assert packages.after(there, plan) == {name: there[name] for name in there if name not in gone}


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


def test_the_simulation_sees_past_locks_and_asks_for_whole_versions(monkeypatch):
    seen = Answers(monkeypatch, install=(0, SUMMARY))
    monkeypatch.setattr(zypper.files, "read_text", lambda path: "[main]\nlocksfile.path = /etc/l\nx = 1\n" if "zypp" in path else None)  # fmt: skip
    host = zypper.Zypper()
    host.simulate([wish("nvidia-modprobe", "3:570.211.01-1"), wish("libx", "0:2-1", "i586")], ["nvidia-persistenced"])
    words = seen.said[-1]
    asked = ["nvidia-modprobe=3:570.211.01-1", "libx.i586=2-1", "!nvidia-persistenced=3:580.159.04-1"]
    assert words[words.index("--dry-run") + 1 :] == asked
    assert "--oldpackage" in words
    assert seen.env["ZYPP_CONF"] == "[main]\nlocksfile.apply = no\nx = 1\n"


def test_a_problem_is_a_failure_with_its_reason(monkeypatch):
    Answers(monkeypatch, install=(4, PROBLEM))
    with refused("GS-463", "note: ", "conflicts with oldname"):
        zypper.Zypper().simulate([wish("confl")], [])


def test_a_wish_that_the_solver_gives_up_is_refused(monkeypatch):
    """With two wishes that conflict zypper takes one away, and ends with 0."""
    seen = Answers(monkeypatch, install=(0, SUMMARY))
    with refused("at: ", "nvidia-persistenced 3:580.159.04-1 is not there"):
        planning.plan_for(zypper.Zypper(), [wish("nvidia-persistenced", "3:580.159.04-1")], [], seen.installed)


@pytest.mark.parametrize(
    ("code", "said", "means"),
    [
        *((code, "", "") for code in (0, 100, 101, 102, 103, 106)),
        (4, "Problem: nothing provides requested glibc", "the packages conflict"),
        (7, "System management is locked by the application with pid 1266 (sleep).", "another program"),
        (8, "Installation of badpre-1-1.noarch failed:", "could not be fetched or installed"),
        (104, "No provider of 'nosuch=1' found.", "not offered"),
        (107, "warning: %post(badpost-1-1.noarch) scriptlet failed, exit status 3", "a package script failed"),
    ],
)
def test_codes_are_done_or_failures_that_say_why(monkeypatch, code, said, means):
    text = f"Loading repository data...\nChecking for file conflicts: [...done]\n{said}\n"
    Answers(monkeypatch, install=(code, text))
    ok, (*_more, last) = zypper.Zypper().transact([wish("a", "1-1")], [])
    assert ok is not bool(means)
    if not ok:
        assert last.startswith(f"Error: zypper ended with {code}")
        assert (means in last, said in last, "Checking" in last) == (True, True, False), last


def test_only_what_repositories_offer_counts_newest_first(monkeypatch):
    Answers(monkeypatch, search=(0, FOUND))
    assert zypper.Zypper().offered(["nvidia-driver", "none"]) == {
        "nvidia-driver": [{"version": "3:610.57.04-1", "from": "cuda"}, {"version": "3:580.159.04-1", "from": "cuda"}],
        "none": [],
    }


def test_who_keeps_the_lock_is_a_failure_and_no_empty_answer(monkeypatch):
    text = '<message type="error">System management is locked by the application with pid 12 (YaST).</message>'
    Answers(monkeypatch, search=(7, text))
    with refused("GS-453", "note: ", "pid 12 (YaST)"):
        zypper.Zypper().offered(["a"])


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


def test_another_zypper_is_found_by_its_pid_file(tmp_path):
    write(tmp_path, {"run/zypp.pid": "1 (systemd)\n"})
    found = probed.lock_holder(str(tmp_path))
    assert (found["file"], found["pid"]) == ("/run/zypp.pid", 1)


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
