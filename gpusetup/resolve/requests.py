"""Parse requirements as people type them: `torch==2.6.*`, `cuda>=12.4`, `torch==2.7.1+cu128`, `torch 2.6`, `cu124`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msgspec import structs

from gpusetup.errors import BadInputError
from gpusetup.matrix.systems import find_system
from gpusetup.model.request import BEHIND, BUILT_FOR, COMPONENTS, ELSEWHERE, OF_VENDORS, SAID_AS, Request, Requirement
from gpusetup.resolve.domains import parsed, specifiers
from gpusetup.resolve.naming import of_windows
from gpusetup.versions import EXACT, nv

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Literal

    from gpusetup.matrix.load import Matrix

_MOST_NAMED = 4
_LATEST = re.compile(r"={1,3}\s*latest\s*", re.IGNORECASE)
_REQUIREMENT = re.compile(
    r"\s*(?P<name>[A-Za-z][A-Za-z0-9._-]*?(?:\[[a-z0-9,-]*\])?)\s*(?P<specifier>[<>=!~+].*)?\s*", re.DOTALL
)
_ABSURD = r"[0-9]{10,}"
_VARIANT = r"(?i)\+(cu[0-9]{2,4})\s*(?=,|$)"
_PARTS = re.compile(r"[\s,]*((?:\[[^\]\s]*\]|[^\s,])+)")
_PACKAGE_RELEASE = r"-\d[\w.~]*(?:\+cuda(\d+)\.\d+)?$"
"""What apt and dnf put behind a version: 2.26.2-1+cuda12.8."""
_NUMBER_FIRST = re.compile(r"[<>=!~0-9]")
_NAME_AND_NUMBER = (
    r"([A-Za-z]+(?:[-_][A-Za-z]+)*)-?([0-9]+(?:\.[0-9]+)*(?:\+cu[0-9]{2,3}(?![\w.]))?)(?:-[\w.+-]+\.whl)?"
)
_AROUND = r"^(?:nvidia|lib|python3?)-|-(?:cu|cuda)[0-9]+x?$|[^a-z0-9]"
"""What a package's name has around the word that distinguishes it."""
_IMAGE = r"[\w.-]+(?:/[\w.-]+)+:(?=.*\d)[\w.-]+"
_COUNTED = (
    r"(?i)(?:gpu_)?(?P<n>[1-9]\d?)\s*(?:[x\u00d7*][\s_]*|\s)(?=[a-z])(?P<name>.+)"
    r"|(?P<named>.+?)\s*(?:(?<=[\d\s])[x\u00d7*]|:)\s*(?P<count>[1-9]\d?)"
)
"""Several GPUs of one kind: 8xh100, 2*a100, h100 x 8, h100:8."""
_CUDA_TAG = re.compile(r"cu([0-9]{2,3})", re.IGNORECASE)
_OF_PYTHON = r"={1,3}\s*(?:python|py|cp)?3(?:\.?([0-9]{1,2}))?"
"""A Python as programs call it: python3.11, cp311, py3."""
_ONE_EQUALS = r"=\s*(?P<version>[^,=]+)(?P<rest>,.*)?"
_CUDA_MAJOR = r"cu1[0-9]"
_BUILD_TAG = re.compile(r"cu[0-9]{3}", re.IGNORECASE)
_NAMES_TORCH = r"(?i)(?:py)?torch(?![A-Za-z-])"
_SERIES_OF = r"==(\d+\.\d+)(?:\.[\d*]+)*$"
_SERIES = 2
"""After one `=`, a version with fewer dots than this is a prefix: torch=2.6 is torch==2.6.*."""


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip().lower())


def table_of(text: str) -> str:
    """Return the table that has a row for this text, by its form: gpu, os or instances; empty for other texts."""
    return next((table for table, (_words, like) in BEHIND.items() if re.fullmatch(like, _plain(text))), "")


def _component(name: str, text: str) -> str:
    lowered = _plain(name)
    component = SAID_AS.get(lowered, lowered)
    if component in COMPONENTS:
        return component
    import difflib
    import shlex

    cores: dict[str, list[str]] = {}
    for item in (*COMPONENTS, *SAID_AS):
        cores.setdefault(re.sub(_AROUND, "", item), []).append(item)
    core = re.sub(_AROUND, "", lowered)
    near = difflib.get_close_matches(core, cores, n=_MOST_NAMED, cutoff=0.6)
    close = [
        item for own in dict.fromkeys((*near, *(own for own in cores if own.startswith(core)))) for item in cores[own]
    ]
    hint = f"did you mean {close[0]}? " if close else ""
    hint += f"Near as well: {', '.join(close[1:_MOST_NAMED])}. " if close[1:] else ""
    table = table_of(name)
    hint = f"{BEHIND[table][0]} {shlex.quote(text.replace('=', ' '))}. " if table else hint
    base, extra, _ = lowered.partition("[")
    hint = f"{ELSEWHERE[base]}. " if base in ELSEWHERE else hint
    hint = f"write {base}: gpusetup chooses its extras. " if extra and SAID_AS.get(base, base) in COMPONENTS else hint
    hint += "`gpusetup matrix` lists what is known"
    raise BadInputError("GS-110", f"unknown component {name!r}", path=f"REQ {text!r}", hint=hint)


def _canonical(specifier: str) -> str:
    """Return the specifier in its canonical spelling; raise now for what packaging would reject only later."""
    if EXACT.fullmatch(specifier):
        return specifier
    if re.search(_ABSURD, specifier):
        raise ValueError(specifier)
    parts = specifiers(specifier)
    for part in parts:
        parsed(part.version.removesuffix(".*"))  # === takes any text
    return str(parts)


def joined_words(words: Iterable[str]) -> list[str]:
    """Return one text per requirement; a separate version (`torch 2.6`) is joined to the name before it."""
    texts: list[str] = []
    for part in (part for word in words for part in _PARTS.findall(word) or [word]):
        if texts and part.lower() == "latest":
            texts[-1] += "==latest"
        elif not texts or _NUMBER_FIRST.match(part) is None:
            texts.append(part)
        elif texts[-1][-1] in "<>=!~":  # `torch >= 2.4`
            texts[-1] += part
        else:
            between = "," if re.search(r"[<>=!~]", texts[-1]) else ""
            texts[-1] += f"{between}={part}" if part[0].isdigit() else between + part
    return texts


def _package_of_vendor(text: str) -> str:
    """Return the component for a package name: `nvidia-driver-580-server-open` is `driver==580.*`."""
    name, specifier = re.findall(r"(?s)^([^<>=!~]*)(.*)", text.strip())[0]
    lowered = _plain(name)
    if lowered in COMPONENTS:
        return text
    for pattern, component in OF_VENDORS:
        match = re.fullmatch(pattern, lowered)
        if match is None:
            continue
        groups = {"series": None, "major": None, **match.groupdict()}
        release = re.search(_PACKAGE_RELEASE, specifier)
        if release is not None:
            specifier, groups["major"] = specifier[: release.start()], release[1] or groups["major"]
        if (library := groups.get("library")) and specifier:
            if "-" not in library:
                what = f"{name.strip()} is a part of the CUDA toolkit with version numbers of its own"
                hint = f"ask for the toolkit: cuda=={library}.*"
                raise BadInputError("GS-111", what, path=f"REQ {text!r}", hint=hint)
            specifier = ""  # the name has the toolkit's series
        if "part" in groups:
            specifier = re.sub(r"^={1,3}\s*(\d+\.\d+)\..+", r"==\1.*", specifier)
        series = (groups["series"] or groups.get("part") or library or "").replace("-", ".")
        build = f"+cu{groups['major']}" if groups["major"] and component in BUILT_FOR else ""
        return component + (specifier or (f"=={series}.*" if series else "")) + build
    return text


def _plain_spelling(text: str) -> str:
    """Return `cu124`, `cuda12.4` or `R580` as name=version, and any other text unchanged."""
    text = _package_of_vendor(text)
    stripped = text.strip()
    tag = _CUDA_TAG.fullmatch(stripped)
    if tag is not None:
        digits = tag[1]
        major = digits[:2] if digits[0] == "1" else digits[0]
        minor = digits[len(major) :]
        return f"cuda={major}.{minor}" if minor else f"cuda={major}"
    match = None if "=" in stripped else re.fullmatch(_NAME_AND_NUMBER, stripped)
    if match is None:
        return text
    name = {"r": "driver"}.get(match[1].lower(), _plain(match[1]))
    return f"{name}={match[2]}" if SAID_AS.get(name, name) in COMPONENTS else text


def _whole_series(specifier: str) -> str:
    """Return a specifier in pip's spelling: `=2.6` becomes `==2.6.*`, `=>` becomes `>=`."""
    if specifier[:1] != "=" or specifier[:2] == "==":
        return specifier
    if specifier[:2] in ("=<", "=>"):
        return specifier[1] + "=" + specifier[2:]
    match = re.fullmatch(_ONE_EQUALS, specifier)
    if match is None:
        return specifier
    version, rest = match["version"].strip(), match["rest"] or ""
    number, plus, build = version.partition("+")
    if re.fullmatch(r"[0-9]+(\.[0-9]+)*", number) and number.count(".") < _SERIES:
        number += ".*"
    return f"=={number}{plus}{build}{rest}"


def parse_requirement(text: str) -> Requirement:
    """Parse one requirement; raise BadInputError with a hint when the text is not one."""
    match = _REQUIREMENT.fullmatch(_plain_spelling(text))
    if match is None:
        hint = "give a name, or a name and a version: torch, torch==2.6.*, 'cuda>=12.4'"
        if re.fullmatch(_IMAGE, text):
            cuda = re.search(r"cuda[-:]?(\d+\.\d+)", text)
            hint = "a container image includes its CUDA; the driver that its host needs: "
            hint += f"gpusetup matrix cuda{f'=={cuda[1]}.*' if cuda else ''}"
        elif table := table_of(text):
            hint = f"{BEHIND[table][0]} '{text}'"
        elif text[:1].isdigit():
            hint = f"say what it is a version of: driver={text}, cuda={text}"
        raise BadInputError("GS-111", f"invalid requirement {text!r}", path=f"REQ {text!r}", hint=hint)
    component = _component(match["name"], text)
    specifier, variant = _whole_series((match["specifier"] or "").strip()), ""
    if component == "python" and (one := re.fullmatch(_OF_PYTHON, specifier)):
        specifier = f"==3.{one[1] or '*'}"
    build = re.search(_VARIANT, specifier) if "+" in specifier else None
    if build is not None:
        variant = build[1].lower()
        if component != "torch" and not (component in BUILT_FOR and re.fullmatch(_CUDA_MAJOR, variant)):
            what = f"there is no {component} " + (f"for CUDA {variant[2:]}" if component in BUILT_FOR else variant)
            raise BadInputError("GS-112", what, path=f"REQ {text!r}", hint=f"write {component}, without {variant}")
        specifier = specifier[: build.start()] + specifier[build.end() :]
    if _LATEST.fullmatch(specifier):
        return Requirement(component=component, variant=variant, latest=True)
    try:
        canonical = _canonical(specifier)
    except ValueError:
        hint, tag = f"write it as in pip: {component}==1.2.*, '{component}>=1.2'", _CUDA_TAG.search(variant + specifier)
        if tag and component in ("torch", *BUILT_FOR):
            hint = f"a build for one CUDA follows a plus sign: {component}+{tag[0].lower()}"
        if component == "python" and specifier.endswith("t"):
            hint = f"the matrix does not have free-threaded builds: python{specifier[:-1]}"
        what = f"invalid version specifier {specifier!r} of {component}"
        raise BadInputError("GS-111", what, path=f"REQ {text!r}", hint=hint) from None
    return Requirement(component=component, specifier=canonical, variant=variant)


def with_toolkit(first: Requirement, specifier: str) -> Requirement | None:
    """Add a second toolkit to a CUDA requirement; return None when both specifiers constrain the same toolkit."""
    minors = [re.fullmatch(_SERIES_OF, text) for text in (first.specifier, *first.beside, specifier)]
    numbers = [match[1] for match in minors if match]
    if len(numbers) != len(minors) or len(set(numbers)) != len(numbers):
        return None
    return structs.replace(first, beside=(*first.beside, specifier))


def parse_requirements(texts: list[str]) -> tuple[Requirement, ...]:
    """Parse all requirements, joining those that name the same component."""
    joined: dict[str, Requirement] = {}
    words = joined_words(texts)
    for text in words:
        of_torch = _BUILD_TAG.fullmatch(text) and any(re.match(_NAMES_TORCH, word) for word in words)
        new = parse_requirement(f"torch+{text.strip()}" if of_torch else text)
        old = joined.get(new.component)
        if old is None:
            joined[new.component] = new
            continue
        if new.component == "cuda" and (one_more := with_toolkit(old, new.specifier)):
            joined["cuda"] = one_more
            continue
        if old.variant and new.variant and old.variant != new.variant:
            raise BadInputError(
                "GS-113",
                f"{new.component} cannot be both the {old.variant} and the {new.variant} build",
                path=f"REQ {text!r}",
            )
        both = ",".join(part for part in (old.specifier, new.specifier) if part)
        joined[new.component] = Requirement(
            component=new.component,
            specifier=str(specifiers(both)),
            variant=old.variant or new.variant,
            latest=old.latest or new.latest,
        )
    return tuple(sorted(joined.values(), key=lambda item: COMPONENTS.index(item.component)))


def gpus_of(words: Iterable[str]) -> tuple[tuple[str, ...], int]:
    """Split the numbers of GPUs off their names; return the names, and how many GPUs these are in all."""
    names, number = list[str](), 0
    for word in [part.strip(" ") for text in words for part in text.strip(", ").split(",")]:
        if not word.isprintable():
            raise BadInputError(
                "GS-120", f"{word!r} is not the name of a GPU", path=f"--gpu {word!r}",
                hint="write it in one line of plain text, as nvidia-smi or lspci prints it",
            )  # fmt: skip
        found = re.fullmatch(_COUNTED, word.strip()) if set("xX\u00d7*: ") & set(word) else None
        names.append(found["name"] or found["named"] if found else word)
        number += int(found["n"] or found["count"]) if found else 1
    return tuple(names), number


def question(
    requirements: Iterable[str],
    matrix: Matrix,
    *,
    gpus: Iterable[str] = (),
    os: str | None = None,
    arch: Literal["x86_64", "aarch64"] | None = None,
    driver: str | None = None,
    allow_builds: bool = False,
    native: bool = False,
    forward: bool = False,
    allow_vulnerable: bool = False,
) -> Request:
    """Build a request; a partial driver version (550.54) becomes the first release with that prefix."""
    named, number = gpus_of(gpus)
    driver = _driver(driver, matrix) if driver is not None else None
    return Request(
        requirements=parse_requirements(list(requirements)),
        gpus=named,
        gpu_count=number,
        os=find_system(matrix, os).id if os is not None else None,
        arch=arch,
        driver=driver,
        driver_elsewhere="wsl" if driver is not None and of_windows(driver, matrix) else None,
        allow_builds=allow_builds,
        allow_vulnerable=allow_vulnerable,
        native=native,
        forward=forward,
    )


def _driver(version: str, matrix: Matrix) -> str:
    """Return the first release with this number; raise BadInputError for anything but a driver version."""
    named = {*re.findall(r"(?i)(?<![a-z0-9.])[rv]?(\d{3}(?:\.\d+){0,2})(?!\d|\.\d)", version)}
    version = named.pop() if len(named) == 1 else version  # of a package's name or version, or of a program's output
    try:
        nv(version)
    except ValueError:
        raise BadInputError("GS-125", f"{version!r} is not a driver version", path=f"--driver {version!r}") from None
    known = [item.version for item in matrix.driver.versions if item.platform == "linux" and not item.beta]
    meant = [item for item in known if item.startswith(f"{version}.")]
    return version if version in known or not meant else min(meant, key=nv)
