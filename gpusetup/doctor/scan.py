"""Find known messages in a text: one pass for literal parts, regular expressions only around them."""

import json
import re
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import accumulate, groupby
from typing import Literal, NamedTuple, cast

from gpusetup.doctor.catalogue import catalogue, expressions, meaning, read_table
from gpusetup.doctor.patterns import FAR, FEW, SHAPE, Expression, Place

AMD, NO_GPU, TRIED, ADDRESS, OURS, MODULE, NVIDIA = expressions(
    "amd", "no-gpu", "tried", "address", "ours", "module", "nvidia"
)
RULES = {"cuda": (AMD, NO_GPU, TRIED), "pytorch": (AMD, NO_GPU), "libraries": (AMD, NO_GPU), "nccl": (AMD,)}
NEAR = {
    "dkms-build-failed", "dkms-headers-missing", "dkms-kernel-too-new", "dkms-compiler-missing", "dpkg-failed",
    "dkms-stale-tree", "module-wrong-kernel",
}  # fmt: skip
"""Causes whose words occur with any module: the lines around decide which module it is."""


def another_module(cause: str, near: str) -> bool:
    """Return whether the lines around are about the build of a module that is not NVIDIA's."""
    return cause in NEAR and MODULE.search(near) is not None and NVIDIA.search(near) is None


def foreign(area: str, line: str) -> bool:
    """Return whether a line with a cause's words is about software other than the GPU installation."""
    if area == "packages":
        addresses = [f"{host}{path}" for host, path in ADDRESS.findall(line)]
        return bool(addresses) and not any(map(OURS.search, addresses))
    return any(rule.search(line) for rule in RULES.get(area, ()))


_PIECE = 16 * 1024


class _Words:
    """An index of texts by machine words of one width, to notice quickly which texts a piece may contain."""

    def __init__(self, code: str, width: int, texts: dict[int, bytes]) -> None:
        self._code = code
        shared = Counter(gram for text in texts.values() for gram in set(_grams(text, width)))
        self._texts: dict[int, set[int]] = {}
        for number, text in texts.items():
            grams = _grams(text, width)
            for place in range(width):
                # Choose the word that is in the fewest other texts.
                best = min(grams[place::width], key=shared.__getitem__)
                self._texts.setdefault(array(code, best)[0], set()).add(number)
        self._wanted = frozenset(self._texts)

    def noticed(self, piece: bytes) -> Iterator[int]:
        """Yield the texts that the piece may contain; its length is a multiple of eight."""
        for word in self._wanted.intersection(array(self._code, piece)):
            yield from self._texts[word]


def _grams(text: bytes, width: int) -> list[bytes]:
    return [text[start : start + width] for start in range(len(text) - width + 1)]


class Literals:
    """The literal texts to search for, with their indexes."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        self._texts = texts
        self._overlap = (max(map(len, texts), default=0) // 8 + 1) * 8
        left = dict(enumerate(texts))
        self._words = []
        for code, width in (("Q", 8), ("I", 4)):
            long = {number: text for number, text in left.items() if len(text) >= 2 * width - 1}
            left = {number: text for number, text in left.items() if number not in long}
            self._words.append(_Words(code, width, long))
        self._short = tuple(left)

    def hits(self, log: bytes) -> list[tuple[int, int]]:
        """Return every occurrence as (offset, index of the text), in order; occurrences may overlap."""
        found = []
        for begin in range(0, len(log), _PIECE):
            piece = log[begin : begin + _PIECE + self._overlap]
            for number in self._noticed(piece):
                text = self._texts[number]
                at = piece.find(text)
                while 0 <= at < _PIECE:
                    found.append((begin + at, number))
                    at = piece.find(text, at + 1)
        found.sort()
        return found

    def _noticed(self, piece: bytes) -> Iterable[int]:
        padded = piece if len(piece) % 8 == 0 else piece + bytes(8 - len(piece) % 8)
        noticed = set(self._short)
        for words in self._words:
            noticed.update(words.noticed(padded))
        return noticed


_AROUND = 4
"""How many lines before and after a find may belong to its message."""
_ENDLESS = 64 * 1024 * 1024
"""A line longer than this is scanned in pieces."""
STAMP = re.compile(
    r"""\A\s*(?:
        \d{4}-\d\d-\d\d[T\ ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)?:?\s
      | [A-Z][a-z]{2}\s+\d{1,2}\s\d\d:\d\d:\d\d(?:\.\d+)?\s
      | \S+\ kernel:\ (?=\[)
      | \[\s*[+\d][\d.]*\]\s?
    )*""",
    re.VERBOSE,
)
ESCAPES = re.compile(rb"\x1b\[[0-9;]*[A-Za-z]")
COPIED: dict[str, str] = json.loads(read_table("copied.json"))
"""What web pages, word processors, JSON and Python's repr make of letters of a message."""
_LETTERS = [(copied.encode(), letter.encode()) for copied, letter in COPIED.items()]
_COPIES = {copied[:1]: [pair for pair in _LETTERS if pair[0][:1] == copied[:1]] for copied, _ in _LETTERS}
WRAPPED = re.compile(rb"(?m)^(?:[^\n]{60,}\n)+[^\n]*")
"""Lines that a terminal may have broken, and the line after them."""
_NAME = rb"[a-z][\w.]*(?: \[[^]\n]+\])?"
TABLE = re.compile(rb"(?m)^(?=[^\n]*[a-z][._][a-z])(%b(?:, %b)+)((?:\n[^\n]+, [^\n]+)+)" % (_NAME, _NAME))
"""A table of nvidia-smi with --format=csv: the names of its columns, and its rows."""
_REMEMBERED = 100_000
"""Equal lines between lines of equal shape have the same result; this many results are cached."""


class Match(NamedTuple):
    """A cause recognised at a place of the text."""

    cause: str
    line: int
    evidence: tuple[str, ...]
    groups: dict[str, str]
    times: int


class _Prepared:
    """The catalogue's patterns, ready for a scan."""

    def __init__(self) -> None:
        patterns = catalogue().patterns()
        self.causes = [cause for cause, _ in patterns]
        self.expressions = [Expression(pattern) for _, pattern in patterns]
        self.finds = [(number, find) for number, (_, pattern) in enumerate(patterns) for find in pattern.find]
        # Lines are searched by their shape (digits replaced by 0), so the search texts need the same replacement.
        by_shape: dict[bytes, list[int]] = {}
        for index, (_, find) in enumerate(self.finds):
            by_shape.setdefault(find.encode().translate(SHAPE), []).append(index)
        self.literals = Literals(list(by_shape))
        self.meant = list(by_shape.values())


_prepared = cache(_Prepared)


class _Tally:
    """The results of a scan so far."""

    def __init__(self) -> None:
        self._found: dict[str, Match] = {}
        self.times: Counter[str] = Counter()

    def add(self, cause: str, line: int, evidence: str, groups: dict[str, str]) -> None:
        """Record a line in which a cause was recognised."""
        self.times[cause] += 1
        old = self._found.get(cause)
        if old is None:
            self._found[cause] = Match(cause, line, (evidence,), groups, 1)
            return
        for name, value in groups.items():
            known = old.groups.setdefault(name, value)
            if value not in known.split(", ") and known.count(",") < 8:
                old.groups[name] = f"{known}, {value}"
        if evidence not in old.evidence and len(old.evidence) < 3:
            self._found[cause] = old._replace(evidence=(*old.evidence, evidence))

    def rootless(self) -> bool:
        """Return whether no cause itself was recognised, at most symptoms."""
        return all(catalogue()[cause].kind != "root" for cause in self.times)

    def matches(self) -> list[Match]:
        """Return every cause, in the order of the log."""
        return [match._replace(times=self.times[match.cause]) for match in self._found.values()]


def _evidence(line: str, at: int) -> str:
    """Return a line; of a long one the part with what was found, which begins at `at`."""
    start = max(0, at - 100) if len(line) > 400 else 0
    return "… " * (start > 0) + line[start : start + 400].strip() + " …" * (len(line) > start + 400)


class _Plain:
    """Lines without their time stamps, each computed once."""

    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines
        self._known: list[str | None] = [None] * len(lines)

    def __getitem__(self, index: int) -> str:
        known = self._known[index]
        if known is None:
            text = self._lines[index].decode("utf-8", "replace")
            known = self._known[index] = STAMP.sub("", text, 1)
        return known

    def between(self, begin: int, end: int) -> tuple[str, ...]:
        known = self._known[max(0, begin) : end]
        if None in known:
            known = [self[index] for index in range(max(0, begin), min(end, len(self._lines)))]
        return cast("tuple[str, ...]", tuple(known))


class _Shape(NamedTuple):
    """The finds in lines of one shape, their columns, and what the result depends on besides the line."""

    places: list[tuple[int, int]]
    finds: tuple[int, ...]
    depends: Literal["nothing", "shapes", "lines"]


def _possible_shapes(raw: bytes, shapes: list[bytes], prepared: _Prepared) -> dict[int, _Shape]:
    """Return, by number, the shapes with a find whose pattern can match in this text."""
    found = prepared.literals.hits(b"\n".join(shapes))
    text = raw.decode("utf-8", "replace") if found else ""
    possible = cache(lambda pattern: prepared.expressions[pattern].possible(text))
    meant = {
        number: tuple(find for find in prepared.meant[number] if possible(prepared.finds[find][0]))
        for number in {number for _, number in found}
    }
    starts = list(accumulate((len(shape) + 1 for shape in shapes), initial=0))
    places: dict[int, list[tuple[int, int]]] = {}
    for at, number in found:
        if meant[number]:
            index = bisect_right(starts, at) - 1
            places.setdefault(index, []).append((at - starts[index], number))
    kinds: dict[tuple[int, ...], tuple[tuple[int, ...], Literal["nothing", "shapes", "lines"]]] = {}
    telling = {}
    for index, hits in places.items():
        numbers = tuple(dict.fromkeys([number for _, number in hits]))
        if numbers not in kinds:
            finds = tuple(find for number in numbers for find in meant[number])
            used = [prepared.expressions[prepared.finds[find][0]] for find in finds]
            exact = any(one.by_exact_lines for one in used)
            alone = all(one.own_line for one in used) and NEAR.isdisjoint(
                prepared.causes[prepared.finds[find][0]] for find in finds
            )
            kinds[numbers] = finds, "lines" if exact else "nothing" if alone else "shapes"
        telling[index] = _Shape(hits, *kinds[numbers])
    return telling


class _Block:
    """Whole lines of a log, and the finds in them. `whole`: they are all of the text."""

    def __init__(self, raw: bytes, *, whole: bool = False) -> None:
        for first, copies in _COPIES.items():
            for copied, letter in copies if first in raw else ():  # most logs have none
                raw = raw.replace(copied, letter)
        raw = ESCAPES.sub(b"", raw) if b"\x1b" in raw else raw
        self.raw = TABLE.sub(_spelled, raw) if whole and b", " in raw else raw
        self.forms = self.raw.translate(SHAPE).split(b"\n")
        self.known = _prepared()

    def tail(self, first: int) -> bytes:
        """Return the text from a line on."""
        length = sum(map(len, self.forms[first:])) + len(self.forms) - first - 1
        return self.raw[len(self.raw) - length :]

    def look(self, tally: _Tally, first: int, last: int, number: int) -> None:
        """Check the finds in the lines from `first` up to `last`; `number` is the number of the block's first line."""
        # Most lines of a log share their shape (the line with its digits replaced) with others.
        numbered: dict[bytes, int] = {}
        shapes = [numbered.setdefault(form, len(numbered)) for form in self.forms]
        telling = _possible_shapes(self.raw, list(numbered), self.known)
        if not telling:
            return
        lines = self.raw.split(b"\n")
        plain = _Plain(lines)
        remembered: dict[object, tuple[str, ...]] = {}
        for index in range(first, last):
            told = telling.get(shapes[index])
            if told is None:
                continue
            raw = lines[index]
            before, after = (index - _AROUND, index), (index + 1, index + _AROUND + 1)
            if len(raw) > 2 * FAR:
                around = plain.between(*before), plain.between(*after)
                for part, places in groupby(told.places, lambda place: place[0] // FAR):  # each with its neighbours
                    near = raw[max(0, part - 1) * FAR : (part + 2) * FAR].decode("utf-8", "replace")
                    meant = {find for _, found in places for find in self.known.meant[found]}
                    self._judge(tally, near, Place(near, *around), tuple(meant & set(told.finds)), number + index)
                continue
            key: tuple[object, ...] = (plain[index], told.finds)
            if told.depends != "nothing":
                near_by = shapes[max(0, before[0]) : after[1]]
                key += tuple(near_by) if told.depends == "shapes" else plain.between(before[0], after[1])
            causes = remembered.get(key)
            if causes is None:
                place = Place(plain[index], plain.between(*before), plain.between(*after))
                causes = self._judge(tally, raw.decode("utf-8", "replace"), place, told.finds, number + index)
                if len(remembered) < _REMEMBERED:
                    remembered[key] = causes
            else:
                for cause in causes:
                    tally.times[cause] += 1

    def _judge(self, tally: _Tally, line: str, place: Place, finds: tuple[int, ...], number: int) -> tuple[str, ...]:
        """Return the causes that the finds in a line confirm."""
        known, told, first = self.known, dict[str, dict[str, str]](), len(line)
        for pattern, text in dict(known.finds[find] for find in finds if known.finds[find][1] in line).items():
            groups = known.expressions[pattern].fits(place)
            if groups is None or not (cause := meaning(known.causes[pattern], groups)):
                continue
            if not (another_module(cause, place.window) or foreign(catalogue()[cause].area, line)):
                told.setdefault(cause, {}).update(groups)
                first = min(first, line.find(text))
        for cause, groups in told.items():
            tally.add(cause, number, _evidence(line, first), groups)
        return tuple(told)


def scan_chunks(chunks: Iterable[bytes]) -> list[Match]:
    """Return the known messages in a text that comes in pieces, wherever it is cut."""
    tally = _Tally()
    kept: list[bytes] = []
    context, number = 0, 1
    for raw in chunks:
        kept.append(raw)
        size = sum(map(len, kept))
        if size < _PIECE or (b"\n" not in raw and size < _ENDLESS):
            continue
        block = _Block(b"".join(kept))
        # The last line may be cut, and the lines before it need those that follow.
        last = len(block.forms) - 1 - _AROUND
        if last > context:
            block.look(tally, context, last, number)
            begin = max(0, last - _AROUND)
            kept, context, number = [block.tail(begin)], last - begin, number + begin
        elif size >= _ENDLESS:
            block.look(tally, context, len(block.forms), number)
            kept, context, number = [block.raw[-2 * FAR :]], 0, number + len(block.forms) - 1
    block = _Block(b"".join(kept), whole=number == 1)
    block.look(tally, context, len(block.forms), number)
    for glue in (b" ", b"") if number == 1 and len(block.forms) <= FEW else ():
        if tally.rootless():
            whole, unbroken = _Tally(), _Block(WRAPPED.sub(partial(_unbroken, glue), block.raw), whole=True)
            unbroken.look(whole, 0, len(unbroken.forms), 1)
            tally = tally if tally.times and whole.rootless() else whole
    return tally.matches()


def _spelled(table: re.Match[bytes]) -> bytes:
    """Return each row with the name of its column before each value."""
    names = table[1].split(b", ")
    rows = (zip(names, row.split(b", "), strict=False) for row in table[2].split(b"\n")[1:])
    return b"\n".join((table[1], *(b", ".join(map(b": ".join, row)) for row in rows)))


def _unbroken(glue: bytes, lines: re.Match[bytes]) -> bytes:
    """Return lines as one, with the line breaks behind it, so that the numbers of later lines stay."""
    parts = lines[0].split(b"\n")
    return glue.join(map(bytes.strip, parts) if glue else parts) + b"\n" * (len(parts) - 1)


def scan(text: str) -> list[Match]:
    """Return the known messages in a text."""
    return scan_chunks([text.encode("utf-8", "replace")])
