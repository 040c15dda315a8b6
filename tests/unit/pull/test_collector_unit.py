"""The collector's unit: what systemd reads back, and how exposed it says that the service is."""

import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from gpusetup.cli.main import main
from tests.certificates import Authority


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze reads the unit back")
@pytest.mark.parametrize("listen", ["0.0.0.0:8443", "0.0.0.0:443"])
def test_systemd_takes_it_and_finds_little_exposed(listen, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Path, "owner", lambda _: "daemon")
    folder = tmp_path / "the 100% $folder"
    folder.mkdir()
    assert main(["fleet", "collect", str(folder), "--listen", listen, "--unit"]) == 0
    unit = tmp_path / "gpusetup-collector.service"
    unit.write_text(capsys.readouterr().out)
    verified = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert "gpusetup-collector" not in verified.stderr, verified.stderr
    argv = ["systemd-analyze", "security", "--offline=true", unit]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    exposure = re.search(r"exposure level for .*: ([0-9.]+)", told)
    assert float(exposure[1]) <= 2.0, exposure[0]


def test_a_folder_of_root_makes_no_unit(tmp_path, says, monkeypatch):
    monkeypatch.setattr(Path, "owner", lambda _: "root")
    told = says(3, "fleet", "collect", tmp_path, "--unit")
    assert "useradd --system gpusetup && install -d -o gpusetup -m 0700" in told


def test_a_reload_returns_when_the_certificate_is_read_and_fails_when_it_cannot_be(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(Path, "owner", lambda _: "daemon")
    authority = Authority(tmp_path)
    pair, runtime = authority.pair("localhost"), tmp_path / "runtime"
    runtime.mkdir()
    words = ["fleet", "collect", str(tmp_path / "c"), "--listen", "127.0.0.1:0", "--certificate", str(pair)]
    words += ["--key", str(pair)]
    assert main([*words, "--unit"]) == 0
    unit = capsys.readouterr().out.replace("\\\n", " ")
    script = re.findall(r"^ExecReload=/bin/sh -c '(.*)'$", unit, re.MULTILINE)[0].replace("$$", "$")
    environment = {**os.environ, "RUNTIME_DIRECTORY": str(runtime)}
    with subprocess.Popen(
        [sys.executable, "-m", "gpusetup", *words], env=environment, stderr=subprocess.PIPE, text=True
    ) as server:
        port = int(re.findall(r":(\d+);", server.stderr.readline())[0])

        def shown():
            return ssl.get_server_certificate(("127.0.0.1", port))

        def reload():
            told = {**environment, "MAINPID": str(server.pid)}
            return subprocess.run(["/bin/sh", "-c", script], env=told, check=False, timeout=30).returncode

        try:
            before = shown()
            for _ in range(3):
                authority.pair("localhost")
                server.send_signal(signal.SIGSTOP)  # a server that is busy when the signal comes
                subprocess.Popen(["/bin/sh", "-c", f"sleep 0.5; kill -CONT {server.pid}"])
                assert reload() == 0
                assert shown() != before
                before = shown()
            pair.write_bytes(b"half a file")
            assert reload() != 0
            assert shown() == before
        finally:
            server.terminate()
    assert reload() != 0
