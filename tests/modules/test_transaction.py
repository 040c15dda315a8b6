"""A whole transaction on a host in memory: what it says was done is what the host shows afterwards."""

import errno
from typing import Any
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import runfile, transaction
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure

from tests.modules.deb_host import DebHost
from tests.modules.rpm_host import RpmHost
from tests.modules.transactions import Site as _Site

PLUGIN = "python3-dnf-plugin-versionlock"


@pytest.fixture
def site(tmp_path, monkeypatch):
    return _Site.alone(tmp_path, monkeypatch)


def el(monkeypatch, installed=None, **more):
    offered = {
        "old-driver": ["0:9-1"], "precious": ["0:1-1"], "driver": ["0:1-1", "0:2-1"], "cuda": ["0:12-1"],
        "fabric": ["0:1-1"], PLUGIN: ["0:4-1"],
    }  # fmt: skip
    host = RpmHost({"bash": "0:5-1"} if installed is None else installed, more.pop("offered", offered), **more)
    host.stand_in(monkeypatch)
    return host


class TestWhatTheHostShows:
    @pytest.mark.parametrize("generation", [4, 5])
    def test_install_and_remove_in_one_are_done_and_recorded(self, site, monkeypatch, generation):
        host = el(monkeypatch, {"old-driver": "0:9-1", "driver": "0:1-1"}, generation=generation)
        done = site.transaction("dnf", ("driver", "2-*"), ("cuda", ""), remove=["old-*"], hold=["driver"])
        assert host.installed == {"driver": "0:2-1", "cuda": "0:12-1"}
        assert done["difference"]["removed"] == {"old-driver": "0:9-1"}
        assert site.state["brought"] == {"cuda": "0:12-1"}
        assert done["held"] == sorted(host.locked) == ["cuda", "driver"]
        assert site.unfinished is None

    def test_dnf_4s_script_that_did_nothing_is_a_failure_with_its_last_words(self, site, monkeypatch):
        before = {"old-driver": "0:9-1"}
        host = el(monkeypatch, dict(before), fails={"driver", "old-driver"})
        with pytest.raises(HostFailure) as caught:
            site.transaction("dnf", ("driver", "2-1"), remove=["old-*"])
        assert caught.value.fields["reference"] == "GS-455"
        note = caught.value.fields["note"]
        assert "Error: Transaction failed" in note
        assert "driver 0:2-1 is not there" in note
        assert "old-driver 0:9-1 is still there" in note
        assert host.installed == before
        assert site.unfinished is None

    def test_half_of_it_is_undone(self, site, monkeypatch):
        host = el(monkeypatch, {"old-driver": "0:9-1"}, fails={"old-driver"})
        with pytest.raises(HostFailure) as caught:
            site.transaction("dnf", ("driver", "2-1"), remove=["old-*"])
        assert caught.value.result["rolled_back"] is True
        assert host.installed == {"old-driver": "0:9-1"}

    def test_a_removal_alone_that_did_not_happen_is_a_failure(self, site, monkeypatch):
        el(monkeypatch, {"old-driver": "0:9-1"}, fails={"old-driver"})
        with pytest.raises(HostFailure, match="could not finish"):
            site.transaction("dnf", remove=["old-*"])

    def test_a_plan_that_would_only_remove_is_refused_before_any_change(self, site, monkeypatch):
        host = el(monkeypatch, {"old-driver": "0:9-1"}, uninstallable={"driver"})
        with pytest.raises(HostFailure) as caught:
            site.transaction("dnf", ("driver", "2-1"), remove=["old-*"])
        assert caught.value.fields["reference"] == "GS-463"
        assert "nothing provides" in caught.value.fields["note"]
        assert host.installed == {"old-driver": "0:9-1"}
        assert not [words for words in host.said if "-y" in words and "shell" in words]

    def test_what_a_new_package_replaces_must_be_allowed_to_go(self, site, monkeypatch):
        host = el(monkeypatch, {"precious": "0:1-1"}, obsoletes={"driver": "precious"})
        with pytest.raises(HostFailure) as caught:
            site.transaction("dnf", ("driver", ""))
        assert caught.value.fields["reference"] == "GS-467"
        assert caught.value.fields["context"] == "precious"
        assert "precious" in host.installed
        site.transaction("dnf", ("driver", ""), may_remove=["precious"])
        assert "precious" not in host.installed

    def test_apt_that_left_something_out_is_a_failure(self, site, monkeypatch):
        host = DebHost({"bash": "5"}, {"driver": ["1"], "cuda": ["12"]}, fails={"cuda"})
        host.stand_in(monkeypatch)
        with pytest.raises(HostFailure) as caught:
            site.transaction("apt", ("driver", "1"), ("cuda", "12"))
        assert "cuda 12 is not there" in caught.value.fields["note"]
        assert host.installed == {"bash": "5"}

    @pytest.mark.parametrize("manager", ["apt", "dnf"])
    def test_a_download_that_breaks_off_is_tried_again(self, site, monkeypatch, manager):
        host: Any = DebHost({}, {"cuda": ["12"]}, breaks_off=2)
        if manager == "dnf":
            host = el(monkeypatch, breaks_off=2)
        host.stand_in(monkeypatch)
        site.transaction(manager, ("cuda", ""))
        assert "cuda" in host.installed

    def test_but_not_for_ever(self, site, monkeypatch):
        host = el(monkeypatch, breaks_off=9)
        with pytest.raises(HostFailure) as caught:
            site.transaction("dnf", ("cuda", ""))
        assert host.breaks_off == 6
        assert "Curl error (18)" in caught.value.fields["note"] or "Error downloading" in caught.value.fields["note"]


def test_a_disk_that_fills_up_half_way_is_told_and_what_came_is_known(site, monkeypatch):
    host = debian(monkeypatch)

    def full():
        raise OSError(errno.ENOSPC, "No space left on device", "/var/lib/gpusetup/jobs/x/log")

    host.interrupt = full
    with pytest.raises(HostFailure, match="the disk is full") as caught:
        site.transaction("apt", *WANTED)
    assert caught.value.fields["reference"] == "GS-472"
    assert set(site.state["brought"]) == set(host.installed) - {"bash"} != set()
    site.transaction("apt", *WANTED)
    assert site.state["brought"] == dict(WANTED)


def test_dpkg_is_asked_once_which_architecture_it_is(site, monkeypatch):
    host = debian(monkeypatch)
    site.transaction("apt", *WANTED, hold=["driver"])
    assert host.said.count(["dpkg", "--print-architecture"]) == 1


class TestHalfInstalled:
    def test_what_apt_would_take_away_to_finish_it_must_be_allowed_to_go(self, site, monkeypatch):
        host = DebHost({"desktop": "1", "bash": "5"}, {"driver": ["1"]}, half={"desktop"}, needs={"desktop": "gone"})
        host.stand_in(monkeypatch)
        with pytest.raises(HostFailure) as caught:
            site.transaction("apt", ("driver", "1"))
        assert caught.value.fields["reference"] == "GS-467"
        assert caught.value.fields["context"] == "desktop"
        assert host.installed == {"desktop": "1", "bash": "5"}
        site.transaction("apt", ("driver", "1"), may_remove=["desktop"])
        assert host.installed == {"driver": "1", "bash": "5"}


class TestTakenAway:
    def test_a_removal_does_not_bring_back_what_somebody_took_away(self, site, monkeypatch):
        host = debian(monkeypatch)
        site.transaction("apt", *WANTED)
        del host.installed["cuda"]
        site.transaction("apt", remove=["driver", "nccl"], optional=True)
        assert host.installed == {"bash": "5"}

    def test_an_apply_does_unless_it_must_not_be_there(self, site, monkeypatch):
        host = debian(monkeypatch)
        site.transaction("apt", *WANTED)
        del host.installed["cuda"]
        site.transaction("apt", ("driver", "1"), remove=["cuda*"])
        assert "cuda" not in host.installed
        site.transaction("apt", ("driver", "1"), ("nccl", "2"))
        assert "cuda" not in host.installed  # the record has learnt that it is not wanted


class TestHolding:
    def test_the_plugin_comes_with_the_packages_and_goes_with_them(self, site, monkeypatch):
        host = el(monkeypatch, plugin=False)
        done = site.transaction("dnf", ("driver", "2-1"), hold=["driver"])
        assert host.locked == ["driver"]
        assert PLUGIN in host.installed
        assert PLUGIN not in done["packages"]
        assert PLUGIN in site.state["brought"]
        site.transaction("dnf", remove=sorted(site.state["brought"]))
        assert host.installed == {"bash": "0:5-1"}
        assert host.locked == []

    def test_without_it_nothing_is_begun(self, site, monkeypatch):
        host = el(monkeypatch, plugin=False, offered={"driver": ["0:2-1"]})
        with pytest.raises(HostFailure) as caught:
            site.transaction("dnf", ("driver", "2-1"), hold=["driver"])
        assert caught.value.fields["reference"] == "GS-464"
        assert "python3-dnf-plugin-versionlock" in caught.value.fields["hint"]
        assert host.installed == {"bash": "0:5-1"}

    def test_both_architectures_of_a_package_are_held(self, site, monkeypatch):
        """As on a desktop with games: the driver's libraries for 32 bits beside those for 64."""
        host = DebHost({"gl": "1", "gl:i386": "1", "bash": "5"}, {"driver": ["1"]})
        host.stand_in(monkeypatch)
        done = site.transaction("apt", ("driver", "1"), hold=["gl", "driver"])
        assert done["held"] == sorted(host.held) == ["driver", "gl", "gl:i386"]
        site.transaction("apt", ("driver", "1"))
        assert host.held == set()

    def test_dnf_5_needs_nothing(self, site, monkeypatch):
        host = el(monkeypatch, plugin=False, generation=5, offered={"driver": ["0:2-1"]})
        site.transaction("dnf", ("driver", "2-1"), hold=["driver"])
        assert host.locked == ["driver"]

    def test_what_cannot_be_held_does_not_stay(self, site, monkeypatch):
        host = el(monkeypatch)
        monkeypatch.setattr(host, "_versionlock", lambda _words: (0, "", ""))
        read = transaction.files.read_bytes  # on a host with a folder /nonexistent
        monkeypatch.setattr(transaction.files, "read_bytes", lambda path: read("/" if path == "/nonexistent" else path))
        with pytest.raises(HostFailure, match="not held") as caught:
            site.transaction("dnf", ("driver", "2-1"), hold=["driver"])
        assert caught.value.result["rolled_back"] is True
        assert host.installed == {"bash": "0:5-1"}

    def test_a_hold_of_somebody_else_is_refused(self, site, monkeypatch):
        host = el(monkeypatch, {"driver": "0:1-1"}, locked=["driver"])
        with pytest.raises(HostFailure, match="held by someone else"):
            site.transaction("dnf", ("driver", "2-1"))
        assert host.locked == ["driver"]


class TestRunfile:
    def test_the_run_driver_goes_only_when_nothing_can_be_refused_any_more(self, site, monkeypatch):
        uninstalled: list[str] = []
        monkeypatch.setattr(runfile, "uninstaller", lambda _env: "/usr/bin/nvidia-uninstall")
        monkeypatch.setattr(runfile, "remove", lambda *_words: uninstalled.append("now"))
        host = el(monkeypatch, {"driver": "0:1-1"}, locked=["driver"])
        with pytest.raises(HostFailure, match="held by someone else"):
            site.transaction("dnf", ("driver", "2-1"), replace_runfile=True)
        assert uninstalled == []
        host.locked = []
        monkeypatch.setattr(dnf_class(), "download", lambda _self, _wishes: (False, ["Error: Curl error (6)"]))
        with pytest.raises(HostFailure, match="could not be fetched"):
            site.transaction("dnf", ("driver", "2-1"), replace_runfile=True)
        assert uninstalled == []

    def test_it_goes_before_the_packages_come(self, site, monkeypatch):
        uninstalled: list[str] = []
        host = el(monkeypatch)
        monkeypatch.setattr(runfile, "uninstaller", lambda _env: "/usr/bin/nvidia-uninstall")
        monkeypatch.setattr(runfile, "remove", lambda *_words: uninstalled.extend(host.installed))
        site.transaction("dnf", ("driver", "2-1"), replace_runfile=True)
        assert uninstalled == ["bash"]
        assert "driver" in host.installed


class _Killed(BaseException):
    """The job's process dies here."""


def debian(monkeypatch):
    host = DebHost({"bash": "5"}, {"driver": ["1", "2"], "cuda": ["12"], "nccl": ["2"]})
    host.stand_in(monkeypatch)
    return host


WANTED = (("driver", "1"), ("cuda", "12"), ("nccl", "2"))


class TestCutShort:
    def test_what_was_there_is_on_the_disk_before_the_first_change(self, site, monkeypatch):
        host = debian(monkeypatch)
        seen: list[Any] = []
        host.interrupt = lambda: seen.append(site.unfinished) or 0
        with pytest.raises(HostFailure):
            site.transaction("apt", *WANTED)
        (kept,) = seen
        assert kept.pop("id")
        there = {"bash": "5"}
        assert kept == {"packages": there, "left": None, "counted": there, "streams": [], "holds": []}

    def test_a_package_manager_that_was_killed(self, site, monkeypatch):
        """The packages go back; the same command then brings all of them, and the record knows each."""
        host = debian(monkeypatch)
        host.interrupt = lambda: -9
        with pytest.raises(HostFailure) as caught:
            site.transaction("apt", *WANTED)
        assert caught.value.result["rolled_back"] is True
        assert host.installed == {"bash": "5"}
        assert site.state["brought"] == {}
        site.transaction("apt", *WANTED)
        assert site.state["brought"] == dict(WANTED)

    @pytest.mark.parametrize("second", [WANTED, (("driver", "2"), ("cuda", "12"))])
    def test_what_could_not_be_undone_is_still_known_to_have_come(self, site, monkeypatch, second):
        host = debian(monkeypatch)
        host.interrupt = lambda: -9
        with monkeypatch.context() as broken:
            broken.setattr(transaction.way_back, "restore", lambda *_words: [])
            with pytest.raises(HostFailure) as caught:
                site.transaction("apt", *WANTED)
        assert caught.value.result["rolled_back"] is False
        assert set(site.state["brought"]) == set(host.installed) - {"bash"} != set()
        assert site.unfinished is not None
        host.installed["vim"] = "9"  # somebody else works on
        site.transaction("apt", *second)
        assert set(site.state["brought"]) == set(host.installed) - {"bash", "vim"}
        assert site.unfinished is None

    @pytest.mark.parametrize("second", [WANTED, (("driver", "2"),)])
    def test_a_job_that_was_killed_itself(self, site, monkeypatch, second):
        host = debian(monkeypatch)
        host.interrupt = Mock(side_effect=_Killed)
        with pytest.raises(_Killed):
            site.transaction("apt", *WANTED)
        assert site.state["brought"] == {}
        site.transaction("apt", *second)
        assert set(site.state["brought"]) == set(host.installed) - {"bash"} >= {"driver"}

    def test_a_second_try_that_fails_goes_back_to_before_the_first(self, site, monkeypatch):
        host = debian(monkeypatch)
        host.interrupt = Mock(side_effect=_Killed)
        with pytest.raises(_Killed):
            site.transaction("apt", *WANTED)
        host.fails = {"nccl"}
        with pytest.raises(HostFailure):
            site.transaction("apt", *WANTED)
        assert host.installed == {"bash": "5"}
        assert site.state["brought"] == {}
        assert site.unfinished is None


def dnf_class():
    from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.dnf import Dnf

    return Dnf
