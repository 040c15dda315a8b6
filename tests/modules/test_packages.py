"""Package wishes, what apt, dnf and zypper answer, and build logs."""

import json
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    dkms,
    dnf,
    packages,
    planning,
    process,
    sources,
    zypper,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.apt import Apt
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import versions
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import packages as probed
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe.host import FolderHost
from ansible_collections.gpusetup.stack.plugins.modules import gpu_packages

from tests.modules.rpm_host import wish
from tests.modules.stand_ins import refused, replace, write
from tests.stored import stored, stored_rows


class TestWishes:
    @pytest.mark.parametrize(
        "bad",
        [*map(wish, ("-o", "a b", "a;b", "$(x)", "a\n")), *(wish("a", *more) for more in (["1;2"], ["--x y"], ["1\n"], ["1", "x;y"]))],
    )  # fmt: skip
    def test_what_is_no_name_or_version_never_reaches_a_command(self, bad):
        with refused("GS-461"):
            packages.merge([bad])

    @pytest.mark.parametrize(("name", "version", "driver", "is_stub"), stored_rows("transitional-packages.json"))
    def test_transitional_packages(self, name, version, driver, is_stub):
        assert (packages.stub(name, version, driver) is not None) is is_stub


@pytest.mark.parametrize("there", [True, False])
def test_a_recorded_package_that_somebody_took_away_is_wanted_as_it_was_and_a_rehearsal_tells_it(
    run_module, tmp_path, monkeypatch, there
):
    driver, both = {"nvidia-driver": "535.1-1"}, {"nvidia-driver": "535.1-1", "nvidia-smi": "535.1-1"}
    record = {"packages": driver, "brought": both, "holds": list(both)}
    write(tmp_path, {"state.json": json.dumps(record)})
    installed = both if there else driver
    lost = planning.lost({"optional": False, "remove": []}, installed, record, [wish("nvidia-driver", "535.1-1")])
    assert lost == ([] if there else [wish("nvidia-smi", "535.1-1")])
    host = SimpleNamespace(installed=lambda: installed, held=list, architecture=lambda: "amd64")
    monkeypatch.setattr(planning, "manager", lambda *_a, **_k: host)
    given = {"host": {"state_dir": str(tmp_path)}, "manager": "apt", "packages": [wish("nvidia-driver", "535.1-1")]}
    result = run_module(gpu_packages, check=True, **given)
    assert result["changed"] is not there
    assert ("nvidia-smi 535.1-1" in result["diff"]["after"]) is not there


PLAN = stored("packages_plan.txt")
INSTALLED = "ii \tother\ti386\t2\nii \treplaced\tamd64\t4\nii \txserver-old\tall\t1.0\n"


class TestApt:
    @pytest.mark.parametrize(
        "left_out", ["   libcuda1:i386 (1:580.1-1)\n", "1 upgraded, 2 newly", "   other:i386* (2)\n", " (1:580.1-1)"]
    )
    def test_a_plan_that_does_not_add_up_is_refused(self, monkeypatch, left_out):
        answers = {"apt-get": PLAN.replace(left_out, ""), "dpkg-query": INSTALLED, "dpkg": "amd64\n"}
        monkeypatch.setattr(process, "output", lambda argv, *_a, **_k: (0, answers[argv[0]], ""))
        assert left_out in PLAN
        with refused("cannot read apt's plan"):
            Apt().simulate([wish("nvidia-smi")], [])

    def test_a_sites_own_certificate_authority_reaches_apt_and_dnf(self):
        network = {"proxy": "", "no_proxy": [], "ca_file": "/etc/site.pem"}
        assert "Acquire::https::CaInfo=/etc/site.pem" in Apt(network).options
        assert "--setopt=sslcacert=/etc/site.pem" in dnf.Dnf(network).plain

    def test_how_far_it_is(self):
        said = []
        host = Apt(tell=lambda *words: said.append(words))
        for line in (
            "dlstatus:1:20.4538:Retrieving file 1 of 3",
            "pmstatus:nvidia-smi:61.5385:Unpacking nvidia-smi (amd64)",
            "pmerror:nvidia-smi:61.5385:trouble",
            "pmstatus:nvidia-smi:no number:Unpacking",
        ):
            host._progress(line)
        assert said == [
            ("download", "Retrieving file 1 of 3", 20), ("install", "Unpacking nvidia-smi (amd64)", 61),
        ]  # fmt: skip


POLICY = stored("packages_policy.txt")
SHOW = "Package: nvidia-driver\nVersion: 580.95.05-1\nSize: 10\nSection: main\nDescription: a driver\n"


@pytest.mark.parametrize("broken", ["", "pkgnames", "policy", "show"])
def test_lists_that_cannot_be_read_are_no_empty_repository(monkeypatch, broken):
    answers = {"pkgnames": (0, "nvidia-driver\nbash\n", ""), "policy": (0, POLICY, ""), "show": (0, SHOW, "")}
    if broken:
        answers[broken] = (100, "", "E: The package lists or status file could not be parsed or opened.\n")
    monkeypatch.setattr(process, "output", lambda argv, *_more: next(answers[word] for word in argv if word in answers))
    if broken:
        with refused("GS-449", "could not be parsed"):
            Apt().matching(["nvidia-*"])
        return
    (offer,) = Apt().matching(["nvidia-*"])["nvidia-driver"]
    assert (offer["version"], offer["size"]) == ("580.95.05-1", 10)


class TestBuilds:
    LOG = (
        "DKMS make.log for nvidia-550.163.01 for kernel 6.12.107\n"
        "/var/lib/dkms/nvidia/build/nvidia/nv-pci.c:237:9: error: too few arguments to function 'pci_resize_resource'\n"
        "make[3]: *** [scripts/Makefile.build:249: nvidia/nv-pci.o] Error 1\n"
    )

    def test_only_a_fresh_log_counts_and_in_it_the_compilers_first_error(self, tmp_path):
        assert dkms.first_error("make: *** No rule to make target 'x'.  Stop.\n").startswith("make: ***")
        assert dkms.first_error("all is well\n") == ""
        log = tmp_path / "var/lib/dkms/nvidia/550.163.01/build/make.log"
        write(log.parent, {log.name: self.LOG})
        found = dkms.build_error(root=str(tmp_path))
        assert (found["log"], "pci_resize_resource" in found["error"]) == (str(log), True)
        assert dkms.build_error(since=log.stat().st_mtime + 60, root=str(tmp_path)) is None


@pytest.mark.parametrize(("name", "plan"), stored_rows("packages_dnf_plans.json"))
def test_the_table_of_dnf_is_read(name, plan):
    assert dnf.parse(stored(name), "x86_64") == plan


@pytest.fixture(autouse=True)
def _architecture(monkeypatch):
    monkeypatch.setattr(dnf.Dnf, "architecture", lambda _self: "x86_64")


def test_a_newer_dnf_5_tells_the_replaced_version_on_the_same_line():
    text = "Upgrading:\n nv noarch <- x86_64 0:2-1 <- 0:1-1 cuda <- t 80.0 KiB\n nw x86_64 2-1   <- 1-1 cuda 1.0 KiB\n"
    assert dnf.parse(text, "x86_64")["upgrade"] == {"nv": ["", "0:2-1"], "nw": ["", "2-1"]}


def test_kernels_side_by_side_and_a_foreign_architecture_are_told_apart(monkeypatch):
    rows = (
        "kernel-devel\t0:5.14.0-1.el9\tx86_64\nkernel-devel\t0:5.14.0-2.el9\tx86_64\n"
        "nvidia-driver-libs\t3:580.1-1.el9\tx86_64\nnvidia-driver-libs\t3:580.1-1.el9\ti686\ntzdata\t0:1-1\tnoarch\n"
    )
    monkeypatch.setattr(dnf.process, "output", lambda *_a, **_k: (0, rows, ""))
    host = dnf.Dnf()
    installed = host.installed()
    assert installed == {
        **{f"kernel-devel-5.14.0-{number}.el9": f"0:5.14.0-{number}.el9" for number in (1, 2)},
        **dict.fromkeys(("nvidia-driver-libs", "nvidia-driver-libs:i686"), "3:580.1-1.el9"), "tzdata": "0:1-1",
    }  # fmt: skip
    asked = [wish("kernel-devel", "5.14.0-1.el9"), wish("kernel-devel"), wish("kernel-devel", "5.14.0-9.el9")]
    assert packages.unmet(asked, installed) == asked[2:]
    assert versions.version_of(installed, "kernel-devel", "0:5.14.0-1.el9") == "0:5.14.0-1.el9"
    assert versions.version_of(installed, "kernel") is None
    assert {host.lock_name(*item) for item in installed.items()} == {"kernel-devel", "nvidia-driver-libs", "tzdata"}
    again = [packages.listed(*item) for item in installed.items()]
    assert host.words(again)[:4] == [
        "kernel-devel-5.14.0-1.el9", "kernel-devel-5.14.0-2.el9", "nvidia-driver-libs-3:580.1-1.el9",
        "nvidia-driver-libs-3:580.1-1.el9.i686",
    ]  # fmt: skip


def test_dnf_5s_locks_go_without_what_somebody_excludes(monkeypatch, tmp_path):
    entry = '[[packages]]\nname = "{}"\ncomment = "x"\n\n[[packages.conditions]]\nkey = "evr"\ncomparator = "{}"\nvalue = "0:1-1"\n\n'
    theirs, ours, other = (entry.format(*words) for words in (("nv", "!="), ("nv", "="), ("nw", "=")))
    write(tmp_path, {"versionlock.toml": f'version = "1.0"\n\n{theirs}{ours}{other}'})
    said = []
    monkeypatch.setattr(dnf.probe_packages, "TOML", f"{tmp_path}/versionlock.toml")
    monkeypatch.setattr(dnf.process, "output", lambda argv, *_a: said.append(argv) or (0, "", ""))
    dnf.Dnf().unhold(["nv", "nw"])
    assert (tmp_path / "versionlock.toml").read_text() == f'version = "1.0"\n\n{theirs}{other}'
    assert said[-1][-2:] == ["delete", "nw"], "dnf deletes every entry of a name"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("  Upgrading        : nv-2-1.el9.noarch       1/2 ", ("install", "Upgrading nv-2-1.el9.noarch", 50)),
        ("(1/4): nv-2-1.el9.noarch.rpm   5.4 kB", ("download", "nv-2-1.el9.noarch.rpm", 25)),
        ("[3/5] Upgrading nv-0:2-1.el9.noarch     100% |   6.1 KiB/s", ("install", "Upgrading nv-0:2-1.el9.noarch", 60)),
        ("[1/2] nv-0:2-1.el9.noarch       100% | 671.0 KiB/s |", ("download", "nv-0:2-1.el9.noarch", 50)),
        ("[ 5/10] Installing dkms-0:3.0.10-1.el9. 100% |   1.7 MiB/s |", ("install", "Installing dkms-0:3.0.10-1.el9.", 50)),
    ],
)  # fmt: skip
def test_how_far_dnf_is(line, told):
    said = []
    dnf.Dnf(tell=lambda *words: said.append(words))._line(line)
    assert said == [told]


@pytest.mark.parametrize(
    ("generation", "text", "stream"),
    [
        (4, "[nv]\nname=nv\nstream=580-open\nprofiles=\nstate=enabled\n", "580-open"),
        (4, "[nv]\nname=nv\nstream=\nprofiles=\nstate=\n", None),
        (5, '[modules.nvx]\nstate = "Enabled"\n[modules.nv]\nenabled_stream = "580-open"\nstate = "Enabled"\n', "580-open"),
        (5, '[modules.nv]\nenabled_stream = ""\nstate = "Available"\n[modules.nvx]\nstate = "Enabled"\n', None),
        (5, None, None),
    ],
)  # fmt: skip
def test_which_stream_is_enabled_by_the_files_of_both_generations(monkeypatch, tmp_path, generation, text, stream):
    path = tmp_path / ("nv.module" if generation == 4 else "modules.toml")
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(dnf, "_MODULES4", str(tmp_path))
    monkeypatch.setattr(dnf, "_MODULES5", str(path))
    monkeypatch.setattr(dnf.Dnf, "_is_dnf5", lambda _self: generation == 5)
    assert dnf.Dnf().enabled_stream("nv") == stream


SUMMARY = stored("zypper_summary.xml")
PROBLEM = stored("zypper_problem.xml")
UNSIGNED = stored("zypper_unsigned.xml")


class Answers:
    """A host that gives one answer to each of zypper's commands, and rpm's list."""

    def __init__(self, monkeypatch, **answers):
        self.answers, self.said = answers, []
        self.installed = {"nvidia-modprobe": "3:580.178.04-1", "nvidia-persistenced": "3:580.159.04-1"}
        replace(monkeypatch, process, output=self.output, stream=self.stream, which="/usr/bin/{}".format)
        monkeypatch.setattr(zypper.Zypper, "architecture", lambda _self: "x86_64")

    def output(self, argv, *_more, **_named):
        self.said.append(list(argv))
        if list(argv[:2]) == ["rpm", "-qa"]:
            return 0, "".join(f"{name}\t{version}\tx86_64\n" for name, version in self.installed.items()), ""
        code, text = next((self.answers[word] for word in argv if word in self.answers), (0, ""))
        return code, text, ""

    def stream(self, argv, _env, on_line, *_more, **_named):
        code, text, _error = self.output(argv)
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
def test_how_far_zypper_is(line, told):
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
