"""Desktops judged by what glxinfo says in them; its texts are Mesa's own, and in NVIDIA's form."""

import json
from typing import Any

import pytest

from gpusetup.verify.checks.smoke.desktop_renderer import item
from tests.unit.verify.verify_documents import captured, results

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


def test_what_stands_in_for_a_gpu_can_be_named():
    assert item("alice", told(MESA), expected="llvmpipe").verdict == "pass"
    assert item("alice", told(NVIDIA), expected="llvmpipe").verdict == "fail"


def test_each_desktop_is_tried_as_its_user(probe, monkeypatch):
    ran = []
    said = "ActiveState=active\nSupplementaryGroups=video render\nEnvironment=NUMBER=21 VGL_DISPLAY=egl1\n"

    def run(argv: list[str], _deadline: float, **_more: Any) -> dict[str, Any]:
        ran.append(argv)
        stdout = said if argv[0] == "systemctl" else MESA
        return {"rc": 0, "stdout": stdout, "stderr": "", "error": None, "seconds": 0.1}

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
