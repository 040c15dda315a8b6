"""The collector as a service in the sandbox of its unit, under a real systemd: start, reports, reload, stop."""

import re
import subprocess
import sys

import pytest

from tests.lab.places import CHECKOUT
from tests.lab.private_site import NAME, certificates

UNIT = "gpusetup-collector.service"
ASK = "import ssl,sys,urllib.request as u; c=ssl.create_default_context(cafile='/srv/ca.pem'); print(u.urlopen(sys.argv[1],context=c).read().decode())"


@pytest.mark.slow
def test_it_starts_reloads_and_stops_in_its_sandbox(lab_hosts, tmp_path):
    (host,) = lab_hosts(flavour="debian12-bare", machine="t4", network="mirror")
    argv = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path]
    subprocess.run([*argv, CHECKOUT, CHECKOUT / "gpusetup_fleet"], check=True, timeout=600)
    for wheel in tmp_path.glob("gpusetup*.whl"):
        host.path(f"/srv/{wheel.name}").write_bytes(wheel.read_bytes())
    ca, pair = certificates(tmp_path)
    host.path("/srv/ca.pem").write_bytes(ca.read_bytes())
    host.path("/srv/site.pem").write_bytes(pair.read_bytes())
    with host.path("/etc/hosts").open("a") as names:
        names.write(f"127.0.0.1 {NAME}\n")
    host.ssh("apt-get", "-q", "update", timeout=300)
    host.ssh("apt-get", "-q", "-y", "install", "python3-venv", timeout=600)
    host.ssh("python3", "-m", "venv", "/opt/g")
    host.ssh(
        "/opt/g/bin/python", "-m", "pip", "install", "-q", "--find-links", "/srv", "gpusetup[collector]", timeout=1200
    )
    host.ssh("useradd", "--system", "gpusetup")
    host.ssh("install", "-d", "-o", "gpusetup", "-m", "0700", "/srv/gpusetup")
    host.ssh("chown", "gpusetup:", "/srv/site.pem")
    tls = ("--certificate", "/srv/site.pem", "--key", "/srv/site.pem")
    words = ("/opt/g/bin/python", "-m", "gpusetup", "fleet", "collect", "/srv/gpusetup", *tls)
    host.path(f"/etc/systemd/system/{UNIT}").write_text(host.ssh(*words, "--listen", "127.0.0.1:443", "--unit").stdout)
    host.ssh("systemctl", "daemon-reload")
    host.ssh("systemctl", "start", UNIT)  # returns when the service says that it listens
    assert host.ssh("python3", "-c", ASK, f"https://{NAME}/healthz").stdout.strip() == "ok"
    process = host.ssh("systemctl", "show", "-p", "MainPID", "--value", UNIT).stdout
    host.path("/srv/site.pem").write_bytes(b"half a file")
    assert host.ssh("systemctl", "reload", UNIT, check=False).returncode != 0
    assert host.ssh("python3", "-c", ASK, f"https://{NAME}/healthz").stdout.strip() == "ok"
    (tmp_path / "next").mkdir()
    ca, pair = certificates(tmp_path / "next")
    host.path("/srv/ca.pem").write_bytes(ca.read_bytes())
    host.path("/srv/site.pem").write_bytes(pair.read_bytes())
    host.ssh("systemctl", "reload", UNIT)  # returns when the new certificate, of another authority, is in force
    assert host.ssh("python3", "-c", ASK, f"https://{NAME}/healthz").stdout.strip() == "ok"
    assert host.ssh("systemctl", "show", "-p", "MainPID", "--value", UNIT).stdout == process
    exposed = re.search(r"exposure level for \S+: ([\d.]+)", host.ssh("systemd-analyze", "security", UNIT).stdout)
    assert exposed is not None
    assert float(exposed[1]) <= 2.0
    host.ssh("systemctl", "stop", UNIT)
    assert host.ssh("systemctl", "show", "-p", "Result", "--value", UNIT).stdout.strip() == "success"
