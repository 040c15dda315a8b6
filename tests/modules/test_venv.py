"""gpu_venv on this machine, from a folder of wheels: built beside, switched in one step, left alone when it is right."""

import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import params, venv
from ansible_collections.gpusetup.stack.plugins.modules import gpu_venv

from gpusetup.bootstrap.bundle import KEY, MANIFEST, SIGNATURE, digest_of, write_manifest
from gpusetup.model.bundle import BundledFile, Manifest
from gpusetup_fleet.supply.signing import signer


def wheel(folder, name, version, more=""):
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}.py", f"VERSION = {version!r}\n{more}")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def wanted(tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "2.0"):
        wheel(wheels, "frame", version)
    return {
        "host": {"state_dir": str(tmp_path / "state")}, "path": str(tmp_path / "opt" / "stack"),
        "interpreter": sys.executable, "find_links": str(wheels), "poll": 60,
    }  # fmt: skip


def finish(run_module, wanted, *requirements, fails="", **more):
    """Run the module until it has finished; it may fail while it is asked with `fails` alone."""
    for _try in range(60):
        result = run_module(gpu_venv, fails=None, requirements=list(requirements), **wanted, **more)
        if result["finished"]:
            words = (fails,) if isinstance(fails, str) else fails
            assert ("gpu_failure" in result) == bool(fails), result
            assert [word for word in words if word not in result.get("msg", "")] == [], result
            return result
    raise AssertionError("it did not finish")


@pytest.mark.slow
def test_made_kept_moved_and_never_broken(run_module, wanted):
    link = Path(wanted["path"])
    link.parent.mkdir()
    assert run_module(gpu_venv, check=True, requirements=["frame==1.0"], **wanted)["changed"] is True
    assert not link.exists()

    assert [finish(run_module, wanted, "frame==1.0")["changed"] for _turn in range(2)] == [True, False]
    first = link.readlink()

    finish(run_module, wanted, "frame==3.0", fails="GS-486")
    finish(run_module, wanted, f"frame==2.0 --hash=sha256:{'0' * 64}", fails="DO NOT MATCH THE HASHES")
    assert link.readlink() == first, "the environment in use was not touched"

    result = finish(run_module, wanted, "frame==2.0", installer="best")
    assert link.readlink() != first
    assert (link.parent / first).exists(), "the one before is kept for a way back"
    locked = (link / venv.installer.LOCK).read_text()
    assert [part for part in ('name = "frame"\nversion = "2.0"', "sha256") if part not in locked] == []
    assert not (link / "report.json").exists()

    adopted = {"adopt": result["interpreter"], **wanted}
    assert run_module(gpu_venv, requirements=["frame==2.0"], **adopted)["changed"] is False
    run_module(gpu_venv, requirements=["frame==1.0"], **adopted, fails="frame 1.0 (is 2.0)")


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

    def ends_with(version, *fails, signers=(owner.fingerprint,)):
        finish(run_module, wanted, f"frame=={version}", fails=fails, signers=list(signers))

    signed_by(stranger)
    ends_with("1.0", "GS-428")  # the key is a stranger's
    (tmp_path / KEY).write_bytes(owner.public())
    ends_with("1.0", "GS-428")  # the signature is a stranger's
    signed_by(owner)
    ends_with("1.0")
    wheel(wheels, "frame", "2.0", "swapped = True\n")
    ends_with("2.0", "GS-486", "DO NOT MATCH THE HASHES")
    assert venv.installer.page_of({**wanted, "signers": []}, "", {}) == wanted["find_links"], "of no bundle"
    manifest.unlink()
    wheel(wheels, "frame", "3.0")
    ends_with("3.0", "GS-428")


def test_a_folder_that_is_not_ours_is_refused(run_module, wanted):
    Path(wanted["path"]).mkdir(parents=True)
    finish(run_module, wanted, "frame==1.0", fails="was not made by gpusetup")


@pytest.mark.parametrize("scheme", ["http://", ""])
def test_a_password_in_an_address_is_never_told(scheme):
    proxy = scheme + "p:other-secret@x:1"
    host = {"state_dir": "", "simulated_root": "", "proxy": proxy, "no_proxy": [], "ca_file": ""}
    lines = ["--index-url https://me:planted-secret@example.org/simple"]
    module = SimpleNamespace(params={"requirements": lines, "host": host}, no_log_values=set())
    params.plain(module)
    assert module.no_log_values == {"planted-secret", "other-secret"}
