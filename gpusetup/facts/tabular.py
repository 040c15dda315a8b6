"""Facts as rows: a short table for people, all properties as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.facts.properties import GPU, HOST, gpus_named, summary

if TYPE_CHECKING:
    from gpusetup.model.facts import Facts, HostFacts

SHORT = ("host", "system", "GPUs", "driver", "CUDA", "remark")
COLUMNS = ("host", "gpus", *(item.id for item in HOST), *(item.id for item in GPU), "failure")


def short_rows(facts: Facts) -> list[tuple[str, ...]]:
    """Return rows for a table of 80 columns; hosts without an answer come last."""
    rows = [_short(name, host) for name, host in facts.hosts.items()]
    return rows + [(name, "", "", "", "", failure.message) for name, failure in facts.failures.items()]


def _short(name: str, host: HostFacts) -> tuple[str, ...]:
    values = {item.id: item.read(host) or "" for item in HOST}
    return (name, host.os.label, gpus_named(host), values["driver"], values["cuda"], _remark(host))


def _remark(host: HostFacts) -> str:
    """Return the most important problem of a host; "in use" or "" if it has none."""
    driver = host.driver
    if host.virtualisation.driver_refused:
        return f"no driver here: {host.virtualisation.driver_refused}"
    if driver is not None and driver.loaded is None:
        return "driver not loaded"
    if driver is not None and driver.mismatch:
        return f"libraries are {driver.library}: reboot"
    if host.nouveau.loaded:
        return "nouveau is loaded"
    if host.smi is not None and not host.smi.ok and driver is not None:
        return "nvidia-smi fails"
    return "in use" if host.processes else ""


def full_rows(facts: Facts) -> list[tuple[str, ...]]:
    """Return a row with all properties for each host; if its GPUs differ, values have counts."""
    rows = []
    for name, host in facts.hosts.items():
        own = [item.read(host) or "" for item in HOST]
        gpus = [summary([item.read(gpu) for gpu in host.gpus]) for item in GPU]
        rows.append((name, gpus_named(host), *own, *gpus, ""))
    blank = ("",) * (len(COLUMNS) - 2)
    return rows + [(name, *blank, failure.message) for name, failure in facts.failures.items()]
