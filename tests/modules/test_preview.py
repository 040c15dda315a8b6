"""A look at a host in memory: what it finds, and that it finds it before anything is touched."""

import os
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import fetched, preview, runfile, space
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules.deb_host import DebHost
from tests.modules.rpm_host import RpmHost
from tests.modules.stand_ins import replace, write
from tests.modules.transactions import asked
from tests.stored import stored_rows

_MB, WANTED = 1 << 20, ("driver", "2-1")


@pytest.fixture(autouse=True)
def _quiet(monkeypatch, tmp_path):
    monkeypatch.setattr(fetched, "PLACE", str(tmp_path))
    replace(monkeypatch, preview, _PAUSE=0.0, lock_holder=lambda: None)
    monkeypatch.setattr(preview.Machine, "container", lambda _self: False)


@pytest.fixture
def look(tmp_path):
    def call(manager, *wanted, **more):
        plain = {
            "sources": [], "enable": [], "replace": [], "pins": [], "timeout": 60, "space_mb": {}, "python": "",
            "candidates": [], "fetched": "", "keep": False, "older": False,
        }  # fmt: skip
        answer = preview.Preview({**asked(tmp_path / "state", manager, *wanted, **plain), **more}).run()
        assert not list(tmp_path.glob("gpusetup-preview-*"))
        return answer

    return call


def refusals(answer):
    return {item["reference"]: item["text"] for item in answer["findings"] if item["level"] == "refuse"}


@pytest.fixture
def el(monkeypatch):
    def make(offered=None, **more):
        host = RpmHost({"bash": "0:5-1", "driver": "0:1-1"}, offered or {"driver": ["0:1-1", "0:2-1"]}, **more)
        host.stand_in(monkeypatch)
        return host

    return make


@pytest.fixture
def debian(monkeypatch):
    host = DebHost({"bash": "5"}, {"driver": ["1"]})
    host.stand_in(monkeypatch)
    return host


def test_without_what_holds_nothing_can_be_held(look, el):
    el(plugin=False)
    assert "versionlock" in refusals(look("dnf", WANTED, hold=["driver"]))["GS-464"]
    el(plugin=False, offered={"driver": ["0:2-1"], "python3-dnf-plugin-versionlock": ["0:4-1"]})
    answer = look("dnf", WANTED, hold=["driver"])
    assert answer["transaction"]["install"] == {"python3-dnf-plugin-versionlock": "0:4-1"}


def test_holds_of_others_and_a_run_driver_are_refused(look, el, monkeypatch):
    el(locked=["driver"])
    (held,) = look("dnf", WANTED)["findings"]
    assert held["reference"] == "GS-469"
    assert held["hint"].endswith(": dnf versionlock delete driver")
    monkeypatch.setattr(runfile, "uninstaller", lambda _env: "/usr/bin/nvidia-uninstall")
    assert set(refusals(look("dnf", WANTED, driver_packages=["driver"]))) == {"GS-474"}


def test_a_host_with_tdnf_alone_and_one_that_cannot_be_written_are_findings_with_a_reference(look, el, monkeypatch):
    el()
    with monkeypatch.context() as patch:
        patch.setattr(preview.process, "which", lambda name, _env: "/usr/bin/tdnf" if name == "tdnf" else None)
        answer = look("dnf", WANTED)
    assert "this host has no dnf" in refusals(answer)["GS-497"]
    assert answer["findings"][0]["hint"] == "tdnf install -y dnf"
    read_only = OSError(30, "Read-only file system", "/etc/x")
    monkeypatch.setattr(preview.sources, "preferences", Mock(side_effect=read_only))
    assert "/etc/x" in refusals(look("dnf", WANTED))["GS-472"]


@pytest.mark.usefixtures("debian")
def test_a_pin_that_an_apply_takes_away_decides_nothing_in_the_look(look, tmp_path, monkeypatch):
    root, seen = tmp_path / "root", []
    monkeypatch.setattr(preview.sources.Layout.__init__, "__defaults__", (str(root),))
    pins = root / "etc/apt/preferences.d"
    write(pins, {"theirs": "Package: *\nPin: origin x\nPin-Priority: 1\n"})
    ours = "# Written by gpusetup.\nPackage: \nPin: version 1*\n"
    Ledger(str(tmp_path / "state")).write(str(pins / "gpusetup"), ours)

    def refresh(_self):
        (folder,) = tmp_path.glob("gpusetup-preview-*")
        seen.extend(os.listdir(folder / "etc/apt/preferences.d"))
        return []

    monkeypatch.setattr(preview.planning.Apt, "refresh", refresh)
    wanted = [{"packages": [], "version": "1*", "priority": 1001}]
    assert not look("apt", ("driver", "1"), pins=wanted)["refused"]
    assert seen == ["theirs"]


OURS, OTHER = "https://m.example/c", "https://other.example/x"
BAD = "W: GPG error: {}/ InRelease: The following signatures were invalid: BADSIG"


@pytest.mark.parametrize(("line", "address", "asked", "told"), stored_rows("preview-trouble.json"))
def test_trouble_of_our_own_repositories_is_refused(tmp_path, line, address, asked, told):
    look = preview.Preview({"simulated_root": "", "older": False, "state_dir": str(tmp_path)})
    before = [BAD.format(OURS)] * ("GS-332" in told)
    look._judge_trouble([*before, line.format(address)], [{"name": "cuda", "uris": [f"{uri}/" for uri in asked]}])
    assert [(item["level"], item["reference"]) for item in look.findings] == [tuple(told)]


@pytest.mark.parametrize("built", [True, False])
def test_a_kernel_that_came_later_without_headers_is_refused_before_its_module_is_built(
    look, debian, monkeypatch, built
):
    debian.installed["nvidia-dkms"] = "1"
    monkeypatch.setattr(preview.Machine, "kernels", lambda _self: {"running": "6.1", "next": "6.2", "installed": []})
    monkeypatch.setattr(preview.dkms, "missing", lambda *_words: None if built else "no nvidia module for kernel 6.2")
    told = refusals(look("apt", ("nvidia-dkms", "1"), driver_version="1", driver_packages=["nvidia-dkms"]))
    assert list(told) == ([] if built else ["GS-471"])
    assert built or "the headers of kernel 6.2 are neither here" in told["GS-471"]


PLAN = {"install": {}, "upgrade": {}, "downgrade": {}, "remove": {}, "download_bytes": 300 * _MB, "disk_bytes": 900 * _MB}  # fmt: skip


class TestSpace:
    def test_each_need_is_where_it_arises(self):
        assert space.needs("apt", PLAN, [60 * _MB, 80 * _MB], 1, builds=True) == {
            "/usr": 900 * _MB, "/var/cache/apt/archives": 300 * _MB, "/var/lib/apt/lists": 64 * _MB,
            "/boot": (80 + 10 + 80 + 16) * _MB, "/var/lib/dkms": 900 * _MB, "/lib/modules": 150 * _MB,
        }  # fmt: skip
        small = space.needs("apt", PLAN, [7 * _MB], 0, builds=False)
        assert small["/boot"] == space.image_space(7 * _MB) == 15 * _MB, "a small one may grow by more than its eighth"
        plain = space.needs("dnf", {**PLAN, "disk_bytes": -5}, [], 0, builds=False)
        assert plain == {"/usr": 0, "/var/cache": 364 * _MB, "/boot": 0}

    @pytest.mark.usefixtures("debian")
    def test_a_small_boot_partition_is_refused_by_name(self, look, tmp_path, monkeypatch):
        image = tmp_path / "initrd"
        with image.open("wb") as stream:
            stream.truncate(60 * _MB)
        kernels = {"running": "6.1", "next": "6.1", "installed": [{"release": "6.1", "initramfs": str(image)}]}
        monkeypatch.setattr(preview.Machine, "kernels", lambda _self: kernels)
        there = {"/": 1 << 40, "/boot": 30 * _MB}

        def rows(wanted):
            for mount, free in there.items():
                on_it = [path for path in wanted if path.startswith("/boot") == (mount == "/boot")]
                needed = sum(wanted[path] for path in on_it)
                yield {"path": mount, "needed": needed, "free": free, "read_only": False, "for": on_it}

        monkeypatch.setattr(space, "rows", lambda wanted: list(rows(wanted)))
        answer = look("apt", ("driver", "1"), driver_version="1", driver_packages=["driver"])
        assert "/boot has 30 MB free, 68 MB are needed (for /boot)" in refusals(answer)["GS-472"]
        there["/boot"] = 90 * _MB
        assert "GS-472" not in refusals(look("apt", ("driver", "1"), driver_version="1"))

    @pytest.mark.parametrize("lacks", [{"f_flag": os.ST_RDONLY}, {"f_bavail": 0}, {"f_ffree": 0}])
    def test_a_disk_that_cannot_be_written_is_refused_before_it_seems_a_bad_signature(self, look, monkeypatch, lacks):
        disk = {"f_frsize": 1, "f_bavail": 1 << 40, "f_files": 9, "f_ffree": 9, "f_flag": 0, **lacks}
        monkeypatch.setattr(space.os, "statvfs", lambda _path: Mock(**disk))
        monkeypatch.setattr(preview.fetched, "new_folder", Mock(side_effect=AssertionError))
        assert list(refusals(look("apt", ("driver", "1")))) == ["GS-472"]

    @pytest.mark.parametrize("wanted", [(), (("driver", "1"),)])
    def test_an_environment_that_does_not_fit_is_refused_untouched(self, look, debian, tmp_path, monkeypatch, wanted):
        """Also where nothing but the environment is to be made, and the package manager has nothing to do."""
        place = tmp_path / "opt/gpusetup"
        small = os.statvfs_result((4096, 4096, 25600, 25600, 25600, 0, 0, 0, 0, 255))  # 100 MB
        monkeypatch.setattr(space.os, "statvfs", lambda _path: small)
        told = look("apt", *wanted, space_mb={str(place): 9000})
        (refusal,) = (item for item in told["findings"] if item["level"] == "refuse")
        assert refusal["reference"] == "GS-472"
        assert "has 100 MB free, 9" in refusal["text"]
        assert str(place) in refusal["text"]
        assert "gpusetup_python_path" in refusal["hint"]
        assert "driver" not in debian.installed
        assert not look("apt", space_mb={str(place): 99})["refused"]


@pytest.mark.parametrize(("package", "refused"), [("python3.12", False), ("python312", False), ("python3.11", True)])
def test_a_python_that_comes_in_the_same_transaction_need_not_be_there_yet(look, el, tmp_path, package, refused):
    el(offered={package: ["0:3-1"]})
    answer = look("dnf", (package, ""), python=str(tmp_path / "python3.12"))
    assert ("GS-473" in refusals(answer)) is refused
