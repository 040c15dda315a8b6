"""The way back is looked at before the way forward; what cannot be had again is said, and no host is left without a driver."""

import shutil
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import (
    apt,
    dkms,
    fetched,
    process,
    sources,
    way_back,
)
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.modules import real_deb
from tests.modules.deb_host import DebHost
from tests.modules.rpm_host import RpmHost
from tests.modules.stand_ins import refused, replace, write

OLD, NEW = "nvidia-driver-570", "nvidia-driver-580"
THERE = {OLD: "570.1", "libnvidia-gl-570": "570.1", "helper": "1", "bash": "5"}
AFTER = {NEW: "580.1", "libnvidia-gl-580": "580.1", "helper": "2", "bash": "5"}
STACK = ["nvidia-*", "libnvidia-*", "cuda*"]
WANTED = ((NEW, "580.1"), ("cuda", "13"))
OFFERED = {NEW: ["580.1"], "libnvidia-gl-580": ["580.1"], "helper": ["2"], "cuda": ["13"], "bash": ["5"]}
BOTH = OFFERED | {OLD: ["570.1"], "libnvidia-gl-570": ["570.1"], "helper": ["1", "2"]}
GONE = {OLD: "570.1", "libnvidia-gl-570": "570.1"}


def ubuntu(offered, **more):
    """Make a host with a driver of one branch, on which that of another takes its place."""
    return DebHost(
        dict(THERE),
        offered,
        needs={OLD: "libnvidia-gl-570 (= 570.1)", NEW: "libnvidia-gl-580 (= 580.1), helper (= 2)"},
        conflicts={NEW: OLD, OLD: NEW, "libnvidia-gl-580": "libnvidia-gl-570", "libnvidia-gl-570": "libnvidia-gl-580"},
        **more,
    )


@pytest.fixture(params=["stand-in", pytest.param("real", marks=real_deb.NEEDED)])
def begin(request, monkeypatch, tmp_path, shelf):
    """Let a host be what is described, in memory or in the real programs; return how to ask what is installed."""

    def make(host):
        if request.param == "real":
            real_deb.RealDeb(tmp_path / "host", host, shelf).use(monkeypatch)
        else:
            host.stand_in(monkeypatch)
            host.lay_cache(tmp_path / "archives", monkeypatch)
        return lambda: apt.Apt().installed()

    return make


def failed(site, *words, back=False, **params):
    """The transaction fails with these words; `back` is whether all was as before then."""
    with refused(*words) as caught:
        site.transaction("apt", *WANTED, may_remove=STACK, **params)
    assert caught.value.result.get("rolled_back", False) is back
    return caught.value.text()


class TestBefore:
    def test_what_is_offered_nowhere_is_a_refusal_and_nothing_was_changed(self, begin, site):
        installed = begin(ubuntu(OFFERED))
        failed(site, "GS-429", f"at: libnvidia-gl-570 570.1, {OLD} 570.1\n", "--no-way-back")
        assert installed() == THERE
        assert site.unfinished is None


class TestAfterAFailure:
    @pytest.mark.parametrize("more", [{"offered": BOTH}, {"offered": OFFERED, "cached": GONE | {"helper": "1"}}])
    def test_all_is_back_where_all_is_offered_or_cached(self, begin, site, more):
        installed = begin(ubuntu(**more, fails={"cuda"}))
        failed(site, back=True)
        assert installed() == THERE
        assert not (site.folder / "way-back").exists()

    def test_a_second_try_goes_back_by_the_files_that_a_try_kept_that_was_cut(self, site, tmp_path, monkeypatch):
        host = ubuntu(OFFERED, fails={"cuda"}, cached=GONE | {"helper": "1"})
        host.stand_in(monkeypatch)
        host.lay_cache(tmp_path / "archives", monkeypatch)
        with monkeypatch.context() as patch:
            patch.setattr(dkms, "build_error", Mock(side_effect=KeyboardInterrupt))
            with pytest.raises(KeyboardInterrupt):
                site.transaction("apt", *WANTED, may_remove=STACK)
        assert host.installed == AFTER
        shutil.rmtree(tmp_path / "archives")
        failed(site, back=True)
        assert host.installed == THERE

    def test_what_can_be_had_is_back_and_the_rest_is_told(self, begin, site):
        installed = begin(ubuntu({**BOTH, "helper": ["2"]}, fails={"cuda"}))
        assert "--recorded" not in failed(site, "not restored: moved helper", "do: ", "helper 1")
        assert installed() == THERE | {"helper": "2"}

    @pytest.mark.parametrize("half", [{}, {"libnvidia-gl-570": ["570.1"]}], ids=["nothing", "its library"])
    def test_a_driver_stays_until_another_is_there(self, begin, site, half):
        """The library of the old one excludes that of the new one: half of a driver takes no driver away."""
        installed = begin(ubuntu(OFFERED | half, fails={"cuda"}))
        told = failed(site, f"{OLD} 570.1", no_way_back=True)
        assert half or f"removed libnvidia-gl-570, {OLD}" in told
        assert installed() == AFTER

    @pytest.mark.parametrize("generation", [4, 5])
    def test_dnf_takes_nothing_away_for_what_it_cannot_have(self, site, monkeypatch, generation):
        """Asked for both in one script, dnf 4 leaves out what it does not find, and takes the rest away all the same."""
        host = RpmHost(
            {"nvidia-driver": "3:570.1-1", "bash": "0:5-1"}, {"nvidia-open": ["3:580.1-1"], "cuda": ["0:13-1"]},
            generation, obsoletes={"nvidia-open": "nvidia-driver"}, fails={"cuda"},
        )  # fmt: skip
        host.stand_in(monkeypatch)
        with refused():
            site.transaction("dnf", ("nvidia-open", ""), ("cuda", ""), may_remove=["nvidia-*"], no_way_back=True)
        assert host.installed == {"nvidia-open": "3:580.1-1", "bash": "0:5-1"}


class TestTheSourcesOfBefore:
    """A host whose one source is replaced by another that has the new versions alone, as an offline host goes from one
    bundle to the next."""

    A, B = "URIs: file:///srv/a\n", "URIs: file:///srv/b\n"

    @pytest.fixture
    def etc(self, site, tmp_path, monkeypatch):
        monkeypatch.setattr(sources.Layout.__init__, "__defaults__", (str(tmp_path),))
        monkeypatch.setattr(fetched, "PLACE", str(tmp_path))
        etc = tmp_path / "etc/apt"
        ledger = Ledger(str(site.folder))
        ledger.write(str(etc / "sources.list.d/cuda.sources"), self.A + f"Signed-By: {etc}/keyrings/cuda.gpg\n")
        ledger.write(str(etc / "keyrings/cuda.gpg"), b"key of a")
        ledger.tell(apply={"id": "next", "finished": None})
        return etc

    def host(self, etc, monkeypatch, still, **more):
        """Offer what the sources name that a command line reads, where the key beside them is theirs."""
        host = ubuntu({}, **more)
        host.stand_in(monkeypatch)
        monkeypatch.setattr(apt.Apt, "caches", (str(etc),))
        known = {self.A: (b"key of a", still), self.B: (b"key of b", OFFERED)}

        def at_these(run):
            def answer(argv, *words, **named):
                told = [word.partition("=")[2] for word in argv if word.startswith("Dir::Etc::sourceparts=")]
                host.offered = {}
                for path in Path(*told or [etc / "sources.list.d"]).glob("*.sources"):
                    address, signer = path.read_text().split("Signed-By: ")
                    key, offered = known[address]
                    host.offered |= offered if Path(signer.strip()).read_bytes() == key else {}
                return run(argv, *words, **named)

            return answer

        replace(monkeypatch, process, output=at_these(host.output), stream=at_these(host.stream))
        return host

    def replaced(self, site, etc, name):
        ledger = Ledger(str(site.folder))
        ledger.write(str(etc / f"sources.list.d/{name}.sources"), self.B + f"Signed-By: {etc}/keyrings/{name}.gpg\n")
        ledger.write(str(etc / f"keyrings/{name}.gpg"), b"key of b")
        wanted = [path for path in ledger.state["files"] if f"/{name}." in path]
        for path in sources.obsolete(ledger.state["files"], wanted):
            ledger.give_up_file(path)

    @pytest.mark.parametrize("name", ["cuda", "distro"])
    @pytest.mark.parametrize("fails", [set(), {"cuda"}], ids=["done", "fails"])
    def test_what_they_offer_can_be_had_and_they_are_back_before_packages(self, site, etc, monkeypatch, name, fails):
        host, before = self.host(etc, monkeypatch, BOTH, fails=fails), files_below(etc)
        self.replaced(site, etc, name)
        if fails:
            failed(site, back=True)
            assert (host.installed, files_below(etc)) == (THERE, before)
            return
        site.transaction("apt", *WANTED, may_remove=STACK)
        assert host.installed == AFTER | {"cuda": "13"}
        assert not list(etc.parent.parent.glob("gpusetup-preview-*"))


def files_below(folder):
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def way(tmp_path):
    write(tmp_path, {"a_1_amd64.deb": b"x" * 1000})
    return way_back.WayBack({"a": f"{tmp_path}/a_1_amd64.deb"}, [], [], [])


def test_a_shelf_outlives_a_cut_while_it_is_renewed(tmp_path, monkeypatch):
    write(tmp_path, {"bundle/a_1_all.deb": "x"})
    monkeypatch.setattr(way_back.sources, "folders", lambda: [f"{tmp_path}/bundle"])
    monkeypatch.setattr(way_back, "changeable", lambda _path: "")
    shelve = partial(way_back.shelve, apt.Apt(), {"a": "1"}, str(tmp_path))
    shelve()
    shutil.rmtree(tmp_path / "bundle")
    with monkeypatch.context() as patch:
        patch.setattr(way_back.os, "rename", lambda *_paths: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            shelve()
    shelve()
    assert (tmp_path / "packages/a_1_all.deb").exists()


def test_what_cannot_be_linked_is_copied(way, tmp_path, monkeypatch):
    monkeypatch.setattr(way_back.os, "link", Mock(side_effect=OSError(18, "Invalid cross-device link")))
    monkeypatch.setattr(way_back.os, "sync", (tmp_path / "kept/synced").touch)
    way_back.keep(way, str(tmp_path / "kept"))
    assert (tmp_path / "kept/synced").exists()
    (tmp_path / "a_1_amd64.deb").unlink()
    assert (tmp_path / "kept/a_1_amd64.deb").read_bytes() == b"x" * 1000
    way_back.forget(str(tmp_path / "kept"))
    assert list(tmp_path.iterdir()) == []
