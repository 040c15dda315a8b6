"""Messages of packages above the frameworks: recognised, and answered with the release that fits."""

import pytest

from gpusetup.doctor.findings import diagnose_text
from gpusetup.doctor.text import messages
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


def test_a_library_that_loads_is_no_fault():
    text = "CUDA SETUP: Loading binary /x/bitsandbytes/libbitsandbytes_cuda116.so..."
    assert diagnose_text(text) == ()
