"""Named Python environments on a host: beside the default one, each on its own, on record, gone when nobody asks."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import installer, venv
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift, record_form
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_probe import record

from tests.modules.stand_ins import replace, write


def environment(folder, name, *keys):
    for key in keys:
        (folder / f".{name}-{key}").mkdir()
    (folder / name).symlink_to(f".{name}-{keys[-1]}")
    return folder / name


OLD, NEW = "0" * 12, "1" * 12


def test_the_folders_of_one_are_never_taken_for_those_of_another(tmp_path):
    opt, ledger = tmp_path / "srv/opt", Ledger(str(tmp_path / "state"))
    default, serve = (opt / name for name in ("gpusetup", "gpusetup-serve"))
    for path, keys in ((default, (OLD, NEW)), (serve, (OLD,))):
        venv.Link(str(path)).note(ledger.state, None, None)
        opt.mkdir(parents=True, exist_ok=True)
        environment(opt, path.name, *keys)
    assert [Path(path).name for path in venv.folders_of(str(default))] == [f".gpusetup-{OLD}", f".gpusetup-{NEW}"]
    assert venv.remove(ledger, str(default))
    assert sorted(path.name for path in opt.iterdir()) == [f".gpusetup-serve-{OLD}", "gpusetup-serve"]
    assert venv.remove(ledger, str(serve))
    assert not opt.parent.exists(), "the folders were made for them"
    assert not venv.remove(ledger, str(serve))


def test_what_became_of_one_is_seen_and_judged(tmp_path):
    host = SimpleNamespace(observe=lambda _name, look: look())
    entry = {"path": str(tmp_path / "gpusetup-serve"), "packages": {"frame": "1.0"}}
    record._look(host, "recorded-python:x", entry)
    assert entry["now"] == "missing"
    told = {"expect": {"environments": [entry]}}
    assert record_form.wrong(told) == ""
    (found,) = drift._environments({}, told)
    assert (found.what, found.now) == (f"the environment {entry['path']}", "missing")
    wrong = record_form.wrong({"expect": {"environments": [{"path": 7}]}})
    assert wrong == "`$.expect.environments[0].path` is a number"


def test_a_lock_says_what_was_installed_and_no_login():
    rows = (("B_Frame", "2", "https://me:secret@x/b_frame-2.tar.gz", "bb"), ("a", "1", "https://x/a-1-py3-none-any.whl", "aa"))  # fmt: skip
    text = installer.document([
        {"metadata": {"name": name, "version": version},
         "download_info": {"url": url, "archive_info": {"hashes": {"sha256": digest}}}}
        for name, version, url, digest in rows
    ])  # fmt: skip
    assert text.splitlines() == [
        'lock-version = "1.0"', 'created-by = "gpusetup"', "",
        "[[packages]]", 'name = "a"', 'version = "1"',
        'wheels = [{ url = "https://x/a-1-py3-none-any.whl", hashes = { sha256 = "aa" } }]', "",
        "[[packages]]", 'name = "b-frame"', 'version = "2"',
        'sdist = { url = "https://x/b_frame-2.tar.gz", hashes = { sha256 = "bb" } }',
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("version", "configured", "used"),
    [("uv 0.13.9", "", True), ("uv 0.5.1", "", False), ("uv 0.13.9", "global.index-url='https://mirror'", False)],
)
def test_uv_installs_where_it_is_new_enough_and_pip_has_no_index(monkeypatch, tmp_path, version, configured, used):
    uv = tmp_path / "uv"
    write(tmp_path, {"uv": "#!/bin/sh\n"}, 0o755)

    def answer(argv, *_rest):
        if argv[0] == str(uv):
            return 0, version, ""
        return 0, configured if "config" in argv else "pip 23.0.1 from x", ""

    replace(monkeypatch, installer, _UV=(str(uv),), changeable=lambda _path: "")
    monkeypatch.setattr(installer.process, "output", answer)
    chosen = installer.choose("best", "python", {})
    assert chosen == installer.Installer(str(uv) if used else "", True)
    commands = installer.steps(chosen, "python", "/x", {"find_links": "", "requirements": ["frame==1.0"]})
    assert len(commands) == (2 if used else 1)
    assert installer.choose("pip", "python", {}) == installer.Installer("", False), "the default environment's own way"
    if used:
        monkeypatch.setattr(installer, "changeable", lambda path: path)
        monkeypatch.setattr(installer.os, "geteuid", lambda: 0)
        assert installer.choose("best", "python", {}).uv == "", "root runs nobody else's uv"
