"""The doctor's catalogue for a browser: the program's patterns, tables and texts as data.

tools/explorer/web/doctor.js scans for texts and for the expressions around them. python -m tests.site.messages compares
its answers with the program's.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from gpusetup.doctor import other_trouble, scan, similar
from gpusetup.doctor.advice import CAPABILITY, WORDS, details
from gpusetup.doctor.builds import filled
from gpusetup.doctor.catalogue import PAGES, catalogue, cuda_errors, errors_by_name, meaning, statuses, sxid
from gpusetup.doctor.findings import MEMORY, recovery_of
from gpusetup.doctor.library_packages import NAME, WHEEL
from gpusetup.doctor.patterns import FEW, PREFIX, Expression
from gpusetup.doctor.references import MENTIONED, PLACE, REFERENCE, listed
from gpusetup.doctor.scan import ESCAPES, STAMP
from gpusetup.doctor.text import needs
from gpusetup.recovery.table import known as xid
from tools.explorer.expressions import BOUNDARY, WORD, script

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpusetup.model.diagnosis import Cause, Outside, Pattern

_SXIDS = range(10000, 100000)
"""NVSwitch errors have five digits."""
_WEIGHT = {"root": 0, "symptom": 1, "notice": 2}
_SHORT = {"§": BOUNDARY, "¶": WORD, "±": r"[^\u{a}]", "¬": r"[\p{Nd}]", "¤": r"[\s\S]", "¢": "(?:"}
"""Signs for what is long and frequent in expressions, which are ASCII: the page has a size to keep."""
_LONG = 60
"""A group of at least this many characters gets a sign if several expressions have it."""
_EITHER_CASE = re.compile(r"(?:\[[A-Z][a-z]\][ _-]?){2,}")
"""Letters of either case; "«gpu»" is [Gg][Pp][Uu]."""


def messages() -> dict[str, Any]:
    """Return all data that the page needs to explain a message."""
    return {
        "causes": {cause.id: _cause(cause) for cause in catalogue().causes.values()},
        **_patterns(),
        "stamp": script(STAMP), "prefix": script(PREFIX), "few": FEW, "copied": scan.COPIED,
        "memory": _memory(),
        "escapes": script(ESCAPES.pattern.decode()), "wrapped": script(scan.WRAPPED.pattern.decode()),
        "table": script(scan.TABLE.pattern.decode()),
        "foreign": {area: [script(rule) for rule in rules] for area, rules in scan.RULES.items()},
        "address": script(scan.ADDRESS), "ours": script(scan.OURS),
        "module": script(scan.MODULE), "nvidia": script(scan.NVIDIA), "near": sorted(scan.NEAR),
        "means": _means(),
        "told": _told(),
        "bare": {name: script(expression, whole=True) for name, expression in WORDS.items()},
        "outside": [_outside(kind, regex) for kind, regex in other_trouble.kinds()],
        "routine": sorted(other_trouble.ROUTINE),
        "gpu": script(other_trouble.GPU), "frame": script(other_trouble.FRAME), "code": script(other_trouble.CODE),
        "trouble": script(re.compile(other_trouble.TROUBLE.pattern.decode(), re.IGNORECASE)),
        "reference": script(REFERENCE, whole=True), "mentioned": script(MENTIONED.pattern.decode()),
        "references": {name: entry.title for name, entry in listed().items()},
        "pages": PAGES, "errors": PLACE,
    }  # fmt: skip


def _memory() -> dict[str, Any]:
    """Return the table of what people type, with numbers for its words and causes: the page has a size to keep."""
    causes = ["", *catalogue().causes]
    number = {word: f"{index:x}" for index, word in enumerate(MEMORY["words"])}

    def short(rule: str) -> str:
        return re.sub(r"\w+", lambda word: number[word[0]], rule)

    return {
        **{mark: script(MEMORY[mark]) for mark in ("printed", "person", "program")}, "spellings": MEMORY["spellings"],
        "words": list(MEMORY["words"].values()),
        "rules": [[causes.index(cause), *map(short, rules)] for cause, *rules in MEMORY["rules"]],
    }  # fmt: skip


def _cause(cause: Cause) -> dict[str, Any]:
    recovery = recovery_of(cause, {}, ())
    found = {
        "title": cause.title, "area": cause.area, "weight": _WEIGHT[cause.kind], "hides": list(cause.hides),
        "text": filled(cause.explanation), "checks": list(cause.checks),
        "fixes": [[fix.text, list(fix.commands)] for fix in cause.fixes],
        "needs": needs(recovery) if recovery is not None else "",
    }  # fmt: skip
    return {name: value for name, value in found.items() if value or name == "weight"}


def _patterns() -> dict[str, Any]:
    """Return the patterns, those of a cause with the same expression as one, without texts that contain another.

    Lists of texts that several patterns have are listed once; these patterns have their numbers. A pattern begins with
    how much greater the number of its cause is than that of the pattern before.
    """
    joined: dict[tuple[Any, ...], dict[str, None]] = {}
    for cause, pattern in catalogue().patterns():
        number, finds, *judged = _pattern(cause, pattern)
        joined.setdefault((number, *judged), {}).update(dict.fromkeys(finds))
    for finds in joined.values():
        for longer in [find for find in finds if any(one in find for one in finds if one != find)]:
            del finds[longer]
    times = Counter(map(tuple, joined.values()))
    lists = [finds for finds, count in times.items() if count > 1 and len(finds) > 1]
    signs = _signs_of_groups([regex for _, regex, _ in joined])
    patterns, last = [], 0
    for (number, regex, alone), finds in joined.items():
        shared = lists.index(tuple(finds)) if tuple(finds) in lists else "\n".join(finds)
        signed = _signed(regex, signs)
        patterns.append([number - last, shared, *([signed, alone] if alone else [signed] if signed else [])])
        last = number
    return {"lists": lists, "short": signs | _SHORT, "patterns": patterns}


def _signs_of_groups(expressions: Sequence[str]) -> dict[str, str]:
    """Return signs for long groups that several expressions have, the longest first, and what they mean."""
    times = Counter(group for one in expressions for group in set(_groups(one)) if len(group) >= _LONG)
    signs: dict[str, str] = {}
    for group in sorted((group for group, count in times.items() if count > 1), key=len, reverse=True):
        if sum(group in one for one in expressions) > 1:
            signs[chr(0xE000 + len(signs))] = group
            expressions = [one.replace(group, list(signs)[-1]) for one in expressions]
    return signs


def _signed(expression: str, signs: dict[str, str]) -> str:
    for sign, meant in signs.items():
        expression = expression.replace(meant, sign)
    return expression


def likeness() -> dict[str, Any]:
    """Return what the words of a message speak for, which gpusetup.doctor.similar reads."""
    forms = {"place": similar.PLACE, "between": similar.BETWEEN, "word": similar.WORD}
    return {name: script(form) for name, form in forms.items()} | {"clear": similar.CLEAR, "weights": similar.weights()}


def _groups(expression: str) -> Iterator[str]:
    """Yield the parts of an expression in brackets, as _SHORT writes them."""
    opened = []
    for place, letter in enumerate(expression):
        if letter in "(¢":
            opened.append(place)
        elif letter == ")" and opened:
            yield expression[opened.pop() : place + 1]


def _pattern(cause: str, pattern: Pattern) -> list[Any]:
    """Return the cause's number, the texts, the expression, and 1 if it judges one line alone."""
    return [
        list(catalogue().causes).index(cause),
        list(pattern.find),
        _shortened(pattern.regex) if pattern.regex else "",
        int(Expression(pattern).own_line),
    ]


def _shortened(expression: str | re.Pattern[str]) -> str:
    """Return an expression for the page with signs for what is long and frequent."""
    regex = _signed(script(expression), _SHORT)
    return _EITHER_CASE.sub(lambda run: f"«{re.sub(r'[][A-Z]', '', run[0])}»", regex)


def _outside(kind: Outside, regex: re.Pattern[str]) -> list[Any]:
    return [kind.id, kind.title, kind.advice, int(kind.always), _shortened(regex), _shortened(kind.frame)]


def _means() -> dict[str, Any]:
    """Return the tables of error names and numbers, as gpusetup.doctor.catalogue reads them."""
    errors = cuda_errors()
    numbers = range(1000)
    families = statuses().families
    return {
        "cudaNames": {name: error.number for name, error in errors_by_name().items()},
        "cudaNumbers": {error.number: error.cause for error in errors},
        "cudaOld": {error.old: error.number for error in errors if error.old is not None},
        "names": {
            name: meaning("cuda-error", {"status": name})
            for family in families
            for status in family.statuses
            for name in (status.name, status.also, status.text.lower().rstrip("."))
            if name
        },
        "numbers": {
            family.family.lower(): {row.number: row.cause for row in family.statuses if row.number is not None}
            for family in families
        },
        "xids": {n: found for n in numbers if (found := meaning("xid-other", {"xid": str(n)})) != "xid-other"},
        "sxids": {n: found for n in _SXIDS
                  if (found := meaning("sxid-unknown", {"sxid": str(n)})) != "sxid-unknown"},
    }  # fmt: skip


def _told() -> list[list[Any]]:
    """Return the meanings of numbers in a message, in the doctor's words and order.

    Each has the causes that it applies to (empty: all), the groups of the expression, of which the first match counts,
    the part to look up (empty: all of it), and the lines for each value.
    """
    capabilities = [f"{major}.{minor}" for major in range(1, 20) for minor in range(10)]
    minors = [f"{major}.{minor}" for major in range(1, 20) for minor in range(20)]
    names = (*WHEEL, "cudnn", "nccl", "nvinfer", "nvonnxparser")
    libraries = {f"{name}.{number}": f"lib{name}.so.{number}" for name in names for number in range(1, 20)}
    api = [f"1{a}0{b}0" for a in range(10) for b in range(10)]
    capability = script(CAPABILITY, whole=True)
    return [
        _lines("cuda-error", ["cuda_number"], [str(error.number) for error in cuda_errors()]),
        _lines("driver-too-old", ["driver_api"], api),
        _lines("driver-too-old", ["cuda"], minors, own=True),
        _lines("container-cuda-requirement", ["needs_cuda"], minors, own=True),
        _lines("ptx-too-new", ["ptx"], minors),
        _lines("ptx-too-new", ["ptx_max"], minors),
        *(
            _lines(cause, ["capability", "arch"], capabilities, own=True, form=capability)
            for cause in ("no-kernel-image", "ptxas-arch-unknown", "nvcc-arch-unsupported")
        ),
        _lines("xid-other", ["xid"], [str(number) for number in range(1000) if xid(number)]),
        _lines("sxid-unknown", ["sxid"], [str(number) for number in _SXIDS if sxid(number)]),
        *(
            _lines(cause, ["library"], libraries, own=True, form=f"^{script(NAME)}")
            for cause in ("cuda-library-missing", "cudnn-library-missing")
        ),
    ]


def _lines(cause: str, groups: list[str], values: Iterable[str], *, own: bool = False, form: str = "") -> list[Any]:
    """Return the lines for each value; a dictionary maps each value to its spelling in messages."""
    meets = values if isinstance(values, dict) else {value: value for value in values}
    lines = {value: list(details(cause, {groups[0]: text})) for value, text in meets.items()}
    kept = {value: said for value, said in lines.items() if said and "is not in the vendor's list" not in said[0]}
    return [[cause] if own else [], groups, form, kept]
