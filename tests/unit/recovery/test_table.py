"""What a finding needs: the table agrees with the catalogue, with the driver's words and with whoever else tells them."""

import re
from importlib import import_module
from typing import get_args

import pytest

from gpusetup.doctor.catalogue import catalogue
from gpusetup.model.diagnosis import Need, Step
from gpusetup.monitoring.files import meaning_of
from gpusetup.recovery.table import Reset, of_driver, of_xid, settled, table
from gpusetup.recovery.table import catalogue as xids


def test_every_word_of_the_table_has_a_need_and_a_source_that_is_there():
    data = table()
    assert [row.need for row in data.needs] == list(get_args(Need))
    every = [*data.needs, *data.driver, *data.buckets.values(), *data.causes.values()]
    assert {source for row in every for source in row.sources} <= set(data.sources)
    assert all(row.sources for row in [*data.driver, *data.buckets.values(), *data.causes.values()])
    assert set(data.causes) <= set(catalogue().causes)
    assert {step for row in data.needs for step in row.steps} == set(get_args(Step))
    assert {entry.bucket for entry in xids().xids.values()} <= set(data.buckets)


def test_the_textfile_knows_the_same_words_by_the_same_numbers():
    words = {word.lower(): row.number for row in table().driver for word in row.words}
    assert words.items() <= import_module("gpu_textfile.smi")._WORDS.items()


def test_the_figures_and_the_alert_name_the_same_numbers():
    (figure,) = (row for row in import_module("gpu_textfile.figures").FIGURES if row.field == "gpu_recovery_action")
    for text in (meaning_of("GpuRecoveryNeeded").page, figure.help):
        for row in table().driver[1:5]:
            assert re.search(rf"\b{row.number} {row.words[0].split()[0].lower()}", text), text


RESETS = {"0000:17:00.0": Reset(200.0, 1_763_900_000.0)}
XID = "NVRM: Xid (PCI:0000:17:00): 62, pid=1"


@pytest.mark.parametrize(
    ("line", "done"),
    [
        (f"[  199.900000] {XID}", True),
        (f"[  200.100000] {XID}", False),
        (f"2025-11-23T12:13:20+0000 host kernel: {XID}", True),
        (f"2025-11-23T13:13:20+01:00 host kernel: {XID}", True),
        (f"2025-11-23T12:13:21,5Z host kernel: {XID}", False),
        (XID, False),
        ("[  100.000000] NVRM: Xid (PCI:0000:18:00): 62", False),
        ("[  100.000000] NVRM: GPU 0000:17:00.0: RmInitAdapter failed!", False),
        ("[  100.000000] NVRM: Xid: 62", False),
    ],
)
def test_only_xids_of_that_gpu_before_that_moment_are_settled(line, done):
    assert settled(line, RESETS) is done
    assert settled(line, {}) is False


def test_every_xid_has_a_bucket_of_the_table_and_only_late_numbers_have_none():
    known = xids().xids
    assert {entry.bucket for entry in known.values()} <= set(table().buckets)
    assert sorted(number for number, entry in known.items() if entry.bucket == "unknown") == list(range(162, 173))


@pytest.mark.parametrize(
    ("word", "need", "steps"),
    [("GPU Reset", "reset", ("reset",)), ("Drain and Reset", "drain-reset", ("drain", "reset")), ("New", "look", ())],
)
def test_the_driver_s_own_word_decides_and_a_new_one_wants_a_person(word, need, steps):
    told = of_driver(word, ["0000:17:00.0"])
    assert (told.need, told.steps, told.gpus) == (need, steps, ("0000:17:00.0",))


@pytest.mark.parametrize(
    ("number", "need"),
    [(13, "program"), (43, "nothing"), (48, "reset"), (54, "hands"), (62, "reset"), (74, "reset"), (79, "reboot"), (78, "update"),
     (142, "support"), (145, "look"), (167, "look"), (9999, "look")],
)  # fmt: skip
def test_the_catalogue_s_bucket_decides(number, need):
    assert of_xid(number).need == need
