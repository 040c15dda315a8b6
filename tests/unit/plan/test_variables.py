"""Every variable that a play is given is one that a role or a playbook takes, of the type that it takes."""

import re
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
import pytest
import yaml

from gpusetup.drive.inventory import write_overlay
from gpusetup.errors import BadInputError
from gpusetup.model.package import Package, Source
from gpusetup.model.variables import NOTHING, RoleVariables

ROOT = Path(__file__).resolve().parents[3]
HINTS = get_type_hints(RoleVariables)
TYPES = {"str": "str", "path": "str", "bool": "bool", "int": "int", "float": "float", "dict": "dict", "list": "tuple"}


@cache
def specified():
    found: dict[str, dict[str, Any]] = {}
    for path in (ROOT / "roles").glob("*/meta/argument_specs.yml"):
        found |= yaml.safe_load(path.read_text())["argument_specs"]["main"].get("options") or {}
    return found


def told(hint):
    """Return the name of a type beside UNSET, what its elements are, and the values that it allows."""
    *_, last = kinds = get_args(hint)
    (kind,) = kinds[:-1] if last is msgspec.UnsetType else (hint,)
    if "Literal" in str(kind):
        return "str", None, get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return "dict", None, ()
    name = getattr(kind, "__origin__", kind).__name__
    return name, get_args(kind)[0] if name == "tuple" else None, ()


@pytest.mark.parametrize("name", RoleVariables.__struct_fields__)
def test_it_is_what_the_roles_take(name):
    spec = specified().get(name)
    if spec is None:
        plays = "".join(path.read_text() for path in (ROOT / "playbooks").glob("*.yml"))
        assert re.search(rf"\b{name}\b", plays), "nobody reads it"
        return
    kind, element, allowed = told(HINTS[name])
    assert kind == TYPES[spec["type"]]
    assert set(allowed) <= set(spec.get("choices") or allowed)
    if isinstance(element, type) and issubclass(element, msgspec.Struct):
        assert spec["elements"] == "dict"
        assert element is not Package or "options" in spec
        assert set(element.__struct_fields__) <= set(spec.get("options") or element.__struct_fields__)
    elif element is not None:
        elements = {"str": str, "int": int, "dict": dict}[spec["elements"]]
        assert getattr(element, "__origin__", element) is elements


def test_nothing_said_is_nothing_written(tmp_path):
    write_overlay(tmp_path, {"a": NOTHING, "b": RoleVariables(gpu_driver_packages=(Package(name="x", version="1"),))})
    told = {name: (tmp_path / "host_vars" / name / "plan.json").read_text() for name in "ab"}
    assert told == {"a": "{}", "b": '{"gpu_driver_packages":[{"name":"x","version":"1"}]}'}


def test_a_template_is_found_however_deep(tmp_path):
    planted = RoleVariables(gpu_repo_sources=(Source(name="x", uris=("https://x/{{ lookup('pipe', 'id') }}",)),))
    with pytest.raises(BadInputError, match="template markers"):
        write_overlay(tmp_path, {"a": planted})


def test_a_plan_from_a_file_says_nothing_that_no_role_takes():
    with pytest.raises(msgspec.ValidationError, match="gpu_drivr"):
        msgspec.json.decode(b'{"gpu_drivr_version": "1"}', type=RoleVariables)


def test_the_hosts_of_a_play_have_one_name():
    for path in (ROOT / "playbooks").glob("*.yml"):
        for play in yaml.safe_load(path.read_text()):
            if "hosts" in play:
                assert play["hosts"] == "{{ gpu_hosts | default('all') }}", path
