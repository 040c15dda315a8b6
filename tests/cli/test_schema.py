"""Every document that a command prints is one that its schema takes, and the schema refuses what does not belong there."""

import json
import re
import shlex
from pathlib import Path

import jsonschema
import pytest

import gpusetup
from gpusetup.cli.export import schema_of
from gpusetup.model.documents import documents
from tests.property.test_command_line import run

ROOT = Path(__file__).resolve().parents[2]
HOST = str(ROOT / "tests" / "hosts" / "ubuntu24.04-h200x2-keep" / "root")
KEPT_ELSEWHERE = {
    "baseline", "bundle-since", "capture", "causes", "companions", "cuda-errors", "matrix-package", "observations",
    "observations-of-hosts", "status-names", "sxid",
}  # fmt: skip
"""Documents between the parts of gpusetup: nothing for other programs to rely on."""


def printed(*argv):
    _, out, _ = run([*argv, "--format", "json"])
    return json.loads(out)


def name_of(document):
    return str(document["schema"].split("/")[1])


@pytest.mark.parametrize(
    "argv",
    [
        "resolve torch vllm --gpu h100", "resolve torch==2.6.0 --gpu 'rtx 5090'", "resolve pandas", "matrix",
        "resolve --gpu h200 --os ubuntu24.04 cuda==12.8.* cuda==13.0.*", "resolve tensorflow jax cupy --gpu v100",
        "matrix torch --gpu v100", "matrix --driver 535.154.05 --gpu a100", "matrix gpu h100", "matrix os",
        "matrix python", "matrix vgpu", "matrix vllm", "matrix torch --gpu 'gtx 680'", "matrix driver 999.*",
        "matrix --data", "why driver --gpu h100", "why torch==2.6.0 --gpu v100", "why torch==2.6.0 --gpu 'rtx 5090'",
        "why-not cuda=13.1 --gpu v100", "why-not cuda=12.8 --gpu v100", f"facts --root {HOST}", f"doctor --root {HOST}",
        "doctor 'NVRM: Xid (PCI:0000:81:00): 79, GPU has fallen off the bus.'", "doctor GS-324", "doctor GpuLost",
        "doctor 'ImportError: libcudart.so.11.0: cannot open shared object file'", "doctor 'the weather is fine'",
        "lock torch --gpu h100 --os ubuntu24.04", "cloud-init --gpu t4 --os debian12", "export content path",
    ],
)  # fmt: skip
def test_what_is_printed_fits(argv):
    document = printed(*shlex.split(argv))
    jsonschema.validate(document, schema_of(name_of(document)))


def test_what_is_printed_of_hosts_fits(tmp_path):
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(printed("facts", "--root", HOST)))
    for argv in (
        ("plan",),
        ("resolve", "--from", str(facts)),
        ("verify", "--from", str(ROOT / "tests/fixtures/observations/h200-x2-full.json")),
        ("export", "monitoring", "--out", str(tmp_path / "monitoring")),
    ):
        document = printed(*argv)
        assert name_of(document) in documents()
        jsonschema.validate(document, schema_of(name_of(document)))


@pytest.mark.parametrize("name", documents())
def test_a_schema_is_a_schema_and_refuses_what_does_not_belong(name):
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"schema": f"gpusetup/{name}/1", "surprise": 1}, schema)


def test_every_document_has_a_schema():
    sources = "".join(path.read_text() for path in Path(gpusetup.__file__).parents[1].glob("gpusetup*/**/*.py"))
    named = set(re.findall(r'"gpusetup/([a-z-]+)/[0-9]"', sources))
    assert named - KEPT_ELSEWHERE == set(documents())
