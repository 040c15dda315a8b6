"""One rule for a record on the host and on the controller: what the host takes, the controller reads, and the reverse."""

import json
from functools import reduce
from operator import getitem
from typing import Any

import msgspec
import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

from gpusetup.components.judge import record_form
from gpusetup.components.record import read_record
from gpusetup.model.applied import HostRecord
from tests.unit.plan.test_record import RECORD

LISTS: tuple[Any, ...] = ([], ["x"], [7], [None])
OTHERS: tuple[Any, ...] = (None, True, 7, 1.5, "x", *LISTS, {}, {"a": "x"}, {"a": 7}, {"a": None}, {"a": {}})
ONLY_TOLD = ("lock", "verified", "lost")


def ways(value, *above):
    """Yield the path of everything inside a document; locks are read part by part, by another rule."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*above, key)
        if key != "lock":
            yield from ways(inner, *above, key)


def fits(document):
    """Tell whether the controller's own types take a document, what is only told left out."""
    rest = {name: value for name, value in document.items() if name not in ONLY_TOLD}
    if isinstance(rest.get("apply"), dict):
        rest["apply"] = {name: value for name, value in rest["apply"].items() if name != "lock"}
    try:
        msgspec.convert(rest, HostRecord)
    except msgspec.ValidationError:
        return False
    return True


def documents():
    """Yield a whole record with every one of its values in turn replaced, and with every one left out."""
    text = json.dumps(RECORD)
    for *parents, last in ways(RECORD):
        for other in (*OTHERS, KeyError):
            copy = json.loads(text)
            place = reduce(getitem, parents, copy)
            if other is KeyError:
                del place[last]
            else:
                place[last] = other
            yield copy


def test_host_and_controller_take_the_same_records():
    assert {field.name for field in msgspec.structs.fields(HostRecord)} <= set(RECORD), "every part of it is tried"
    tried = list(documents())
    sound = [document for document in tried if fits(document)]
    assert (len(tried) > 900, len(sound) > 200) == (True, True)
    assert [document for document in tried if (record_form.wrong(document) == "") is not fits(document)] == []
    assert all(read_record(document)[0] is not None for document in sound)


def test_the_host_keeps_its_hands_off_what_the_controller_calls_unreadable(tmp_path):
    bad = json.loads(json.dumps(RECORD))
    bad["files"]["/etc/a"]["original"] = {"mode": 7}
    (tmp_path / "state.json").write_text(json.dumps(bad))
    with pytest.raises(HostFailure) as caught:
        Ledger(str(tmp_path))
    assert caught.value.fields["note"] == read_record(bad)[1] == "`$.files[...].original` has no `sha256`"
    (tmp_path / "state.json").write_text(json.dumps(RECORD | {"lock": ["?"], "lost": "?", "newer": 1}))
    assert Ledger(str(tmp_path)).state["brought"] == RECORD["brought"]
