"""Hostile values at every option that writes into user-data, read back as cloud-init, sh and systemd read it."""

import json
import random
import re
import subprocess
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpusetup.bootstrap.userdata import checked_text
from gpusetup.cli.main import main
from gpusetup.errors import BadInputError

PATHS = {
    "/usr/local/lib/gpusetup/first-stage", "/usr/local/lib/gpusetup/launcher",
    "/etc/systemd/system/gpusetup-bootstrap.service", "/etc/gpusetup/bootstrap.json", "/etc/gpusetup/ca.pem",
    "/etc/gpusetup/callback.token", "/etc/gpusetup/environment", "/var/lib/cloud/scripts/per-boot/50-gpusetup",
}  # fmt: skip
SEEDS = (
    "\n", "\r", "\r\n", "\t", "\0", "\x0b", "\x1b[2J", "\x85", "\u2028", "\u202e", "runcmd:", "- [sh, -c, touch pwned]",
    "GPUSETUP_END", "'", '"', "`id`", "$(id)", "${x}", "\\", "\\n", "#", ": ", "LD_PRELOAD=/tmp/x.so", "%", "{{ 7*7 }}",
    "---", "...", "&a", "*a", "!!python/object", "|", ">", "@", "http://u:p@h", " ", "é", "[", "]", "{", "}", ";", "&",
)  # fmt: skip
OPTIONS = (
    "--source", "--callback", "--lock-url", "--lock-digest", "--proxy", "--no-proxy", "--token-file",
    "--ca", "--set", "manifest",
)  # fmt: skip
GOOD = {
    "--source": "https://f.example/gpu", "--callback": "https://cb.example/s", "--lock-url": "https://f.example/l",
    "--proxy": "http://p.example:3128", "--no-proxy": "localhost,.example.com", "--set":
    "gpusetup_source=https://m.example", "--lock-digest": "0" * 64, "--token-file": "token", "manifest": "0.1.0",
    "--ca": "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
}  # fmt: skip
WHEEL = "wheels/gpusetup-0.1.0-py3-none-any.whl"
SERVED = {
    "schema": "gpusetup/bundle/1", "gpusetup": "0.1.0", "pip": "", "sets": {"3.12-x86_64": [WHEEL]},
    "files": {WHEEL: {"sha256": "0" * 64, "size": 1}},
}  # fmt: skip
NAMES = (
    "source", "no_proxy", "proxy", "python_links", "source_key", "domain", "node", "driver", "python_path", "colour",
)  # fmt: skip


def hostile(option: str, source: random.Random) -> str:
    good = GOOD[option]
    if option == "--set" and source.random() < 0.7:
        good = f"gpusetup_{source.choice(NAMES)}=" + source.choice(["https://m.example/", "/x", "", '["', "a"])
    seeds = "".join(source.choices(SEEDS, k=source.randint(1, 4)))
    at = source.choice([0, len(good), source.randrange(len(good) + 1)])
    return source.choice([good[:at] + seeds + good[at:], good[:at] + seeds, seeds])


def made(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the user-data; "" if the command line, an option or a file is refused."""
    try:
        code = main(["cloud-init", *words])
    except SystemExit as stop:  # a word that is an option, an empty value
        code = stop.code
    told = capsys.readouterr()
    assert code in {0, 2, 3, 4}, (words, told.err)
    return "" if code else told.out


@pytest.mark.parametrize("cases", [300, pytest.param(10_000, marks=pytest.mark.fuzz)])
@pytest.mark.parametrize("shape", ["cloud-config", "shell"])
def test_no_value_becomes_a_command(cases, shape, tmp_path, capsys):
    source, taken = random.Random(41), 0
    for _ in range(cases):
        option = source.choice(OPTIONS)
        values = {**GOOD, option: hostile(option, source)}
        for name in ("--ca", "--token-file"):
            (tmp_path / name).write_text(values[name], encoding="utf-8", newline="")
            values[name] = str(tmp_path / name)
        version = values.pop("manifest")
        whole = {"schema": "gpusetup/bundle/1", "gpusetup": version, "pip": "", "sets": {}, "files": {}}
        (tmp_path / "manifest.json").write_text(json.dumps(whole))
        words = [f"{name}={value}" for name, value in values.items()]
        words += ["--manifest", str(tmp_path / "manifest.json"), "--format", shape, "--size-limit", "99999"]
        if not (text := made(words, capsys)):
            continue
        taken += 1
        files = _as_cloud_init(text) if shape == "cloud-config" else _as_sh(text, tmp_path)
        assert files.keys() <= PATHS
        config = json.loads(files["/etc/gpusetup/bootstrap.json"])
        assert config["source"] == values["--source"].rstrip("/")
        assert config["callback"] == values["--callback"]
        assert _as_systemd(files["/etc/gpusetup/environment"]) == {
            **dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), values["--proxy"]),
            **(dict.fromkeys(("no_proxy", "NO_PROXY"), values["--no-proxy"]) if values["--no-proxy"] else {}),
        }
        assert len(files["/etc/gpusetup/callback.token"].splitlines()) == 1
    assert cases // 20 < taken < cases


@pytest.mark.parametrize("cases", [100, pytest.param(10_000, marks=pytest.mark.fuzz)])
def test_no_name_of_a_gpu_a_system_or_a_requirement_becomes_a_command(cases, tmp_path, capsys):
    source, taken = random.Random(43), 0
    (tmp_path / "manifest.json").write_text(json.dumps(SERVED))
    good = {"--gpu": "h100", "--os": "ubuntu24.04", "--python": "3.12", "REQ": "cuda==13.0.*"}
    for _ in range(cases):
        name = source.choice(list(good))
        seeds = "".join(source.choices(SEEDS, k=source.randint(0, 2)))
        value = source.choice([good[name] + seeds, seeds + good[name], seeds])
        values = {**good, name: value}
        words = [values.pop("REQ"), *(f"{option}={text}" for option, text in values.items())]
        words += ["--source", GOOD["--source"], "--manifest", str(tmp_path / "manifest.json")]
        if not (text := made(words, capsys)):
            continue
        taken += 1
        files = _as_cloud_init(text)
        assert files.keys() <= PATHS | {"/etc/gpusetup/lock.json"}
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", text)
        json.loads(files["/etc/gpusetup/lock.json"])
    assert taken


@pytest.mark.parametrize("cases", [100, pytest.param(10_000, marks=pytest.mark.fuzz)])
def test_a_lock_and_what_is_joined_stay_what_they_are(cases, tmp_path, capsys):
    source, taken = random.Random(47), 0
    lock, mine, manifest = (str(tmp_path / name) for name in ("lock.json", "mine", "manifest.json"))
    (tmp_path / "manifest.json").write_text(json.dumps(SERVED))
    assert main(["lock", "driver", "--gpu", "h100", "--os", "ubuntu24.04", "--out", lock]) == 0
    good = json.loads((tmp_path / "lock.json").read_text())
    for _ in range(cases):
        (tmp_path / "lock.json").write_text(json.dumps(_hurt(good, source) if source.random() < 0.5 else good))
        words = source.choices((*SEEDS, "--==gpusetup==", "--==gpusetup==--\n", "\n\n"), k=source.randint(0, 6))
        joined = source.choice(["#cloud-config\n", "#!/bin/sh\n"]) + "".join(words)
        (tmp_path / "mine").write_text(joined, encoding="utf-8", newline="")
        words = ["--lock", lock, "--join", mine, "--source", GOOD["--source"], "--manifest", manifest]
        if not (text := made(words, capsys)):
            continue
        taken += 1
        theirs, ours = (part.get_payload(decode=True).decode() for part in message_from_string(text).get_payload())
        assert theirs.rstrip() == joined.rstrip()
        files = _as_cloud_init(ours)
        assert files.keys() <= PATHS | {"/etc/gpusetup/lock.json"}
        json.loads(files["/etc/gpusetup/lock.json"])
    assert cases // 20 < taken


def _hurt(value: Any, source: random.Random) -> Any:
    """Put hostile text in one place of a document."""
    if isinstance(value, dict) and value:
        name = source.choice(list(value))
        return {**value, name: _hurt(value[name], source)}
    if isinstance(value, list) and value:
        return [_hurt(value[0], source), *value[1:]]
    return f"{value}{''.join(source.choices(SEEDS, k=2))}" if isinstance(value, str) else value


def _as_cloud_init(text: str) -> dict[str, str]:
    document = yaml.safe_load(text)
    assert document.keys() == {"merge_how", "write_files"}
    return {item["path"]: item["content"] for item in document["write_files"]}


def _as_sh(text: str, place: Path) -> dict[str, str]:
    """Run the script with its programs replaced: what they are called with, and what cat is given, is what it does."""
    prelude = "mkdir() { :; }; chmod() { :; }; truncate() { :; }; cat() { /bin/cat; }; PATH=/nowhere\n"
    text, last = text.rsplit("exec ", 1)
    assert last == "/usr/local/lib/gpusetup/launcher boot\n"
    root = place / "root"
    for path in PATHS:
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).unlink(missing_ok=True)
    moved = re.sub(r"^cat >/", f"cat >{root}/", text, flags=re.MULTILINE)
    done = subprocess.run(["sh"], input=prelude + moved, capture_output=True, text=True, check=True, cwd=place)
    assert (done.stdout, done.stderr) == ("", "")
    return {f"/{path.relative_to(root)}": path.read_text() for path in root.rglob("*") if path.is_file()}


def _as_systemd(text: str) -> dict[str, str]:
    """Read an EnvironmentFile: a line's value in double quotes, in which a backslash goes before what it keeps."""
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r'(\w+)="((?:[^"\\]|\\["\\$`])*)"', line)
        assert match, line
        found[match[1]] = re.sub(r"\\(.)", r"\1", match[2])
    return found


@pytest.mark.parametrize(
    "value", ["http://u:p@x", "a\nb", ["x", {"y": "https://me@m/"}], {"\x1b": ""}, "http://u:p\u2028@x"]
)
def test_secrets_and_control_characters_are_found_wherever_they_stand(value):
    with pytest.raises(BadInputError):
        checked_text(value, "--set")
