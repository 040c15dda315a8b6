"""Whatever people type at the lookup commands: an answer or a refusal in words, never a traceback."""

import contextlib
import io
import itertools
import json
import re
import shlex

from hypothesis import given
from hypothesis import strategies as st

from gpusetup.cli.main import main
from gpusetup.model.request import COMPONENTS, SAID_AS

EXPECTED = {0, 2, 3, 4}

names = st.sampled_from((*COMPONENTS, *SAID_AS, "Torch", "PyTorch", "cuda_toolkit", "pandas", "", "-", "drivr"))
NUMBERS = [
    "2.6.0", "2.7.1", "12.4", "12", "13.4.2", "535.154.05", "550.144.03", "535.154.02", "9.10.2", "3.11", "0", "14",
]  # fmt: skip
numbers = st.one_of(
    st.sampled_from(NUMBERS),
    st.from_regex(r"\A[0-9]{1,4}(\.[0-9]{1,4}){0,3}((a|b|rc|\.post|\.dev)[0-9]{1,2})?\Z"),
    st.from_regex(r"\A\d{1,4}(\.\d{1,2}){0,2}\Z"),
)
operators = st.sampled_from(("==", ">=", "<=", "~=", "!=", "<", ">", "===", "=", "", "~", "=>"))
suffixes = st.sampled_from(("", "", "", ".*", "+cu118", "+cu128", "+CU126", "+cpu", "+cu999", ",<3", ",!=2.7.0", " "))
requirements = st.one_of(
    st.builds(lambda *parts: "".join(parts), names, operators, numbers, suffixes), names, st.text(max_size=12)
)
GPUS = (
    "h100", "a100", "v100", "rtx 4090", "rtx4090", "RTX 5090", "t4g", "gh200", "gtx 1080 ti", "sm_90", "sm_61", "b200",
    "k80", "10de:2335", "10DE:2330", "0x10de:0x1db6", "10de:ffff", "sm_00", "nvidia", "tesla", "rtx", "mx150",
)  # fmt: skip
gpus = st.one_of(st.sampled_from(GPUS), st.text(max_size=10))
systems = st.one_of(
    st.sampled_from(("ubuntu22.04", "ubuntu24.04", "debian12", "rocky9", "rhel8", "amzn2023", "ubuntu", "")),
    st.text(max_size=8),
)
options = st.one_of(
    st.tuples(st.just("--gpu"), gpus),
    st.tuples(st.just("--os"), systems),
    st.tuples(st.just("--arch"), st.sampled_from(("x86_64", "aarch64", "riscv64"))),
    st.tuples(st.just("--driver"), st.one_of(numbers, st.text(max_size=10))),
    st.tuples(st.sampled_from(("--native", "--forward", "--allow-builds", "--nonsense"))),
    st.tuples(st.just("--from"), st.sampled_from(("/nonexistent", "/", "/dev/null", "pyproject.toml", ""))),
)
command_lines = st.builds(
    lambda command, asked, chosen: [command, *itertools.chain(*chosen), "--", *asked],
    st.sampled_from(("resolve", "matrix", "why", "why-not", "lock")),
    st.lists(requirements, max_size=3),
    st.lists(options, max_size=3, unique_by=lambda words: words[0]),
)
STATED = re.compile(
    r"\b\d+(?:\.\d+)+(?:\+\w+)?\b|(?<=\[)[a-z]+(?:-[a-z]+)+(?=\])|(?<=^- )[A-Za-z].*?(?= \[[a-z-]+\]| *$)"
    r"|gpusetup (?:resolve|why|why-not|lock|apply|doctor) [^`\n;()]*[^`\n;()., ]",
    re.MULTILINE,
)
"""What a text states: versions, rules, reasons, and commands to copy."""
HINTED = re.compile(r"gpusetup ((?:resolve|matrix|why|why-not)(?: [^`\n;()]*[^`\n;()., ])?)")


def run(argv):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(argv)
        except SystemExit as stop:
            code = stop.code
    return int(code or 0), out.getvalue(), err.getvalue()


def _leaves(value):
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    yield from (text for key, part in parts for text in (str(key), *_leaves(part)))
    yield "" if isinstance(value, (dict, list)) else str(value)


def unstated(argv):
    """Return the exit code, the text, the document, and what the text states that the document does not have."""
    rest = argv.index("--") if "--" in argv else len(argv)
    code, out, err = run([*argv[:rest], *(["--format", "text"] if argv[0] == "lock" else []), *argv[rest:]])
    as_json, document, beside = run([*argv[:rest], "--format", "json", *argv[rest:]])
    assert as_json == code, argv
    if code == 2:
        return code, err, {}, []
    document = json.loads(document)
    told = " ".join(" ".join([*_leaves(document), beside if argv[0] == "lock" else ""]).split())
    text = re.sub(r"\\\n *|\n(?=  \w)(?!  gpusetup|  or: )", " ", f"{out.partition('ask:  ')[0]}\n{err}")
    stated = {" ".join(found.split()) for found in STATED.findall(text)}
    return code, out + err, document, sorted(found for found in stated if found not in told)


@given(command_lines)
def test_every_command_line_is_answered_or_refused_in_words_and_the_same_to_programs(argv):
    code, text, document, only_text = unstated(argv)
    assert code in EXPECTED, text
    assert "Traceback" not in text
    assert code == 0 or "error: " in text or "is forbidden" in text
    assert (code == 2 or document.get("ok", True) is (code == 0), only_text) == (True, [])
    for command in HINTED.findall(text.partition("hint: ")[2]):
        assert not re.search(r"\b[A-Z]{4,}\b", command), command
        assert run(shlex.split(command))[0] == 0, command
