"""The site: every page and link is there, nothing comes from elsewhere, and a link that leads nowhere fails the build."""

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from gpusetup.cli.commands import COMMANDS
from gpusetup.doctor import references
from gpusetup.doctor.catalogue import catalogue
from gpusetup.doctor.findings import finding_of
from tools.site.__main__ import MARK, lead_to_versions, main, render
from tools.site.pages import relinked

ROOT = Path(__file__).resolve().parents[2]


class Page(HTMLParser):
    """Where a page leads to, what it loads, and the places in it."""

    def __init__(self, text):
        super().__init__()
        self.links: set[str] = set()
        self.loads: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.places |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and given.get("href"):
            self.links.add(given["href"])
        elif tag in ("script", "img", "iframe", "source") and given.get("src"):
            self.loads.add(given["src"])
        elif tag == "link" and given.get("href"):
            self.loads.add(given["href"])


@pytest.fixture(scope="session")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}


def _target(page, link):
    parts = urlsplit(link)
    return (page.parent / unquote(parts.path)).resolve() if parts.path else page, unquote(parts.fragment)


def test_every_link_inside_leads_to_a_page_and_a_place_in_it(pages):
    nowhere = []
    for page, told in pages.items():
        for link in told.links | told.loads:
            if urlsplit(link).scheme:
                continue
            path, place = _target(page, link)
            if not path.exists() or (place and path in pages and place not in pages[path].places):
                nowhere.append(f"{page.name}: {link}")
    assert nowhere == []


def test_nothing_is_loaded_from_elsewhere(pages, site):
    assert {load for told in pages.values() for load in told.loads if urlsplit(load).netloc} == set()
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert re.findall(r"url\(['\"]?(?:https?:)?//[^)]*\)", styles) == []


def test_every_place_that_the_program_names_is_a_page(site):
    named = [finding_of(cause).page for cause in catalogue().causes.values()]
    named += [references.page_of(reference) for reference in references.listed()]
    named += [f"reference/commands/{name.replace(' ', '-')}.md" for name in COMMANDS]
    assert len(named) > 500
    assert [page for page in named if not (site / page).with_suffix(".html").is_file()] == []


@pytest.mark.parametrize("link", ["nowhere.md", "#no-such-heading", "other.md#no-such-heading"])
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path, link):
    source = tmp_path / "source"
    source.mkdir()
    toctree = "```{toctree}\nother\n```\n"
    (source / "other.md").write_text("# Other\n\n## Here\n", encoding="utf-8")
    (source / "index.md").write_text(f"# Home\n\n[there](other.md#here)\n\n{toctree}", encoding="utf-8")
    assert render(source, tmp_path / "good") == 0
    (source / "index.md").write_text(f"# Home\n\n[there]({link})\n\n{toctree}", encoding="utf-8")
    assert render(source, tmp_path / "bad") != 0


def test_links_out_of_the_documentation_lead_to_their_place_on_the_site():
    places = {ROOT / "CHANGELOG.md": "changelog.md", ROOT / "docs/guides/mig.md": "guides/mig.md"}
    assert relinked("[a](docs/guides/mig.md#b)", ROOT / "README.md", "index.md", places) == "[a](guides/mig.md#b)"
    assert relinked("[a](docs/guides)", ROOT / "README.md", "index.md", places) == "[a](guides/README.md)"
    assert relinked("![a](docs/house.svg)", ROOT / "README.md", "index.md", places) == "![a](house.svg)"
    inside = "[a](../../CHANGELOG.md), [b](mig.md), [c](https://example.org/x.md), [d](#e)"
    moved = "[a](../changelog.md), [b](../guides/mig.md), [c](https://example.org/x.md), [d](#e)"
    assert relinked(inside, ROOT / "docs/guides/mig.md", "guides/mig.md", places) == moved


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "mine").write_text("", encoding="utf-8")
    assert main([str(tmp_path)]) == 2
    assert (tmp_path / "mine").exists()
    assert "holds something else" in capsys.readouterr().err


def test_versions_stand_beside_each_other_and_one_page_leads_to_all(tmp_path):
    for name in ("0.9.0", "0.10.0", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / MARK).write_text("", encoding="utf-8")
    lead_to_versions(tmp_path)
    found = Page((tmp_path / "index.html").read_text(encoding="utf-8"))
    assert found.links == {"0.9.0/index.html", "0.10.0/index.html"}
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert text.index("0.10.0") < text.index("0.9.0"), "the newest first"


def test_the_keyboard_scrolls_what_is_wider_than_the_screen(site):
    text = "".join(path.read_text(encoding="utf-8") for path in (site / "guides").glob("*.html"))
    assert "<pre" in text
    assert "table-wrapper" in text
    assert re.findall(r"<pre>|<div class=\"table-wrapper", text) == []


def test_search_fetches_nothing_so_that_it_works_from_a_folder(site):
    options = (site / "_static/documentation_options.js").read_text(encoding="utf-8")
    assert re.search(r"SHOW_SEARCH_SUMMARY: (\w+)", options)[1] == "false"
