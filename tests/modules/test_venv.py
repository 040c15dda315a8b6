"""gpu_venv on this machine, from a folder of wheels: built beside, switched in one step, left alone when it is right."""

import hashlib
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import venv
from ansible_collections.gpusetup.stack.plugins.modules import gpu_venv

from gpusetup.bootstrap.bundle import KEY, MANIFEST, SIGNATURE, digest_of, write_manifest
from gpusetup.model.bundle import BundledFile, Manifest
from gpusetup.supply.signing import signer


def wheel(folder, name, version, more=""):
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n{more}")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wanted(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        wheel(wheels, "frame", version)
    return {
        "host": {"state_dir": str(tmp_path / "state")},
        "path": str(tmp_path / "opt" / "stack"),
        "interpreter": sys.executable,
        "find_links": str(wheels),
        "poll": 60,
    }


def finish(run_module, wanted, **more):
    for _try in range(60):
        failed, result = run_module(gpu_venv, **wanted, **more)
        if result["finished"]:
            return failed, result
    raise AssertionError("it did not finish")


@pytest.mark.slow
def test_made_kept_moved_and_never_broken(run_module, wanted, tmp_path):
    Path(wanted["path"]).parent.mkdir()
    _failed, result = run_module(gpu_venv, check=True, requirements=["frame==1.0"], **wanted)
    assert result["changed"] is True
    assert not Path(wanted["path"]).exists()

    failed, result = finish(run_module, wanted, requirements=["frame==1.0"])
    assert (failed, result["changed"]) == (False, True)
    first = Path(wanted["path"]).readlink()
    assert finish(run_module, wanted, requirements=["frame==1.0"])[1]["changed"] is False

    failed, result = finish(run_module, wanted, requirements=["frame==3.0"])
    assert failed
    assert result["gpu_failure"]["reference"] == "GS-486"
    assert Path(wanted["path"]).readlink() == first, "the environment in use was not touched"

    failed, result = finish(run_module, wanted, requirements=["frame==2.0"])
    assert not failed
    assert Path(wanted["path"]).readlink() != first
    assert (Path(wanted["path"]).parent / first).exists(), "the one before is kept for a way back"

    _failed, result = run_module(gpu_venv, requirements=["frame==2.0"], adopt=result["interpreter"], **wanted)
    assert result["changed"] is False
    failed, result = run_module(gpu_venv, requirements=["frame==1.0"], adopt=result["interpreter"], **wanted)
    assert failed
    assert "frame 1.0 (is 2.0)" in result["msg"]


@pytest.mark.slow
def test_a_bundles_wheels_have_the_digests_that_its_signer_signed(run_module, wanted, tmp_path):
    wheels = (tmp_path / "wheels").rename(tmp_path / "python")
    wanted["find_links"] = f"{wheels}/"
    owner, stranger = (signer("", tmp_path / name) for name in ("keys", "stranger"))
    manifest = tmp_path / MANIFEST

    def signed_by(whose):
        digests = {f"python/{path.name}": digest_of(path) for path in wheels.iterdir()}
        files = {name: BundledFile(sha256=digest, size=1) for name, digest in digests.items()}
        write_manifest(manifest, Manifest(gpusetup="1", pip="", sets={}, files=files))
        (tmp_path / KEY).write_bytes(whose.public())
        whose.detached(manifest, tmp_path / SIGNATURE)

    def ends_with(version, signers=(owner.fingerprint,)):
        failed, result = finish(run_module, wanted, requirements=[f"frame=={version}"], signers=list(signers))
        return result["gpu_failure"]["reference"] + " " + result["msg"] if failed else "made"

    signed_by(stranger)
    assert ends_with("1.0").startswith("GS-428"), "the key is a stranger's"
    (tmp_path / KEY).write_bytes(owner.public())
    assert ends_with("1.0").startswith("GS-428"), "the signature is a stranger's"
    signed_by(owner)
    assert ends_with("1.0") == "made"
    wheel(wheels, "frame", "2.0", "swapped = True\n")
    told = ends_with("2.0")
    assert told.startswith("GS-486")
    assert "DO NOT MATCH THE HASHES" in told
    assert ends_with("2.0", ()) == "made", "nobody signs wheels that are of no bundle"
    manifest.unlink()
    wheel(wheels, "frame", "3.0")
    assert ends_with("3.0").startswith("GS-428")


def test_a_disk_that_is_full_keeps_nothing_of_the_new_one(run_module, wanted, tmp_path, monkeypatch):
    def full(path, *_words):
        raise OSError(28, "No space left on device", path)

    monkeypatch.setattr(venv.installer, "write_lock", lambda *_words: full("pylock.toml"))
    assert finish(run_module, wanted, requirements=["frame==1.0"])[1]["gpu_failure"]["reference"] == "GS-472"
    assert list((tmp_path / "opt").iterdir()) == []


def test_the_mark_is_written_once_the_packages_are_on_the_disk(run_module, wanted, tmp_path, monkeypatch):
    marks = partial(tmp_path.rglob, venv.environment.MARK)
    monkeypatch.setattr(venv.os, "sync", lambda: (tmp_path / "synced").write_text(str(list(marks()))))
    assert not finish(run_module, wanted, requirements=["frame==1.0"])[0]
    assert ((tmp_path / "synced").read_text(), len(list(marks()))) == ("[]", 1)


def test_a_python_that_answers_nonsense_is_said(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho hello; [ $1 = -c ] || echo "{}"\n')
    python.chmod(0o755)
    with pytest.raises(venv.HostFailure, match="does not answer"):
        venv.compare(str(python), {"frame": "1.0"}, venv.process.environment())


def test_a_folder_that_is_not_ours_is_refused(run_module, wanted):
    Path(wanted["path"]).mkdir(parents=True)
    failed, result = finish(run_module, wanted, requirements=["frame==1.0"])
    assert failed
    assert "was not made by gpusetup" in result["msg"]


def test_a_password_in_an_address_is_never_told():
    from types import SimpleNamespace

    from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params

    host = {"state_dir": "", "simulated_root": "", "proxy": "http://p:other-secret@x:1", "no_proxy": [], "ca_file": ""}
    lines = ["--index-url https://me:planted-secret@example.org/simple"]
    module = SimpleNamespace(params={"requirements": lines, "host": host}, no_log_values=set())
    params.plain(module)
    assert module.no_log_values == {"planted-secret", "other-secret"}


@pytest.mark.slow
def test_a_wheel_that_is_not_the_lock_s_is_not_installed(run_module, wanted):
    Path(wanted["path"]).parent.mkdir()
    file = Path(wanted["find_links"]) / "frame-1.0-py3-none-any.whl"
    line = f"frame==1.0 --hash=sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("more.py", "")
    failed, result = finish(run_module, wanted, requirements=[line])
    assert failed
    assert "DO NOT MATCH THE HASHES" in str(result)
    assert not Path(wanted["path"]).is_symlink()
