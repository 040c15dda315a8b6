"""gpu_monitoring: the files and units of each exporter, what stands in its way, and what is left when it goes."""

import os
import socket
import subprocess
import sys

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import monitoring, ports, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import drift
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


def age(host):
    """Let what was written be older than the units that run."""
    for path in left(host):
        os.utime(host / path, (0, 0))


def left(host):
    return sorted(str(path.relative_to(host)) for top in ("etc", "usr") for path in (host / top).rglob("*") if path.is_file())  # fmt: skip


@pytest.mark.parametrize(("dcgm", "there", "other"), [("4.6.1", 0, 1), ("4.7.0", 1, 0)])
def test_dcgm_has_one_engine_on_its_socket_and_counters_of_its_version(call, host, answering, dcgm, there, other):
    assert call("dcgm", listen=answering, dcgm=dcgm)["changed"]
    engine = drop_in(host, "nvidia-dcgm")
    command = "/usr/bin/nv-hostengine -n --service-account nvidia-dcgm --domain-socket /run/"
    assert f"ExecStart=\nExecStart={command}" in engine
    exporter = drop_in(host, "nvidia-dcgm-exporter")
    assert f"-r unix://{monitoring.SOCKET} -a {answering}" in exporter
    assert "Requires=nvidia-dcgm.service" in exporter
    names = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS")
    listed = [line.split(",")[0] for line in (host / "etc/gpusetup/dcgm-counters.csv").read_text().splitlines()]
    assert names[there] in listed
    assert names[other] not in listed
    (host / "did").write_text("")
    for unit in ("nvidia-dcgm", "nvidia-dcgm-exporter"):
        (host / f"units/{unit}.service").write_text("active")
    age(host)
    assert not call("dcgm", listen=answering, dcgm=dcgm)["changed"]
    assert "restart" not in did(host)


def test_what_a_package_starts_by_itself_finds_its_address_already(call, host):
    (host / "units/prometheus-node-exporter.service").unlink()
    assert call("textfile", mode="prepare", listen="127.0.0.1:9100")["changed"]
    assert "exporter $ARGS --web.listen-address=127.0.0.1:9100" in drop_in(host, "prometheus-node-exporter")
    assert "enable" not in did(host)
    assert not call("textfile", mode="prepare", listen="127.0.0.1:9100")["changed"]


def test_a_node_exporter_of_somebody_else_gets_a_file_and_no_settings(call, host):
    call("textfile")
    assert "usr/local/lib/gpusetup/gpu/gpu_textfile/look.py" in left(host)
    assert "usr/local/lib/gpusetup/gpu/gpu_read/nvml.py" in left(host)
    assert not [path for path in left(host) if "node-exporter" in path]
    assert f"--folder {host}/textfiles\n" in (host / "etc/systemd/system/gpusetup-gpu-textfile.service").read_text()
    age(host)
    assert not call("textfile")["changed"]


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


def test_a_umask_that_closes_all_to_others_closes_none_of_our_folders(call, host):
    before = os.umask(0o077)
    try:
        call("textfile")
    finally:
        os.umask(before)
    folders = [path for path in (host / "usr/local").rglob("*") if path.is_dir()]
    assert {oct(path.stat().st_mode & 0o777) for path in folders} == {"0o755"}


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


# --- ports -------------------------------------------------------------------------------------------------------


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


def test_only_the_unit_of_this_exporter_may_have_its_port(monkeypatch):
    wish, told = monitoring.asked({"exporter": "dcgm", "listen": "127.0.0.1:9400"}), []
    for unit in ("", "dcgm-exporter.service", "nvidia-dcgm-exporter.service"):  # without one it is in a container
        there = [ports.Listener(7, "dcgm-exporter", unit)]
        monkeypatch.setattr(ports, "listeners", lambda _listen, there=there: there)
        told += [failure.text() for failure in monitoring.obstacles(wish, process.environment())]
    assert len(told) == 2
    words = ("GS-457", "process 7", "gpusetup_monitoring_listen=127.0.0.1:19400")
    assert [word for text in told for word in words if word not in text] == []
    assert [monitoring.in_the_way({"monitoring": wish}) for wish in ({}, {"exporter": "none"})] == [[], []]


def test_a_daemon_that_was_stopped_is_drift():
    names = ("nvidia-dcgm-exporter.service", "nvidia-persistenced.service")
    record = {"services": {name: {"enabled": True} for name in names}}

    def drifted(active):
        units = [{"unit": unit, "active": active, "enabled": "enabled"} for unit in names]
        return [item.what for item in drift.monitoring_units({"services": dict(enumerate(units))}, record)]

    assert drifted("inactive") == [names[0]]
    assert [drifted(active) for active in ("active", "activating", None)] == [[]] * 3
