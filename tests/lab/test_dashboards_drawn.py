"""The dashboards of `gpusetup export monitoring` as a real browser draws them, from Debian's real Prometheus.

The exporters are the stand-ins of test_monitoring; Grafana itself is not there.
"""

import html
import json
import re
from subprocess import run as start
from urllib.parse import urlencode

import pytest

from tests.lab.browser import BROWSER
from tests.lab.picture import of_png
from tests.lab.process import until
from tests.lab.prometheus import Exporter, running
from tests.lab.test_monitoring import NEW, OLD, SMI

SECTION = re.compile(r"<section ([^>]*)>(.*?)</section>", re.DOTALL)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no browser: apt-get install chromium")


def browse(page, folder, *more):
    """Let the browser work until nothing is under way any more, and return what it printed."""
    words = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}/profile"]
    done = start(
        [str(BROWSER), *words, "--window-size=1400,1500", "--virtual-time-budget=20000", *more, page],
        capture_output=True, text=True, timeout=180, check=False, cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def sections(document):
    """What was drawn of each panel, by its title: attributes and content."""
    found = {}
    for attributes, content in SECTION.findall(document):
        told = {name: html.unescape(value) for name, value in re.findall(r'data-(\w+)="([^"]*)"', attributes)}
        found[told["title"]] = told, html.unescape(content)
    return found


def test_every_panel_of_every_dashboard_is_drawn_by_a_browser(written, tmp_path):
    exporters = [Exporter(text) for text in (OLD, NEW, SMI)]
    with running(written, [exporter.address for exporter in exporters], Exporter("")) as prometheus:
        until(lambda: len(prometheus.ask("gpu:utilization:ratio")) == len(exporters), "figures of every exporter")
        asked = "gpu:temperature:celsius[1m]"
        until(lambda: any(len(item["values"]) > 5 for item in prometheus.ask(asked)), "some seconds of them")
        for path in sorted((written / "dashboards").iterdir()):
            panels = json.loads(path.read_text())["panels"]
            asked = urlencode({"prometheus": f"http://{prometheus.address}", "dashboard": path.stem, "hours": "0.25"})
            address = f"file://{written}/dashboards.html?{asked}"
            document = browse(address, tmp_path, "--dump-dom")
            drawn = sections(document)
            assert f'data-drawn="{len(panels)}"' in document
            assert set(drawn) == {panel["title"] for panel in panels}
            assert not [title for title, (told, _) in drawn.items() if "failed" in told]
            picture = tmp_path / f"{path.stem}.png"
            browse(address, tmp_path, "--window-size=700,800", f"--screenshot={picture}")
            assert len(of_png(picture).colours) > 12, "a picture with nothing on it"
            for panel in panels:
                told, content = drawn[panel["title"]]
                expected = prometheus.ask(panel["targets"][0]["expr"].replace("$instance", ".*").replace("$gpu", ".*"))
                assert (int(told["series"]) > 0) == bool(expected), panel["title"]
                if panel["type"] == "timeseries" and expected:
                    assert content.count("<polyline") >= len(expected)
            if path.stem == "gpusetup-fleet":
                assert '<div class="number">3</div>' in drawn["GPUs"][1]
                assert "97 %" in drawn["Utilization"][1]
                assert "41 °C" in drawn["Hottest GPU of each host"][1]
                assert "NVIDIA GeForce RTX 4090: 1" in drawn["GPUs by model"][1]
