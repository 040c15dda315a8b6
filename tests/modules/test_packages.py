"""Package wishes, apt's and dnf's answers, locks, build logs, the Python environment's pins."""

import json
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    dkms,
    dnf,
    packages,
    planning,
    process,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.apt import Apt
from ansible_collections.gpusetup.stack.plugins.modules import gpu_packages

from tests.modules.rpm_host import wish
from tests.modules.stand_ins import refused, write
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


@pytest.fixture
def says(monkeypatch):
    """Answer as apt-get, dpkg and what else was asked would: {the first word, or another: text}."""

    def answer(plan="", code=0, **more):
        answers = {"apt-get": plan, "dpkg-query": INSTALLED, "dpkg": "amd64\n", **more}
        known = lambda argv: next(answers[word] for word in (*argv[1:], argv[0]) if word in answers)  # noqa: E731
        monkeypatch.setattr(process, "output", lambda argv, *_a, **_k: (code, known(argv), ""))

    return answer


class TestApt:
    @pytest.mark.parametrize(
        "left_out", ["   libcuda1:i386 (1:580.1-1)\n", "1 upgraded, 2 newly", "   other:i386* (2)\n", " (1:580.1-1)"]
    )
    def test_a_plan_that_does_not_add_up_is_refused(self, says, left_out):
        says(PLAN.replace(left_out, ""))
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
