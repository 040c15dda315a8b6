"""The explorer's doctor: a pasted message has the doctor's own answer, in the browser, and each answer leads to its page."""

import gzip
import re

import pytest

from gpusetup.doctor.findings import diagnose_text
from tests.lab.browser import BROWSER
from tests.site import messages as proof
from tools.explorer.expressions import script

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium (Debian: apt-get install chromium)")
TOO_OLD = "RuntimeError: The NVIDIA driver on your system is too old (found version 11040)."
FALLEN = "NVRM: Xid (PCI:0000:81:00): 79, pid=1, GPU has fallen off the bus."


@pytest.fixture
def page(chromium, site):
    page = chromium.open("about:blank")
    page.shape(width=390)
    page.go((site / "explorer/index.html").as_uri())
    page.until("document.querySelectorAll('#answer .line').length > 0")
    return page


def _ask(page, text):
    page.tells(f"document.getElementById('message').value = {text!r}; document.querySelector('#doctor button').click()")
    page.until("document.getElementById('meaning').children.length > 0")
    return page.tells("document.getElementById('meaning').innerText")


def test_every_collected_message_has_the_doctors_answer():
    texts = proof.asked(more=200, seed=5)
    assert len(texts) > 2000
    assert proof.differences(texts) == []


def test_a_pattern_that_is_missing_is_found(monkeypatch):
    """The proof can fail."""
    whole = proof.messages

    def damaged():
        found = whole()
        found["patterns"] = found["patterns"][:1]
        return found

    monkeypatch.setattr(proof, "messages", damaged)
    assert len(proof.differences([FALLEN])) == 1


def test_a_pasted_message_is_answered_and_leads_to_its_page(page, site):
    text = _ask(page, TOO_OLD)
    (finding, *_) = diagnose_text(TOO_OLD)
    assert finding.title in text
    assert finding.details[0] in text
    link = page.tells("document.querySelector('#meaning a').getAttribute('href')")
    assert (site / "explorer" / link).resolve().is_file()
    assert page.tells("document.documentElement.scrollWidth") <= 390
    assert "too old" not in page.tells("decodeURIComponent(location.href)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("GS-324", "a message of gpusetup itself"),
        ("slurmstepd: error: Exceeded job memory limit", "No fault of the GPU installation"),
        ("good morning", "Not recognised"),
        ("<img src=x onerror=alert(1)> Xid 79 <b>", ""),
        (" ", "Paste a message first"),
    ],
)
def test_what_is_no_cause_is_said(page, text, said):
    assert said in _ask(page, text)
    assert page.tells("document.querySelectorAll('#meaning img, #meaning blockquote b').length") == 0


def test_it_is_loaded_when_it_is_asked_for_and_sends_nothing(page, site):
    names = "performance.getEntriesByType('resource').map(entry => entry.name)"
    assert not any("messages.js" in name for name in page.tells(names))
    _ask(page, TOO_OLD)
    assert all(name.startswith("file:") for name in page.tells(names))
    assert len(gzip.compress((site / "explorer/messages.js").read_bytes())) < 240_000


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (r"(?i:cuda)[^\n]{0,3}\bx\b", "CuDA: x"),
        (r"(?P<number>\d+)\.(?P=number)(?!\w)", "é 12.12 "),
        (r"^a$", "a\n"),
        (r"(?<![\w.-])[Nn]o\s+\W", "ä no ?"),
        (re.compile(r"x  # a note", re.VERBOSE | re.IGNORECASE), "X"),
    ],
)
def test_an_expression_matches_the_same_in_both_languages(chromium, expression, text):
    page = chromium.open("about:blank")
    found = re.search(expression, text)
    assert page.tells(f"new RegExp({script(expression)!r}, 'u').exec({text!r})?.[0] ?? null") == (found and found[0])


@pytest.mark.parametrize("expression", [r"[\W_]", r"a(?>b)" if hasattr(re, "NOFLAG") else r"[\W_]"])
def test_what_javascript_cannot_say_fails_here(expression):
    with pytest.raises(ValueError, match="written for browsers"):
        script(expression)
