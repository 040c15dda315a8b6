"""gpu_monitoring: the files and units of each exporter, what stands in its way, and what is left when it goes."""

import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import monitoring, ports
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.modules import gpu_monitoring

from gpusetup.content import host_code
from tests.flaky import serving
from tests.modules.stand_ins import below, programs, replace, write
from tests.stored import stored

PROGRAM = host_code("programs").packed("gpu_monitoring", "gpu_textfile/look.py")
HASH = "$2y$05$" + "a" * 53
SYSTEMCTL = stored("monitoring_systemctl.txt")


@pytest.fixture
def answering():
    with serving() as site:
        yield site.url.removeprefix("http://")


@pytest.fixture
def host(tmp_path, monkeypatch):
    for name in ("units", "etc/systemd/system", "textfiles"):
        (tmp_path / name).mkdir(parents=True)
    for unit in ("prometheus-node-exporter", "nvidia-dcgm", "nvidia-dcgm-exporter", "nvidia_gpu_exporter"):
        (tmp_path / f"units/{unit}.service").write_text("inactive")
    programs(tmp_path, monkeypatch, {"systemctl": SYSTEMCTL})
    monkeypatch.setenv("ROOT", str(tmp_path))
    below(tmp_path, monkeypatch, {monitoring: "SYSTEMD COUNTERS WEB COLLECTOR"})
    replace(monkeypatch, monitoring, _PATIENCE=0.5)
    replace(monkeypatch, ports, listeners=lambda _listen: [])
    return tmp_path


@pytest.fixture
def call(run_module, host):
    def told(exporter, **more):
        given = {"host": {"state_dir": str(host / "state")}, "exporter": exporter, "program": PROGRAM}
        folder = {"folder": str(host / "textfiles")} if exporter == "textfile" else {}
        return run_module(gpu_monitoring, **given, **folder, **more)

    return told


def did(host):
    return (host / "did").read_text()


def drop_in(host, unit):
    return (host / f"etc/systemd/system/{unit}.service.d/gpusetup.conf").read_text()


def left(host):
    return sorted(str(path.relative_to(host)) for top in ("etc", "usr") for path in (host / top).rglob("*") if path.is_file())  # fmt: skip


def test_what_a_package_starts_by_itself_finds_its_address_already(call, host):
    (host / "units/prometheus-node-exporter.service").unlink()
    assert call("textfile", mode="prepare", listen="127.0.0.1:9100")["changed"]
    assert "exporter $ARGS --web.listen-address=127.0.0.1:9100" in drop_in(host, "prometheus-node-exporter")
    assert "enable" not in did(host)
    assert not call("textfile", mode="prepare", listen="127.0.0.1:9100")["changed"]


SMI = stored("monitoring_smi.txt")


@pytest.mark.parametrize("there", [True, False])
def test_the_collector_runs_by_itself_as_it_lies_on_a_host(call, host, there):
    """Without site-packages and without NVIDIA's library; nvidia-smi is the older one that knows fewer fields."""
    call("textfile")
    if there:
        write(host / "bin", {"nvidia-smi": SMI}, 0o755)
    done = subprocess.run(
        [sys.executable, "-S", "-m", "gpu_textfile.look", "--folder", str(host / "textfiles")],
        cwd=host / "usr/local/lib/gpusetup/gpu", env={"PATH": f"{host}/bin:/usr/bin:/bin"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    text = (host / "textfiles/gpusetup-gpu.prom").read_text()
    assert (done.returncode, f"gpusetup_textfile_up {int(there)}" in text) == (int(not there), True), done.stderr
    assert ('nvidia_smi_temperature_gpu{uuid="aa"} 41' in text) == there
    assert "Traceback" not in done.stderr


def test_a_collector_that_writes_nothing_and_an_exporter_that_does_not_answer_are_said(call, host):
    call("textfile")
    (host / "mute").write_text("")
    call("textfile", fails="GS-459")  # what an earlier look wrote is still there
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        listen = f"127.0.0.1:{free.getsockname()[1]}"
    said = (f"it does not answer on {listen}", "journalctl -u nvidia_gpu_exporter")
    call("nvidia_gpu_exporter", listen=listen, fails=said)


def test_none_takes_away_all_of_it_and_another_takes_its_place(call, host, answering):
    assert call("dcgm", check=True, listen="127.0.0.1:9400", dcgm="4.6.0")["changed"]  # before its package is there
    assert left(host) == []
    call("textfile")
    assert (host / "textfiles/gpusetup-gpu.prom").exists()
    call("nvidia_gpu_exporter", listen=answering)
    assert left(host) == ["etc/systemd/system/nvidia_gpu_exporter.service.d/gpusetup.conf"]
    assert not (host / "textfiles/gpusetup-gpu.prom").exists()
    assert "disable --now gpusetup-gpu-textfile.timer" in did(host)
    assert call("none", check=True)["changed"]
    assert left(host)
    assert call("none")["changed"]
    assert left(host) == []
    ledger = Ledger(str(host / "state"))
    assert (ledger.state["services"], ledger.state["files"]) == ({}, {})
    assert not call("none")["changed"]


@pytest.fixture
def secrets(host):
    write(host, {"tls.crt": "certificate"})
    write(host, {"tls.key": "key", "users": f"# ours\nprometheus:{HASH}\n"}, 0o600)
    return {"certificate": f"{host}/tls.crt", "key": f"{host}/tls.key", "passwords": f"{host}/users"}


def test_secrets_are_handed_over_by_systemd_and_stand_in_no_command(call, host, answering, secrets, monkeypatch):
    monkeypatch.setattr(monitoring, "scrape", lambda *_: {"status": 401, "text": "", "error": ""})
    result = call("nvidia_gpu_exporter", listen=answering, **secrets)
    text = drop_in(host, "nvidia_gpu_exporter")
    assert f"LoadCredential=web.yml:{monitoring.WEB}\n" in text
    assert f"LoadCredential=tls.key:{host}/tls.key\n" in text
    assert "--web.config.file=${CREDENTIALS_DIRECTORY}/web.yml" in text
    web = host / "etc/gpusetup/monitoring-web.yml"
    assert web.stat().st_mode & 0o777 == 0o600
    assert f"  prometheus: '{HASH}'\n" in web.read_text()
    assert HASH not in str(result) + text + did(host)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("tls.key", lambda path: path.chmod(0o644), "can be read by everybody"),
        ("users", lambda path: path.chmod(0o604), "can be read by everybody"),
        ("tls.crt", lambda path: path.unlink(), "is not on this host"),
        ("users", lambda path: path.write_text("prometheus:plain\n"), "line 1"),
        ("users", lambda path: path.write_text(f"a:{HASH}\nb: x: '{HASH}'\n"), "line 2"),
        ("users", lambda path: path.write_text("# nobody\n"), "has no user"),
        ("systemd", lambda path: path.write_text("245"), "systemd 245 cannot hand a key"),
    ],
)
def test_secrets_that_are_none_are_refused_before_anything_is_written(call, host, secrets, name, change, said):
    change(host / name)
    call("dcgm", listen="0.0.0.0:9400", dcgm="4.6.0", fails=("GS-458", said), **secrets)
    assert left(host) == []


def test_who_listens_is_found_by_port_and_address():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        (found,) = ports.listeners(f"127.0.0.1:{port}")
        assert (found.pid, found.program.startswith("python")) == (os.getpid(), True)
        assert ports.listeners(f"0.0.0.0:{port}")
        assert ports.listeners(f"[::]:{port}")
        assert not ports.listeners(f"127.0.0.2:{port}")
    assert not ports.listeners(f"127.0.0.1:{port}")
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::", 0))
        listener.listen()
        assert ports.listeners(f"127.0.0.1:{listener.getsockname()[1]}"), "it listens everywhere"
