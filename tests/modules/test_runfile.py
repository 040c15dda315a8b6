"""NVIDIA's `.run` installer on a host: what is proven of the file, what it is run with, and what a failure leaves."""

import hashlib
import os
from unittest.mock import Mock

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import download, runfile
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from tests.flaky import serving
from tests.lab import runfile as stand_in
from tests.modules.stand_ins import refused, replace

VERSION = "580.142"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the file must be root's")


@pytest.fixture
def file(tmp_path):
    return stand_in.write(tmp_path, VERSION)


def test_what_is_wrong_with_a_file_is_said(file, tmp_path):
    other, link = tmp_path / "other.run", tmp_path / "link.run"
    other.write_text("#!/bin/sh\nrm -rf /\n")
    link.symlink_to(file)

    def wrong(path, words, machine="x86_64"):
        with refused("GS-475", words):
            runfile.prove(str(path), "", VERSION, machine)

    wrong(file, "this host is aarch64", "aarch64")
    wrong(tmp_path / "gone", "cannot be read")
    wrong(other, "not a .run installer of NVIDIA's driver")
    tmp_path.chmod(0o777)
    wrong(file, f"others can change {tmp_path}")  # and so put another file in its place after the look
    tmp_path.chmod(0o700)
    file.chmod(0o666)
    wrong(file, "users other than root")
    wrong(link, "users other than root")  # what it leads to can be changed behind the look


class Host:
    """A host on which the module appears when the installer builds it."""

    def __init__(self, built=True):
        self.built = built
        self.installed = False

    def wanted_kernels(self, given):
        return given or ["6.1.0-56-amd64"]

    def module_on_disk(self, _kernel):
        return {"version": VERSION, "flavour": "open"} if self.installed and self.built else None


@pytest.fixture
def ran():
    return []


@pytest.fixture
def installation(tmp_path, file, monkeypatch, ran):
    def make(host=None, state=tmp_path, **more):
        host = host or Host()
        request = {
            "path": str(file), "sha256": "", "version": VERSION, "flavour": "open", "kernels": [], "dkms": True,
            "state_dir": str(state), "network": {}, **more,
        }  # fmt: skip
        state.mkdir(exist_ok=True)
        real = runfile.process.stream

        def stream(argv, *words, **named):
            if "./nvidia-installer" not in argv and "uninstall" not in argv[0]:
                return real(argv, *words, **named)
            ran.append(argv)
            host.installed = "uninstall" not in argv[0]
            return 0, ["done"]

        monkeypatch.setattr(runfile.process, "stream", stream)
        there = lambda _env: "/usr/bin/nvidia-uninstall" if host.installed else None  # noqa: E731
        replace(monkeypatch, runfile, packaged=lambda _env: "", uninstaller=there)
        return runfile.Installation(request, host, Ledger(str(state)), lambda *_w: None, lambda _l: None)

    return make


def test_it_is_run_with_what_it_lists_and_written_down(tmp_path, file, installation, ran):
    made = installation()
    assert not made.is_installed()
    assert made.run() == {"changed": True}
    (argv,) = ran
    assert argv[3:] == [
        "./nvidia-installer", "--silent", "--kernel-name=6.1.0-56-amd64", "--dkms", "--kernel-module-type=open",
        "--skip-module-load", "--no-x-check",
    ]  # fmt: skip
    assert Ledger(str(tmp_path)).state["runfile"] == {"path": str(file), "version": VERSION, "replaced": False}
    assert made.is_installed()
    assert not list(tmp_path.glob("runfile-*"))


def test_a_failure_says_why_and_leaves_nothing(tmp_path, installation, ran):
    with refused("GS-477", "no nvidia module for kernel 6.1.0-56-amd64", "gpusetup removed all of it"):
        installation(Host(built=False)).run()
    assert ran[-1] == ["/usr/bin/nvidia-uninstall", "--silent"]
    assert Ledger(str(tmp_path)).state["runfile"] == {}


def test_a_damaged_file_and_one_beside_a_packaged_driver_are_refused(file, installation, monkeypatch, ran):
    made, raw = installation(), file.read_bytes()
    file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    with refused("damaged"):
        made.run()
    monkeypatch.setattr(runfile, "packaged", lambda _env: "nvidia-utils-580")
    with refused("GS-476"):
        made.run()
    assert ran == []


def served(file, site, *words):
    address = site.says(*words).removesuffix("/x") + f"/{file.name}"
    site.handler.content[f"/{file.name}"] = file.read_bytes()
    return address


def test_from_its_address_it_is_fetched_once_and_resumed(tmp_path, file, monkeypatch, installation):
    monkeypatch.setattr(download.time, "sleep", lambda _seconds: None)
    with serving() as site:
        address = served(file, site, "broken", "503", "hangs up", "broken", "whole")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        made = installation(state=tmp_path / "state", path=address, sha256=digest)
        assert made.run() == {"changed": True}
        assert site.asked == 5
        fetched = tmp_path / "state/installers" / file.name
        assert fetched.read_bytes() == file.read_bytes()
        assert (fetched.stat().st_mode & 0o777, fetched.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert made.run() == {"changed": False}
        assert site.asked == 5, "it is there already"
    assert Ledger(str(tmp_path / "state")).state["runfile"]["path"] == address


@pytest.mark.parametrize(
    ("word", "why"),
    [("404", ["GS-479", "404"]), ("broken, no length", ["GS-475", "not the expected file"]), ("other", ["GS-475", "expected"])],
)  # fmt: skip
def test_a_fetched_file_that_is_not_the_right_one_is_not_kept(tmp_path, file, installation, ran, word, why):
    with serving() as site:
        address = served(file, site, word)
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        with refused(*why):
            installation(state=tmp_path / "state", path=address, sha256=digest).run()
    assert ran == []
    assert not list((tmp_path / "state").glob("installers/*.run"))


def test_a_look_reads_the_beginning_alone_and_says_the_room(tmp_path, file, monkeypatch):
    params = {"driver_version": VERSION, "state_dir": str(tmp_path / "state"), "network": {}, "runfile_sha256": ""}
    with serving() as site:
        address = served(file, site, "whole")
        room = runfile.look(address, params, "x86_64")
        assert room == {params["state_dir"]: -(-file.stat().st_size >> 20)}
        with refused("holds 580.142, not 570.211.01"):
            runfile.look(address, {**params, "driver_version": "570.211.01"}, "x86_64")
        with refused("could not be downloaded"):
            runfile.look(site.says("404"), params, "x86_64")
    assert not (tmp_path / "state").exists()
    monkeypatch.setattr(os, "statvfs", lambda _path: Mock(f_flag=os.ST_NOEXEC))
    with refused("GS-475", "noexec"):
        runfile.look(str(file), params, "x86_64")
