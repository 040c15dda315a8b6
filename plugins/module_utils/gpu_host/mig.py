"""Divide GPUs into MIG instances: all of a host's GPUs together, and as they were before if anything fails.

The unit that restores the layout at boot runs the same file, so it uses neither Ansible nor the record.
"""

import re
from typing import Any, Dict, List, Optional, Sequence

from ..gpu_judge import driver
from ..gpu_judge import mig as judge
from ..gpu_probe import mig as probe
from . import process
from .failure import HostFailure
from .files import locked
from .gpu_users import refuse_busy
from .systemd import Stopped

Env = Dict[str, str]
Layouts = Dict[str, Dict[str, Any]]
"""By PCI address: {"enabled", "instances"}; placed instances have a `start`."""

LOCK = "/run/gpusetup-mig.lock"


def lay(wishes: Layouts, env: Env, *, check: bool = False, boot: bool = False, record: Any = None) -> Dict[str, Any]:
    """Give GPUs their layouts; return {"changed", "found", "made", "reboot"}.

    `found` is each GPU's layout before, `made` its layout now or after the next boot, `reboot` why that one is needed.
    At boot nobody uses a GPU yet, and services wait for us, so none is stopped. A second caller (an apply that has just
    rebooted the host, and the unit of that boot) waits, and finds the work done.
    """
    with locked(LOCK):
        return _lay(wishes, env, check, Stopped(() if boot else driver.WATCHERS, env, record))


def _lay(wishes: Layouts, env: Env, check: bool, watchers: Stopped) -> Dict[str, Any]:
    run = process.smi(env)
    gpus = _gpus(run, wishes)
    found = {address: layout_of(gpu) for address, gpu in gpus.items()}
    wanted = {address: _wanted(run, gpus[address], wish) for address, wish in sorted(wishes.items())}
    todo = [address for address in wanted if not judge.same(found[address], wanted[address])]
    if not todo or check:
        return {"changed": bool(todo), "found": found, "made": wanted, "reboot": []}
    if watchers.units:  # not at boot, when nobody uses a GPU yet
        refuse_busy([gpus[address] for address in todo], env, "GS-438", "whose MIG layout changes")
    pending: Dict[str, str] = {}
    with watchers as stopped:
        try:
            for address in todo:
                waits = _one(run, gpus[address], wanted[address], stopped)
                if waits:
                    mode = "enabled" if wanted[address]["enabled"] else "disabled"
                    pending[address] = f"MIG of {address} becomes {mode} at the next reset: {waits}"
            made = _asserted(run, {address: wanted[address] for address in wanted if address not in pending})
        except HostFailure as failure:
            outcome = _restored(run, found, todo, stopped)
            failure.fields["note"] = "; ".join(filter(None, (failure.fields["note"], outcome)))
            raise
    made.update({address: wanted[address] for address in pending})
    return {"changed": True, "found": found, "made": made, "reboot": sorted(pending.values())}


def layout_of(gpu: Dict[str, Any]) -> Dict[str, Any]:
    instances = [{key: item[key] for key in ("profile", "start", "compute")} for item in gpu["instances"] or ()]
    return {"enabled": bool(gpu["enabled"]), "instances": instances}


def _gpus(run: probe.Run, wishes: Layouts) -> Dict[str, Dict[str, Any]]:
    told = probe.look(run)
    if told is None:
        raise HostFailure("GS-435", "nvidia-smi does not answer, so gpusetup cannot set MIG layouts",
                          hint="nvidia-smi says why; gpusetup doctor finds the cause")  # fmt: skip
    there = {gpu["address"]: gpu for gpu in told}
    for address in wishes:
        if address not in there:
            raise HostFailure("GS-435", f"no GPU answers at {address}", f"nvidia-smi names {', '.join(there)}",
                              hint="remove it from gpusetup_mig, or find the cause: gpusetup doctor")  # fmt: skip
        if there[address]["enabled"] is None and wishes[address]["enabled"]:
            raise HostFailure("GS-436", f"the GPU at {address} has no MIG", "nvidia-smi reports its MIG mode as N/A",
                              hint="remove it from gpusetup_mig")  # fmt: skip
    return {address: there[address] for address in wishes}


def _wanted(run: probe.Run, gpu: Dict[str, Any], wish: Dict[str, Any]) -> Dict[str, Any]:
    """Return a GPU's layout with every instance placed according to the GPU's own table of profiles."""
    if not wish["enabled"]:
        return {"enabled": False, "instances": []}
    if all("start" in item for item in wish["instances"]):  # it was placed before
        return {"enabled": True, "instances": list(wish["instances"])}
    profiles = probe.profiles(run, gpu["address"])
    if profiles is None:  # older drivers report them only while MIG is on; a layout that then does not fit is undone
        return dict(wish, unplaced=True)
    return _fitted(gpu, wish, profiles)


def _fitted(gpu: Dict[str, Any], wish: Dict[str, Any], profiles: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    layout = judge.asked(wish, profiles)
    if layout is None:  # the maximum of an unknown profile
        layout = {"enabled": True, "instances": [dict(item, compute=[]) for item in wish["instances"]]}
    why = judge.refusal(layout, profiles)
    if why is not None:
        raise HostFailure("GS-436", f"the GPU at {gpu['address']} does not allow it: {why[0]}", judge.text_of(layout),
                          "according to its own table of profiles: nvidia-smi mig -lgip", why[1])  # fmt: skip
    done = judge.placed(layout, profiles)
    return done or layout


# --- one GPU ---------------------------------------------------------------------------------------------------------


def _one(run: probe.Run, gpu: Dict[str, Any], wanted: Dict[str, Any], stopped: Stopped) -> str:
    """Give one GPU its layout; return why it waits for a reset that needs a reboot, empty if it is done."""
    address = gpu["address"]
    if gpu["enabled"]:
        _clear(run, gpu)
    if gpu["enabled"] != wanted["enabled"]:
        waits = _switch(run, address, wanted["enabled"], stopped)
        if waits:
            return waits
    if not wanted["enabled"]:
        return ""
    profiles = probe.profiles(run, address)
    if profiles is None:
        raise HostFailure(
            "GS-436", f"the GPU at {address} reports no MIG profiles", hint="nvidia-smi mig -lgip says why"
        )
    if wanted.pop("unplaced", False):
        wanted.update(_fitted(gpu, wanted, profiles))
    numbers = {item["name"]: item["id"] for item in profiles}
    for item in wanted["instances"]:
        _create(run, address, item, numbers)
    return ""


def _clear(run: probe.Run, gpu: Dict[str, Any]) -> None:
    for kind, there in (("-dci", any(item["compute"] for item in gpu["instances"] or ())), ("-dgi", gpu["instances"])):
        if there:
            _smi_output(
                run, ["mig", "-i", gpu["address"], kind], f"the MIG instances of {gpu['address']} cannot be removed"
            )


def _switch(run: probe.Run, address: str, enabled: bool, stopped: Stopped) -> str:
    """Switch MIG on or off, with a reset on Ampere GPUs; return why the reset failed, empty if it is done."""
    answer = _smi_output(run, ["-i", address, "-mig", "1" if enabled else "0"], f"MIG of {address} cannot be switched")
    if _is(run, address) == enabled:
        return ""
    stopped.stop(driver.FOR_RESET)
    reset = run(["--gpu-reset", "-i", address])
    if _is(run, address) == enabled:
        return ""
    words = (reset["out"] + reset["err"]).strip() or answer.strip()
    return " ".join(words.split())[:300] or "it could not be reset"


def _is(run: probe.Run, address: str) -> Optional[bool]:
    told = run(["-i", address, "--query-gpu=mig.mode.current", "--format=csv,noheader"])["out"].strip()
    return {"Enabled": True, "Disabled": False}.get(told)


def _create(run: probe.Run, address: str, item: Dict[str, Any], numbers: Dict[str, int]) -> None:
    """Create one GPU instance at its place, and its compute instances."""
    profile, whole = item["profile"], item["compute"] == [item["profile"]]
    if profile not in numbers:  # a layout that was placed by another driver
        raise HostFailure("GS-436", f"the GPU at {address} has no profile {profile}",
                          hint="it has " + (", ".join(numbers) or "none"))  # fmt: skip
    tuple_of = "{}:{}".format(numbers[profile], item["start"])
    what = f"{profile} cannot be created on {address}"
    told = _smi_output(run, ["mig", "-i", address, "-cgi", tuple_of] + (["-C"] if whole else []), what)
    if whole or not item["compute"]:
        return
    made = re.search(r"created GPU instance ID\s+(\d+)", told)
    number = int(made.group(1)) if made else -1
    known = probe.compute_profiles(run, address, number)
    for name in item["compute"]:
        if name not in known:
            raise HostFailure("GS-436", f"{profile} on {address} has no compute instance {name}",
                              hint="it has " + (", ".join(known) or "none"))  # fmt: skip
        arguments = ["mig", "-i", address, "-gi", str(number), "-cci", str(known[name])]
        _smi_output(run, arguments, f"{name} cannot be created on {address}")


def _smi_output(run: probe.Run, arguments: List[str], what: str) -> str:
    answer = run(arguments)
    words: str = (answer["out"] + answer["err"]).strip()
    if answer["rc"] != 0:
        raise HostFailure("GS-437", what, "nvidia-smi " + " ".join(arguments), words[-500:],
                          "gpusetup doctor explains the message; nvidia-smi mig -lgi shows the instances")  # fmt: skip
    return words


# --- afterwards ------------------------------------------------------------------------------------------------------


def _asserted(run: probe.Run, wanted: Layouts) -> Layouts:
    now = {gpu["address"]: layout_of(gpu) for gpu in probe.look(run) or ()}
    for address, layout in wanted.items():
        if not judge.same(now.get(address), layout):
            raise HostFailure("GS-437", f"the GPU at {address} does not have the layout that gpusetup set",
                              f"it has {judge.text_of(now.get(address))} instead of {judge.text_of(layout)}",
                              hint="nvidia-smi mig -lgi and -lci show the present instances")  # fmt: skip
    return {address: now[address] for address in wanted}


def _restored(run: probe.Run, found: Layouts, todo: List[str], stopped: Stopped) -> str:
    """After a failure, give the GPUs their earlier layouts; return the outcome as text."""
    told = probe.look(run)
    now = {gpu["address"]: gpu for gpu in told or ()}
    lost = []
    for address in todo:
        if address not in now:
            lost.append(address)
            continue
        if judge.same(layout_of(now[address]), found[address]):
            continue
        try:
            waits = _one(run, now[address], dict(found[address]), stopped)
        except HostFailure:
            waits = "failed"
        if waits:
            lost.append(address)
    if not lost:
        return "the GPUs have their old layout again"
    had = "; ".join(f"{address} had {judge.text_of(found[address])}" for address in lost)
    return "gpusetup could not restore all of it: " + had
