"""GPUs: number, memory, power, MIG slices, running programs."""

import re
from collections import Counter
from typing import Any

from gpusetup.model.settings import MigLayout
from gpusetup.model.verdict import Finding, Item
from gpusetup.recovery.table import of_driver
from gpusetup.verify.expected import setting
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items
from gpusetup.verify.smi import SmiGpu


@check("gpu.count", "Every GPU is present", needs=("expected",), took="smi facts")
def gpu_count(machine: Machine) -> Finding:
    """The driver uses every GPU on the PCI bus, and there are as many as expected.

    PCI lists what is plugged in, nvidia-smi what the driver could start. A GPU that is on PCI and not in nvidia-smi
    fell off the bus, was refused by this driver branch or module flavour, or is held by another driver (vfio, nouveau).
    With an expected number (`--gpus N`, the host's baseline, or the cloud's machine type) a GPU that is missing from
    PCI fails, too. A lock and the host's record expect at least one.

    To do: read the kernel log (`driver.log`, `kernel.xid`); power-cycle the machine; reseat or replace the GPU.
    """
    seen, on_pci = machine.gpus, machine.pci_gpus
    if not machine.has_gpu:
        number = machine.gpus_wanted or 1
        text = f"no NVIDIA GPU on PCI; {machine.gpu_expected}"
        return Finding("fail", text, 0, number, number, "GPUs")
    wanted = machine.gpus_wanted or 0
    expected = max(len(on_pci), wanted) or len(seen)
    kinds = ", ".join(f"{number} x {name}" for name, number in sorted(Counter(gpu.name for gpu in seen).items()))
    if absent := [index for index in machine.only if index >= len(seen)]:
        text = (
            f"--only names GPU {', '.join(map(str, absent))}, which nvidia-smi does not list; found {kinds or 'none'}"
        )
        return Finding("fail", text, len(seen), expected, expected, "GPUs")
    if len(seen) >= expected:
        extra = f"; {wanted} expected" if wanted and len(seen) > wanted else ""
        right = wanted if extra else expected
        return Finding("warn" if extra else "pass", kinds + extra, len(seen), right, right, "GPUs")
    present = {gpu.bus_id for gpu in seen}
    lost = [device for device in on_pci if str(device.get("address", "")).lower() not in present]
    named = ", ".join(f"{device['address']} ({device.get('bound') or 'no driver'})" for device in lost[:4])
    if lost:
        text = f"on PCI, but not used by the driver: {named}" + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")
    else:
        text = f"{expected - len(seen)} missing from PCI; found {kinds or 'none'}"
        text += "" if machine.wanted.gpus else f"; {machine.gpu_expected}"
    return Finding("fail", text, len(seen), expected, expected, "GPUs")


@check("gpu.ecc", "No memory errors", needs=("gpu", "smi"), took="smi")
def gpu_ecc(machine: Machine) -> Finding:
    """No uncorrectable memory errors, and ECC is on where the GPU has it.

    Uncorrectable errors since the driver was loaded (volatile) are a fail: results can be wrong. Uncorrectable errors
    of the GPU's whole life (aggregate) are a warning, as are many correctable ones and ECC that was switched off or
    waits for a reset. GPUs without ECC are unsupported here, not passed.

    To do: stop using the GPU, reset or reboot it, run `gpusetup verify --level stress`; exchange it when errors return.
    """
    return from_items([_errors(gpu) for gpu in machine.gpus], "ECC on, no uncorrectable errors", unit="errors")


def _errors(gpu: SmiGpu) -> Item:
    mode, pending = gpu.text("ecc_mode/current_ecc"), gpu.text("ecc_mode/pending_ecc")
    if mode is None:
        return Item(gpu.label, "unsupported", "has no ECC")
    counted = gpu.memory_errors("volatile")
    lifetime = gpu.memory_errors("aggregate")
    volatile, aggregate = uncorrectable(counted), uncorrectable(lifetime)
    if volatile:
        return Item(gpu.label, "fail", f"{volatile} uncorrectable errors since the driver was loaded", volatile, 0, 0)
    if gpu.text("ecc_errors/aggregate/sram_threshold_exceeded") == "Yes":
        return Item(gpu.label, "fail", "SRAM errors are above the vendor's threshold: replace the GPU")
    if aggregate:
        return Item(gpu.label, "warn", f"{aggregate} uncorrectable errors in its lifetime", aggregate, 0, 0)
    if mode != "Enabled":
        return Item(gpu.label, "warn", "ECC is off", mode, "Enabled")
    if pending and pending != mode:
        return Item(gpu.label, "warn", f"ECC becomes {pending.lower()} at the next reset")
    if not counted or not lifetime:
        return Item(gpu.label, "skip", f"its error counters{' of its lifetime' * bool(counted)} cannot be read")
    corrected, many = sum(counted.values()) - volatile, int(setting("ecc_correctable_warn"))
    if corrected > many:
        return Item(
            gpu.label, "warn", f"{corrected} correctable errors since the driver was loaded", corrected, 0, many
        )
    return Item(gpu.label, "pass", measured=0, expected=0)


def uncorrectable(errors: dict[str, int]) -> int:
    """Return the sum of the uncorrectable errors; the counters' names differ between GPU generations."""
    return sum(number for name, number in errors.items() if re.search("unc|double_bit", name))


@check("gpu.memory-repair", "No memory repair pending or failed", needs=("gpu", "smi"), took="smi")
def gpu_memory_repair(machine: Machine) -> Finding:
    """Row remapping and page retirement have nothing pending, and room left.

    Ampere and newer replace bad memory rows by spare ones, older GPUs retire pages. A pending repair takes effect at
    the next reset and is a warning; a failed one means the spares are used up: exchange the GPU.

    To do: reset or reboot for a pending repair; open a return for a failed one.
    """
    return from_items([_repairs(gpu) for gpu in machine.gpus], "no remapping pending or failed")


def _repairs(gpu: SmiGpu) -> Item:
    failure, pending = gpu.text("remapped_rows/remapped_row_failure"), gpu.text("remapped_rows/remapped_row_pending")
    if gpu.text("ecc_errors/unrepairable_memory") == "Yes" or failure == "Yes":
        return Item(gpu.label, "fail", "row remapping failed: replace the GPU")
    repairs = [
        path for path in ("channel_repair_pending", "tpc_repair_pending") if gpu.text(f"ecc_errors/{path}") == "Yes"
    ]
    if pending == "Yes" or repairs:
        return Item(gpu.label, "warn", "a memory repair needs a GPU reset")
    if failure is not None:
        rows = gpu.number("remapped_rows/remapped_row_unc")
        if pending is None or rows is None:
            return Item(gpu.label, "skip", "its remapped rows cannot be read")
        remapped = int(rows)
        text = f"{remapped} rows remapped for uncorrectable errors" if remapped else ""
        return Item(gpu.label, "warn" if remapped else "pass", text, remapped, 0)
    retired = [
        gpu.number(f"retired_pages/{kind}/retired_count")
        for kind in ("multiple_single_bit_retirement", "double_bit_retirement")
    ]
    if all(count is None for count in retired):
        return Item(gpu.label, "unsupported", "reports neither remapped rows nor retired pages")
    total, limit = int(sum(count or 0 for count in retired)), int(setting("retired_pages_fail"))
    if gpu.text("retired_pages/pending_retirement") == "Yes" or gpu.text("retired_pages/pending_blacklist") == "Yes":
        return Item(gpu.label, "warn", "page retirement needs a reboot")
    if total >= limit:
        return Item(gpu.label, "fail", f"{total} retired pages: replace the GPU", total, 0, limit)
    return Item(gpu.label, "warn" if total else "pass", f"{total} retired pages" if total else "", total, 0, 0)


@check("gpu.recovery", "No GPU needs a reset", needs=("gpu", "smi"), took="smi")
def gpu_recovery(machine: Machine) -> Finding:
    """No GPU needs a reset, a reboot or to be taken out of service.

    Newer drivers report what a GPU needs after an error (`gpu_recovery_action`); older ones do not and are unsupported
    here. `GPU requires reset` or `GPU is lost` in place of any figure fails with every driver.

    To do: `gpusetup doctor --apply` does what it says, after asking: reset, reboot, or drain the node.
    """
    items = []
    for gpu in machine.gpus:
        action = gpu.text("gpu_recovery_action")
        if gpu.broken:
            items.append(Item(gpu.label, "fail", f"nvidia-smi says: {gpu.broken}", gpu.broken, "None"))
        elif action is None:
            items.append(Item(gpu.label, "unsupported", "this driver does not report it"))
        elif action == "None":
            items.append(Item(gpu.label, "pass", measured=action, expected="None"))
        else:
            need = of_driver(action)
            plain = need.need in ("reset", "reboot")  # the word says it
            text = f"asks for: {action}" + ("" if plain else f", which is {need.text}")
            items.append(Item(gpu.label, "fail", text, action, "None"))
    return from_items(items, "no GPU asks for a reset or a reboot")


GRAVE = {
    "hw_thermal_slowdown": "too hot (hardware slowdown)",
    "hw_power_brake_slowdown": "the power brake is active: check the power supply and cables",
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "too hot (software slowdown)",
}


@check("gpu.throttle", "Nothing limits the clocks", needs=("gpu", "smi"), took="smi")
def gpu_throttle(machine: Machine) -> Finding:
    """Nothing limits the clocks: no thermal slowdown, no power brake.

    Reasons that are active now: hardware slowdown, thermal slowdown and the power brake are a fail, since they mean
    cooling or supply is broken; the software power cap is a warning on a GPU that is not loaded. Idle clocks,
    application clocks and the display are normal.

    To do: look at fans, air flow, power cables and the server's own event log.
    """
    return from_items([_throttled(gpu, gpu.index in machine.busy) for gpu in machine.gpus], "no slowdown is active")


def reasons(gpu: SmiGpu) -> dict[str, bool]:
    """Return whether each throttle reason that can be read is active; driver 535 renamed the section."""
    found = {}
    for section, prefix in (
        ("clocks_event_reasons", "clocks_event_reason_"),
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
    ):
        for tag, value in gpu.children(section).items():
            if value in ("Active", "Not Active"):
                found[tag.removeprefix(prefix)] = value == "Active"
    return found


def _throttled(gpu: SmiGpu, busy: bool) -> Item:
    active = reasons(gpu)
    if not active:
        return Item(gpu.label, "unsupported", "reports no throttle reasons")
    for name, text in GRAVE.items():
        if active.get(name):
            return Item(gpu.label, "fail", text, name)
    if active.get("sw_power_cap") and not busy and (gpu.number("utilization/gpu_util") or 0) == 0:
        return Item(gpu.label, "warn", "limited by its power limit while idle", "sw_power_cap")
    return Item(gpu.label, "pass")


@check("gpu.power", "Power limit and temperature", needs=("gpu", "smi"), took="smi")
def gpu_power(machine: Machine) -> Finding:
    """The power limit is the default one, and the temperature has room.

    A lower limit makes a GPU slower than its twin next to it and is easy to forget; it is a warning, since it may be
    wanted. Temperature is judged by what the GPU itself says is left before it slows down.

    To do: `nvidia-smi -pl` back to the default; look at cooling.
    """
    items = [_power(gpu) for gpu in machine.gpus]
    found = [value for gpu in machine.gpus if (value := gpu.number("temperature/gpu_temp")) is not None]
    hottest = f"{max(found):.0f} °C at most" if found else "the temperature is not known"
    return from_items(items, f"limit {_power_limit(machine.gpus[0]) or 0:.0f} W, {hottest}", unit="W")


def _power_limit(gpu: SmiGpu) -> float | None:
    return gpu.number("gpu_power_readings/current_power_limit") or gpu.number("power_readings/power_limit")


def _power(gpu: SmiGpu) -> Item:
    limit = _power_limit(gpu)
    default = gpu.number("gpu_power_readings/default_power_limit") or gpu.number("power_readings/default_power_limit")
    room, floor = gpu.number("temperature/gpu_temp_tlimit"), float(setting("temperature_room_warn"))
    temperature, slowdown = gpu.number("temperature/gpu_temp"), gpu.number("temperature/gpu_temp_slow_threshold")
    left = room
    if room is None and slowdown is not None and temperature is not None:
        left = slowdown - temperature
    if left is not None and left < floor:
        return Item(gpu.label, "warn", f"{left:.0f} °C left before it slows down, at least {floor:.0f} are expected")
    if limit is None or default is None:
        return Item(gpu.label, "unsupported", "reports no power limit")
    if limit < default:
        return Item(gpu.label, "warn", f"limited to {limit:.0f} W of {default:.0f} W", limit, default, default)
    if left is None:
        return Item(gpu.label, "skip", "its room to the slowdown is not known", limit, default, default)
    return Item(gpu.label, "pass", measured=limit, expected=default, limit=default)


@check("gpu.persistence", "Persistence mode is on", needs=("gpu", "smi"), took="smi facts")
def gpu_persistence(machine: Machine) -> Finding:
    """Persistence is on: the driver stays initialised when nobody uses the GPU.

    Without it the last program to leave tears the driver's state down, the next one waits seconds, and settings made
    with nvidia-smi are lost. `nvidia-persistenced` is the lasting way; `nvidia-smi -pm 1` ends with the module.

    To do: `systemctl enable --now nvidia-persistenced` (`gpusetup apply` does).
    """
    items = []
    for gpu in machine.gpus:
        mode = gpu.text("persistence_mode")
        if mode is None:
            items.append(Item(gpu.label, "unsupported", "reports no persistence mode"))
        elif mode == "Enabled":
            items.append(Item(gpu.label, "pass", measured=mode))
        else:
            items.append(Item(gpu.label, "warn", "persistence is off", mode, "Enabled"))
    lasting = (machine.service("persistenced") or {}).get("active") == "active"
    told = "set by hand or at boot" if machine.facts.get("services") else "what set it could not be read"
    return from_items(items, "on, by nvidia-persistenced" if lasting else f"on, {told}")


@check("gpu.idle", "No other program uses the GPUs", needs=("gpu", "smi"), took="smi")
def gpu_idle(machine: Machine) -> Finding:
    """Nobody else computes on the GPUs while they are measured.

    A GPU in use is measured at low load (little memory, few repetitions) and its figures are not judged; no process is
    stopped. Compute mode counts, too: Prohibited excludes all programs, Exclusive Process a second one.

    To do: wait, or verify the other GPUs with `--only`.
    """
    told = {gpu["index"]: gpu for gpu in machine.document.get("gpus", [])}
    items = []
    for gpu in machine.gpus:
        mode = gpu.text("compute_mode")
        mine, joined = (told.get(gpu.index, {}).get(name) or [] for name in ("processes", "joined"))
        if mode == "Prohibited":
            items.append(Item(gpu.label, "fail", "compute mode Prohibited: no program may use it", mode, "Default"))
        elif mine:
            more = f" and {len(mine) - 1} more" if len(mine) > 1 else ""
            text = f"in use by {_named(mine[0])}{more}: measured at low load"
            items.append(Item(gpu.label, "warn", text, len(mine), 0, blame="job"))
        elif joined:
            text = f"{_named(joined[0])} began during the measurement"
            items.append(Item(gpu.label, "warn", text, len(joined), 0, blame="job"))
        elif work := gpu.number("utilization/gpu_util"):
            text = f"{work:.0f} % busy with a program that cannot be seen from here: its figures may be low"
            items.append(Item(gpu.label, "warn", text, work, 0, blame="job"))
        elif mode and mode != "Default":
            items.append(Item(gpu.label, "warn", f"compute mode {mode}", mode, "Default"))
        else:
            items.append(Item(gpu.label, "pass", measured=0, expected=0))
    return from_items(items, "no compute process")


def _named(process: dict[str, Any]) -> str:
    return f"{process.get('name')} (process {process.get('pid')}, {process.get('memory')})"


@check("gpu.mig", "MIG mode is consistent", needs=("gpu", "smi"), took="smi")
def gpu_mig(machine: Machine) -> Finding:
    """MIG is off, or on with slices; with `gpusetup_mig`, with the applied ones.

    A GPU in MIG mode without a slice cannot be used at all; a pending mode change takes effect at the next reset.
    Slices have no peers, and a part of the memory and of the multiprocessors: their figures are shown without a
    verdict, because nobody publishes what a slice should reach.

    To do: `gpusetup apply` creates the slices of `gpusetup_mig`, and `gpusetup drift` shows what differs; by hand
    `nvidia-smi mig -cgi … -C`, or switch MIG off and reset.
    """
    slices = {
        gpu["index"]: [part["profile"] for part in gpu.get("slices", [])] for gpu in machine.document.get("gpus", [])
    }
    items = []
    for gpu in machine.gpus:
        now, next_mode = gpu.text("mig_mode/current_mig"), gpu.text("mig_mode/pending_mig")
        mine = slices.get(gpu.index, [])
        if now is None:
            items.append(Item(gpu.label, "unsupported", "has no MIG"))
        elif now == "Enabled" and machine.command("smi_list").get("error"):
            items.append(Item(gpu.label, "skip", "not checked: nvidia-smi did not list the slices"))
        elif next_mode not in (None, now):
            items.append(
                Item(gpu.label, "warn", f"MIG becomes {str(next_mode).lower()} at the next reset", now, next_mode)
            )
        elif gpu.bus_id in machine.wanted.mig:
            items.append(_as_applied(gpu.label, machine.wanted.mig[gpu.bus_id], now, mine))
        elif now == "Enabled" and not mine:
            items.append(Item(gpu.label, "fail", "MIG is on but has no instance: programs cannot use the GPU", now))
        else:
            items.append(Item(gpu.label, "pass", ", ".join(mine), now))
    on = sum(1 for gpu in machine.gpus if machine.mig(gpu))
    able = sum(1 for item in items if item.verdict != "unsupported")
    found = from_items(items, "off" if not on else f"on, {sum(map(len, slices.values()))} slices", nothing="no GPU")
    if found.verdict == "pass" and 0 < on < able and not machine.wanted.mig:
        return Finding("warn", f"MIG is on for {on} of {able} GPUs", items=tuple(items))
    return found


def _as_applied(label: str, layout: MigLayout, mode: str, there: list[str]) -> Item:
    """Compare the slices that programs see with the applied layout, where a count of 0 means as many as possible."""
    found, wanted = Counter(there), Counter[str]()
    for item in layout.instances:
        for name in item.compute or (item.profile,):
            wanted[name] += item.count or max(found[name], 1)
    has = _slices(found) if mode == "Enabled" else "off"
    right = _slices(wanted) if layout.enabled else "off"
    if has == right:
        return Item(label, "pass", ", ".join(there), mode)
    text = f"has {has}, and {right} was applied"
    return Item(label, "fail", text, has, right)


def _slices(slices: Counter[str]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(slices.items())) or "no slices"
