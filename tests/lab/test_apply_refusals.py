"""Bad input and bad states: a clear verdict, the right exit code, nothing half done."""

import json
from concurrent.futures import ThreadPoolExecutor

from tests.lab.applying import apply
from tests.lab.harm import packages_locked
from tests.lab.moments import package_step
from tests.lab.plays import packages
from tests.lab.process import until


def test_wrong_and_missing_sudo_rights(lab, wishes):
    host, inventory = lab.one({**wishes, "ansible_user": "ops"}, flavour="ubuntu2404-like", machine="t4")
    before = packages(host)
    wrong = apply(lab.folder, inventory, "-K", stdin="not-the-password\n")
    assert wrong.code == 5, wrong.out
    assert "not-the-password" not in wrong.out + wrong.err
    missing = apply(lab.folder, inventory)
    assert missing.code == 5
    assert "sudo" in json.dumps(missing.hosts).lower() or "password" in json.dumps(missing.hosts).lower()
    assert packages(host) == before
    right = apply(lab.folder, inventory, "-K", "--check", stdin="lab-password\n")
    assert right.hosts[host.name]["state"] != "refused", right.out
    state = "".join(path.read_text(errors="replace") for path in (lab.folder / "state").rglob("*") if path.is_file())
    assert "lab-password" not in state
    assert "not-the-password" not in state


def test_apt_lock_held(lab, wishes):
    host, inventory = lab.one(wishes, flavour="ubuntu2404-like", machine="t4")
    with ThreadPoolExecutor() as pool:
        with packages_locked(host):
            applying = pool.submit(apply, lab.folder, inventory, "--verify", "never")
            until(lambda: package_step(host) == "lock" or applying.done(), "waiting for the lock", 300)
            assert not applying.done(), applying.result()
        done = applying.result()
    assert done.code == 0, done.out
    assert done.hosts[host.name]["state"] == "done"
