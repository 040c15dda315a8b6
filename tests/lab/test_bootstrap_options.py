"""What user-data can say beside the stack: proxy, a private certificate authority, reports, a lock to pull; secrets stay secret."""

import contextlib
import secrets
import threading
from pathlib import Path

import pytest

from tests.lab import network
from tests.lab.bootstrapping import first_boot, served_lock, user_data, wait_for_end
from tests.lab.places import STATE
from tests.lab.private_site import NAME, private_site

pytestmark = pytest.mark.slow


class Watch(threading.Thread):
    """Looks at the arguments of every process on a host until stopped."""

    def __init__(self, host, secret):
        super().__init__(daemon=True)
        self.host, self.secret, self.found, self.seen, self.stopped = host, secret.encode(), set(), 0, threading.Event()

    def run(self):
        while not self.stopped.wait(0.05):
            for pid in network.processes(self.host.name):
                with contextlib.suppress(OSError):
                    line = Path(f"/proc/{pid}/cmdline").read_bytes()
                    self.seen += 1
                    if self.secret in line:
                        self.found.add(line)


def test_a_private_site_behind_a_proxy_with_reports(lab_hosts, lab_repositories, bundle, tmp_path):
    (host,) = lab_hosts(flavour="debian12-cloud", machine="t4")
    token, home = secrets.token_hex(20), lab_repositories.folder.name
    (tmp_path / "token").write_text(token + "\n")
    _url, digest = served_lock("options.lock.json")
    asked_before = (STATE / "requests.log").read_text().count(f"{host.address} ")
    with private_site(tmp_path) as site:
        site.refuse = 2
        words = [
            "--lock-url", f"{site.url}/options.lock.json", "--lock-digest", digest,
            "--proxy", site.proxy, "--ca", str(site.ca), "--splay", "3",
            "--callback", f"{site.url}/reports", "--token-file", str(tmp_path / "token"),
            "--set", f"gpusetup_source={site.url}/{home}", "--set", f"gpusetup_source_key={site.url}/{home}/lab-key.asc",
        ]  # fmt: skip
        text = user_data(bundle, lab_repositories, *words, source=f"{site.url}/{bundle.folder.name}")
        assert token in text
        watch = Watch(host, token)
        watch.start()
        first_boot(host, text)
        end = wait_for_end(host)
        watch.stopped.set()
    assert end["state"] == "done", end
    assert set(site.asked) == {f"{NAME}:443"}
    assert (STATE / "requests.log").read_text().count(f"{host.address} ") == asked_before
    assert site.refuse == 0
    assert {header for header, _ in site.reports} == {f"Bearer {token}"}
    assert [document["state"] for _, document in site.reports][-1] == "done"
    assert {"applying", "rebooting"} & {document["state"] for _, document in site.reports}
    watch.join()
    assert watch.seen > 100
    assert not watch.found
    open_to_all = ["find", "/", "/run", "-xdev", "-type", "f", "-perm", "/o+r", "-size", "-20M"]
    assert host.ssh(*open_to_all, "-exec", "grep", "-lF", token, "{}", "+", check=False, timeout=300).stdout == ""
    kept = ["/var/log", "/var/lib/gpusetup", "/etc/motd.d", "/opt/gpusetup-controller"]
    assert host.ssh("grep", "-rlF", token, *kept, check=False).stdout == ""
    assert token not in host.ssh("journalctl", "--no-pager", "--all", timeout=300).stdout
    assert host.ssh("grep", "-rlF", token, "/etc").stdout.split() == ["/etc/gpusetup/callback.token"]
    assert host.ssh("stat", "-c", "%a %U", "/etc/gpusetup/callback.token").stdout.split() == ["600", "root"]
