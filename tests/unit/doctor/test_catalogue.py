"""The catalogue's properties, one test each."""

import json
import re
import time
from operator import attrgetter

import pytest

from gpusetup.doctor.builds import filled
from gpusetup.doctor.catalogue import catalogue, cuda_errors, statuses
from gpusetup.doctor.findings import MEMORY, diagnose_text
from gpusetup.matrix.load import matrix
from gpusetup.recovery.table import known as xid
from tests.unit.doctor.score import FIXTURES, entries

CAUSES = list(catalogue().causes.values())
SAMPLES = json.loads((FIXTURES / "samples.json").read_text(encoding="utf-8"))["samples"]
DEVELOPED, HELD_OUT = entries("development"), entries("heldout")

PACKAGES = set((FIXTURES / "packages.txt").read_text(encoding="utf-8").split())
"""Packages that fixes may install by hand, of the distributions, of NVIDIA's and of Docker's repository."""

# Causes with patterns and without a message from a public thread yet: this list may only get shorter.
WITHOUT_SAMPLE = set((FIXTURES / "without_sample.txt").read_text(encoding="utf-8").split())


def every_cause(test):
    return pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.id)(test)


@every_cause
def test_a_cause_is_whole(cause):
    assert cause.sources
    for source in cause.sources:
        assert re.fullmatch(r"https://\S+|[\w.-]+/[\w.-]+#\d+", source), source
    assert any(fix.commands or len(fix.text) > 20 for fix in cause.fixes), "a way out"
    assert all(fix.text.endswith((".", ":")) for fix in cause.fixes), "sentences"
    hides = [catalogue()[hidden] for hidden in cause.hides]
    assert not [one.id for one in hides if cause.id in (one.id, *one.hides)], "a circle"
    alone = [find for pattern in cause.patterns if not pattern.regex for find in pattern.find]
    assert all(len(find) >= 9 for find in alone), "a pattern without an expression is telling"


@every_cause
def test_the_commands_of_a_fix_are_whole(cause):
    scripts = ["\n".join(fix.commands) for fix in cause.fixes]
    for script in scripts:
        assert "tee /etc/modprobe.d" not in script or re.search("update-initramfs|dracut", script), "read at boot"
        assert not re.search(r"helm upgrade(?!.*--reuse-values).*--set", script, re.DOTALL), "other settings stay"
    everything = "\n".join(scripts)
    assert "grubby" not in everything or "update-grub" in everything, "Debian and Ubuntu have no grubby"
    assert not re.search(r"purge [^$\n]*'nvidia-\*'", everything), "the container toolkit has such a name"
    lines = re.findall(r"(?:apt-get|dnf|zypper) install(?: --\S+)* ([^|&\n]+)", everything)
    assert {word for line in lines for word in line.split() if re.fullmatch(r"[a-z][a-z0-9.+-]+", word)} <= PACKAGES


@every_cause
def test_expressions_compile_and_end_soon(cause):
    hostile = ["a" * 2000, " " * 2000, "0" * 2000, "(" * 1000, "x.y:" * 500, "'a' " * 500, "error: " * 300]
    for pattern in filter(attrgetter("regex"), cause.patterns):
        expression = re.compile(pattern.regex)
        for find in pattern.find:
            for noise in hostile:
                for text in (find + noise, noise + find, find[:-1] + noise + find):
                    began = time.thread_time()
                    expression.search(text)
                    assert time.thread_time() - began < 0.25, (pattern.regex, text[:60])


def test_every_cause_has_a_sample():
    sampled = {sample["cause"] for sample in SAMPLES + DEVELOPED}
    named = {error.cause for error in cuda_errors()}
    named |= {status.cause for family in statuses().families for status in family.statuses}
    telling = {cause.id for cause in CAUSES if cause.patterns or cause.xids or cause.id in named}
    assert telling - sampled == WITHOUT_SAMPLE


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample['cause']}:{sample['thread']}")
def test_sample_names_its_cause_first(sample):
    assert diagnose_text(sample["text"])[0].cause == sample["cause"]


@pytest.mark.parametrize("entry", DEVELOPED, ids=lambda entry: f"{entry['cause']}:{entry['thread']}")
def test_message_of_the_development_set(entry):
    named = [found.cause for found in diagnose_text(entry["text"]) if found.kind != "notice" or entry["cause"]]
    assert named[:1] == ([entry["cause"]] if entry["cause"] else [])


def test_no_sample_comes_from_a_held_out_thread():
    assert not {sample["thread"] for sample in SAMPLES + DEVELOPED} & {entry["thread"] for entry in HELD_OUT}


def test_xid_numbers_of_the_catalogue_are_known():
    numbers = [number for cause in CAUSES for number in cause.xids]
    assert len(numbers) == len(set(numbers))
    assert all(xid(number) is not None for number in numbers)


@pytest.mark.parametrize(
    ("name", "cause"), [(status.name, status.cause) for family in statuses().families for status in family.statuses]
)
def test_every_status_name_is_recognised(name, cause):
    told = [found.cause for found in diagnose_text(f"it failed with {name} at x.cu:3")]
    assert told[:1] == ([cause] if cause else [])


def test_explanations_leave_driver_floors_and_toolkits_to_the_matrix():
    typed = re.compile(r"(?i)\b(?:CUDA \d+ (?:has|needs)|branch \d{3}|driver (?:from )?\d{3}|\d{3}\.\d{2,3}\.\d{2})\b")
    wrong = {cause.id: found[0] for cause in catalogue().causes.values() if (found := typed.search(cause.explanation))}
    assert not wrong


def test_the_matrix_fills_the_places_of_every_explanation():
    texts = {cause.id: filled(cause.explanation) for cause in catalogue().causes.values()}
    assert not [name for name, text in texts.items() if "{{" in text]
    assert all(f"{row.min_driver} for CUDA {row.major}" in texts["driver-too-old"] for row in matrix().cuda.majors)
    for capability, toolkit in (("10.3", "12.9"), ("12.0", "12.8")):
        needs = rf"\b{re.escape(capability)}\b[^,]* needs? CUDA {re.escape(toolkit)}"
        assert re.search(needs, texts["nvcc-arch-unsupported"])


def test_rules_for_what_people_type_use_every_word_and_name_causes():
    rules = [rule for _, *rules in MEMORY["rules"] for rule in rules]
    assert {word for rule in rules for word in re.findall(r"\w+", rule)} == MEMORY["words"].keys()
    assert {cause for cause, *_ in MEMORY["rules"]} - {""} <= catalogue().causes.keys()
