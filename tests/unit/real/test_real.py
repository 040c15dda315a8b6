"""`./dev test real` without a machine: its arguments, the seed, the journey's verdicts, the row, an image that breaks off."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import date
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from tests.flaky import listening
from tests.lab.applying import Answer
from tests.lab.places import LabError
from tests.modules.stand_ins import replace
from tests.real import __main__ as command
from tests.real import images, page
from tests.real.journey import NO_GPU, STEPS, Journey, Step
from tests.real.machine import Remote, parted
from tests.vm.seed import cloud_documents, fixed_address, write_image

FACTS = {"os": {"name": "Rocky Linux 9.6"}, "kernel": {"running": "5.14.0-570.el9.x86_64"}}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 2, "name what is to be tried"),
        (["--host", "ubuntu@gpu07"], 2, "would be changed and rebooted: say --yes"),
        (["--collect", "x", "--image", "y"], 2, "--collect DIR alone"),
        (["--image", "x", "--gpu", "voodoo2"], 2, "invalid choice"),
        (["--image", "/nonexistent.qcow2", "--set", "A=1"], 5, "'A=1' is no NAME=VALUE"),
        (["--host", "h", "--yes", "--source", "stand-in"], 5, "a real host gets real packages"),
        (["--host=-oProxyCommand=x", "--yes"], 5, "is no host"),
    ],
)
def test_arguments(words, code, says, capsys, tmp_path):
    try:
        ended = command.main([*words, "--out", str(tmp_path)])
    except SystemExit as error:
        ended = int(error.code or 0)
    assert ended == code
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("address", "found"),
    [("h", ("", "h", 0)), ("u@h:2222", ("u", "h", 2222)), ("u@[fe80::1]", ("u", "fe80::1", 0)), ("u@fe80::1", ("u", "fe80::1", 0))],
)  # fmt: skip
def test_addresses(address, found):
    assert parted(address) == found


@pytest.mark.parametrize("user", ["ubuntu", "root"])
def test_a_host_of_somebodys_is_reached_as_they_reach_it(user):
    told = {"ansible_host": "gpu07", "ansible_become": user != "root", "ansible_user": user, "ansible_port": 22}
    assert Remote(f"{user}@gpu07:22").variables() == told
    assert Remote("gpu07").variables() == {"ansible_host": "gpu07", "ansible_become": True}


def test_the_seed_lets_a_user_and_root_in_and_shows_the_gpu_at_every_boot(tmp_path):
    (tmp_path / "host_key").write_text("PRIVATE")
    (tmp_path / "host_key.pub").write_text("ssh-ed25519 AAAA lab\n")
    documents = cloud_documents("machine", "tester", "ssh-ed25519 KEY", tmp_path / "host_key", simulates=True)
    first, _, rest = documents["user-data"].partition("\n")
    told = json.loads(rest)
    assert (first, told["users"][0]) == ("#cloud-config", "default"), "the image's own user stays"
    assert told["users"][1]["sudo"].endswith("NOPASSWD:ALL")
    assert told["users"][1]["ssh_authorized_keys"] == told["ssh_authorized_keys"] == ["ssh-ed25519 KEY"]
    assert told["disable_root"] is False, "minimal images have no sudo"
    assert told["ssh_keys"]["ed25519_private"] == "PRIVATE"
    ((_, _, script),) = told["bootcmd"]
    assert "LABEL=cidata" in script
    assert subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0
    assert "mount --bind /proc" in documents["start"]
    without = cloud_documents("machine", "tester", "k", tmp_path / "host_key", simulates=False)
    assert "start" not in without
    assert "bootcmd" not in json.loads(without["user-data"].partition("\n")[2])
    (card,) = json.loads(fixed_address("02:4c:00:00:00:01", "10.0.2.15/24", gateway="10.0.2.2"))["config"]
    assert card["subnets"] == [{"type": "static", "address": "10.0.2.15/24", "gateway": "10.0.2.2"}]


@pytest.mark.skipif(shutil.which("genisoimage") is None, reason="apt-get install genisoimage")
def test_the_seed_is_an_image_that_cloud_init_finds(tmp_path):
    write_image(tmp_path / "seed.iso", {"user-data": "#cloud-config\n{}\n", "meta-data": "{}\n"}, "t4")
    raw = (tmp_path / "seed.iso").read_bytes()
    assert raw[0x8028:0x802E] == b"cidata"
    assert b"0x10de" in raw, "the GPU is on it"


class Asked:
    """A gpusetup that answers as it was told, and remembers what it was asked."""

    def __init__(self, **answers):
        same = (0, {"state": "same"})
        usual = {"facts": (0, FACTS), "drift": same, "remove": (9, {"state": "pending-reboot", "left_over": {}})}
        self.answers, self.words = {**usual, **answers}, []

    def __call__(self, _folder, name, *words, **_more):
        self.words.append((name, *map(str, words)))
        told = self.answers[name]
        code, host = told.pop(0) if isinstance(told, list) else told
        return Answer(code, json.dumps({"ok": code == 0, "hosts": {"m": host}}), "", 2.0, ())


def travel(tmp_path, asked, older=("driver==580.*",)):
    journey = Journey("m", tmp_path, {"ansible_host": "x"}, ("driver==595.*",), older, lambda _: None, ask=asked)
    steps = {step.name: step for step in journey.run()}
    assert sorted(steps) == sorted(STEPS), "every step is told, run or not"
    return steps


DONE, SAME = (0, {"state": "done", "changed": 9}), (0, {"state": "unchanged", "changed": 0})


def test_the_whole_way(tmp_path):
    checked = (0, {"state": "done", "checks": [{"verdict": "skip"}, {"verdict": "skip"}, {"verdict": "pass"}]})
    asked = Asked(apply=[checked, SAME, DONE], rollback=DONE)
    steps = travel(tmp_path, asked)
    assert all(step.as_wanted for step in steps.values())
    assert steps["apply"].said == "checks: 1 pass, 2 skip", "a skip is told as a skip"
    assert [words[0] for words in asked.words] == ["facts", "apply", "apply", "drift", "apply", "rollback", "remove"]
    wanted = [words[words.index("--want") + 1] for words in asked.words if "--want" in words]
    assert wanted == ["driver==580.*", "driver==580.*", "driver==595.*"], "the older one first"


def test_without_an_older_driver_there_is_nothing_to_go_back_to(tmp_path):
    steps = travel(tmp_path, Asked(apply=[DONE, SAME]), older=())
    assert (steps["rollback"].code, steps["remove"].code) == (None, 9)


@pytest.mark.parametrize(
    ("answer", "as_wanted", "said", "left_out", "removed"),
    [
        ((0, {"state": "nothing-to-do"}), True, NO_GPU, "remove", None),
        ((7, {"state": "failed", "failure": {"message": "no such\n package", "reference": "GS-452"}}), False,
         "no such package [GS-452]", "drift", 9),
    ],
    ids=["no GPU", "failed"],
)  # fmt: skip
def test_an_apply_that_ends_the_way_is_told_with_its_reason(tmp_path, answer, as_wanted, said, left_out, removed):
    steps = travel(tmp_path, Asked(apply=answer))
    assert (steps["apply"].as_wanted, steps["apply"].said) == (as_wanted, said)
    assert (steps[left_out].code, steps["remove"].code) == (None, removed)


@pytest.mark.parametrize(
    ("answers", "name", "said"),
    [
        ({"apply": [DONE, (0, {"state": "unchanged", "changed": 2}), DONE]}, "second run", "2 changed"),
        ({"apply": [DONE, (0, {"state": "done", "changed": 2}), DONE]}, "second run", "2 changed"),
        ({"drift": (9, {"state": "drifted", "differences": [{"what": "hold of x"}]})}, "drift", "hold of x"),
        ({"drift": (0, {"state": "unknown"})}, "drift", ""),
        ({"remove": (0, {"state": "done", "left_over": {"libfoo": "1"}})}, "remove", "left over: libfoo"),
        ({"remove": (7, {"state": "failed"})}, "remove", ""),
        ({"rollback": (0, {"state": "unchanged"})}, "rollback", ""),
        ({"facts": (6, {})}, "facts", "no answer"),
    ],
)
def test_an_exit_code_of_0_alone_proves_nothing(tmp_path, answers, name, said):
    steps = travel(tmp_path, Asked(**{"apply": [DONE, SAME, DONE], "rollback": DONE, **answers}))
    assert not steps[name].as_wanted
    assert steps[name].said == said


def seen(image="Rocky-9.qcow2"):
    return page.Seen(image, "QEMU, virtualised", "NVIDIA's repository", FACTS, date(2026, 11, 22), "abc")


def steps_of(code, *, good=True, said=""):
    return [Step(name, code, 61.4, good, said) for name in STEPS]


def test_a_row_says_what_happened():
    text = page.row(seen(), steps_of(0, said="a | b"))
    host = "| Rocky Linux 9.6 (Rocky-9.qcow2) | QEMU, virtualised | NVIDIA's repository | 5.14.0-570.el9.x86_64 |"
    assert text.startswith(f"{host} 0, 61 s; a / b |")
    assert text.endswith("| 2026-11-22, abc |")
    assert text.count("|") == page.HEAD.count("|")
    assert "| **exit 0**, 61 s; left over: x |" in page.row(seen(), steps_of(0, good=False, said="left over: x"))
    assert "| not run: no GPU |" in page.row(seen(), steps_of(None, said="no GPU"))


def test_a_row_takes_the_place_of_the_earlier_one():
    text = f"before\n\n{page.HEAD}\n|---|\n\nafter\n"
    one, other = page.row(seen(), steps_of(0)), page.row(seen("Alma-9.qcow2"), steps_of(7, good=False))
    both = page.merged(text, [one, other])
    assert both.splitlines()[4:6] == [other, one] if other < one else [one, other]
    newer = page.row(seen(), steps_of(5))
    again = page.merged(both, [newer])
    assert [text in again for text in (one, newer, other)] == [False, True, True]
    assert again.endswith("\n\nafter\n")
    with pytest.raises(ValueError, match="lost its table"):
        page.merged("nothing", [one])
    assert page.merged(page.PAGE.read_text(), []) == page.PAGE.read_text(), "it has the table"


class Breaking(BaseHTTPRequestHandler):
    """Serves half of a file, then the rest to who asks for it; its ETag tells one file from the next."""

    content = b"image" * 200_000
    tag = '"one"'
    asked: list[str | None]

    def do_GET(self):
        asked = self.headers["Range"]
        type(self).asked.append(asked)
        if self.headers["If-None-Match"] == self.tag:
            self.send_response(304)
            self.end_headers()
            return
        start = int(asked[6:-1]) if asked and self.headers["If-Range"] == self.tag else 0
        rest = self.content[start:]
        self.send_response(206 if start else 200)
        self.send_header("ETag", self.tag)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: len(rest) // 2] if len(type(self).asked) < 3 else rest)


@pytest.fixture
def breaking(tmp_path, monkeypatch):
    replace(monkeypatch, images, FOLDER=tmp_path, locked=lambda _: contextlib.nullcontext())
    monkeypatch.setattr(images.time, "sleep", lambda _: None)
    handler = type("Handler", (Breaking,), {"asked": []})
    with listening(handler) as web:
        yield handler, f"{web.url}/cloud.qcow2"


def test_an_image_that_breaks_off_is_gone_on_with(breaking):
    handler, url = breaking
    path = images._fetched(url)
    assert path.read_bytes() == Breaking.content
    first, *ranges = handler.asked
    had = [int(str(asked)[6:-1]) for asked in ranges]
    assert first is None
    assert 0 < had[0] < had[1], "what came before the break is kept"
    assert images._fetched(url) == path
    assert len(handler.asked) == 4, "asked whether it is another one, and not fetched"
    handler.content, handler.tag = b"newer" * 10, '"two"'
    assert images._fetched(url).read_bytes() == b"newer" * 10


def test_an_image_that_is_not_there_does_not_stop_the_next(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(command, "require", lambda _: None)
    words = ["--image", str(tmp_path / "one.qcow2"), "--image", str(tmp_path / "two.qcow2"), "--out", str(tmp_path)]
    assert command.main(words) == 1
    told = capsys.readouterr().err
    assert "one.qcow2" in told
    assert "two.qcow2" in told
    with pytest.raises(LabError, match="takes a file, an address, or the word lab"):
        images.ready(str(tmp_path / "none.qcow2"))


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user, which only root can")
def test_it_needs_no_root():
    """What the machine's emulator is chosen by is kept where an ordinary user may write."""
    code = (
        "import os, sys\n"
        "import tests.lab.process, tests.lab.repository, gpusetup.bootstrap.web\n"
        "for name in [name for name in sys.modules if name.startswith('tests')]: del sys.modules[name]\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "import tests.real\n"
        "from tests.lab.places import locked\n"
        "with locked('vm-accelerator'): print('locked')\n"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        checkout = Path(folder) / "checkout"
        shutil.copytree(page.ROOT / "tests/lab", checkout / "tests/lab", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(page.ROOT / "tests/real", checkout / "tests/real")
        (checkout / "tests/__init__.py").touch()
        for path in (Path(folder), Path(folder) / "home"):
            path.mkdir(exist_ok=True)
            path.chmod(0o777)
        argv, env = [sys.executable, "-c", code], {"PATH": os.environ["PATH"], "HOME": f"{folder}/home"}
        done = subprocess.run(argv, cwd=checkout, env=env, capture_output=True, text=True, check=False, timeout=60)
        assert done.stdout == "locked\n", done.stderr
