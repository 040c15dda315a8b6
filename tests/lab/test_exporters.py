"""gpusetup_monitoring on real Debian hosts: Debian's real node_exporter and Prometheus; DCGM and the GPUs are stand-ins."""

import json

import pytest

from gpusetup.monitoring.files import files
from tests.lab.applying import apply, gpusetup
from tests.lab.lifecycle import drift, host_of
from tests.lab.plays import files_below, packages
from tests.lab.process import until
from tests.lab.prometheus import Exporter, running

pytestmark = pytest.mark.slow
SETTINGS = ("/etc/gpusetup", "/etc/systemd/system", "/etc/default", "/usr/local/lib")
ANSWER = (
    "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{}/metrics', timeout=9).read().decode())"
)
SECRET = "correct horse"
SECRETS = """
set -e
mkdir -p /etc/tls
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=gpu-host -keyout /etc/tls/gpu.key -out /etc/tls/gpu.crt
chmod 600 /etc/tls/gpu.key
python3 -W ignore -c "import crypt; print('prometheus:' + crypt.crypt('{}', crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=32)))" \\
  >/etc/tls/passwords
chmod 600 /etc/tls/passwords
"""


def asking(lab, host, name, **more):
    wish = {f"gpusetup_{key}": value for key, value in more.items()}
    return lab.asking(host, gpusetup_driver="==580.142", **wish).rename(lab.folder / f"{name}.ini")


def answer(host, port):
    return host.ssh("python3", "-c", ANSWER.format(port)).stdout


def listens(host, port):
    lines = [line.split() for line in host.ssh("ss", "-Hltn").stdout.splitlines()]
    return {line[3].rpartition(":")[0] for line in lines if line[3].endswith(f":{port}")}


def figures(host, **fields):
    """What the simulated board tells from now on."""
    path = host.path("/var/lib/gpusetup-lab/simulated/lab/figures.json")
    path.write_text(json.dumps({"0": {name.replace("__", "."): value for name, value in fields.items()}}))


def differing(before, after):
    """Names of the files and packages that are not what they were."""
    return [
        name
        for was, now in zip(before, after, strict=True)
        for name in sorted(was.keys() | now.keys())
        if was.get(name) != now.get(name)
    ]


def test_figures_through_the_real_node_exporter_from_the_first_apply_to_the_removal(lab):
    (host,) = lab.hosts(flavour="debian12", machine="rtx4090", network="mirror")
    bare, plain = asking(lab, host, "bare"), asking(lab, host, "plain", monitoring="auto")
    host.ssh("sh", "-c", SECRETS.format(SECRET))
    secured = asking(
        lab, host, "secured", monitoring="textfile", monitoring_listen="0.0.0.0:9100", monitoring_certificate="/etc/tls/gpu.crt",
        monitoring_key="/etc/tls/gpu.key", monitoring_passwords="/etc/tls/passwords",
    )  # fmt: skip
    pristine = files_below(host, *SETTINGS), packages(host)

    # The driver alone first, so that there is an apply to go back to.
    apply(lab.folder, bare).well()
    before = files_below(host, *SETTINGS), packages(host)
    apply(lab.folder, plain).well()
    assert listens(host, 9100) == {"127.0.0.1"}
    text = answer(host, 9100)
    assert "nvidia_smi_temperature_gpu{" in text
    assert "gpusetup_textfile_up 1" in text
    assert "node_textfile_scrape_error 0" in text

    lab.settled(plain)

    # The unit that writes the figures writes them, and nothing elsewhere.
    look, folder = "gpusetup-gpu-textfile.service", host.path("/var/lib/prometheus/node-exporter")
    (folder / "gpusetup-gpu.prom").unlink()
    host.ssh("systemctl", "start", look)
    assert "gpusetup_textfile_up 1" in (folder / "gpusetup-gpu.prom").read_text()
    mine, own = "/var/lib/prometheus/node-exporter/in", f"/run/systemd/system/{look}.d"
    escape = f"touch {mine} || exit 1; " + "".join(
        f"touch {place}/out && exit 2; " for place in ("/etc", "/usr", "/var", "/root")
    )
    host.ssh("mkdir", "-p", own)
    host.ssh("tee", f"{own}/x.conf", text=f"[Service]\nExecStart=\nExecStart=/bin/sh -c '{escape} exit 7'\n")
    host.ssh(
        "sh", "-c", f"systemctl stop gpusetup-gpu-textfile.timer; systemctl daemon-reload; systemctl start {look}",
        check=False,
    )  # fmt: skip
    assert host.ssh("systemctl", "show", "-p", "ExecMainStatus", "--value", look).stdout.strip() == "7"
    host.ssh("sh", "-c", f"rm -r {own} {mine}; systemctl daemon-reload; systemctl start gpusetup-gpu-textfile.timer")

    # Half a file of somebody else, and half a file of ours that was cut: neither hides our figures.
    (folder / "theirs.prom").write_text("half_written{")
    (folder / "gpusetup-gpu.prom.new").write_text("nvidia_smi_temperature_gpu{uuid=")
    text = answer(host, 9100)
    assert "node_textfile_scrape_error 1" in text
    assert "nvidia_smi_temperature_gpu{" in text
    (folder / "theirs.prom").unlink()

    # Others may ask: over TLS, with a password, and neither is in what everybody reads.
    opened = apply(lab.folder, secured).well()
    hashed = host.path("/etc/tls/passwords").read_text().partition(":")[2].strip()
    web = host.path("/etc/gpusetup/monitoring-web.yml")
    assert hashed in web.read_text()
    assert web.stat().st_mode & 0o777 == 0o600
    shown = host.ssh("journalctl", "--no-pager").stdout + host.ssh("ps", "axww").stdout
    assert hashed not in opened.out + opened.err + shown
    assert "401" in host.ssh("python3", "-c", ANSWER.format(9100).replace("http:", "https:").replace(
        "import urllib.request;", "import ssl, urllib.request; ssl._create_default_https_context = ssl._create_unverified_context;"
    ), check=False).stderr  # fmt: skip

    # The real Prometheus asks, and an alert goes from the board to the receiver.
    rules = lab.folder / "monitoring"
    for name, content in files().items():
        (rules / name).parent.mkdir(parents=True, exist_ok=True)
        (rules / name).write_text(content)
    receiver = Exporter("")
    scrape = {
        "scheme": "https", "tls_config": {"insecure_skip_verify": True},
        "basic_auth": {"username": "prometheus", "password": SECRET},
    }  # fmt: skip
    with running(rules, [f"{host.address}:9100"], receiver, scrape) as prometheus:
        until(lambda: prometheus.ask("gpu:temperature:celsius"), "the temperature of the board")
        (found,) = prometheus.ask("gpu:temperature:celsius")
        assert (found["value"][1], found["metric"]["model"]) == ("30", "NVIDIA GeForce RTX 4090")
        assert receiver.alerts() == set()
        figures(host, ecc__errors__uncorrected__volatile__total="3")
        until(lambda: "GpuEccUncorrected" in receiver.alerts(), "the alert at its receiver")
        figures(host)
        until(lambda: "GpuEccUncorrected" in receiver.alerts("resolved"), "the word that it is over")

    # What somebody changes or stops is drift; going back is going back.
    host.ssh("systemctl", "stop", "gpusetup-gpu-textfile.timer")
    host.path("/etc/systemd/system/prometheus-node-exporter.service.d/gpusetup.conf").write_text("[Service]\n")
    different, found_drift = drift(lab.folder, secured)
    assert different.code != 0
    assert {"monitoring-gpusetup-gpu-textfile.timer"} <= set(found_drift)
    assert any("gpusetup.conf" in name for name in found_drift)
    apply(lab.folder, secured).well()
    assert drift(lab.folder, secured)[0].code == 0

    lab.rolled_back(plain)
    assert listens(host, 9100) == {"127.0.0.1"}
    assert not web.exists()

    # None any more: what it brought goes, the driver stays.
    apply(lab.folder, bare).well()
    assert listens(host, 9100) == set()
    assert not list(folder.parent.glob("node-exporter/gpusetup*"))
    assert differing(before, (files_below(host, *SETTINGS), packages(host))) == []

    apply(lab.folder, plain).well()
    assert lab.removed(plain).code == 9  # the driver's module stays loaded until the next boot
    assert differing(pristine, (files_below(host, *SETTINGS), packages(host))) == []
    assert not list(folder.parent.glob("node-exporter/gpusetup*"))
    assert "gpusetup-gpu-textfile" not in host.ssh("systemctl", "list-units", "--all", "--no-legend").stdout


def test_a_pair_of_dcgm_and_its_exporter_as_stand_ins_with_one_host_engine(lab):
    (host,) = lab.hosts(flavour="debian12", machine="t4", network="mirror")
    bare, inventory = asking(lab, host, "bare"), asking(lab, host, "dcgm", monitoring="auto")
    apply(lab.folder, bare).well()

    before = files_below(host, *SETTINGS), packages(host)

    apply(lab.folder, inventory).well()
    there = packages(host)
    assert there["datacenter-gpu-manager-4-core"] == "1:4.6.0-1"
    assert there["datacenter-gpu-manager-exporter"] == "4.8.3-1"
    held = host.ssh("apt-mark", "showhold").stdout.split()
    assert {"datacenter-gpu-manager-4-core", "datacenter-gpu-manager-exporter"} <= set(held)
    assert (listens(host, 9400), listens(host, 5555)) == ({"127.0.0.1"}, set())
    host.ssh("test", "-S", "/run/nvidia-dcgm/nv-hostengine.sock")
    assert 'DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{gpu="0"' in answer(host, 9400)

    lab.settled(inventory)

    # The textfile takes its place, and DCGM goes; then back.
    apply(lab.folder, asking(lab, host, "textfile", monitoring="textfile")).well()
    assert (listens(host, 9400), listens(host, 9100)) == (set(), {"127.0.0.1"})
    assert not any(name.startswith("datacenter") for name in packages(host))
    back = gpusetup(lab.folder, "rollback", inventory, "--format", "json")
    assert (back.code, host_of(back)["state"]) == (0, "done"), back.out + back.err
    assert (listens(host, 9400), listens(host, 9100)) == ({"127.0.0.1"}, set())

    apply(lab.folder, bare).well()
    assert differing(before, (files_below(host, *SETTINGS), packages(host))) == []
