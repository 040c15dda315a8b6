"""Known vulnerabilities: which releases have one, which end it, what is chosen and said because of it; people's own records."""

import json

import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import Matrix
from gpusetup.matrix.security import page, rows
from gpusetup.model.request import Request
from gpusetup.resolve.api import resolve
from tests.property.test_command_line import run
from tests.refusals import refused

MATRIX = Matrix()


def test_a_page_and_the_table_have_every_part_of_a_vulnerability():
    both = "CVE-2026-47483"
    assert {row["component"] for row in rows(MATRIX, both)} == {"dcgm", "dcgm-exporter"}
    assert "4.5.3" in page(MATRIX, both)
    assert page(MATRIX, "CVE-1999-0001") == ""
    carried = {row["cve"] for row in rows(MATRIX, "driver=580.126.09")}
    assert {"CVE-2026-24187", "CVE-2025-33219"} & carried == {"CVE-2026-24187"}
    assert not list(rows(MATRIX, "driver 580.178.04"))


def test_the_doctor_tells_of_one_and_refuses_what_it_has_no_record_of():
    code, said, _ = run(["doctor", "cve-2025-23266"])
    assert (code, "1.17.8" in said, "5659" in said) == (0, True, True)
    code, said, _ = run(["doctor", "CVE-2025-23266", "--format", "json"])
    assert (code, '"container-toolkit"' in said) == (0, True)
    code, _, told = run(["doctor", "CVE-1999-0001"])
    assert (code, "matrix cve" in told) == (3, True)
    code, _, told = run(["doctor", "cve-20-1"])
    assert (code, "not the form of a CVE number" in told, "CVE-YYYY-NNNN" in told) == (3, True, True)


def test_the_table_is_narrowed_and_says_when_nothing_is_left():
    assert run(["matrix", "cve", "driver", "580.95.05"])[0] == 0
    assert run(["matrix", "cve", "--driver", "580.178.04"])[0] == 4
    assert run(["matrix", "cve", "--gpu", "h100"])[0] == 3


def test_an_added_driver_is_one_more_and_is_chosen(tmp_path):
    document = {
        "schema": "gpusetup/matrix-driver/1",
        "sources": {"ours": {"title": "our own qualification"}},
        "versions": [{"version": "580.999.01", "branch": 580, "sources": ["ours"], "confidence": "vendor"}],
    }
    (tmp_path / "driver.more.json").write_text(json.dumps(document))
    ours = Matrix(tmp_path)
    assert len(ours.driver.versions) == len(MATRIX.driver.versions) + 1
    assert (ours.driver.branches, ours.digest != MATRIX.digest) == (MATRIX.driver.branches, True)
    stack = resolve(Request(driver="580.999.01"), ours).stack
    assert stack.driver is not None
    assert stack.driver.version == "580.999.01"


@pytest.mark.parametrize(("content", "reference"), [("{", "GS-201"), ("null", "GS-201"), (None, "GS-204")])
def test_records_that_cannot_be_read_are_bad_input(tmp_path, content, reference):
    if content:
        (tmp_path / "vgpu.json").write_text(content)
    with refused(BadInputError, reference):
        _ = Matrix(tmp_path).vgpu
