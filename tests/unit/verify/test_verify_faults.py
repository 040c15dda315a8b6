"""Each fault that real machines have, laid over a healthy capture: the verdicts it changes, and no others.

A row of faults.json names the capture (`on`), how to break it (`smi`: figures of nvidia-smi's XML by GPU; `nvml`: its answer, exit code and
error instead of XML; `lost`: GPUs that it no longer lists; `set`, `replace`, `append`, `remove`: by path in the document), what was `wanted` of the
host, and what follows: all `changes` of verdicts, or `verdicts` of some checks; what their texts `say`; whom they
`blame`; `figures`: measured and expected.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from gpusetup.verify.machine import Wanted
from tests.records import lock_of, stack_document
from tests.unit.verify.verify_documents import (
    broken,
    captured,
    differences,
    drop_gpu,
    found_at,
    results,
    set_smi,
    smi_says,
    verdicts,
)

LOCK = lock_of(driver="580.159.04", cupy="14.2.0")
ROWS: list[dict[str, Any]] = json.loads(Path(__file__).with_name("faults.json").read_text(encoding="utf-8"))


def broken_by(row: dict[str, Any]) -> dict[str, Any]:
    """The row's capture with its fault laid over."""
    document = broken(row["on"], row.get("set"))
    for gpu in row.get("lost", ()):
        drop_gpu(document, gpu)
    if "nvml" in row:
        text, code, error = row["nvml"]
        smi_says(document, text, code, error=error)
    for gpu, figures in row.get("smi", {}).items():
        for path, figure in figures.items():
            set_smi(document, int(gpu), path, figure)
    for path, value in row.get("replace", {}).items():
        folder, _, name = path.rpartition("/")
        at = found_at(document, folder)
        assert value[0] in at[name], "the capture has nothing to replace"
        at[name] = at[name].replace(*value, 1)
    for path, value in row.get("append", {}).items():
        found_at(document, path).append(value)
    for path in row.get("remove", ()):
        folder, _, name = path.rpartition("/")
        del found_at(document, folder)[int(name)]
    return document


@pytest.mark.parametrize("row", ROWS, ids=[row["fault"] for row in ROWS])
def test_a_fault_changes_the_verdicts_that_it_should(row):
    asked = row.get("wanted")
    wanted = (Wanted(lock_of(**asked)) if "driver" in asked else Wanted(**asked)) if asked else None
    document = broken_by(row)
    found = results(document, wanted)
    if "changes" in row:
        assert differences(captured(row["on"]), document, wanted) == row["changes"]
    for name, verdict in row.get("verdicts", {}).items():
        assert found[name].verdict == verdict, name
    if "all" in row:
        assert {result.verdict for result in found.values()} == {row["all"]}
    for name, texts in row.get("say", {}).items():
        for text in texts:
            assert text in found[name].text
    for name, blame in row.get("blame", {}).items():
        assert found[name].blame == blame
    for name, figures in row.get("figures", {}).items():
        assert [found[name].measured, found[name].expected] == figures


@pytest.mark.parametrize("name", ["h200-x1-quick", "h200-x2-quick", "h200-x8-quick"])
def test_a_healthy_machine_has_no_trouble(name):
    found = verdicts(captured(name), Wanted(LOCK))
    assert "fail" not in found.values()
    assert [check for check, verdict in found.items() if verdict == "warn"] == ["driver.security"]  # as old as it is
    assert found["gpu.count"] == found["driver.version"] == found["gpu.ecc"] == "pass"


def test_without_a_driver_no_check_of_a_gpu_passes():
    (row,) = [row for row in ROWS if row["fault"] == "no driver at all"]
    found = verdicts(broken_by(row))
    assert not [name for name, verdict in found.items() if verdict == "pass" and name.startswith(("gpu.", "pcie.", "nvlink."))]  # fmt: skip


def test_the_lock_that_apply_recorded_is_what_is_wanted():
    """Nobody has to name it: the host's own record says which driver it should have."""
    document = captured("h200-x1-quick")
    document["facts"]["state"] = {"lock": {"stack": stack_document(driver="580.178.04"), "wanted": {}}}
    found = results(document)["driver.version"]
    assert (found.verdict, found.expected) == ("fail", "580.178.04")
    assert verdicts(document, Wanted(lock_of(driver="580.159.04")))["driver.version"] == "pass"
