"""Containers, desktops and exporters, judged by what they show of the GPUs. The runtimes are stand-ins."""

import json
import socket
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.modules.stand_ins import write
from tests.stored import stored
from tests.unit.verify.verify_documents import broken, captured, results

LOCK = {"lock": {"wanted": {"packages": {"containers": [{"name": "nvidia-container-toolkit"}]}}}}


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
    ("docker", "hangs", None),
])  # fmt: skip
def test_a_container_says_what_it_sees_and_one_that_gives_nothing_is_an_answer(
    probe, monkeypatch, tmp_path, runtime, way, expected
):
    write(tmp_path / "bin", {runtime: stored("verify_containers_runtime.txt").format(folder=tmp_path, way=way)}, 0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr(probe.container, "DEADLINE", 0.5 if way == "hangs" else 60)
    found = probe.container.look(runtime, str(tmp_path))
    did = (tmp_path / "did").read_text().splitlines()
    made = did[-1].removeprefix("rmi -f ")
    assert made.startswith("sha256:"), "the image of another verification stays"
    assert all("--rm" in line and f" {made} " in line for line in did if line.startswith("run"))
    if expected:
        assert (found["way"], found["devices"], found["error"]) == (expected, ["nvidia0", "nvidia1"], None)
    elif way == "hangs":  # killing the client leaves the container
        removed = [line for line in did if line.startswith("rm ")]
        assert removed == [f"rm -f {tmp_path.name}-{n}-ls" for n in ("cdi", "runtime")]
    else:
        assert (found["error"], found["message"]) == ("run", "could not select device driver")


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


NVIDIA = "OpenGL vendor string: NVIDIA Corporation\nOpenGL renderer string: NVIDIA L40S/PCIe/SSE2\n"
MESA = "OpenGL vendor string: Mesa/X.org\nOpenGL renderer string: llvmpipe (LLVM 15.0.6, 256 bits)\n"


def told(text: str = NVIDIA, **more: Any) -> dict[str, Any]:
    drawn = {"rc": 0, "stdout": text, "stderr": "", "error": None, "seconds": 0.4}
    return {"active": "active", "page": "200", "denied": [], "drawn": drawn} | more


def failed(stderr: str) -> dict[str, Any]:
    return told(drawn={"rc": 1, "stdout": "", "stderr": stderr, "error": None})


def judged(**desktops: Any) -> tuple[str, str]:
    document = captured("h200-x1-smoke")
    if desktops:
        document["sections"]["desktops"] = desktops
    found = results(document)["desktop.renderer"]
    return found.verdict, found.text


@pytest.mark.parametrize(
    ("bob", "text"),
    [
        (told(MESA), "bob: the renderer is llvmpipe (LLVM 15.0.6, 256 bits): software on the processor, not the GPU"),
        (told(MESA.replace("llvmpipe", "AMD Radeon")), "bob: the renderer is AMD Radeon (LLVM 15.0.6, 256 bits) of Mesa/X.org, not NVIDIA's"),
        (told(""), "bob: the renderer is not named of nobody, not NVIDIA's"),
        (told(active="failed"), "bob: the desktop is failed"),
        (told(page="Connection refused"), "bob: its page does not answer: Connection refused"),
        (told(denied=["/dev/dri/renderD128"]), "bob: may not open /dev/dri/renderD128: which group may, and is it that of the desktops?"),
        (failed("name of display: :21\n[VGL] ERROR: Invalid EGL device"), "bob: no program can draw: [VGL] ERROR: Invalid EGL device"),
        (failed(""), "bob: no program can draw: vglrun glxinfo gave no reason"),
    ],
)  # fmt: skip
def test_one_that_does_not_draw_on_the_gpu_fails_with_the_reason(bob, text):
    assert judged() == ("unsupported", "no desktops here")
    assert judged(alice=told(), bob=told()) == ("pass", "2 desktops draw on the GPU: NVIDIA L40S/PCIe/SSE2")
    assert judged(alice=told(), bob=bob) == ("fail", text)


TEXTFILE = Path(__file__).resolve().parents[2] / "fixtures/textfile"
UUID = "6dd68cc9-e7e1-dc7f-da28-0951b03a145f"


def document(**changes: Any) -> dict[str, Any]:
    """The observations of a machine whose GPU is the captured H100, with a textfile beside a node_exporter."""
    found = captured("h200-x1-quick")
    found["quick"]["smi"]["stdout"] = (TEXTFILE / "smi.xml").read_text()
    lines = [line for line in (TEXTFILE / "nvml.prom").read_text().splitlines() if not line.startswith("#")]
    exporter = {"kind": "textfile", "listen": "127.0.0.1:9100", "status": 200, "error": "", "age": 3.0, "lines": lines}
    found["quick"]["exporter"] = exporter | changes
    return found


def verdicts(found: dict[str, Any]) -> tuple[str, str]:
    told = results(found)
    return told["monitoring.exporter"].verdict, told["monitoring.figures"].verdict


def text(found: dict[str, Any], name: str = "exporter") -> str:
    return results(found)[f"monitoring.{name}"].text


LINES = document()["quick"]["exporter"]["lines"]
DOWN = [line.replace("gpusetup_textfile_up 1", "gpusetup_textfile_up 0") for line in LINES]


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"status": None, "error": "Connection refused", "lines": []}, "fail", "Connection refused"),
        ({"status": 500, "error": "HTTP Error 500", "lines": []}, "fail", "does not answer on 127.0.0.1:9100"),
        ({"age": 3600.0}, "fail", "3600 s old"),
        ({"age": None, "error": "/x/gpusetup-gpu.prom: No such file or directory"}, "fail", "No such file"),
        ({"status": 401}, "pass", "asks for a password"),
        ({"listen": "", "status": None}, "pass", "textfile answers"),
        ({"lines": DOWN}, "fail", "the driver did not answer"),
        ({"lines": [*LINES, "node_textfile_scrape_error 1"]}, "warn", ""),  # of a textfile beside ours
    ],
)
def test_an_exporter_that_is_silent_or_old_is_said(changes, verdict, said):
    found = document(**changes)
    assert (verdicts(found)[0], said in text(found)) == (verdict, True), text(found)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nvidia_smi_memory_total_bytes{", "nvidia_smi_memory_total_bytes_x{", ""),
        ("} 85520809984", "} 81559", "memory"),
        ("} 1395000000", "} 1395", "SM clock"),
        ("} 59", "} 5", "temperature"),
        ('nvidia_smi_enforced_power_limit_watts{uuid="%s"} 700' % UUID, 'nvidia_smi_enforced_power_limit_watts{uuid="%s"} 350' % UUID, "power limit is 350"),  # noqa: UP031
        (UUID, "0" * 8, "nothing of GPU 0 and figures of 00000000"),
    ],
)  # fmt: skip
def test_figures_that_are_not_those_of_nvidia_smi_are_said(old, new, said):
    lines = [line.replace(old, new) for line in document()["quick"]["exporter"]["lines"]]
    found = document(lines=lines)
    assert verdicts(found) == ("pass", "fail" if said else "pass")
    assert said in text(found, "figures")


def test_a_port_that_speaks_no_http_is_an_answer_too(probe):
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0\r\n"), daemon=True).start()
        place = f"127.0.0.1:{server.getsockname()[1]}"
        found = probe.exporter.services.scrape(place, False, 5)
    assert (found["status"], bool(found["error"])) == (None, True)
    assert probe.exporter.services.scrape(place, False, 5)["error"] == "Connection refused"


def test_the_host_asks_the_exporter_that_its_record_names(probe, tmp_path, monkeypatch):
    (tmp_path / "gpusetup-gpu.prom").write_text("nvidia_smi_temperature_gpu 40\n# HELP x\nother 1\n")
    told = {"kind": "textfile", "listen": "127.0.0.1:9100", "folder": str(tmp_path)}
    record = tmp_path / "state.json"
    record.write_text(json.dumps({"lock": {"wanted": {"monitoring": told}}}))
    module = probe.exporter
    answers = {"status": 200, "text": "nvidia_smi_temperature_gpu 41\nnode_textfile_scrape_error 0\nother 1\n", "error": ""}  # fmt: skip
    monkeypatch.setattr(module.services, "scrape", lambda *_: answers)
    found = module.look(str(record))
    assert found["lines"] == ["nvidia_smi_temperature_gpu 41", "node_textfile_scrape_error 0"]
    assert 0 <= found["age"] < 60
    monkeypatch.setattr(module.services, "scrape", lambda *_: {"status": 401, "text": "", "error": "HTTP Error 401"})
    assert module.look(str(record))["lines"] == ["nvidia_smi_temperature_gpu 40"]
    assert module.look(str(tmp_path / "none")) == {}
    record.write_text("[]")
    assert module.look(str(record)) == {}


def test_each_desktop_is_tried_as_its_user(probe, monkeypatch):
    ran = []
    said = "ActiveState=active\nSupplementaryGroups=video render\nEnvironment=NUMBER=21 VGL_DISPLAY=egl1\n"

    def run(argv: list[str], _deadline: float, **_more: Any) -> dict[str, Any]:
        ran.append(argv)
        return {"rc": 0, "stdout": said if argv[0] == "systemctl" else "", "stderr": "", "error": None, "seconds": 0.1}

    monkeypatch.setattr(probe.desktops.child, "run", run)
    wish = {"users": ["alice", "bob"], "listen": "127.0.0.1", "port": 1}
    found = probe.desktops.look({"state": {"lock": {"wanted": {"desktops": wish}}}})
    assert sorted(found) == ["alice", "bob"]
    assert (found["bob"]["active"], "refused" in found["bob"]["page"]) == ("active", True)
    tried = ran[-1]
    assert tried[:7] == ["runuser", "-u", "bob", "-G", "video", "-G", "render"]
    assert {"DISPLAY=:21", "XAUTHORITY=/run/gpusetup-desktop-bob/xauthority", "VGL_DISPLAY=egl1"} <= set(tried)
    assert tried[-3:] == ["vglrun", "glxinfo", "-B"]
    assert probe.desktops.look({"state": {"lock": None}}) == {}
    assert json.dumps(found)
