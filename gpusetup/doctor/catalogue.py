"""The catalogue of causes, loaded once from data files, a page about each, and the tables of error numbers."""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path

import msgspec

from gpusetup.errors import GpuSetupError
from gpusetup.model.diagnosis import (
    Cause,
    CauseFile,
    CompanionFile,
    CudaError,
    CudaErrorFile,
    Pattern,
    StatusFile,
    Sxid,
    SxidFile,
    Words,
)

DATA = Path(__file__).parent / "data"
PAGES = "reference/messages"
"""The folder of the causes' pages in the built documentation."""


class Catalogue:
    """Every cause by its id."""

    def __init__(self, causes: tuple[Cause, ...]) -> None:
        self.causes = {cause.id: cause for cause in causes}
        if len(self.causes) != len(causes):
            raise GpuSetupError("GS-601", "two causes of the catalogue share an id")

    def __getitem__(self, cause: str) -> Cause:
        return self.causes[cause]

    def __contains__(self, cause: str) -> bool:
        return cause in self.causes

    def patterns(self) -> list[tuple[str, Pattern]]:
        """Return every pattern with its cause, including those for CUDA errors and companion packages."""
        found = [(cause.id, pattern) for cause in self.causes.values() for pattern in cause.patterns]
        return [*found, *_companions()] + [
            (error.cause or "cuda-error", _by_text(error)) for error in cuda_errors() if error.text
        ]


def _companions() -> list[tuple[str, Pattern]]:
    """Return patterns for packages compiled against PyTorch: a missing module, a failed build."""
    known = msgspec.json.decode(read_table("companions.json"), type=CompanionFile).companions
    modules = "|".join(re.escape(module) for one in known for module in one.modules)
    packages = "|".join(re.escape(one.package).replace(r"\-", "[-_]") for one in known)
    missing = rf"No module named ['\"]?(?:{modules})(?![\w.])"
    said = r"[Ff]ailed (?:building wheel for|to build)|uild wheels for|poetry but with|wheels for [^\n]*projects"
    tried = r"(?:uilding|setup.py) \w+ for(?=[^\n]*(?:error|did not))|pip-install-\w+(?=\S+setup.py\", )"
    build = rf"(?:{said}|{tried})[ /\\]['`\"(]?(?P<package>{packages})(?=_[0-9a-f]{{20}}|(?![\w-]))"
    named = ("ing wheel for ", "editable for ", "setup.py ins", "led to build ", "wheels for ", "etry but", "pip-inst")
    return [
        ("torch-abi-mismatch", Pattern(find=("No module named ",), regex=missing, own_line=True)),
        ("nvcc-failed", Pattern(find=named, regex=build, own_line=True)),
    ]


def _by_text(error: CudaError) -> Pattern:
    """Return a pattern for a CUDA error's text: alone if it is long and has a cause, else only next to a CUDA word."""
    if error.cause:
        near = rf"(?:(?i:cuda)|\bcu[A-Z])[^\n]{{0,80}}{re.escape(error.text)}(?!\w)" if len(error.text) <= 20 else ""
        return Pattern(find=(error.text,), regex=near)
    return Pattern(
        find=(error.text,),
        regex=rf"(?:(?i:cuda(?: driver| runtime)?(?: api)? ?(?:error|fail|call))|\bcu(?:da)?[A-Z]\w+)[^\n]{{0,100}}"
        rf"(?P<cuda_text>{re.escape(error.text)})(?!\w)",
        own_line=True,
    )


def read_table(name: str) -> bytes:
    """Return the content of one of the doctor's data files."""
    try:
        return (DATA / name).read_bytes()
    except OSError as error:
        told = f"the doctor's data cannot be read: {error.strerror}"
        raise GpuSetupError("GS-601", told, path=str(DATA / name)) from error


@cache
def _words() -> dict[str, re.Pattern[str]]:
    told = msgspec.json.decode(read_table("words.json"), type=dict[str, Words])
    return {name: re.compile(one.regex, re.IGNORECASE if one.any_case else 0) for name, one in told.items()}


def expressions(*names: str) -> tuple[re.Pattern[str], ...]:
    """Return expressions of words.json, which says what each is for."""
    return tuple(map(_words().__getitem__, names))


@cache
def catalogue() -> Catalogue:
    """Return the shipped catalogue."""
    names = sorted(path.name for path in (DATA / "causes").glob("*.json"))
    files = [msgspec.json.decode(read_table(f"causes/{name}"), type=CauseFile) for name in names]
    return Catalogue(tuple(cause for file in files for cause in file.causes))


@cache
def cuda_errors() -> tuple[CudaError, ...]:
    """Return the table of CUDA error numbers."""
    return msgspec.json.decode(read_table("cuda_errors.json"), type=CudaErrorFile).errors


Groups = dict[str, str]
_IN_SERVICE = {"non-fatal", "notable"}
"""Classes of NVSwitch errors after which the switch keeps working."""


@cache
def statuses() -> StatusFile:
    """Return the table of status codes of CUDA's libraries and NVML."""
    return msgspec.json.decode(read_table("status_names.json"), type=StatusFile)


@cache
def sxids() -> SxidFile:
    """Return the table of NVSwitch errors."""
    return msgspec.json.decode(read_table("sxid.json"), type=SxidFile)


def sxid(number: int) -> Sxid | None:
    """Return the vendor's entry for an NVSwitch error number."""
    return sxids().sxids.get(number)


@cache
def _by_name() -> dict[str, str]:
    found: dict[str, str] = {}
    for family in statuses().families:
        for status in family.statuses:
            for name in filter(None, (status.name, status.also, status.text.lower().rstrip("."))):
                found.setdefault(name, status.cause)
    return found


@cache
def _by_number(family: str) -> dict[int, str]:
    (rows,) = (found.statuses for found in statuses().families if found.family == family)
    return {status.number: status.cause for status in rows if status.number is not None}


@cache
def errors_by_name() -> dict[str, CudaError]:
    """Return CUDA's errors by their names, their texts, and their driver names in words."""
    named = {name: error for error in cuda_errors() for name in (error.runtime, error.driver) if name}
    # Programs also print a driver's name in words: "Illegal address" for CUDA_ERROR_ILLEGAL_ADDRESS.
    texts = {name[11:].replace("_", " ").lower(): error for name, error in named.items() if name[:11] == "CUDA_ERROR_"}
    return texts | named | {error.text.lower(): error for error in cuda_errors() if error.text}


@cache
def errors_by_number() -> dict[int, CudaError]:
    """Return CUDA's errors by their numbers."""
    return {error.number: error for error in cuda_errors()}


def _cuda(groups: Groups) -> str:
    error = errors_by_name().get(groups.get("cuda_text", "").lower().replace("_", " ").strip(" .'\""))
    if error is None and (name := groups.get("cuda_name")):
        error = errors_by_name().get(name)
        if error is None:
            return "cuda-error" if name.startswith("CUDA_ERROR_") else ""
    if error is None and (number := groups.get("cuda_number") or groups.get("cuda_old_number")):
        tables = [errors_by_number(), {error.old: error for error in cuda_errors() if error.old is not None}]
        if "cuda_old_number" in groups:
            tables.reverse()
        error = tables[0].get(int(number)) or tables[1].get(int(number))
        if error is None:
            return ""
    if error is not None:
        groups.pop("cuda_old_number", None)
        groups["cuda_number"] = str(error.number)
    return (error.cause if error else "") or "cuda-error"


def _status(groups: Groups) -> str:
    if name := groups.get("status"):
        return _by_name().get(name, "" if name.startswith("CUFFT_") else "cuda-error")
    number, family = groups["status_number"], groups["library"].lower()
    known = next((one.family for one in statuses().families if one.family.lower() == family), None)
    return _by_number(known).get(int(number), "cuda-error") if known else "cuda-error"


def _nvml(groups: Groups) -> str:
    if number := groups.get("nvml_number"):
        return _by_number("NVML").get(int(number), "nvml-error")
    told = re.sub("^ERROR_", "NVML_ERROR_", groups["nvml"].rstrip(" ."))  # as NVIDIA's Go bindings spell it
    if told in _by_name():
        return _by_name()[told]
    # An unknown text may belong to another pattern.
    return "nvml-error" if told.startswith(("NVML_ERROR_", "NVMLError_")) else _by_name().get(told.lower(), "")


@cache
def _xid_causes() -> dict[int, str]:
    return {number: cause.id for cause in catalogue().causes.values() for number in cause.xids}


def _sxid(groups: Groups) -> str:
    known = sxid(int(groups["sxid"]))
    if known is None:
        return {"Fatal": "sxid-fatal", "Non-fatal": "sxid-nonfatal"}.get(groups.get("sxid_word", ""), "sxid-unknown")
    return "sxid-nonfatal" if known.class_ in _IN_SERVICE else "sxid-fatal"


_TABLES: tuple[tuple[str, str, Callable[[Groups], str]], ...] = (
    ("cuda-error", "cuda_name", _cuda),
    ("cuda-error", "cuda_text", _cuda),
    ("cuda-error", "cuda_number", _cuda),
    ("cuda-error", "cuda_old_number", _cuda),
    ("cuda-error", "status", _status),
    ("cuda-error", "status_number", _status),
    ("nvml-error", "nvml", _nvml),
    ("nvml-error", "nvml_number", _nvml),
    ("xid-other", "xid", lambda groups: _xid_causes().get(int(groups["xid"]), "xid-other")),
    ("sxid-unknown", "sxid", _sxid),
)


def meaning(cause: str, groups: Groups) -> str:
    """Return the cause for the error name or number in the groups; an empty string if it is not an error."""
    for home, group, table in _TABLES:
        if cause == home and group in groups:
            return table(groups)
    return cause


_KIND = {
    "root": "a cause",
    "symptom": "a symptom: something is wrong, and the cause is elsewhere",
    "notice": "harmless",
}


def explained() -> dict[str, Callable[[], str]]:
    """Return, for each cause id, a function that writes its page."""
    return {cause.id: partial(_text, cause) for cause in catalogue().causes.values()}


def _text(cause: Cause) -> str:
    return "\n".join(_page(cause)) + "\n"


def _page(cause: Cause) -> Iterator[str]:
    from gpusetup.doctor.builds import filled

    yield from (f"# {cause.title}", "", f"`{cause.id}` · {cause.area} · {_KIND[cause.kind]}", "")
    yield filled(cause.explanation)
    texts = [find for pattern in cause.patterns for find in pattern.find]
    numbers = [error for error in cuda_errors() if error.cause == cause.id]
    names = [
        status.name
        for family in statuses().families
        for status in family.statuses
        if status.cause == cause.id != "cuda-error"
    ]
    if texts or numbers or names or cause.xids:
        yield from ("", "## Messages", "", "The doctor recognises the cause by one of:", "")
        for text in dict.fromkeys(texts):
            yield f"    {text}"
        for error in numbers:
            yield f"    CUDA error {error.number}: {' / '.join(name for name in (error.runtime, error.driver) if name)}"
        for name in names:
            yield f"    {name}"
        for number in cause.xids:
            yield f"    NVRM: Xid (PCI:…): {number}"
    if cause.checks:
        yield from ("", "## To confirm it", "", "```sh", *cause.checks, "```")
    yield from ("", "## What helps", "")
    for fix in cause.fixes:
        yield from (fix.text, "")
        if fix.commands:
            yield from ("```sh", *fix.commands, "```", "")
    if cause.hides:
        links = ", ".join(f"[{name}]({name}.md)" for name in cause.hides)
        yield f"When it is found, these count as its consequences: {links}."
        yield ""
    yield from ("## Sources", "")
    for source in cause.sources:
        yield f"- {source}"
