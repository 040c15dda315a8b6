"""A project's file behind --from asks what it would ask on the command line; a wrong file is one line with a reference."""

import json

import pytest

from gpusetup.cli.main import command_parser, main
from gpusetup.cli.requests import take_project
from gpusetup.errors import BadInputError
from gpusetup.matrix.load import matrix
from gpusetup.resolve.requests import parse_requirements
from tests.stored import stored_rows

ROWS = stored_rows("project_rows.json")


@pytest.mark.parametrize("row", ROWS, ids=[f"{n}-{row['file']}" for n, row in enumerate(ROWS)])
def test_a_file_asks_in_the_words_of_the_command_line(row, tmp_path, capsys):
    path = tmp_path / row["file"]
    path.parent.mkdir(exist_ok=True)
    for name, text in {row["file"]: row["text"], **row.get("beside", {})}.items():
        path.with_name(name.rpartition("/")[2]).write_text(text + row.get("many", "") * 100_000)
    arguments = command_parser("resolve").parse_args([*row.get("line", ()), "--from", str(path)])
    if "error" in row:
        with pytest.raises(BadInputError) as caught:
            take_project(arguments, matrix())
        assert (caught.value.reference, bool(caught.value.hint)) == (row["error"], True)
        return
    take_project(arguments, matrix())
    assert list(map(str, parse_requirements(arguments.requirements))) == row["asks"]
    assert {name: getattr(arguments, name) for name in row.get("machine", {})} == row.get("machine", {})
    assert row.get("warns", "") in capsys.readouterr().err
    assert arguments.facts is None


def test_the_machine_of_pyproject_counts_for_the_lock_beside_it(tmp_path, capsys):
    (tmp_path / "uv.lock").write_text("[[package]]\nname = 'torch'\nversion = '2.9.1'\n")
    codes = []
    for driver in ("570.86.15", "470.82.01"):
        (tmp_path / "pyproject.toml").write_text(f"[tool.gpusetup]\ngpu = ['h100']\ninstalled_driver = '{driver}'\n")
        codes.append(main(["lock", "--from", str(tmp_path / "uv.lock"), "--out", str(tmp_path / "gpu.lock.json")]))
    assert codes == [0, 4]
    assert json.loads((tmp_path / "gpu.lock.json").read_text())["stack"]["driver"]["version"] == "570.86.15"
    assert "driver 470.82.01 is installed and stays" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "torch", "code", "said"),
    [
        ("ubuntu24.04-h200-keep", "2.9.1", 0, "installed, stays"),
        ("debian12-v100-proprietary", "2.9.1+cu130", 4, "no stack fits"),
        ("debian12-none-nothing", "2.9.1", 5, "no NVIDIA GPU on PCI"),
    ],
)
def test_the_doctor_compares_a_project_with_a_machine(host, torch, code, said, tmp_path, capsys):
    (tmp_path / "requirements.txt").write_text(f"torch=={torch}\n")
    assert main(["doctor", str(tmp_path / "requirements.txt"), "--root", f"tests/hosts/{host}/root"]) == code
    told = capsys.readouterr()
    assert said in told.out + told.err
