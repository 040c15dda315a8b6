"""A container sees the GPUs: what is tried, in what, and how that is judged. The runtimes are stand-ins."""

import subprocess

import pytest

from tests.unit.verify.verify_documents import broken, results

LOCK = {"lock": {"wanted": {"packages": {"containers": [{"name": "nvidia-container-toolkit"}]}}}}
RUNTIME = """#!/bin/sh
# A container runtime that gives two GPUs in the way that $ways names.
echo "$@" >>{folder}/did
case "$1" in
import) cp "$2" {folder}/layer.tar ;;
run) case "$*" in *{way}*) ;; *) echo 'could not select device driver' >&2; exit 125 ;; esac
  case "$*" in *nvidia-smi*) echo "GPU 0: H200 (UUID: GPU-1)" ;; *) printf 'null\\nnvidia0\\nnvidia1\\nnvidiactl\\n' ;; esac ;;
esac
"""


def test_it_tries_what_gpusetup_configured_and_what_is_there(probe):
    found = {"configured": ["docker", "containerd", "podman"], "runtimes": ["docker", "containerd"]}
    assert probe.container.to_try({"containers": found, "state": LOCK}) == ["docker"]
    assert probe.container.to_try({"containers": found, "state": {"lock": None}}) == []
    assert probe.container.to_try({"containers": found, "state": LOCK, "error": "x"} | {"state": {}}) == []


@pytest.mark.parametrize(("runtime", "way", "expected"), [
    ("podman", "nvidia.com/gpu=all", "cdi"),
    ("docker", "nvidia.com/gpu=all", "cdi"),
    ("docker", "--runtime", "runtime"),
    ("podman", "never", None),
])  # fmt: skip
def test_a_container_says_what_it_sees_and_one_that_gives_nothing_is_an_answer(
    probe, monkeypatch, tmp_path, runtime, way, expected
):
    program = tmp_path / "bin" / runtime
    program.parent.mkdir()
    program.write_text(RUNTIME.format(folder=tmp_path, way=way))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    found = probe.container.look(runtime, str(tmp_path))
    did = (tmp_path / "did").read_text().splitlines()
    assert did[-1] == f"rmi -f {probe.container.IMAGE}"
    assert all("--rm" in line for line in did if line.startswith("run"))
    if expected:
        assert (found["way"], found["devices"], found["error"]) == (expected, ["nvidia0", "nvidia1"], None)
    else:
        assert (found["error"], found["message"]) == ("run", "could not select device driver")


def test_the_image_runs_by_itself(probe, tmp_path):
    """Everything that its program is linked with is in it: it runs with nothing else around it."""
    programs = probe.container.image(str(tmp_path / "image.tar"))
    (tmp_path / "root").mkdir()
    subprocess.run(["tar", "-C", tmp_path / "root", "-xf", tmp_path / "image.tar"], check=True)
    loader = next((tmp_path / "root").glob("lib*/ld-linux*"), None)
    assert loader is not None
    (tmp_path / "root/dev/nvidia0").write_text("")
    libraries = ":".join(sorted({str(path.parent) for path in (tmp_path / "root").rglob("*.so.*")}))
    argv = [str(loader), "--inhibit-cache", "--library-path", libraries, f"{tmp_path}/root{programs['ls']}", "-1", f"{tmp_path}/root/dev"]  # fmt: skip
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "nvidia0\n"


SEEN = {"way": "cdi", "devices": ["nvidia0", "nvidia1"], "smi": 2, "error": None, "seconds": 1.5}


@pytest.mark.parametrize(("told", "verdict", "says"), [
    ({}, "skip", ""),  # nothing was configured
    ({"podman": SEEN}, "pass", "2 GPUs in a container: podman by CDI"),
    ({"docker": {**SEEN, "way": "runtime", "smi": None}}, "pass", "docker by NVIDIA's runtime"),
    ({"podman": {**SEEN, "devices": ["nvidia0"]}}, "fail", "sees 1 device, nvidia-smi 2 GPUs; this machine has 2"),
    ({"podman": {"error": "run", "message": "crun: no such device\nunresolvable CDI devices"}}, "fail",
     "gives no GPU: unresolvable CDI devices"),
    ({"docker": {"error": "run", "message": "unknown or invalid runtime name: nvidia"}}, "warn",
     "needs a restart: systemctl restart docker"),
    ({"podman": SEEN, "docker": {**SEEN, "error": "nvidia-smi", "message": "Driver/library version mismatch"}}, "fail",
     "docker: gives devices, but nvidia-smi fails: Driver/library version mismatch"),
])  # fmt: skip
def test_what_it_saw_is_judged(told, verdict, says):
    sections = {f"sections/container-{name}": seen for name, seen in told.items()}
    found = results(broken("h100-x2-full", {"facts/state": LOCK, **sections}))["container.gpu"]
    assert found.verdict == verdict
    assert says in " ".join([found.text, *(f"{item.subject}: {item.text}" for item in found.items)])
