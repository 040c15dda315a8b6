"""GPUs under load for minutes."""

from functools import reduce
from operator import or_
from statistics import median

from msgspec import structs

from gpusetup.model.verdict import Curve, Curves, Finding, Item
from gpusetup.recovery.table import meaning
from gpusetup.verify.answers import failed_item, left_out
from gpusetup.verify.checks.quick.driver import XID
from gpusetup.verify.checks.quick.gpu import uncorrectable
from gpusetup.verify.expected import setting
from gpusetup.verify.machine import Machine
from gpusetup.verify.registry import check, from_items
from gpusetup.verify.smi import SmiGpu, parse_gpus


def _absent(machine: Machine) -> Finding | None:
    section = machine.sections.get("stress")
    if not isinstance(section, dict):
        return Finding("skip", "not run: the test ended before it")
    if section.get("skipped"):
        return Finding("warn", f"not loaded: {section['skipped']}", blame="job" if machine.busy else "")
    return None


@check("stress.compute", "Results stay right under load", needs=("gpu", "python", "context"), took="stress")
def stress_compute(machine: Machine) -> Finding:
    """Minutes of matrix products give the same bits each time, and memory keeps its pattern.

    The same half precision product is repeated on every GPU; its result must stay equal bit for bit. Between, 80 % of
    the free memory is filled with a pattern and read back. A deviation is hardware.

    To do: exchange the GPU.
    """
    missing = _absent(machine)
    if missing is not None:
        return missing
    section = machine.sections["stress"]
    items = [
        Item(f"GPU {key}", "warn", "another job uses it: not loaded", blame="job") for key in section.get("busy", [])
    ]
    answers = {**section.get("lost", {}), **section["workers"]}
    items += left_out(machine, {*answers, *section.get("busy", [])})
    for key, answer in answers.items():
        subject = f"GPU {key}"
        if "error" in answer:
            items.append(failed_item(subject, answer, busy=machine.beside_job(key)))
        elif answer["deviations"] or answer["pattern_errors"]:
            text = f"{answer['deviations']} products differ, {answer['pattern_errors']} words changed"
            items.append(Item(subject, "fail", text, answer["deviations"], 0))
        elif not answer["rounds"]:
            items.append(Item(subject, "skip", "not run: the time was too short for one pass"))
        else:
            items.append(Item(subject, "pass", f"{answer['products']} products", 0, 0))
    return from_items(items, f"{section['minutes']:g} minutes, every product identical")


def _counts(gpu: SmiGpu) -> dict[str, int]:
    rows = gpu.children("remapped_rows")
    return gpu.memory_errors("volatile") | {
        name: int(rows[name]) for name in ("remapped_row_corr", "remapped_row_unc") if rows.get(name, "").isdigit()
    }


@check("stress.ecc", "No memory error under load", needs=("gpu", "python", "context"), took="stress")
def stress_ecc(machine: Machine) -> Finding:
    """Load brought no new memory error, row remapping or Xid.

    The counters and the kernel log after the load are compared with those before it.

    To do: exchange the GPU that counts.
    """
    missing = _absent(machine)
    if missing is not None:
        return missing
    after = machine.sections["stress"]["after"]
    later = {gpu.bus_id: gpu for gpu in parse_gpus((after.get("smi") or {}).get("stdout", ""))}
    items = []
    for gpu in machine.gpus:
        then = later.get(gpu.bus_id)
        if then is None or then.broken:
            said = f"nvidia-smi says after the load: {then.broken}" if then else ""
            items.append(Item(gpu.label, "fail", said or "disappeared from nvidia-smi under load"))
            continue
        before, counts = _counts(gpu), _counts(then)
        if not gpu.memory_errors("volatile") or before.keys() - counts.keys():
            text = "its counters cannot be read after the load" if before else "has no counters of memory errors"
            items.append(Item(gpu.label, "skip", text))
            continue
        grown = {name: counts[name] - count for name, count in before.items() if counts[name] > count}
        if grown:
            text = "increased under load: " + ", ".join(f"{name} by {number}" for name, number in grown.items())
            items.append(Item(gpu.label, "fail" if uncorrectable(grown) else "warn", text, sum(grown.values()), 0))
        else:
            items.append(Item(gpu.label, "pass", measured=0, expected=0))
    logs = [machine.collected("kernel_log"), after.get("kernel_log") or {}]
    known, lines = ([line for line in log.get("lines", []) if XID.search(line)] for log in logs)
    fresh = [line for line in lines if line not in known]
    if unread := [log for log in logs if not log.get("source")]:
        why = unread[0].get("error") or "no kernel log"
        items.append(Item("kernel log", "skip", f"could not be read before and after the load: {why}"))
    elif fresh:
        text = f"{len(fresh)} new Xid lines: {fresh[0][-100:]}"
        jobs = all(_of_a_job(machine, line) for line in fresh)
        items.append(Item("kernel log", "fail", text, len(fresh), 0, blame="job" if jobs else ""))
    found = from_items(items, "no counter increased" + ("" if unread else ", no new Xid"))
    return structs.replace(found, verdict="skip") if unread and found.verdict == "pass" else found


def _of_a_job(machine: Machine, line: str) -> bool:
    """Return whether programs cause this Xid, and its GPU was left to another job."""
    found = XID.search(line)
    left = {str(key).split("/")[0] for key in machine.sections["stress"].get("busy", [])}
    places = [gpu.bus_id for gpu in machine.gpus if str(gpu.index) in left or gpu.index in machine.busy]
    return (
        found is not None
        and meaning(int(found[2])).verdict != "fail"
        and any(place.startswith(found[1].lower()) for place in places)
    )


# Bits of NVML's throttle reasons.
BITS = {
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
POWER_LIMIT = 0x04


def _curve(gpu: SmiGpu, rows: list[tuple[float, dict[str, str]]], name: str) -> Curve:
    points = tuple((at, value) for at, row in rows if (value := _number(row.get(name))))
    return Curve(name=gpu.label, points=points)


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


@check("stress.thermal", "Temperature under load is fine", needs=("gpu", "python", "context"), took="stress")
def stress_thermal(machine: Machine) -> Finding:
    """Under load the GPUs keep cool enough: no thermal slowdown, no power brake, clocks above a floor.

    Sampled every five seconds. Reaching the power limit is what a loaded GPU does; slowing down for heat, or the power
    brake, is a fail. Clocks far below the highest one are a warning; at the power limit they may fall further before
    that.

    To do: fans, air flow, dust, power supply; neighbours that stay cooler show where.
    """
    missing = _absent(machine)
    if missing is not None:
        return missing
    samples, workers = (machine.sections["stress"][name] for name in ("samples", "workers"))
    loaded = {key.split("/")[0] for key in workers}
    items, temperatures, powers = [], [], []
    for gpu in machine.gpus:
        if str(gpu.index) not in loaded:
            continue
        rows = [
            (sample["at"], row) for sample in samples for row in sample["rows"] if row.get("index") == str(gpu.index)
        ]
        if not rows:
            items.append(Item(gpu.label, "skip", "not checked: nvidia-smi gave no sample under load"))
            continue
        reasons = [int(text, 16) for _, row in rows if (text := row.get("reasons", "")).startswith("0x")]
        seen = reduce(or_, reasons, 0)
        named = [text for bit, text in BITS.items() if seen & bit]
        clocks = [clock for _, row in rows if (clock := _number(row.get("clocks.sm")))]
        highest = gpu.number("max_clocks/sm_clock")
        floor = setting("stress_power_limit_warn" if seen & POWER_LIMIT else "stress_slowdown_warn")
        temperatures.append(_curve(gpu, rows, "temperature.gpu"))
        hottest = max((value for _, value in temperatures[-1].points), default=0.0)
        powers.append(_curve(gpu, rows, "power.draw"))
        if named:
            items.append(Item(gpu.label, "fail", f"{', '.join(named)} at {hottest:.0f} °C", hottest))
        elif any("error" in answer for key, answer in workers.items() if key.split("/")[0] == str(gpu.index)):
            items.append(Item(gpu.label, "skip", "its load ended early (see stress.compute)"))
        elif clocks and highest and median(clocks) < floor * highest:
            why = "at its power limit" if seen & POWER_LIMIT else "without a thermal reason"
            text = f"clock fell to {median(clocks):.0f} of {highest:.0f} MHz {why}"
            items.append(Item(gpu.label, "warn", text, median(clocks), highest, round(floor * highest)))
        elif not (reasons and hottest and clocks and highest):
            items.append(Item(gpu.label, "skip", "nvidia-smi gave no temperature, no clock or no reasons for it"))
        else:
            items.append(Item(gpu.label, "pass", measured=hottest))
    hottest = max((value for curve in temperatures for _, value in curve.points), default=0.0)
    figures = (
        Curves(title="Temperature under load", x_label="seconds", y_label="°C", lines=tuple(temperatures)),
        Curves(title="Power under load", x_label="seconds", y_label="W", lines=tuple(powers)),
    )
    return from_items(
        items,
        f"{hottest:.0f} °C maximum, no thermal slowdown",
        nothing="not checked: no sample was taken",
        figures=figures if temperatures else (),
    )
