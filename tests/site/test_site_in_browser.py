"""The site in a real browser, opened from its folder: it fits, it finds, and the keyboard reaches its links."""

import re
from itertools import pairwise

import pytest

from gpusetup.model.verdict import Result
from gpusetup.report.html import to_html as report_html
from gpusetup.report.model import HostReport, Report
from gpusetup_fleet.model.pull import FleetHost, FleetState, PullReport
from gpusetup_fleet.pull.fleet_page import to_html as fleet_html
from tests.lab.browser import BROWSER

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium (Debian: apt-get install chromium)")
PLACES = (
    "index.html", "contributing.html", "guides/health.html", "reference/benchmarks.html", "reference/features.html",
    "reference/commands/README.html", "reference/matrix/torch.html", "reference/messages/out-of-memory.html",
)  # fmt: skip


def _seen(chromium, address, *, width=1000):
    page = chromium.open("about:blank")
    page.shape(width=width)
    page.go(address)
    page.until("document.readyState === 'complete'")
    return page


@pytest.mark.parametrize("place", PLACES)
def test_no_page_is_wider_than_a_phone_and_each_has_one_title(chromium, site, place):
    page = _seen(chromium, (site / place).as_uri(), width=390)
    assert page.tells("document.documentElement.scrollWidth") <= 390
    assert page.tells("document.querySelectorAll('h1').length") == 1
    levels = page.tells(
        "[...document.querySelectorAll('article h1, article h2, article h3, article h4')].map(h => +h.tagName[1])"
    )
    assert all(after - before <= 1 for before, after in pairwise(levels)), "no level of headings is left out"
    assert page.tells("[...document.images].filter(i => !i.alt || !i.naturalWidth).map(i => i.src)") == []


@pytest.mark.parametrize("width", [400, 800, 1400])
def test_no_report_is_wider_than_its_window(chromium, tmp_path, width):
    said = f"https://mirror.example/{'ubuntu2404/' * 30} answered 503"
    result = Result(
        id="driver.log", level="quick", verdict="fail", text=said, measured="580.178.04", expected="580.178.04"
    )
    hosts = (HostReport(name="gpu01", results=(result,)), HostReport(name="gpu02", problem=said))
    pull = PullReport(host="gpu01", number=1, time="", kind="h100", state="failed", message=said, hint=said)
    state = FleetState(time="2026-11-28T10:30:00Z", hosts={"gpu01": FleetHost(received="2026-11-28", report=pull)})
    for text in (
        report_html(Report(title="t", started="", seconds=0.0, program="p", hosts=hosts)),
        fleet_html(state, {}),
    ):
        (tmp_path / "page.html").write_text(text)
        page = _seen(chromium, (tmp_path / "page.html").as_uri(), width=width)
        assert page.tells("document.documentElement.scrollWidth") <= width


def test_search_finds_a_message_from_a_folder(chromium, site):
    page = _seen(chromium, (site / "search.html").as_uri() + "?q=Xid+79")
    page.until("document.querySelectorAll('#search-results li a').length > 0")
    found = page.tells("[...document.querySelectorAll('#search-results li a')].map(a => a.getAttribute('href'))")
    assert found
    assert all((site / re.split(r"[?#]", link)[0]).is_file() for link in found)


def test_the_keyboard_reaches_the_first_link_and_it_is_seen(chromium, site):
    page = _seen(chromium, (site / "index.html").as_uri())
    page.key("Tab")
    assert page.tells("document.activeElement.tagName") in ("A", "INPUT", "LABEL", "BUTTON")
    assert page.tells("getComputedStyle(document.activeElement).outlineStyle") != "none"
