"""Messages of packages above the frameworks: recognised, and answered with the release that fits."""

import json
from pathlib import Path

import pytest

from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.text import messages
from tests.unit.doctor.score import WORDINGS

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "doctor"


def entries(half: str) -> list[dict]:
    found: list[dict] = json.loads((FIXTURES / f"packages_{half}.json").read_text(encoding="utf-8"))["entries"]
    return found


def told(half: str) -> int:
    """Count the messages whose answer names all that it has to name."""
    having = [entry for entry in entries(half) if "tells" in entry]
    return sum(all(word in messages(diagnose_text(entry["text"])) for word in entry["tells"]) for entry in having)


@pytest.mark.parametrize("half", ["open", "closed"])
def test_a_half_is_answered(half):
    assert told(half) == sum("tells" in entry for entry in entries(half))


@pytest.mark.parametrize(("text", "said"), WORDINGS["of a package"])
def test_the_answer_names_the_release(text, said):
    answer = " ".join(messages(diagnose_text(text)).split())
    for words in said:
        assert words in answer


def test_a_library_that_loads_is_no_fault():
    text = "CUDA SETUP: Loading binary /x/bitsandbytes/libbitsandbytes_cuda116.so..."
    assert diagnose_text(text) == ()
