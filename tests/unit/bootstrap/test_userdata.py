"""User-data: refused without a source, under the limit, accepted by cloud-init, and as the examples have it."""

import ast
import email
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import hcl2
import msgspec
import pytest
import yaml

from gpusetup.cli.main import main
from gpusetup.model.bundle import Manifest
from tests.lab.process import until
from tests.modules.stand_ins import write
from tests.stored import stored_rows

ROOT = Path(__file__).parents[3]
FIRST_STAGE = ROOT / "gpusetup/bootstrap/instance/first-stage"
TOFU = ROOT / "docs/examples/opentofu"
WISH = ("driver==580.*", "--gpu", "t4", "--os", "debian12")
CALLBACK = "https://[fd00::1]:8080/~me/a%20b?c=d&e=f"


def holds(path: Path, wheel: str, *minors: int) -> None:
    sets = {f"3.{minor}-x86_64": (f"wheels/{wheel}",) for minor in minors}
    path.write_bytes(msgspec.json.encode(Manifest(gpusetup="1", pip="wheels/p.whl", sets=sets, files={})))


@pytest.fixture
def manifest(tmp_path):
    holds(tmp_path / "manifest.json", "a.whl", 10, 11, 12)
    return tmp_path / "manifest.json"


def cloud_init(*words: str | Path) -> SimpleNamespace:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = main(["cloud-init", *map(str, words)])
    return SimpleNamespace(code=code, out=out.getvalue(), err=err.getvalue())


def made(manifest: Path, *words: str | Path) -> str:
    done = cloud_init("--source", "https://files.example/gpu/", "--manifest", manifest, *words)
    assert done.code == 0, done.err
    return done.out


def opentofu(manifest: Path) -> str:
    """What the module for OpenTofu hands to a machine: every variable that its question names is declared."""
    (asked,) = hcl2.loads((TOFU / "main.tf").read_text())["data"]
    (question,) = (body["query"] for one in asked.values() for body in one.values())
    declared = {name.strip('"') for one in hcl2.loads((TOFU / "variables.tf").read_text())["variable"] for name in one}
    assert set(re.findall(r"var\.(\w+)", str(question))) == declared
    query = dict.fromkeys((name.strip('"') for name in question if not name.startswith("__")), "")
    query |= {"requirements": WISH[0], "gpu": "t4", "os": "debian12", "manifest": str(manifest)}
    query |= {"command": f"{sys.executable} -m gpusetup", "source": "https://files.example/gpu/"}
    argv = [sys.executable, str(TOFU / "user_data.py")]
    done = subprocess.run(argv, input=json.dumps(query), capture_output=True, text=True, check=True, cwd=ROOT)
    return str(json.loads(done.stdout)["user_data"])


def test_opentofu_hands_on_what_the_command_writes(manifest):
    assert opentofu(manifest) == made(manifest, *WISH)
    (built,) = hcl2.loads((TOFU.parent / "packer/gpu.pkr.hcl").read_text())["build"]
    assert [name.strip('"') for name in built["sources"]] == ["source.amazon-ebs.gpu"]


def files(text: str) -> dict[str, dict[str, str]]:
    return {item["path"]: item for item in yaml.safe_load(text)["write_files"]}


def test_everything_is_pinned_and_nothing_is_secret(manifest, tmp_path):
    (tmp_path / "token").write_text("scoped\n")
    text = made(manifest, *WISH, "--callback", CALLBACK, "--token-file", tmp_path / "token")
    assert text.startswith("#cloud-config\n# Made by gpusetup")
    assert len(text.encode()) <= 16384
    found = files(text)
    config = json.loads(found["/etc/gpusetup/bootstrap.json"]["content"])
    assert config == {
        "source": "https://files.example/gpu",
        "manifest_sha256": hashlib.sha256(manifest.read_bytes()).hexdigest(),
        "callback": CALLBACK,
    }
    assert found["/etc/gpusetup/callback.token"]["permissions"] == "0600"
    lock = json.loads(found["/etc/gpusetup/lock.json"]["content"])
    assert lock["stack"]["driver"]["branch"] == "580"
    for path in (FIRST_STAGE, FIRST_STAGE.with_name("launcher")):
        assert found[f"/usr/local/lib/gpusetup/{path.name}"]["content"] == path.read_text()


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (("driver", "--gpu", "t4", "--os", "debian12"), True),
        (WISH, False),
        ((*WISH, "--keep-driver"), True),
        (("--lock-url", "https://x.example/l", "--lock-digest", "0" * 64), False),
        (("--gpu", "t4", "--os", "debian12", "--no-keep-driver"), False),
    ],
)
def test_the_driver_of_an_image_stays_unless_one_is_asked_for(manifest, words, kept):
    config = json.loads(files(made(manifest, *words))["/etc/gpusetup/bootstrap.json"]["content"])
    assert config.get("keep_driver", False) is kept


def test_shapes_carry_the_same_files(manifest, tmp_path):
    wanted = files(made(manifest, *WISH))
    script = made(manifest, *WISH, "--format", "shell")
    root = tmp_path / "root"
    moved = "\n".join(re.sub("([ >])/(usr/local|etc)/", rf"\1{root}/\2/", script).splitlines()[:-1])
    subprocess.run(["sh", "-eu"], input=moved, text=True, check=True)
    for path, item in wanted.items():
        if "per-boot" in path:
            continue
        there = root / path.lstrip("/")
        assert f"{there.stat().st_mode & 0o777:04o}" == item["permissions"], path
        content = there.read_text().replace(str(root), "")
        assert content == item["content"], path
    joined = tmp_path / "mine.yaml"
    joined.write_text("#cloud-config\nwrite_files:\n- path: /etc/mine\n  content: grüß\n")
    parts = email.message_from_string(made(manifest, *WISH, "--join", joined)).get_payload()
    assert [part.get_content_type() for part in parts] == ["text/cloud-config", "text/cloud-config"]
    assert parts[0].get_payload(decode=True).decode() == joined.read_text()
    assert set(files(parts[1].get_payload(decode=True).decode())) == set(wanted)


def test_the_first_stage_is_plain_old_python():
    nodes = ast.walk(ast.parse(FIRST_STAGE.read_text(), feature_version=(3, 6)))
    imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert imported <= set(sys.stdlib_module_names)


@pytest.mark.parametrize(("gpu", "system", "wheel", "said"), stored_rows("bundle-on-the-desk.json"))
def test_a_bundle_that_does_not_install_there_is_refused_on_the_desk(manifest, gpu, system, wheel, said):
    holds(manifest, wheel, *((12,) if system == "rhel8" else (10, 11, 12)))
    done = cloud_init("driver", "--gpu", gpu, "--os", system, "--source", "https://x.example", "--manifest", manifest)
    assert done.code == (3 if said else 0), done.err
    assert [words for words in (*said, *([wheel] if "[GS-737]" in said else [])) if words not in done.err] == []


@pytest.mark.parametrize(("document", "name", "group"), stored_rows("instances-of-clouds.json"))
def test_instances_are_an_inventory(tmp_path, document, name, group):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(document))
    argv = [sys.executable, "-m", "ansible", "inventory", "-i", str(TOFU.with_name("instances.py")), "--list"]
    environment = {**os.environ, "GPUSETUP_INSTANCES": str(path), "HOME": str(tmp_path)}
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment)
    listed = json.loads(done.stdout)
    assert listed["_meta"]["hostvars"] == {name: {"ansible_host": "10.0.0.1"}}
    assert listed[group]["hosts"] == [name]


@pytest.mark.parametrize(
    ("words", "reference"),
    [
        (("torch", "--source", "ftp://x"), "GS-709"), ((*WISH, "--source", "ftp://x"), "GS-721"),
        ((*WISH, "--source", "https://u:p@x.example"), "GS-722"),
        ((*WISH, "--source", "https://x.example/$(id)`"), "GS-721"), ((*WISH, "--size-limit", "5000"), "GS-703"),
        ((*WISH, "--lock-url", "https://x.example/l", "--lock-digest", "0" * 64), "GS-706"),
        (("--lock-url", "https://x.example/l", "--lock-digest", "abc"), "GS-708"),
        ((*WISH, "--set", "gpusetup_colour=red"), "GS-31"), ((*WISH, "--set", "ansible_user=root"), "GS-724"),
        ((*WISH, "--set", "gpusetup_components=[driver"), "GS-727"),
        ((*WISH, "--callback", "https://c.example", "--token-file", "/dev/null"), "GS-139"),
        ((*WISH, "--join", "/etc/hostname"), "GS-725"), ((*WISH, "--ca", "/nowhere"), "GS-726"),
        ((*WISH, "--reboots", "-1"), "GS-704"), ((*WISH, "--manifest", "/etc/hostname"), "GS-716"),
    ],
)  # fmt: skip
def test_bad_input_is_named(manifest, words, reference):
    usual = {"--source": "https://files.example", "--manifest": manifest}
    done = cloud_init(*(part for pair in usual.items() if pair[0] not in words for part in pair), *words)
    assert done.code == 3, done.out
    assert f"[{reference}" in done.err


@pytest.mark.skipif(not shutil.which("cloud-init"), reason="needs: apt-get install cloud-init")
def test_cloud_init_accepts_it(manifest, tmp_path):
    path = tmp_path / "user-data"
    for words in ((*WISH, "--splay", "60"), ("--lock-url", "https://x.example/l", "--lock-digest", "0" * 64)):
        path.write_text(made(manifest, *words))
        subprocess.run(["cloud-init", "schema", "--config-file", path], check=True)


@pytest.mark.parametrize(
    ("before", "begins_anew"), [("done", True), ("failed", True), ("applying", False), ("rebooting", False)]
)
def test_a_clone_of_a_finished_machine_begins_anew(tmp_path, before, begins_anew):
    """The real script with its folders moved and a systemctl that only says yes; the wait ends with a final state."""
    text = FIRST_STAGE.read_text()
    state = tmp_path / "state"
    text = text.replace('"/var/lib/gpusetup"', repr(str(state))).replace('"/etc/motd.d', f'"{tmp_path}/motd.d')
    (tmp_path / "first-stage").write_text(text)
    seen = tmp_path / "seen"
    systemctl = (
        f'#!/bin/sh\n[ "$1" = is-failed ] && exit 1\n[ "$1" = start ] || exit 0\n[ -e {state}/status.json ] && echo kept >{seen} || echo anew >{seen}\n'
        f'echo \'{{"state": "done"}}\' >{state}/status.json\n'
    )
    write(tmp_path / "bin", {"systemctl": systemctl}, 0o755)
    write(state, {"status.json": json.dumps({"state": before}), "first-boot": "an earlier boot"})
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, tmp_path / "first-stage", "boot"], env=environment, timeout=60, check=False)
    assert done.returncode == 0
    assert seen.read_text().strip() == ("anew" if begins_anew else "kept")
    first = (state / "first-boot").read_text()
    assert (first == "an earlier boot") is not begins_anew


def test_a_start_waits_for_what_a_killed_one_left_working(tmp_path):
    python = f"#!/bin/sh\n[ $2 = venv ] && mkdir -p $4/bin && exec cp $0 $4/bin\necho begins >>{tmp_path}/log; sleep 1; echo ends >>{tmp_path}/log\n"
    manifest = json.dumps({"sets": {"a": []}, "pip": "pip", "files": {"pip": {"sha256": ""}}, "gpusetup": "1"})
    documents = {"bootstrap.json": '{"source": "", "manifest_sha256": "a"}', "bundle/manifest.json": manifest}
    write(tmp_path, {"first_stage.py": FIRST_STAGE.read_bytes(), "python": python, **documents}, 0o755)
    code = (
        "import sys; place = sys.argv[1]; sys.path.insert(0, place); import first_stage as f\n"
        "f.STATE, f.ETC, f.HOME, f.find_python = place, place, place + '/home', lambda _: (place + '/python', 'a')\n"
        "f.fetch = f.tell = f.trust = lambda *_: None\nf.prepare()"
    )
    argv = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(argv) as killed:
        until((tmp_path / "log").exists, "pip is at work", 60)
        killed.kill()
    subprocess.run(argv, check=True)
    assert (tmp_path / "log").read_text().split() == ["begins", "ends"] * 2


@pytest.mark.parametrize(
    ("manager", "has", "installs", "found"),
    [
        ("dnf", "3.9", "3.12", "3.12"), ("dnf", "3.6", "3.11", "3.11"), ("dnf", "3.9", "3.12 the second time", "3.12"),
        ("zypper", "3.6", "311", "3.11"), ("apt-get", "3.10", "", "3.10"), ("dnf", "3.9", "", None),
    ],
)  # fmt: skip
def test_a_python_is_found_or_installed(tmp_path, manager, has, installs, found):
    """The real script among stand-ins for python3 and the package manager: which Python does it take?"""
    installs, _, late = installs.partition(" ")
    folder = tmp_path / "bin"
    made = f"{folder}/python{found}"
    away = f"[ -e {folder}/asked ] || {{ : >{folder}/asked; exit 1; }}\n" if late else ""
    gives = f'[ "$3" = python{installs} ] || exit 1\n{away}printf "#!/bin/sh\\necho {found}\\n" >{made}; /bin/chmod 755 {made}'
    write(folder, {"python3": f"#!/bin/sh\necho {has}\n", manager: f"#!/bin/sh\n{gives}\n"}, 0o755)
    write(tmp_path, {"first_stage.py": FIRST_STAGE.read_bytes()})
    code = (
        "import os, sys; sys.path.insert(0, sys.argv[1]); import first_stage as f; f.tell = lambda *_: None; f.PAUSE = 0\n"
        "sets = {v + '-' + os.uname().machine: [] for v in ('3.10', '3.11', '3.12')}\n"
        "try: print(f.find_python(sets)[1].split('-')[0])\n"
        "except f.Failed as e: print(e.problem['reference'])"
    )
    environment = {"PATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    argv = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=environment, timeout=60)
    assert done.stdout.splitlines()[-1] == (found or "GS-733")
