"""Attacks on a collector over TLS, a row each: what is sent, what is wanted, what came. The server is the real one."""

import contextlib
import json
import re
import shutil
import socket
import ssl
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from gpusetup_fleet.pull.store import FILE, Store, make_token
from gpusetup_fleet.pull.web import FAILURES, LIMIT, collector_of
from gpusetup_fleet.supply.server import Limits, Tls, _client
from tests.certificates import Authority
from tests.fleet.pull.conftest import report

LONG = Limits(connections=60, of_an_address=20, handshake=600, request=600, idle=1)
"""No test waits for these; one about time shortens them for the connections that it makes."""
NEXT = b"GET /healthz HTTP/1.1\r\nHost: c\r\n\r\n"
"""A second request; whoever takes the first one's length wrong answers it too."""


class Site:
    """A collector with its authority, a host gpu01 and a reader eve."""

    def __init__(self, folder):
        authority = Authority(folder)
        self.pair = authority.pair("localhost", file="site.pem")
        self.known = authority.pair("gpu02", file="gpu02.pem")
        self.context = ssl.create_default_context(cafile=authority.certificate)
        self.store, self.said = Store(folder / FILE), []
        self.tokens = {"gpu01": make_token(folder / FILE, "gpu01", "host")}
        self.tokens["eve"] = make_token(folder / FILE, "eve", "reader")
        tls = Tls(self.pair, self.pair, authority.certificate)
        self.server = collector_of(folder, self.store, ("127.0.0.1", 0), tls, self.said.append, limits=LONG)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def plain(self, source="127.0.0.1"):
        return socket.create_connection(("127.0.0.1", self.server.server_port), 10, (source, 0))

    def connected(self, source="127.0.0.1", context=None):
        return (context or self.context).wrap_socket(self.plain(source), server_hostname="localhost")

    def sent(self, *parts, source="127.0.0.1", context=None):
        """Return the statuses of all answers on one connection, and their text."""
        got = b""
        with self.connected(source, context) as one, contextlib.suppress(OSError):
            for part in parts:
                one.sendall(part)
            while block := one.recv(1 << 16):
                got += block
        return re.findall(rb"^HTTP/1\.1 (\d+)", got, re.MULTILINE), got

    def head(self, *lines, who="gpu01"):
        sign = [f"Authorization: Bearer {self.tokens.get(who, who)}"] if who else []
        return "\r\n".join(("POST /v1/reports HTTP/1.1", "Host: c", *sign, *lines, "", "")).encode("latin-1")

    def reported(self, number, who="gpu01", host="gpu01", **more):
        body = json.dumps(report(host, number)).encode()
        return self.sent(self.head(f"Content-Length: {len(body)}", "Connection: close", who=who), body, **more)[0]

    def asked(self, place, who="", **more):
        """Return the status of one request's answer, and its text."""
        sign = f"Authorization: Bearer {self.tokens[who]}\r\n" if who else ""
        (status,), text = self.sent(
            f"GET {place} HTTP/1.1\r\nHost: c\r\n{sign}Connection: close\r\n\r\n".encode(), **more
        )
        return status, text

    def healthy(self):
        """See that somebody else has an answer."""
        assert self.asked("/healthz", source="127.0.0.9")[0] == b"200"

    def shows(self, pair):
        """Return the context of a client with this certificate."""
        context = ssl.create_default_context(cafile=self.pair.parent / "site-ca.pem")
        context.load_cert_chain(pair)
        return context

    def late(self, source):
        """Let the time of an address's one connection be over."""
        (place,) = self.server.door.inside[source]
        connection = place.transport.get_protocol()
        assert not connection.deadline.cancelled()
        connection.loop.call_soon_threadsafe(connection._late)

    def begun(self, how, source):
        """Return a connection that never comes to an end."""
        one = self.plain(source) if how == "no TLS hello" else self.connected(source)
        if how != "no TLS hello":
            one.sendall(b"GET / HT" if how == "half a request" else self.head("Content-Length: 500") + b"{")
        return one


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("collector"))
    yield made
    made.server.stop()
    made.thread.join(30)
    made.store.close()


BODY = json.dumps(report("gpu01", 1)).encode()
LENGTH = f"Content-Length: {len(BODY)}"
FRAMING = [
    ("two lengths that differ", (LENGTH, "Content-Length: 3"), BODY + NEXT, [b"400"]),
    ("two lengths in one line", (f"{LENGTH}, 3",), BODY + NEXT, [b"400"]),
    ("a blank before the colon", (f"Content-Length : {len(NEXT)}",), NEXT, [b"400"]),
    ("a length of superscript digits", ("Content-Length: \xb2",), b"ab" + NEXT, [b"400"]),
    ("a length with a sign", ("Content-Length: +5",), b"abcde" + NEXT, [b"400"]),
    ("a length of 5,000 digits", (f"Content-Length: {'9' * 5000}",), NEXT, [b"400"]),
    ("a negative length", ("Content-Length: -1",), NEXT, [b"400"]),
    ("a length and chunks", (LENGTH, "Transfer-Encoding: chunked"), b"0\r\n\r\n" + NEXT, [b"400"]),
    ("chunks alone", ("Transfer-Encoding: chunked",), b"0\r\n\r\n" + NEXT, [b"411"]),
    ("chunks by another name", ("Transfer-Encoding: xchunked",), BODY + NEXT, [b"400"]),
    ("a folded header", (LENGTH, "X: a\r\n b"), b"x" * len(BODY), [b"400"]),
    ("NUL in a header", (LENGTH, "X: a\0b"), BODY + NEXT, [b"400"]), ("no length", (), NEXT, [b"411"]),
    ("10 GiB announced", ("Content-Length: 10737418240",), b"x" * 1000, [b"413"]),
    ("a little too large", (f"Content-Length: {LIMIT + 1}", "Connection: close"), b"x" * (LIMIT + 1), [b"413"]),
    ("gzip", (LENGTH, "Content-Encoding: gzip", "Connection: close"), b"\x1f\x8b" + b"x" * (len(BODY) - 2), [b"400"]),
    ("70 KiB of one header", ("X: " + "a" * 70_000,), NEXT, [b"411"]),
    ("2,000 headers", tuple(f"X{one}: {'a' * 100}" for one in range(2000)), NEXT, [b"400"]),
]  # fmt: skip


def test_one_request_is_one_request(site):
    with ThreadPoolExecutor(len(FRAMING)) as threads:
        answers = threads.map(lambda row: site.sent(site.head(*row[1]), row[2]), FRAMING)
        for (name, _, _, wanted), (got, text) in zip(FRAMING, answers, strict=True):
            # 411: nothing was announced, what follows is a request of its own; 400: a block of the header was too long
            more = [[b"411", b"200"], [b"400"]] if wanted == [b"411"] else []
            assert got in (wanted, *more), (name, text)
    site.healthy()


PLACES = [
    ("a name of 5,000 characters", "/v1/offers/" + "a" * 5000, b"404"),
    ("a way out of the folder", "/v1/offers/..%2f..%2fetc%2fpasswd", b"404"),
    ("NUL in a name", "/v1/offers/a%00b", b"404"), ("a name in no alphabet", "/v1/offers/%ff%fe", b"404"),
    ("a hidden file", "/v1/offers/.hidden", b"404"), ("a way out in clear", "/v1/offers/../collector", b"404"),
    ("a folder in it", "/v1/offers/a/b", b"404"),
    ("SQL for a host", "/v1/hosts/'%20OR%201=1--", b"404"), ("a link to another file", "/v1/offers/linked", b"404"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "wanted"), [row[1:] for row in PLACES], ids=[row[0] for row in PLACES])
def test_a_place_that_is_none(site, place, wanted):
    folder = site.store.path.parent / "offers"
    folder.mkdir(exist_ok=True)
    (folder / "secret").write_text("not an offer")
    if not (folder / "linked.json").is_symlink():
        (folder / "linked.json").symlink_to(folder / "secret")
    got, text = site.asked(place, "eve")
    assert got == wanted, text
    assert b"not an offer" not in text


@pytest.mark.parametrize("how", ["no TLS hello", "half a request", "half a body"])
def test_who_never_comes_to_an_end_keeps_nobody_waiting(site, how, monkeypatch):
    with contextlib.ExitStack() as held:
        for number in range(120):  # twice what there is room for
            held.enter_context(site.begun(how, f"127.0.1.{number % 3}"))
        site.healthy()
        assert site.server.door.number <= LONG.connections
        assert max(map(len, site.server.door.inside.values())) <= LONG.of_an_address
    assert any("127.0.1." in line for line in site.said)
    source, short = f"127.0.6.{len(how)}", {"handshake" if how == "no TLS hello" else "request": 1}
    monkeypatch.setattr(site.server.door, "limits", LONG._replace(**short))
    with site.begun(how, source) as one:
        until = time.monotonic() + 60
        while not any(line.startswith(source) for line in site.said):
            assert time.monotonic() < until, "a request has an end, however slowly it comes"
            with contextlib.suppress(OSError):  # a byte now and then keeps no connection alive
                one.send(b"x" * (how != "no TLS hello"))
            time.sleep(0.1)


def test_an_answer_that_nobody_reads_ends_too(site):
    (site.store.path.parent / "offers").mkdir(exist_ok=True)
    (site.store.path.parent / "offers/large.json").write_bytes(b" " * (32 << 20))
    sign = f"Authorization: Bearer {site.tokens['gpu01']}"
    with site.connected("127.0.2.1") as one:
        one.sendall(f"GET /v1/offers/large HTTP/1.1\r\nHost: c\r\n{sign}\r\n\r\n".encode())
        assert one.recv(12) == b"HTTP/1.1 200"
        site.late("127.0.2.1")
        until = time.monotonic() + 60
        while "127.0.2.1" in site.server.door.inside:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_an_answer_that_comes_too_late_is_dropped(site, monkeypatch, caplog):
    def add(*_words):
        site.late("127.0.7.1")
        late = Future()
        late.set_result("kept")  # the server's loop sees it after the end of the time
        return late

    monkeypatch.setattr(site.store, "add", add)
    assert site.reported(5, source="127.0.7.1") == [b"408"]  # the connection is closed after the late answer came
    assert not caplog.records


@pytest.mark.parametrize(
    ("address", "counted"),
    [("127.0.0.1", "127.0.0.1"), ("::ffff:10.0.0.7", "10.0.0.7"), ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"), ("fe80::7%eth0", "fe80::/64")],
)  # fmt: skip
def test_the_addresses_of_one_machine_have_its_places_together(address, counted):
    assert _client(address) == counted


def test_who_guesses_tokens_is_told_to_wait_and_a_right_one_beside_it_is_taken(site):
    got = [site.reported(1, who="guessed-token-xyz", source="127.0.3.1")[0] for _ in range(FAILURES + 3)]
    assert got == [b"401"] * FAILURES + [b"429"] * 3
    assert site.reported(int(time.time() * 1000), source="127.0.3.1") == [b"200"]
    lines = [line for line in site.said if line.startswith("127.0.3.1 401")]
    assert lines
    assert "no host or reader with this token is known" in lines[0]
    assert len(lines) <= 10, "a flood of refusals is no flood of lines"
    assert not [line for line in site.said for secret in (*site.tokens.values(), "guessed-token") if secret in line]


def test_a_line_of_the_log_is_one_line(site):
    site.asked("/%0aforged%1b%5b2J%e2%80%ae", source="127.0.4.1")
    (line,) = [line for line in site.said if line.startswith("127.0.4.1")]
    assert line.isprintable()
    assert "\\u000aforged\\u001b[2J\\u202e" in line


def test_a_certificate_is_the_host_of_its_name_and_no_reader(site):
    context = site.shows(site.known)
    assert [site.reported(1, "", host, context=context) for host in ("gpu02", "gpu01")] == [[b"200"], [b"403"]]
    assert site.asked("/", context=context)[0] == b"401"


def test_a_certificate_of_another_authority_is_nobodys(site, tmp_path):
    other = Authority(tmp_path, "somebody else").pair("gpu02")
    with contextlib.suppress(OSError):
        assert site.sent(site.head(LENGTH), BODY, context=site.shows(other))[0] == []


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_tls_is_refused(site, version):
    context = ssl.create_default_context(cafile=site.pair.parent / "site-ca.pem")
    context.minimum_version = context.maximum_version = version
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError):
        site.connected(context=context)


def test_the_page_runs_no_script_stands_in_no_frame_and_is_kept_by_nobody(site):
    text = site.asked("/", "eve")[1].lower()
    for wanted in (
        b"content-security-policy: default-src 'none'", b"x-content-type-options: nosniff", b"x-frame-options: deny",
        b"frame-ancestors 'none'", b"cache-control: no-store",
    ):  # fmt: skip
        assert wanted in text
    assert b"script-src" not in text


def test_a_new_certificate_is_shown_and_who_is_connected_stays(site):
    def serial():
        with site.connected("127.0.5.1") as one:
            return one.getpeercert()["serialNumber"]

    before, kept = serial(), site.connected("127.0.5.2")
    whole = site.pair.read_bytes()
    site.pair.write_bytes(b"half a file")
    site.server.reload()
    assert serial() == before, "a certificate that cannot be used takes the place of none"
    site.pair.write_bytes(whole)
    (site.pair.parent / "new").mkdir()
    authority = Authority(site.pair.parent / "new", "the next authority")
    authority.folder = site.pair.parent
    authority.pair("localhost", file="site.pem")
    known = authority.pair("gpu03", file="gpu03.pem")
    shutil.copy(authority.certificate, site.pair.parent / "site-ca.pem")
    site.server.reload()
    with kept:
        kept.sendall(NEXT)
        assert kept.recv(100).startswith(b"HTTP/1.1 200")
    site.context = site.shows(known)
    assert serial() != before
    assert site.reported(1, "", "gpu03") == [b"200"], "the authority of clients may be a new one too"
