"""A whole transaction on a host in memory: what it says was done is what the host shows afterwards."""

import errno
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import apt, dnf, runfile, transaction
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules.deb_host import DebHost
from tests.modules.rpm_host import RpmHost
from tests.modules.stand_ins import refused, replace

WANTED = (("driver", "1"), ("cuda", "12"), ("nccl", "2"))


@pytest.fixture
def el(monkeypatch):
    def make(installed=None, **more):
        offered = {
            "old-driver": ["0:9-1"], "precious": ["0:1-1"], "driver": ["0:1-1", "0:2-1"], "cuda": ["0:12-1"],
        }  # fmt: skip
        host = RpmHost({"bash": "0:5-1"} if installed is None else installed, more.pop("offered", offered), **more)
        host.stand_in(monkeypatch)
        return host

    return make


@pytest.fixture
def debian(monkeypatch):
    def make(installed=None, offered=None, **more):
        known = {"driver": ["1", "2"], "cuda": ["12"], "nccl": ["2"]}
        host = DebHost({"bash": "5"} if installed is None else installed, offered or known, **more)
        host.stand_in(monkeypatch)
        return host

    return make


class TestWhatTheHostShows:
    @pytest.mark.parametrize(
        ("fails", "wanted", "words", "undone"),
        [
            # dnf 4's script that did nothing
            ({"driver", "old-driver"}, [("driver", "2-1")],
             ["GS-455", "Error: Transaction failed", "driver 0:2-1 is not there", "old-driver 0:9-1 is still there"], None),
            ({"old-driver"}, [("driver", "2-1")], [], True),
            ({"old-driver"}, [], ["could not finish"], None),
        ],
        ids=["nothing of it", "half of it", "a removal alone"],
    )  # fmt: skip
    def test_what_did_not_happen_is_a_failure_and_half_of_it_is_undone(self, site, el, fails, wanted, words, undone):
        host = el({"old-driver": "0:9-1"}, fails=fails)
        with refused(*words) as caught:
            site.transaction("dnf", *wanted, remove=["old-*"])
        assert undone is None or caught.value.result["rolled_back"] is undone
        assert host.installed == {"old-driver": "0:9-1"}
        assert site.unfinished is None

    def test_a_plan_that_would_only_remove_is_refused_before_any_change(self, site, el):
        host = el({"old-driver": "0:9-1"}, uninstallable={"driver"})
        with refused("GS-463", "nothing provides"):
            site.transaction("dnf", ("driver", "2-1"), remove=["old-*"])
        assert host.installed == {"old-driver": "0:9-1"}
        assert not [words for words in host.said if "-y" in words and "shell" in words]

    def test_what_a_new_package_replaces_must_be_allowed_to_go(self, site, el):
        host = el({"precious": "0:1-1"}, obsoletes={"driver": "precious"})
        with refused("GS-467", "at: precious\n"):
            site.transaction("dnf", ("driver", ""))
        assert "precious" in host.installed
        site.transaction("dnf", ("driver", ""), may_remove=["precious"])
        assert "precious" not in host.installed

    def test_what_apt_would_take_away_to_finish_something_must_be_allowed_to_go(self, site, debian):
        host = debian({"desktop": "1", "bash": "5"}, half={"desktop"}, needs={"desktop": "gone"})
        with refused("GS-467", "at: desktop\n"):
            site.transaction("apt", ("driver", "1"))
        assert host.installed == {"desktop": "1", "bash": "5"}
        site.transaction("apt", ("driver", "1"), may_remove=["desktop"])
        assert host.installed == {"driver": "1", "bash": "5"}

    @pytest.mark.parametrize("manager", ["apt", "dnf"])
    def test_a_download_that_breaks_off_is_tried_again_but_not_for_ever(self, site, el, debian, manager):
        host = {"apt": debian, "dnf": el}[manager](breaks_off=2)
        site.transaction(manager, ("cuda", ""))
        assert "cuda" in host.installed
        host = {"apt": debian, "dnf": el}[manager](breaks_off=9)
        with refused({"apt": "Remote end closed connection", "dnf": "Curl error (18)"}[manager]):
            site.transaction(manager, ("cuda", ""))
        assert host.breaks_off == 6

    def test_a_removal_leaves_what_a_package_needs_whose_former_version_no_source_has(self, site, debian):
        host = debian({"image": "1"})
        host.offered.update({"image": ["2"], "image-two": ["2"]})
        host.needs["image=2"] = "image-two"
        site.transaction("apt", *WANTED, ("image", "2"), no_way_back=True)
        brought = sorted(set(host.installed) - {"image"})
        site.transaction("apt", ("image", "1"), optional=True, remove=brought, may_remove=brought)
        assert host.installed == {"image": "2", "image-two": "2"}


class TestHolding:
    def test_a_stream_that_dnf_does_not_enable_is_a_failure(self, site, el, monkeypatch):
        host = el({"driver": "0:1-1"}, enabled={"nvidia-driver": "a"})
        monkeypatch.setattr(host, "_module", lambda _words: (0, "", ""))
        with refused("GS-465", "the stream is a, not b"):
            site.transaction("dnf", ("driver", "2-1"), streams=[{"module": "nvidia-driver", "stream": "b"}])
        assert host.installed == {"driver": "0:1-1"}

    def test_the_list_for_automatic_upgrades_goes_when_nobody_asks_for_it(self, site, debian, monkeypatch, tmp_path):
        debian()
        path = tmp_path / "52gpusetup"
        monkeypatch.setattr(apt, "UNATTENDED_FILE", str(path))
        for block in (True, False):
            assert site.transaction("apt", ("driver", "1"), hold=["driver"], auto_upgrades_block=block)["changed"]
            assert path.exists() is block


class TestRunfile:
    @pytest.fixture
    def seen(self, el, monkeypatch):
        """What was installed when the driver of a `.run` file went."""
        seen: list[str] = []
        replace(monkeypatch, runfile, uninstaller=lambda _env: "/usr/bin/nvidia-uninstall")
        replace(monkeypatch, runfile, remove=lambda *_words: seen.extend(el.host.installed))
        return seen

    def test_the_run_driver_goes_only_when_nothing_can_be_refused_any_more(self, site, el, seen, monkeypatch):
        host = el.host = el({"driver": "0:1-1"}, locked=["driver"])
        with refused("held by someone else"):
            site.transaction("dnf", ("driver", "2-1"), replace_runfile=True)
        assert host.locked == ["driver"]
        host.locked = []
        monkeypatch.setattr(dnf.Dnf, "download", lambda _self, _wishes: (False, ["Error: Curl error (6)"]))
        with refused("could not be fetched"):
            site.transaction("dnf", ("driver", "2-1"), replace_runfile=True)
        assert seen == []


class TestCutShort:
    @pytest.mark.parametrize("at", ["half way", "hold", "proof"])
    def test_packages_that_came_before_a_failure_stay_with_their_sources(self, site, debian, tmp_path, monkeypatch, at):
        host, source = debian(), tmp_path / "cuda.list"
        full = OSError(errno.ENOSPC, "No space left on device", "/x/log")
        Ledger(str(site.folder)).tell(apply={"id": "1", "finished": None})
        Ledger(str(site.folder)).write(str(source), "deb new\n")
        with monkeypatch.context() as harm:
            if at == "proof":
                harm.setattr(transaction.dkms, "mend", Mock(side_effect=HostFailure("GS-472", "the disk is full")))
            elif at == "hold":
                harm.setattr(transaction.Transaction, "_hold", Mock(side_effect=full))
            else:
                host.interrupt = Mock(side_effect=full)
            with refused("GS-472", "the disk is full", "stay"):
                site.transaction("apt", *WANTED, hold=["driver"])
        assert set(site.state["brought"]) == set(host.installed) - {"bash"} != set()
        assert source.exists(), "the packages that came have their source"
        site.transaction("apt", *WANTED, hold=["driver"])
        assert (site.state["brought"], host.held) == (dict(WANTED), {*dict(WANTED)})

    @pytest.mark.parametrize("second", [WANTED, (("driver", "2"), ("cuda", "12"))])
    def test_what_could_not_be_undone_is_still_known_to_have_come(self, site, debian, monkeypatch, second):
        host = debian()
        host.interrupt = lambda: -9
        with monkeypatch.context() as broken:
            broken.setattr(transaction.way_back, "restore", lambda *_words: [])
            with refused() as caught:
                site.transaction("apt", *WANTED)
        assert caught.value.result["rolled_back"] is False
        assert set(site.state["brought"]) == set(host.installed) - {"bash"} != set()
        assert site.unfinished is not None
        host.installed["vim"] = "9"  # somebody else works on
        site.transaction("apt", *second)
        assert set(site.state["brought"]) == set(host.installed) - {"bash", "vim"}
        assert site.unfinished is None

    @pytest.mark.parametrize("second", [WANTED, (("driver", "2"),), None], ids=["again", "another", "one that fails"])
    def test_a_job_that_was_killed_itself(self, site, debian, second):
        host = debian()
        host.interrupt = Mock(side_effect=KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            site.transaction("apt", *WANTED)
        assert site.state["brought"] == {}
        if second is not None:
            site.transaction("apt", *second)
            assert set(site.state["brought"]) == set(host.installed) - {"bash"} >= {"driver"}
            return
        host.fails = {"nccl"}
        with pytest.raises(HostFailure):
            site.transaction("apt", *WANTED)
        assert (host.installed, site.state["brought"]) == ({"bash": "5"}, {}), "back to before the first"
        assert site.unfinished is None
