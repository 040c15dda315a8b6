"""A host that pulls by its timer: TLS, a token, a signed offer, a lease in Debian's etcd, a stand-in stack; alone it goes on."""

import contextlib
import json
import os
import socket
import subprocess
import sys

import pytest

from tests.lab import network
from tests.lab.bootstrapping import ROOT, first_boot, serve_bundle, user_data, wait_for_end, wait_until
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import packages
from tests.lab.private_site import NAME, certificates

pytestmark = pytest.mark.slow
GPUSETUP = "/opt/gpusetup-controller/bin/gpusetup"
HOME = "/var/lib/gpusetup/pull"
ETCD = "http://127.0.0.1:2379"


def here(*words):
    argv = [sys.executable, "-m", "gpusetup", *map(str, words)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextlib.contextmanager
def collecting(folder, port, pair):
    """A collector until the end of the block."""
    argv = [sys.executable, "-m", "gpusetup", "fleet", "collect", folder, "--listen", f"{network.GATEWAY}:{port}"]
    process = subprocess.Popen(
        [*argv, "--certificate", pair, "--key", pair], cwd=ROOT, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    try:
        assert "collecting at https" in process.stderr.readline()
        yield
    finally:
        process.kill()
        process.wait()


def kept(host):
    with contextlib.suppress(OSError, ValueError):
        return json.loads(host.path(f"{HOME}/kept.json").read_text())
    return {}


def test_by_timer_within_a_budget_and_while_nobody_answers(lab_hosts, lab_repositories, tmp_path):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4", network="mirror")
    first_boot(
        host, user_data(serve_bundle(), lab_repositories, wish=("driver==570.*", "--gpu", "t4", "--os", "debian12"))
    )
    end = wait_for_end(host)
    assert end["state"] == "done", end
    host.ssh("apt-get", "-q", "update", timeout=300)
    host.ssh(
        "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "install", "etcd-server", "openssh-client",
        timeout=600,
    )  # fmt: skip
    host.ssh("systemctl", "start", "etcd")

    ca, pair = certificates(tmp_path)
    site = tmp_path / "collector"
    with socket.socket() as free:
        free.bind((network.GATEWAY, 0))
        port = free.getsockname()[1]
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    here("lock", "driver==580.*", "--gpu", "t4", "--os", "debian12", "--out", tmp_path / "lock.json")
    here("fleet", "token", site, "gpu07", "--out", tmp_path / "token")
    reader = here("fleet", "token", site, "eve", "--reader").strip()
    offer = ("fleet", "offer", site, "t4", "--sign", tmp_path / "key")
    here(*offer, "--lock", tmp_path / "lock.json", "--leases", ETCD, "--at-a-time", "1", "--of-a-domain", "1")

    token = (tmp_path / "token").read_text()
    host.path("/etc/gpusetup").mkdir(exist_ok=True)
    host.path("/etc/gpusetup/pull.token").write_text(token)
    host.path("/etc/gpusetup/pull.token").chmod(0o600)
    host.path("/etc/gpusetup/offer-signers").write_text("ops@site " + (tmp_path / "key.pub").read_text())
    host.path("/etc/gpusetup/site-ca.pem").write_bytes(ca.read_bytes())
    with host.path("/etc/hosts").open("a") as names:
        names.write(f"{network.GATEWAY} {NAME}\n")
    variables = {**lab_repositories.variables, "gpusetup_simulated_root": SIMULATED_ROOT}
    words = [
        GPUSETUP, "fleet", "pull", f"https://{NAME}:{port}", "--class", "t4", "--domain", "rack7", "--name", "gpu07",
    ]  # fmt: skip
    words += [
        "--ca", "/etc/gpusetup/site-ca.pem",
        *(word for item in variables.items() for word in ("--set", "=".join(item))),
    ]  # fmt: skip

    def asked(path):
        """From here the name resolves nowhere: ask as the host does."""
        argv = ["python3", "-c", _ASK, f"https://{NAME}:{port}{path}", "/etc/gpusetup/site-ca.pem"]
        return host.ssh(*argv, text=reader).stdout

    host.ssh(*words, "--timer", "hourly")
    timer = host.path("/etc/systemd/system/gpusetup-pull.timer")
    assert "RandomizedDelaySec=10min" in timer.read_text(), "hosts do not all ask at the same moment"
    assert token.strip() not in host.path("/etc/systemd/system/gpusetup-pull.service").read_text()
    timer.write_text(timer.read_text().replace("hourly", "*:*:0/10").replace("10min", "0"))

    host.ssh("systemctl", "stop", "etcd")
    with collecting(site, port, pair):
        before = packages(host)
        host.ssh("systemctl", "daemon-reload")
        host.ssh("systemctl", "restart", "gpusetup-pull.timer")
        wait_until(lambda: "the lease store does not answer" in asked("/v1/fleet"), 120)
        assert packages(host) == before, "without a lease nothing changes"
        host.ssh("systemctl", "start", "etcd")
        wait_until(lambda: kept(host).get("state") == "pending-reboot", 600)
        wait_until(lambda: '"pending-reboot"' in asked("/v1/fleet"), 60)
        assert any("580" in version for name, version in packages(host).items() if name.startswith("nvidia-"))
        page = asked("/")
        assert "pending-reboot" in page
        assert "driver 580" in page
        assert "rack7" in page
        host.reboot()
        host.wait()
        wait_until(lambda: kept(host).get("state") == "done", 600)
        wait_until(lambda: '"unchanged"' in asked("/v1/fleet"), 120)

    # The collector is away: the host stays as it is, goes on by its timer, and keeps what it has to say.
    queue = host.path(f"{HOME}/queue")
    wait_until(lambda: list(queue.iterdir()), 120)
    assert host.ssh("systemctl", "--failed", "--plain", "--no-legend").stdout.count("gpusetup-pull") == 0
    assert kept(host)["state"] == "done"
    with collecting(site, port, pair):
        wait_until(lambda: not list(queue.iterdir()), 120)
    assert token.strip() not in host.ssh("journalctl", "--no-pager", "--all", timeout=300).stdout
    assert host.ssh(
        GPUSETUP, "fleet", "pull", f"https://{NAME}:{port}", "--class", "t4", "--timer", "never"
    ).stdout.startswith("removed")


_ASK = """
import ssl, sys, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Authorization": "Bearer " + sys.stdin.read().strip()})
print(urllib.request.urlopen(request, context=ssl.create_default_context(cafile=sys.argv[2]), timeout=20).read().decode())
"""
