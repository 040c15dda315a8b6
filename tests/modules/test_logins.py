"""Passwords of mirrors stand in no file that others than root may read, and the package managers find them there."""

import base64
import re
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import process, sources

from tests.flaky import listening
from tests.modules import real_deb
from tests.modules.deb_host import DebHost
from tests.modules.stand_ins import refused, write

SECRET, SPELLED = "s3cr%t:x/y", "s3cr%25t%3Ax%2Fy"


def written(kind, *uris, root="/"):
    source = {"name": "site", "kind": kind, "uris": list(uris), "suites": ["/"]}
    return sources.render(source, b"\x99\x00\x00", sources.Layout(root), [])


@pytest.mark.parametrize("kind", ["apt", "dnf", "zypper"])
def test_what_others_may_read_has_no_password(kind):
    files = written(kind, f"https://anna:{SPELLED}@mirror.example.org/cuda/")
    text = {path: content if isinstance(content, str) else "" for path, (content, _mode) in files.items()}
    secret = {path for path, content in text.items() if SECRET in content}
    assert len(secret) == 1
    assert {files[path][1] for path in secret} == {0o600}
    assert not [path for path, content in text.items() if SPELLED in content or "anna:" in content]
    assert any("https://mirror.example.org/cuda/" in content for content in text.values())
    plain = written(kind, "https://mirror.example.org/cuda/").values()
    assert {mode for _content, mode in plain} == {0o644}, "without a login nothing is secret"


_TWO = ("https://a:b@one/", "https://c:d@two/")
_LOGINS = ("https://:b@one/", "https://a:b%20c@one/", "https://a:b%0Amachine@one/")


@pytest.mark.parametrize(("kind", "uris"), [("dnf", _TWO), ("zypper", _TWO), *(("apt", (one,)) for one in _LOGINS)])
def test_a_login_that_cannot_be_written_is_refused(kind, uris):
    with refused("GS-444"):
        written(kind, *uris)


def test_each_of_apts_addresses_has_its_own_login():
    files = written("apt", "https://a:b@one/x/", "http://two/", "https://c:d@three/")
    content, _mode = files["/etc/apt/auth.conf.d/site.conf"]
    assert str(content).splitlines()[1:] == [
        "machine https://one/x/ login a password b", "machine https://three/ login c password d",
    ]  # fmt: skip


@pytest.fixture
def mirror(tmp_path):
    """A server that wants a login: its address without one, its folder, and what it answered."""
    folder, answered = tmp_path / "mirror", list[int]()
    folder.mkdir()
    wanted = "Basic " + base64.b64encode(f"anna:{SECRET}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            file = folder / self.path.lstrip("/").removeprefix("./")
            code = 401 if self.headers.get("Authorization") != wanted else 200 if file.is_file() else 404
            answered.append(code)
            content = file.read_bytes() if code == 200 else b""
            self.send_response(code)
            if code == 401:
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with listening(Handler) as web:
        yield f"127.0.0.1:{web.server_port}/", folder, answered


@real_deb.NEEDED
def test_apt_finds_its_login(mirror, tmp_path, shelf, monkeypatch):
    address, folder, answered = mirror
    host = real_deb.RealDeb(tmp_path / "host", DebHost({}, {"tool": ["5"]}), shelf)
    host.use(monkeypatch)
    (folder / "Packages").write_bytes((host.pool / "Packages").read_bytes())
    (host.root / "etc/apt/sources.list").unlink()
    for path, (content, mode) in written("apt", f"http://anna:{SPELLED}@{address}", root=str(host.root)).items():
        write(Path("/"), {path: content}, mode)
    listed = host.root / "etc/apt/sources.list.d/site.sources"
    listed.write_text(re.sub(r"Signed-By: .*", "Trusted: yes", listed.read_text()))
    code, text, error = process.output(["apt-get", "-q", "update"], process.environment())
    assert (code, 401 in answered, 200 in answered) == (0, False, True), text + error
    assert SECRET not in text + error
