"""Every file decodes into its type, unknown fields forbidden, and names its schema."""

import json

import msgspec

from gpusetup.errors import BadInputError
from gpusetup.matrix.load import NAMES, SCHEMA, load_file, struct_of
from gpusetup.model.request import COMPONENTS
from gpusetup.model.stack import Stack
from tests.data.lint import DATA, FIXTURES, holds
from tests.refusals import refused


def lint(documents):
    problems = []
    for name, document in documents.items():
        try:
            typed = msgspec.convert(document, struct_of(name))
        except msgspec.ValidationError as error:
            problems.append(f"{name}: {error}")
            continue
        if typed.schema != SCHEMA.format(name.replace("_", "-")):
            problems.append(f"{name}: schema {typed.schema}")
    return problems


def test_data():
    holds(lint, "schema")
    assert {path.stem for path in DATA.glob("*.json")} == set(NAMES), "a file that no component reads, or none for one"


def test_the_loader_reports_the_same(tmp_path):
    bad = json.loads((FIXTURES / "schema.bad.json").read_text())["vgpu"]
    path = tmp_path / "vgpu.json"
    path.write_text(json.dumps(bad))
    with refused(BadInputError, path="branches[0]"):
        load_file("vgpu", path)


def test_every_component_has_its_place_in_a_stack():
    lacking = {name.replace("-", "_") for name in COMPONENTS} - {*Stack.__struct_fields__}
    assert not lacking, f"add {', '.join(sorted(lacking))} to Stack: packages.json names it"
