"""What clouds say of a machine: a real HTTP server stands for the metadata service, well-behaved and hostile."""

import json
import time
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler

import pytest

from gpusetup.content import host_code
from gpusetup.model.facts_machine import CloudEvent
from tests.flaky import listening
from tests.stored import stored_rows

virtualisation = host_code("gpu_probe.virtualisation")
AWS, TOKEN = "/latest/meta-data/", {"PUT /latest/api/token": "abc=="}
REBOOT = {"Code": "system-reboot", "NotBefore": "21 Jan 2027 09:00:43 GMT", "State": "active", "EventId": "i-1"}
NEEDED = {
    "/latest/meta": ("X-aws-ec2-metadata-token", "abc=="), "/latest/api": ("X-aws-ec2-metadata-token-ttl-seconds", "60"),
    "/computeMetadata": ("Metadata-Flavor", "Google"), "/metadata": ("Metadata", "true"),
    "/opc/v2": ("Authorization", "Bearer Oracle"),
}  # fmt: skip
"""What the services of the clouds demand in a question's header."""


@pytest.fixture
def service_stand_in(monkeypatch):
    """A server on a port of this machine instead of 169.254.169.254; `pages`: by path what it answers."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self):
            question = self.path if self.command == "GET" else f"{self.command} {self.path}"
            server.asked.append(question)
            name, value = next((need for start, need in NEEDED.items() if self.path.startswith(start)), ("", ""))
            page = server.pages.get(question, 404)
            if name and self.headers.get(name) != value:
                page = 401
            self.send_response(page if isinstance(page, int) else 200)
            self.send_header("Location", f"{server.url}/stolen")
            self.end_headers()
            for piece in () if isinstance(page, int) else page.split("|"):  # "|": half a second passes
                self.wfile.write(piece.encode("latin-1"))
                time.sleep(0.5 * ("|" in page))

        do_PUT = do_GET  # noqa: N815 - the name that the server calls

    with listening(Answers) as server:
        server.pages, server.asked = {}, []
        monkeypatch.setattr(virtualisation, "ADDRESS", server.server_address)
        monkeypatch.setattr(virtualisation, "_SECONDS", 60.0)
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        yield server


def told(name):
    host = host_code("gpu_probe.host").LiveHost()
    answer = virtualisation.metadata(host, name)
    return answer["machine_type"], [(one["what"], one["at"]) for one in answer["events"]], sorted(host.unreadable)


@pytest.mark.parametrize(("case", "pages", "name", "events"), stored_rows("cloud-metadata.json"))
def test_what_each_cloud_says(service_stand_in, case, pages, name, events):
    service_stand_in.pages = pages
    assert told(case.split()[0].strip(",")) == (name, [tuple(event) for event in events], [])


HOSTILE = {
    "slow": "p|5|.|4|8|x|large", "redirecting": 302, "wrong token": 401, "binary": "\xff\x00\xfe", "empty": "",
    "huge": "p" * (1 << 22), "markup": "<html>",
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize(("name", "path"), [("aws", AWS + "instance-type"), ("oracle", "/opc/v2/instance/shape")])
def test_a_hostile_service_says_nothing_and_holds_nobody_up(service_stand_in, monkeypatch, name, path, case):
    events = '[[{"Code": 1}], {"State": "active"}, "x"]'
    service_stand_in.pages = {**TOKEN, path: HOSTILE[case], AWS + "events/maintenance/scheduled": events}
    monkeypatch.setattr(virtualisation, "_SECONDS", 1.0 if case == "slow" else 60.0)
    assert told(name) == (None, [], ["virtualisation.machine_type"])
    assert "/stolen" not in service_stand_in.asked


def test_words_of_a_cloud_are_one_plain_line(service_stand_in):
    bad = {**REBOOT, "Code": "a\n\x1b[31m`reboot`", "NotBefore": ["x"] * 99}
    service_stand_in.pages = {**TOKEN, AWS + "events/maintenance/scheduled": json.dumps([bad])}
    ((what, at),) = told("aws")[1]
    assert (what, len(at), CloudEvent(what=what, at=at).near(datetime.now(timezone.utc))) == ("a31mreboot", 64, True)
