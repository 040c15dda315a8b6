"""The explorer: its answers are the resolver's, and people can use it, in a real browser that opened it from its folder."""

import gzip
import random
import re
import shlex

import pytest

from gpusetup.api import resolve, why_not
from tests.lab.browser import BROWSER
from tests.site import problems, proof
from tools.explorer.compiled import WISHES
from tools.explorer.folder import ARCHES, write

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium (Debian: apt-get install chromium)")
WORKED_OUT = "document.querySelectorAll('#all tbody tr').length > 0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    whole = tmp_path_factory.mktemp("explorer") / "a folder" / "explorer"
    write(whole)
    return whole


def _asked(chromium, folder, question, *, width=1000, scheme="light"):
    page = chromium.open("about:blank")
    page.shape(width=width, scheme=scheme)
    page.go(f"{(folder / 'index.html').as_uri()}{question}")
    page.until(WORKED_OUT)
    return page


def _lines(page):
    return page.tells("[...document.querySelectorAll('#answer .line code')].map(e => e.textContent)")


@pytest.fixture(scope="module", params=ARCHES)
def known(request):
    return proof.Explored(request.param)


def test_some_answers_are_the_resolvers(known):
    """python -m tests.site.proof asks everything; this is a sample of it."""
    assert proof.differences(known, proof.some(known, 300, seed=11)) == []
    alone = [question for name in WISHES for question in random.Random(11).sample(proof.whole(known, name), 60)]
    assert proof.differences(known, alone) == []


def test_questions_are_posed_as_the_resolver_poses_them(known):
    """python -m tests.site.problems compares all of them; this is a sample."""
    asked = random.Random(11).sample(list(problems.every(known)), 150)
    assert problems.differences(known, asked) == []


def test_a_wrong_mask_is_found(known, monkeypatch):
    """The proofs can fail."""
    monkeypatch.setitem(known.problem, "usual", "1")
    asked = [{"wishes": {"cuda": ""}, "gpu": None, "system": "", "driver": ""}]
    assert proof.differences(known, asked)
    assert problems.differences(known, asked)


@pytest.mark.parametrize(
    ("question", "wishes", "options"),
    [
        ("?torch=2.6&gpu=v100&os=ubuntu22.04", ["torch=2.6"], {"gpu": ["v100"], "os": "ubuntu22.04"}),
        ("?cupy&gpu=h100&driver=535.154.05", ["cupy"], {"gpu": ["h100"], "driver": "535.154.05"}),
        ("?jax=0.4.30&gpu=rtx+4090", ["jax==0.4.30"], {"gpu": ["rtx 4090"]}),
        ("?tensorflow&gpu=a100&os=rocky9", ["tensorflow"], {"gpu": ["a100"], "os": "rocky9"}),
        ("?cuda=12.4.1&gpu=t4", ["cuda==12.4.1"], {"gpu": ["t4"]}),
        ("?torch&gpu=gh200", ["torch"], {"gpu": ["gh200"]}),
        ("?torch=2.6.*&cupy&gpu=v100", ["torch==2.6.*", "cupy"], {"gpu": ["v100"]}),
        ("?torch=2.6&tensorflow&gpu=h100", ["torch=2.6", "tensorflow"], {"gpu": ["h100"]}),
        ("?pytorch&jax&cuda=12.4.1&gpu=t4", ["torch", "jax", "cuda==12.4.1"], {"gpu": ["t4"]}),
        ("?torch&cudnn&nccl&gpu=l4&os=debian12", ["torch", "cudnn", "nccl"], {"gpu": ["l4"], "os": "debian12"}),
        ("?cudnn=9.10.2&gpu=t4", ["cudnn=9.10.2"], {"gpu": ["t4"]}),
    ],
)
def test_a_link_carries_its_question_and_the_lines_are_those_of_the_command(
    chromium, folder, question, wishes, options
):
    page = _asked(chromium, folder, question)
    said = resolve(*wishes, **options)
    pip = [line.partition("-m ")[2] for line in said.install.pip if "-m pip install" in line]
    assert _lines(page) == [*said.install.apply, *pip]
    assert _asked_again(page) == said.stack
    cautions = page.tells("[...document.querySelectorAll('.cautions li')].map(e => e.textContent)")
    assert set(cautions) <= set(said.warnings)
    assert all("Python" in text for text in said.warnings if text not in cautions)
    text = page.tells("document.getElementById('answer').innerText")
    assert said.stack.driver.version in text
    assert said.stack.driver.module in text
    if said.stack.python is not None:
        assert said.stack.python.requires in text


def _asked_again(page):
    """What the command that the page names answers."""
    words = shlex.split(page.tells("[...document.querySelectorAll('#answer .same code')].pop().textContent"))
    assert words[:2] == ["gpusetup", "resolve"]
    options = {word.removeprefix("--"): words[place + 1] for place, word in enumerate(words) if word.startswith("--")}
    wishes = [word for place, word in enumerate(words[2:], 2) if not {"--"} & {word[:2], words[place - 1][:2]}]
    return resolve(*wishes, **{name: [text] if name == "gpu" else text for name, text in options.items()}).stack


@pytest.mark.parametrize(
    ("question", "version", "rest", "options"),
    [
        ("?torch=2.15.0&gpu=v100", "torch==2.15.0", [], {"gpu": ["v100"]}),
        ("?torch=2.6&tensorflow=2.4&gpu=v100", "torch=2.6", ["tensorflow=2.4"], {"gpu": ["v100"]}),
        ("?torch=2.9.0&driver=450.80.02&gpu=H800", "torch==2.9.0", [], {"gpu": ["H800"], "driver": "450.80.02"}),
        ("?jax=0.7&torch=2.1&os=ubuntu22.04", "jax=0.7", ["torch=2.1"], {"os": "ubuntu22.04"}),
    ],
)
def test_what_does_not_fit_says_why_in_the_words_of_the_command(chromium, folder, question, version, rest, options):
    page = _asked(chromium, folder, question)
    told = page.tells("[...document.querySelectorAll('#answer ul:not(.ways) li')].map(e => e.textContent)")
    assert [text.removesuffix(" (source)") for text in told] == [
        clash.text for clash in why_not(version, *rest, **options)
    ]
    assert page.tells("[...document.querySelectorAll('#answer a')].every(a => a.href.startsWith('https://'))")


def test_a_way_out_is_chosen_by_a_button(chromium, folder):
    page = _asked(chromium, folder, "?torch=2.15.0&cupy&gpu=v100")
    page.tells("document.querySelector('.ways button').click()")
    page.until("document.querySelector('#answer .line code').textContent.startsWith('sudo')")
    assert _lines(page)[0] == resolve("torch", "cupy", gpu=["v100"]).install.apply[0]


@pytest.mark.parametrize(
    ("question", "command"),
    [
        ("?vllm&torch=2.6&gpu=h100", "gpusetup resolve vllm 'torch==2.6.*' --gpu h100"),
        ("?torch=%3E%3D2.4&gpu=h100", "gpusetup resolve 'torch>=2.4' --gpu h100"),
        ("?torch=2.6&python=3.12", "gpusetup resolve python=3.12 'torch==2.6.*'"),
        ("?torch&torch=2.6", "gpusetup resolve torch=2.6 torch"),
        ("?torch&os=beos5", "gpusetup resolve torch --os beos5"),
        ("?torch&gpu=v100&gpu=h100", "gpusetup resolve torch --gpu v100 --gpu h100"),
        ("?torch=9.9.9", "gpusetup resolve torch=9.9.9"),
    ],
)
def test_a_question_beyond_the_page_gets_the_command_and_no_answer(chromium, folder, question, command):
    page = chromium.open("about:blank")
    page.go(f"{(folder / 'index.html').as_uri()}{question}")
    page.until("document.querySelector('#answer .line') !== null")
    assert _lines(page) == [command]
    assert page.tells("document.querySelector('#all').textContent") == ""


def test_wishes_are_added_and_taken_away_by_keyboard_and_the_link_has_them_all(chromium, folder):
    page = _asked(chromium, folder, "?torch=2.6&gpu=v100")
    page.tells("document.getElementById('more').focus()")
    page.key("Enter")
    page.until("document.querySelectorAll('#wishes p').length === 2")
    assert page.tells("document.activeElement.getAttribute('aria-label')") == "And also"
    page.tells(
        "(e => { e.value = 'cupy'; e.dispatchEvent(new Event('change')) })(document.querySelectorAll('#wishes select')[2])"
    )
    page.until("document.querySelector('#answer .line code').textContent.includes('cupy==')")
    assert _lines(page)[0] == resolve("torch=2.6", "cupy", gpu=["v100"]).install.apply[0]
    assert re.search(r"torch=2\.6&cupy=&gpu=v100$", page.tells("location.href"))
    offered = "[...document.querySelectorAll('#wishes select')[0].options].map(e => e.value)"
    assert "cupy" not in page.tells(offered)
    page.tells("document.querySelector('#wishes button').focus()")
    page.key("Enter")
    page.until("!document.querySelector('#answer .line code').textContent.includes('cupy==')")
    assert page.tells("document.activeElement.id") == "more"
    assert _lines(page)[0] == resolve("torch=2.6", gpu=["v100"]).install.apply[0]


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
    page = _asked(chromium, folder, "?torch&cupy&cudnn&gpu=h100", width=360, scheme="dark")
    assert page.tells("document.documentElement.scrollWidth") <= 360
    named = "e.labels.length > 0 || e.getAttribute('aria-label')"
    assert page.tells(f"[...document.querySelectorAll('input, select')].every(e => {named})")
    page.key("Tab")
    assert page.tells("document.activeElement.id") == "framework"
    assert page.tells("getComputedStyle(document.activeElement).outlineStyle") != "none"


def test_the_first_view_is_small(folder):
    first = [
        "index.html", "lookup.js", "pieces.js", "message.js", "about.js", "asked.js", "words.js", "explorer.js",
        "problems/x86_64.js",
    ]  # fmt: skip
    assert sum(len(gzip.compress((folder / name).read_bytes())) for name in first) < 100_000
