"""The Python that an environment is made with: a host's own, a package of its distribution, or a way out in words."""

import pytest

from gpusetup.components.base import Offers
from gpusetup.components.python.requirements import interpreter_of, packaged_patterns, pythons_of, system_of
from gpusetup.errors import PreflightError
from gpusetup.matrix.load import matrix
from gpusetup.model.facts import Python
from gpusetup.model.plan import Offer
from gpusetup.model.request import Request
from gpusetup.model.settings import Settings
from gpusetup.plan.requests import described_host
from gpusetup.versions import nv
from tests.hosts.machines import changed, machine
from tests.refusals import refused
from tests.unit.plan.conftest import answer, asked, resolved

NAMES = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms", "dkms")


def wishes(*texts, **fields):
    return asked(*texts, cuda_from="wheels", **fields)


@pytest.fixture(scope="session")
def rocky():
    return machine("rocky9-a100-open", firmware={"uefi": False}, secure_boot=False)


@pytest.fixture
def second(planner, rocky):
    """Plan with repositories that have a driver for every row, and packages of these Pythons."""

    def make(wish, *pythons, facts=rocky):
        newest = resolved(gpus=("a100",), os=rocky.os.label).stack.driver.version
        rows = [(name, newest) for name in NAMES]
        rows += [
            (f"python{version}{part}", new)
            for version in pythons
            for part, new in (("", f"{version}.7"), ("-pip", "23.2"))
        ]
        return planner.second(facts, wish, answer([], *((name, f"{version}-1.el9") for name, version in rows))).plan

    return make


def stack(*texts, **fields):
    return resolved(*texts, **fields).stack


def beside(facts, *more):
    return changed(facts, pythons=(*facts.pythons, *more))


def test_the_repositories_are_asked_for_the_distributions_pythons(planner, rocky):
    draft = planner.first(rocky, wishes("torch"))
    assert draft.stage == "offers"
    assert {"python3.12", "python3.12-pip", "python3.11"} <= set(draft.ask.gpu_preflight_candidates)


def test_a_newer_python_comes_in_the_same_transaction_and_makes_the_environment(planner, rocky, second):
    plan = second(wishes("torch"), "3.12", "3.11")
    assert plan.state == "change", plan.refusals
    assert plan.variables.gpu_python_interpreter == "/usr/bin/python3.12"
    brought = [package.name for package in plan.variables.gpu_packages_prerequisites]
    assert {"python3.12", "python3.12-pip"} <= set(brought)
    (action,) = [action for action in plan.actions if action.id == "install-python"]
    assert ("python3.12" in action.what, "base Python is too old" in action.why) == (True, True)
    assert any("base Python is 3.9" in reason.text for reason in plan.reasons)
    assert plan.lock.wanted.interpreter == "/usr/bin/python3.12"
    assert "python3.12" in str(plan.lock.wanted.packages.python)
    again = planner.recorded(rocky, wishes("torch"), plan.lock).plan
    assert again.variables.gpu_python_interpreter == "/usr/bin/python3.12", "planned from its record"


def test_only_pythons_that_the_repositories_have_count(second):
    eleven, none = second(wishes("torch"), "3.11"), second(wishes("torch"))
    assert eleven.variables.gpu_python_interpreter == "/usr/bin/python3.11"
    assert (none.variables.gpu_python_interpreter, none.stack.python.version) == ("", "3.9")
    assert nv(eleven.stack.torch.version) > nv(none.stack.torch.version)


def test_a_python_that_is_nowhere_is_refused_with_the_way_out(planner, rocky, second):
    note, hint = "it packages 3.12, 3.11", "uv python install 3.13"
    with refused(PreflightError, "GS-334", note=note, hint=hint):
        planner.first(rocky, wishes("torch", "python==3.13"))
    named = Python(path="/opt/python/bin/python3.13", version="3.13", ensurepip=True)
    plan = second(wishes("torch", "python==3.13"), "3.12", facts=beside(rocky, named))
    assert plan.variables.gpu_python_interpreter == named.path


def test_a_named_interpreter_decides_the_stack(rocky, second):
    named = Python(path="/opt/python/bin/python3.11", version="3.11", ensurepip=True)
    plan = second(wishes("torch", python_interpreter=named.path), "3.12", facts=beside(rocky, named))
    assert (plan.variables.gpu_python_interpreter, plan.stack.python.version) == (named.path, "3.11")
    assert "python3.12" not in str(plan.variables.gpu_packages_prerequisites)


def test_an_environment_of_another_python_is_made_anew(planner, rocky, second):
    plan = second(wishes("torch"), "3.12")
    pin = next(line for line in plan.variables.gpu_python_requirements if line.startswith("torch=="))
    packages = {"torch": pin.partition("==")[2]}
    for python, wanted in (("3.9", True), ("3.12", False)):
        old = Python(path="/opt/gpusetup/bin/python3", version=python, ensurepip=True, packages=packages)
        actions = planner.recorded(beside(rocky, old), wishes("torch"), plan.lock).plan.actions
        assert ("python-packages" in [action.id for action in actions]) is wanted


def test_a_host_of_an_unknown_distribution_tells_its_python_itself(host):
    kylin = host("rocky9-a100-open", os={"id": "kylin", "version_id": "V11"})
    assert pythons_of(kylin, Settings(), None, Offers(None)) == ("3.9",)
    assert pythons_of(changed(kylin, pythons=()), Settings(), None, Offers(None)) is None


def test_a_release_candidate_comes_only_when_it_is_asked_for():
    system = next(item for item in matrix().os.systems if item.id == "ubuntu22.04")
    facts = machine("ubuntu22.04-a100-mismatch")
    everything = Offers({name: (Offer(version="1"),) for name in packaged_patterns(system)})
    assert pythons_of(facts, Settings(), system, everything) == ("3.10",)
    asked = interpreter_of(facts, Settings(), stack("torch", "python==3.11", os="ubuntu22.04"), system)
    assert [package.name for package in asked.packages] == ["python3.11", "python3.11-venv"]


@pytest.mark.parametrize("system", matrix().os.systems, ids=lambda system: system.id)
def test_every_chosen_python_has_a_way_onto_its_distribution(system):
    facts = described_host(Request(os=system.id, arch="x86_64"))
    assert system_of(matrix(), facts) == system
    for gpu in ("t4", "a100"):
        found = stack("torch", gpus=(gpu,), os=system.id)
        interpreter = interpreter_of(facts, Settings(), found, system)
        own = found.python.version in {None, system.python}
        assert bool(interpreter.path) != own
        assert own or interpreter.packages
