"""Code that a host keeps between tasks: only root can put it there, it is what was announced, and tasks stay small."""

import importlib
import json
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.action import gpu_reboot_need
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import owner
from ansible_collections.gpusetup.stack.plugins.modules import gpu_shared_code, gpu_state
from ansible_collections.gpusetup.stack.plugins.plugin_utils import shared_code

from gpusetup.content import host_code

FILES = {
    "modules/__init__.py": b"",
    "modules/gpu_part.py": b"main = 1\n",
    "modules/gpu_small.py": b"from .gpu_part import main\n",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where code is kept, below a folder that is this user's alone."""
    (tmp_path / "run").mkdir(mode=0o755)
    monkeypatch.setattr(gpu_shared_code, "FOLDER", str(tmp_path / "run/gpusetup-code"))
    return tmp_path / "run/gpusetup-code"


@pytest.fixture
def digest():
    """The sum as the controller makes it."""
    return shared_code.digest(FILES)


def sent(files=FILES):
    return host_code("programs").archive(files)


def test_what_is_sent_is_kept_for_its_owner_alone(folder, digest, monkeypatch):
    assert gpu_shared_code.held(digest, None) is None
    with monkeypatch.context() as full:
        full.setattr(os, "makedirs", lambda _path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            gpu_shared_code.held(digest, sent())
    assert os.listdir(folder) == [], "a full /run is not made fuller"
    place = Path(gpu_shared_code.held(digest, sent()))
    assert gpu_shared_code.held(digest, None) == str(place)
    assert {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*.py")} == FILES
    assert [path.stat().st_mode & 0o777 for path in (folder, place)] == [0o700, 0o700]
    assert os.listdir(folder) == [digest], "nothing half remains"


def test_other_files_are_not_kept_and_a_damaged_archive_is_asked_for_no_more(folder, digest, monkeypatch, capsys):
    with pytest.raises(ValueError, match="do not match"):
        gpu_shared_code.held(digest, sent({**FILES, "modules/gpu_part.py": b"main = 2\n"}))
    assert not folder.exists()
    arguments = {"code": digest, "program": "", "module": "gpu_part", "sent": {digest: "UEsDBA=="}}
    monkeypatch.setattr(gpu_shared_code.basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}))
    monkeypatch.setattr(gpu_shared_code, "_owned", lambda *_args, **_options: True)
    with pytest.raises(SystemExit):
        gpu_shared_code.main()
    assert json.loads(capsys.readouterr().out) == {"changed": False, "missing": []}


@pytest.mark.parametrize("which", ["above", "folder", "place"])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_what_others_can_write_is_not_used(folder, digest, which, mode):
    place = gpu_shared_code.held(digest, sent())
    Path({"above": folder.parent, "folder": folder, "place": place}[which]).chmod(mode)
    for packed in (None, sent()):
        with pytest.raises(PermissionError):
            gpu_shared_code.held(digest, packed)


@pytest.mark.parametrize("which", ["folder", "place", "somebody else's"])
def test_a_link_in_its_place_and_somebody_elses_folder_are_not_used(folder, digest, tmp_path, which, monkeypatch):
    there = {"folder": folder, "place": Path(gpu_shared_code.held(digest, sent()))}.get(which)
    if there is None:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        there.symlink_to(there.rename(tmp_path / "elsewhere"))
    with pytest.raises(PermissionError):
        gpu_shared_code.held(digest, None)


@pytest.mark.parametrize("damage", ["missing", "half"])
def test_damaged_code_is_asked_for_anew(folder, digest, damage, monkeypatch):
    monkeypatch.setattr(gpu_shared_code, "PACKAGE", f"kept_{damage}")
    for name in (f"kept_{damage}", f"kept_{damage}.modules"):
        package = ModuleType(name)
        package.__path__ = []
        monkeypatch.setitem(sys.modules, name, package)
    part = Path(gpu_shared_code.held(digest, sent())) / "modules/gpu_part.py"
    if damage == "missing":
        part.unlink()
    else:
        part.write_text("main = (")
    assert gpu_shared_code.load(gpu_shared_code.held(digest, None), "gpu_small") is None
    assert gpu_shared_code.held(digest, None) is None
    importlib.invalidate_caches()
    assert gpu_shared_code.load(gpu_shared_code.held(digest, sent()), "gpu_small").main == 1


class Controller(shared_code.SharedCode):
    """The action beside a host that gives these answers."""

    def __init__(self, *answers, later=0):
        self._task = SimpleNamespace(action="gpusetup.stack.gpu_small", async_val=later)
        self._connection = SimpleNamespace(has_native_async=False)
        self.answers, self.asked = list(answers), []

    def _execute_module(self, module_name, module_args, task_vars=None, wrap_async=False):
        self.asked.append((module_name.rpartition(".")[2], module_args, bool(wrap_async)))
        return self.answers.pop(0)


_NOTHING = [([{"missing": []}], 0), ([{"missing": [shared_code.DIGEST]}] * 2, 0), ([], 60)]


@pytest.mark.parametrize(("answers", "later"), _NOTHING, ids=["keeps nothing", "asks twice", "an asynchronous task"])
def test_a_host_that_keeps_nothing_gets_the_module_whole(answers, later):
    host = Controller(*answers, {"changed": True}, later=later)
    assert host.ask({"a": 1}, {}, "text") == {"changed": True}
    assert host.asked[-1] == ("gpu_small", {"a": 1, "program": "text"}, bool(later))


@pytest.mark.parametrize(("action", "sent"), [(gpu_reboot_need.ActionModule, {shared_code.DIGEST}), (object, set())])
def test_only_the_module_after_a_reboot_sends_the_code_unasked(action, sent):
    for after in (True, False):
        host = type("Host", (Controller, action), {})({"changed": False})
        host.ask({"after_reboot": after}, {})
        assert set(host.asked[0][1]["sent"]) == (sent if after else set())


def test_removal_takes_the_code_away(run_module, tmp_path, monkeypatch):
    assert gpu_state.CODE == gpu_shared_code.FOLDER, "a module cannot import another one"
    kept = tmp_path / "code"
    (kept / "digest").mkdir(parents=True)
    monkeypatch.setattr(gpu_state, "CODE", str(kept))
    folder = str(tmp_path / "state")
    token = owner.take(folder, {"controller": "here", "user": "anna", "run": "1", "home": ""}, "digest")
    monkeypatch.setattr(gpu_state.lifecycle.Lifecycle, "clean", lambda _self: {"changed": True})
    ends = gpu_state.AnsibleModule.exit_json
    monkeypatch.setattr(gpu_state.AnsibleModule, "exit_json", lambda me, **told: ends(me, there=kept.exists(), **told))
    result = run_module(gpu_state, host={"state_dir": folder, "owner": token}, manager="apt", mode="clean")
    assert result["there"], "Ansible imports from there while it answers"
    assert not kept.exists()
