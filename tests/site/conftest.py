"""The site, built once."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lab.browser import browser

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    subprocess.run([sys.executable, "-m", "tools.site", str(folder)], check=True, cwd=ROOT, timeout=600)
    return folder


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found
