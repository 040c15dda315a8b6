"""Which release the doctor names: of the package of a message, and what `resolve` and `matrix` give for it."""

import re

import pytest

from gpusetup.doctor.builds import for_capability, on_branch
from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.text import messages
from gpusetup.model.request import Request, Requirement
from gpusetup.resolve.api import resolve
from gpusetup.resolve.lookup import lookup
from tests.unit.doctor.score import WORDINGS, entries


@pytest.mark.parametrize(
    "entry", [*entries("packages_open"), *entries("packages_closed")], ids=lambda one: one["thread"]
)
def test_the_answer_names_all_that_it_has_to(entry):
    answer = messages(diagnose_text(entry["text"]))
    assert [word for word in entry.get("tells", ()) if word not in answer] == []


@pytest.mark.parametrize(("text", "said"), WORDINGS["of a package"])
def test_the_answer_names_the_release(text, said):
    answer = " ".join(messages(diagnose_text(text)).split())
    for words in said:
        assert words in answer


@pytest.mark.parametrize("branch", [450, 470, 515, 525, 535, 550, 570, 580, 595, 615])
def test_what_the_doctor_offers_resolve_gives(shipped, branch):
    told = on_branch(branch)[0]
    driver = re.search(r"run on ([0-9.]+):", told)[1]
    torch, *_ = re.findall(r"torch ([0-9.]+\+cu[0-9]+)", told)
    stack = resolve(Request(requirements=(Requirement(component="torch"),), driver=driver), shipped).stack
    assert torch == f"{stack.torch.version}+{stack.torch.variant}"
    for name, said in re.findall(r"(tensorflow|jax|cupy)[^ ,]* ([0-9][0-9.a-z]*[0-9])", told):
        chosen = resolve(Request(requirements=(Requirement(component=name),), driver=driver), shipped).stack
        assert getattr(chosen, name).version == said


@pytest.mark.parametrize("capability", ["7.0", "8.9", "9.0", "10.0", "12.0"])
def test_the_doctor_and_the_matrix_name_the_same_first_build(shipped, capability):
    told = next(line for line in for_capability(capability) if line.startswith("torch has code"))
    first = re.search(r"from ([0-9.]+)\+", told)[1]
    asked = Request(requirements=(Requirement(component="torch"),), gpus=(f"sm_{capability.replace('.', '')}",))
    rows = lookup(asked, shipped)
    assert first == min((row["torch"] for row in rows), key=lambda text: tuple(map(int, text.split("."))))
