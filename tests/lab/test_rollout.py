"""A fleet piece by piece: batches, a canary, resuming, work that is waited for, and two applies that never meet."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab.applying import apply
from tests.lab.moments import installing
from tests.lab.plays import packages
from tests.lab.process import until


def states(answer):
    return {name: outcome["state"] for name, outcome in answer.hosts.items()}


@pytest.mark.long
def test_a_canary_stops_the_rollout_and_resume_goes_on(lab, wishes):
    """One host, then the rest; drained and given back by a command of our own."""
    like = {"flavour": "ubuntu2404-like", "machine": "t4"}
    first, second, third = lab.hosts(a=like, b=like, c=like)
    inventory = lab.inventory([first, second, third], wishes)
    calls, hook = lab.folder / "calls", lab.folder / "hook"
    hook.write_text(f'#!/bin/sh\necho "$*" >>{calls}\n')
    hook.chmod(0o755)
    how = ("--batch", "1,50%", "--drain", f"{hook} drain {{node}}", "--undrain", f"{hook} undrain {{node}}")

    first.break_packages("dkms-build", "fail")
    stopped = apply(lab.folder, inventory, *how)
    assert stopped.code == 7, stopped.out + stopped.err
    assert states(stopped) == {first.name: "failed", second.name: "not-started", third.name: "not-started"}
    assert calls.read_text().splitlines() == [f"drain {first.name}"]
    assert "still drained" in str(stopped.hosts[first.name]["warnings"])
    assert not any("nvidia" in name for name in packages(second))

    first.break_packages("dkms-build", "")
    calls.unlink()
    resumed = apply(lab.folder, inventory, "--resume", *how[2:]).well()
    assert set(states(resumed).values()) == {"done"}
    assert "batch 1 of 3: 1 host" in resumed.err
    said = calls.read_text().splitlines()
    assert said[:2] == [f"drain {first.name}", f"undrain {first.name}"]  # verified before the next one begins
    assert sorted(said) == sorted(
        f"{word} {host.name}" for word in ("drain", "undrain") for host in (first, second, third)
    )
    assert apply(lab.folder, inventory, "--resume").code == 3


@pytest.mark.slow
def test_programs_on_the_gpu_are_waited_for(lab, wishes):
    host, inventory = lab.one(wishes, flavour="ubuntu2404-like", machine="t4")
    apply(lab.folder, inventory).well()
    before = packages(host)
    host.ssh("touch", "/dev/nvidia0", "/dev/nvidiactl")
    host.ssh("systemd-run", "--quiet", "--unit=training", "sh", "-c", "exec sleep 600 3</dev/nvidia0")
    inventory.write_text(inventory.read_text().replace("=580.*", "=570.*"))

    busy = apply(lab.folder, inventory)
    assert busy.code == 9, busy.out + busy.err
    outcome = busy.hosts[host.name]
    assert outcome["state"] == "postponed"
    assert "sleep" in outcome["pending"][0]
    assert packages(host) == before
    assert host.ssh("systemctl", "is-active", "training").stdout.strip() == "active"

    with subprocess.Popen([*host.ssh_argv(), "sleep 25; systemctl stop training"]):
        waited = apply(lab.folder, inventory, "--busy-wait", "5")
    assert waited.code == 0, waited.out + waited.err
    assert states(waited) == {host.name: "done"}


@pytest.mark.slow
def test_two_applies_never_meet(lab, wishes):
    """Two people at one controller, then two controllers."""
    host, inventory = lab.one(wishes, flavour="ubuntu2404-like", machine="t4")
    host.break_packages("nvidia-utils-580", "sleep 150")
    other = lab.folder / "other"
    other.mkdir()
    changed = inventory.with_name("other.ini")
    changed.write_text(inventory.read_text().replace("=580.*", "=570.*"))
    argv = [sys.executable, "-m", "gpusetup", "apply", str(inventory), "--format", "json"]
    own = {"PATH": os.environ["PATH"], "HOME": str(lab.folder), "GPUSETUP_STATE": str(lab.folder / "state")}
    with subprocess.Popen(argv, env=own, stdout=subprocess.PIPE, text=True) as one, ThreadPoolExecutor() as pool:
        until(lambda: installing(host) or one.poll() is not None, "the package step", 300)
        assert one.poll() is None, one.communicate()
        elsewhere = pool.submit(apply, other, changed)
        beside = apply(lab.folder, inventory)
        assert beside.code == 5, beside.out + beside.err
        assert beside.document["error"]["reference"] == "GS-403"
        refused = elsewhere.result()
        assert refused.code == 5, refused.out + refused.err
        assert "GS-452" in refused.out
        said, _ = one.communicate(timeout=600)
        assert one.returncode == 0, said
    installed = packages(host)
    assert any(name.endswith("-580") for name in installed)
    assert not any(name.endswith("-570") for name in installed)
