"""What AWX and Automation Controller need: an execution environment, a project, job templates and a workflow.

Each job runs a gpusetup command in the execution environment (`playbooks/front_end.yml`). The playbook that sets up AWX
takes a site's names as variables; secrets stay in AWX credentials, which the files only name. Surveys ask for
gpusetup's own variables, with the types and choices that gpusetup accepts.
"""

from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, requires
from typing import Any, Literal, get_args, get_origin, get_type_hints

from gpusetup.model.request import COMPONENTS
from gpusetup.model.settings import Settings
from gpusetup.plan.settings import KNOWN, PREFIX
from gpusetup_fleet.handover.files import rendered

_RUNNER = "ansible-runner>=2.4,<3"


def awx_files(surveys: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    """Return the files by name; `surveys` holds the questions of each command and of `workflow`."""
    return rendered("awx", surveys=surveys, core=_range_of("ansible-core"), runner=_RUNNER)


def _range_of(package: str) -> str:
    """Return a package with its version range in gpusetup's metadata."""
    try:
        needs = requires("gpusetup") or []
    except PackageNotFoundError:
        needs = []
    found = [need.partition(";")[0].strip() for need in needs if need.startswith(package)]
    return found[0] if found else package


ASKED = (
    "driver", "cuda", "torch", "tensorflow", "jax", "vllm", "components", "source", "reboot", "module", "containers",
    "monitoring",
)  # fmt: skip
"""The variables that a survey asks for; all others come from the inventory."""

_ELSE = "no answer: as the inventory says"

Option = tuple[str, str, Any, "Sequence[str] | None"]
"""A command-line option: its variable, help, type and choices."""


def survey(options: Iterable[Option], asked: Iterable[str] = ASKED) -> dict[str, Any]:
    """Return the survey; an unanswered question leaves the inventory's value."""
    questions = [_wish(name) for name in asked]
    questions += [_question(variable, text, kind, choices) for variable, text, kind, choices in options]
    return {"name": "", "description": "", "spec": questions}


def _wish(name: str) -> dict[str, Any]:
    variable = f"{PREFIX}{name.replace('-', '_')}"
    if name in COMPONENTS:
        return _question(variable, f"a version of {name}, a range (==2.6.*), latest or none; {_ELSE}")
    if name not in KNOWN:
        raise KeyError(name)
    hint = get_type_hints(Settings).get(name)
    choices = [word for part in (hint, *get_args(hint)) if get_origin(part) is Literal for word in get_args(part)]
    if choices:
        return _question(variable, _ELSE, choices=choices)
    several = name == "components" or get_origin(hint) is tuple
    return _question(variable, f"several between commas; {_ELSE}" if several else _ELSE)


def _question(variable: str, text: str, kind: Any = None, choices: Sequence[str] | None = None) -> dict[str, Any]:
    question: dict[str, Any] = {
        "question_name": variable,
        "question_description": text,
        "variable": variable,
        "required": False,
        "type": "multiplechoice" if choices else {int: "integer", float: "float"}.get(kind, "text"),
        "default": "",
    }
    if choices:
        return {**question, "choices": list(choices)}
    # AWX requires bounds: of a number, or of a text's length.
    return {**question, "min": 0, "max": 100000 if question["type"] != "text" else 1024}
