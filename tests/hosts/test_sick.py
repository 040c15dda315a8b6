"""The doctor on captured machines: as they were captured, and made sick one thing at a time.

A folder of sick/ says in sick.json which capture it is made from (`base`), what is taken away (`remove`), rewritten in
files (`replace`) or answered otherwise (`observations`), and the cause that must be named with words of its evidence;
its root/ is laid over the capture. For a capture as it is, `doctor` in its expected.json names the cause, or null.
"""

import json
import shutil
from pathlib import Path

import pytest

from gpusetup.cli.main import main

HERE = Path(__file__).parent
SICK = sorted(path.parent for path in HERE.glob("sick/*/sick.json"))
CAPTURED = sorted(path.parent for path in HERE.glob("*/expected.json"))


def build(folder, root):
    """Make the sick machine that a folder describes."""
    sick = json.loads((folder / "sick.json").read_text())
    shutil.copytree(HERE / sick["base"] / "root", root, symlinks=True)
    for name in sick.get("remove", ()):
        place = root / name
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    for name, changes in sick.get("replace", {}).items():
        text = (root / name).read_text()
        for old, new in changes:
            assert old in text, f"{name} of {sick['base']} has no {old!r}"
            text = text.replace(old, new)
        (root / name).write_text(text)
    if (folder / "root").is_dir():
        shutil.copytree(folder / "root", root, symlinks=True, dirs_exist_ok=True)
    capture = json.loads((root / "gpusetup-capture.json").read_text())
    capture["observations"].update(sick.get("observations", {}))
    (root / "gpusetup-capture.json").write_text(json.dumps(capture))
    return sick


def diagnose(root, capsys):
    code = main(["doctor", "--root", str(root), "--format", "json"])
    (diagnosis,) = json.loads(capsys.readouterr().out)["hosts"].values()
    assert code == (8 if diagnosis["cause"] else 0)
    return diagnosis


@pytest.mark.parametrize("folder", SICK, ids=lambda folder: folder.name)
def test_a_sick_machine(folder, tmp_path, capsys):
    expected = build(folder, tmp_path / "root")["expected"]
    diagnosis = diagnose(tmp_path / "root", capsys)
    found = diagnosis["cause"]
    assert (found["cause"] if found else None) == expected["cause"], diagnosis
    told = "\n".join(found["evidence"]) if found else ""
    assert [words for words in expected["evidence"] if words not in told] == [], told
    assert [notice["cause"] for notice in diagnosis["notices"]] == expected.get("notices", [])
    told = diagnosis["recovery"]
    if "recovery" in expected:
        assert [told["need"], told["gpus"], told["steps"]] == expected["recovery"]
    # It stops at the cause, and all that it ruled out before was looked at.
    answers = [ruled["answer"] for ruled in diagnosis["ruled"]]
    assert answers.count("cause") == (1 if found else 0)
    assert not found or answers[-1] == "cause"


@pytest.mark.parametrize("folder", CAPTURED, ids=lambda folder: folder.name)
def test_a_machine_as_it_was_captured(folder, capsys):
    found = diagnose(folder / "root", capsys)["cause"]
    assert (found["cause"] if found else None) == json.loads((folder / "expected.json").read_text())["doctor"]
