"""A record that is missing or damaged: it is reported and kept, never taken for an empty one. Which holds are ours
without a record.
"""

import os
import re
from typing import Any, Iterable, List

from ..gpu_probe import record
from . import files
from .apt import UNATTENDED_FILE
from .failure import HostFailure
from .journal import State, empty, now
from .ledger import Ledger, history


def reason(folder: str, host: Any) -> str:
    """Return why the record is missing or unreadable on a host that gpusetup has changed; empty if all is well."""
    try:
        Ledger(folder)
    except HostFailure as failure:
        return failure.fields["note"]
    there: str = "" if os.path.exists(os.path.join(folder, "state.json")) else record.lost(host)
    return there


def holds(folder: str, held: Iterable[str]) -> List[str]:
    """Return the held packages that are ours by the history or by our own file for automatic upgrades."""
    named = re.findall(r'"\^(.*)\$"', files.read_text(UNATTENDED_FILE) or "")
    ours = {name.replace("\\", "") for name in named} | set([{}, *history(folder)][-1].get("holds") or [])
    return sorted(name for name in held if name in ours or name.split(":")[0] in ours)


def state(folder: str, host: Any, held: Iterable[str]) -> State:
    """Return the record, or what is known without it."""
    if reason(folder, host):
        return dict(empty(), holds=holds(folder, held))
    return Ledger(folder).state


def begin_new_record(folder: str, why: str, held: Iterable[str]) -> Ledger:
    """Keep a damaged record under another name, then replace it in one step by a new one, which adopts the files that
    prove that there was one.
    """
    ours, kept = holds(folder, held), ""
    ledger = Ledger(folder, fresh={"holds": ours})
    if os.path.lexists(ledger.path):
        kept = f"{ledger.path}.damaged-{now()}"
        os.link(ledger.path, kept)
    for mark in record.MARKS:
        ledger.adopt(mark, files.read_bytes(mark))
    ledger.tell(lost={"time": now(), "why": why, "kept": kept, "packages": ours})
    return ledger
