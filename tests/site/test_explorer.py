"""The explorer: its answers are the resolver's, and people can use it, in a real browser that opened it from its folder."""

from __future__ import annotations

import gzip
from functools import partial

import pytest

from gpusetup.api import resolve
from gpusetup.matrix.load import matrix
from tests.lab.browser import BROWSER, browser
from tests.site import proof
from tools.explorer.compiled import FRAMEWORKS
from tools.explorer.folder import ARCHES

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium (Debian: apt-get install chromium)")
WORKED_OUT = "document.querySelectorAll('#all tbody tr').length > 0"


@pytest.fixture(scope="module")
def folder(site):
    return site / "explorer"


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


def _asked(chromium, folder, question, *, width=1000, scheme="light"):
    page = chromium.open("about:blank")
    page.shape(width=width, scheme=scheme)
    page.go(f"{(folder / 'index.html').as_uri()}{question}")
    page.until(WORKED_OUT)
    return page


def _lines(page):
    return page.tells("[...document.querySelectorAll('#answer .line code')].map(e => e.textContent)")


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_some_answers_are_the_resolvers(framework, arch):
    """python -m tests.site.proof asks everything; this is a sample of it."""

    def some(*given, **_named):
        return proof.questions(*given, every=False, more=150, seed=11)[-150:]

    asked, different = proof.differences(matrix(), framework, arch, partial(some))
    assert asked == 150
    assert different == []


def test_a_wrong_mask_is_found(monkeypatch):
    """The proof can fail."""
    whole = proof.Compiled.document

    def damaged(self, gpus):
        document = whole(self, gpus)
        document["usual"] = "1"
        return document

    monkeypatch.setattr(proof.Compiled, "document", damaged)
    some = partial(proof.questions, every=False, more=1, seed=1)
    _count, different = proof.differences(matrix(), "cuda", "x86_64", lambda *given: some(*given)[:70])
    assert different


@pytest.mark.parametrize(
    ("question", "wishes", "options"),
    [
        ("?torch=2.6&gpu=v100&os=ubuntu22.04", "torch==2.6.0", {"gpu": ["v100"], "os": "ubuntu22.04"}),
        ("?cupy&gpu=h100&driver=535.154.05", "cupy", {"gpu": ["h100"], "driver": "535.154.05"}),
        ("?jax=0.4.30&gpu=rtx+4090", "jax==0.4.30", {"gpu": ["rtx 4090"]}),
        ("?tensorflow&gpu=a100&os=rocky9", "tensorflow", {"gpu": ["a100"], "os": "rocky9"}),
        ("?cuda=12.4.1&gpu=t4", "cuda==12.4.1", {"gpu": ["t4"]}),
        ("?torch&gpu=gh200", "torch", {"gpu": ["gh200"]}),
    ],
)
def test_a_link_carries_its_question_and_the_lines_are_those_of_the_command(
    chromium, folder, question, wishes, options
):
    page = _asked(chromium, folder, question)
    said = resolve(wishes, **options)
    pip = [line.partition("-m ")[2] for line in said.install.pip if "-m pip install" in line]
    assert _lines(page) == [*said.install.apply, *pip]
    text = page.tells("document.getElementById('answer').innerText")
    assert said.stack.driver.version in text
    assert said.stack.driver.module in text
    if said.stack.python is not None:
        assert said.stack.python.requires in text


def test_what_does_not_fit_says_why_with_a_source(chromium, folder):
    page = _asked(chromium, folder, "?torch=2.15.0&gpu=v100")
    text = page.tells("document.getElementById('answer').innerText")
    assert "No stack fits" in text
    assert "code for it" in text
    assert page.tells("[...document.querySelectorAll('#answer a')].every(a => a.href.startsWith('https://'))")
    assert page.tells("document.querySelectorAll('#answer a').length") > 0


def test_the_form_asks_anew_and_the_address_says_it(chromium, folder):
    page = _asked(chromium, folder, "?torch=2.6.0&gpu=v100")
    assert "-w driver==" in _lines(page)[0]
    change = "(e => { e.value = '535.154.05'; e.dispatchEvent(new Event('change')) })"
    page.tells(f"{change}(document.getElementById('driver'))")
    page.until("document.querySelector('#answer .line code').textContent.indexOf('driver==') < 0")
    assert _lines(page)[0] == resolve("torch==2.6.0", gpu=["v100"], driver="535.154.05").install.apply[0]
    assert "driver=535.154.05" in page.tells("location.href")


@pytest.mark.parametrize(
    ("field", "text", "said"),
    [("gpu", "rtx", "which one?"), ("gpu", "<b>nothing</b>", "not a GPU"), ("driver", "1.2", "not a driver")],
)
def test_what_is_not_known_is_said_and_the_answer_stays(chromium, folder, field, text, said):
    page = _asked(chromium, folder, "?torch=2.6.0&gpu=v100")
    before = _lines(page)
    page.tells(
        f"(e => {{ e.value = {text!r}; e.dispatchEvent(new Event('change')) }})(document.getElementById('{field}'))"
    )
    assert said in page.tells(f"document.getElementById('{field}-said').textContent")
    assert page.tells(f"document.getElementById('{field}').getAttribute('aria-invalid')") == "true"
    assert _lines(page) == before


def test_it_fits_a_phone_and_each_field_has_a_name(chromium, folder):
    page = _asked(chromium, folder, "?torch&gpu=h100", width=390, scheme="dark")
    assert page.tells("document.documentElement.scrollWidth") <= 390
    named = "e.labels.length > 0 || e.getAttribute('aria-label')"
    assert page.tells(f"[...document.querySelectorAll('input, select')].every(e => {named})")
    page.key("Tab")
    assert page.tells("document.activeElement.id") == "framework"
    assert page.tells("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_the_first_view_is_small(folder):
    first = [
        "index.html",
        "lookup.js",
        "pieces.js",
        "message.js",
        "about.js",
        "explorer.js",
        "problems/torch-x86_64.js",
    ]
    assert sum(len(gzip.compress((folder / name).read_bytes())) for name in first) < 100_000


def test_the_site_has_it(site):
    assert (site / "explorer/index.html").is_file()
    assert 'href="explorer/index.html"' in (site / "index.html").read_text(encoding="utf-8")
