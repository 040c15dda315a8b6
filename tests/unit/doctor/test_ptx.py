"""The PTX that this machine's driver compiles: measured by the code that verify uses, with a stand-in for the driver."""

import dataclasses
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpusetup.cli.main import main
from gpusetup.doctor import ptx
from gpusetup.doctor.diagnose import diagnose
from gpusetup.doctor.findings import diagnose_text
from gpusetup.model.diagnosis import Environment
from tests.stored import stored
from tests.unit.doctor.test_machines import HEALTHY, HOSTS, look_at

DRIVER = stored("cuda_stand_in.c")
MESSAGE = "CUDA error 222: the provided PTX was compiled with an unsupported toolchain"
ANSWER = {"driver_cuda": "13.0", "name": "Stand-in", "compute_capability": "9.0", "highest": "9.0"}


def driver(folder: Path, init: int) -> dict[str, str]:
    """Return an environment in which the loader finds a driver; one that refuses to start has an error number."""
    if shutil.which("cc") is None:
        pytest.skip("a C compiler makes the stand-in for the driver")
    source = folder / "cuda.c"
    source.write_text(DRIVER.replace("INIT;", f"{init};"), encoding="ascii")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(source)], check=True)
    return {"LD_LIBRARY_PATH": str(folder), "CUDA_VISIBLE_DEVICES": ""}


def test_the_driver_alone_is_asked(tmp_path):
    answer = ptx.measured(driver(tmp_path, 0))
    assert {name: answer[name] for name in ANSWER} == ANSWER
    assert ptx.sentence(answer) == "the driver compiles PTX up to 9.0, which CUDA 13.0 writes"


@pytest.mark.parametrize(("code", "said"), [(100, "this machine has no NVIDIA GPU"), (802, "CUDA error 802 at cuInit")])
def test_a_driver_that_refuses_says_why(tmp_path, code, said):
    assert said in ptx.sentence(ptx.measured(driver(tmp_path, code)))


def test_a_driver_that_hangs_does_not_keep_the_doctor(monkeypatch, tmp_path):
    folder = tmp_path / "roles/gpu_verify/files/gpu_measure"
    folder.mkdir(parents=True)
    (folder / "ptx_sweep.py").write_text("import time; time.sleep(60)", encoding="ascii")
    monkeypatch.setattr(ptx, "content_path", lambda: tmp_path)
    monkeypatch.setattr(ptx, "_DEADLINE", 0.5)
    assert "no answer within 0.5 s" in ptx.sentence(ptx.measured())


def details(answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(ptx, "measured", lambda: answer)
    return "\n".join(ptx.with_measure(diagnose_text(MESSAGE))[0].details)


def test_a_message_about_ptx_gets_the_measure_of_this_machine_or_where_to_ask(monkeypatch):
    none = {"error": "load", "message": "libcuda.so.1: cannot open"}
    for answer, words in (
        (ANSWER, ("Measured on this machine: the driver compiles PTX up to 9.0", "nvidia-nvvm<13.1")),
        (none, ("this machine has no NVIDIA driver", "gpusetup doctor --probe")),
    ):
        shown = details(answer, monkeypatch)
        assert all(word in shown for word in words), shown


def test_nothing_is_measured_for_another_message(monkeypatch):
    monkeypatch.setattr(ptx, "measured", lambda: pytest.fail("the GPU was used"))
    found = diagnose_text("Xid 79")
    assert ptx.with_measure(found) == found


def test_the_command_measures_for_a_message(tmp_path, monkeypatch, capsys):
    for name, value in driver(tmp_path, 0).items():
        monkeypatch.setenv(name, value)
    assert main(["doctor", MESSAGE]) == 0
    assert "PTX up to 9.0" in " ".join(capsys.readouterr().out.split())


def examined(answer: dict[str, Any] | None, root: Path = HEALTHY, **packages: str) -> Any:
    look = look_at(root)
    environment = Environment(
        path="/opt/venv", packages={name.replace("_", "-"): text for name, text in packages.items()}
    )
    symptoms = msgspec.structs.replace(look.symptoms, environments=(environment,))
    return diagnose(dataclasses.replace(look, symptoms=symptoms, ptx=answer))


def test_a_probe_is_one_more_line_of_the_diagnosis():
    assert "PTX" not in {ruled.step for ruled in examined(None).ruled}
    found = examined(ANSWER, nvidia_nvvm="13.0.88", nvidia_cuda_runtime="13.5.37")
    assert (found.ruled[-1].step, found.ruled[-1].answer) == ("PTX", "fine")
    assert found.healthy
    assert found.notices == ()


def test_compilers_that_write_newer_ptx_are_noted():
    found = examined(ANSWER, nvidia_nvvm="13.5.37", nvidia_cuda_nvcc="13.5.37")
    assert found.healthy
    (notice,) = found.notices
    assert notice.cause == "compilers-newer-than-driver"
    assert "/opt/venv: nvidia-nvvm 13.5.37" in notice.evidence
    assert any("nvidia-nvvm<13.1" in text for text in notice.evidence)


def test_a_sick_machine_still_tells_what_was_measured():
    found = examined(
        {"error": "cuda", "status": 100, "message": "cuInit"}, HOSTS / "ubuntu22.04-a100-mismatch" / "root"
    )
    assert not found.healthy
    assert (found.ruled[-1].step, found.ruled[-1].answer) == ("PTX", "unknown")
    assert "no NVIDIA GPU" in found.ruled[-1].text


@pytest.mark.parametrize("other", [["--root", str(HEALTHY)], ["inventory,"], ["--watch"], ["--explain", "xid-31"]])
def test_only_this_machine_can_be_probed(other, capsys):
    assert main(["doctor", "--probe", *other]) == 3
    assert "gpusetup doctor --probe" in capsys.readouterr().err


def test_json_has_the_measure(monkeypatch, capsys):
    monkeypatch.setattr(ptx, "measured", lambda: ANSWER)
    main(["doctor", "--probe", "--format", "json"])
    (host,) = json.loads(capsys.readouterr().out)["hosts"].values()
    assert host["ruled"][-1]["step"] == "PTX"
