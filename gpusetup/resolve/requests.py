"""Read what people type: `torch==2.6.*`, `cuda>=12.4`, `torch==2.7.1+cu128`, `cudnn~=9.1`, `pytorch`."""

from __future__ import annotations

import re

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from gpusetup.errors import BadInputError
from gpusetup.model.request import COMPONENTS, Requirement

__all__ = ["ALIASES", "parse_requirement", "parse_requirements"]

ALIASES = {
    "pytorch": "torch",
    "tf": "tensorflow",
    "nvidia-driver": "driver",
    "cuda-toolkit": "cuda",
    "cupy-cuda12x": "cupy",
    "cupy-cuda13x": "cupy",
}
_REQUIREMENT = re.compile(r"\s*(?P<name>[A-Za-z][A-Za-z0-9._-]*?)\s*(?P<specifier>[<>=!~].*)?\s*", re.DOTALL)
_LATEST = re.compile(r"={1,3}\s*latest\s*", re.IGNORECASE)
_ABSURD = re.compile(r"[0-9]{10,}")
_VARIANT = re.compile(r"\+(cu[0-9]{2,4})\s*(?=,|$)", re.IGNORECASE)


def _component(name: str, text: str) -> str:
    lowered = name.lower().replace("_", "-")
    component = ALIASES.get(lowered, lowered)
    if component in COMPONENTS:
        return component
    import difflib

    close = difflib.get_close_matches(lowered, (*COMPONENTS, *ALIASES), n=1, cutoff=0.5)
    raise BadInputError(
        "GS-110",
        f"unknown component {name!r}",
        path=f"REQ {text!r}",
        hint=(f"did you mean {close[0]}? " if close else "") + "Known: " + ", ".join(COMPONENTS),
    )


def _canonical(specifier: str) -> str:
    """Return the specifier in one spelling; raises where packaging would only stumble later."""
    if _ABSURD.search(specifier):
        raise InvalidSpecifier(specifier)
    parts = SpecifierSet(specifier)
    for part in parts:
        Version(part.version.removesuffix(".*"))  # === takes any text
    return str(parts)


def parse_requirement(text: str) -> Requirement:
    """Return the requirement that the text says; anything else is bad input with a hint."""
    match = _REQUIREMENT.fullmatch(text)
    if match is None:
        raise BadInputError(
            "GS-111",
            f"cannot read the requirement {text!r}",
            path=f"REQ {text!r}",
            hint="write a name, or a name and a version: torch, torch==2.6.*, 'cuda>=12.4'",
        )
    component = _component(match["name"], text)
    if _LATEST.fullmatch(match["specifier"] or ""):
        return Requirement(component=component, latest=True)
    specifier, variant = (match["specifier"] or "").strip(), ""
    build = _VARIANT.search(specifier)
    if build is not None:
        variant = build[1].lower()
        if component != "torch":
            raise BadInputError(
                "GS-112",
                f"only torch has builds named +cuNNN, {component} has not",
                path=f"REQ {text!r}",
                hint=f"leave the +{variant} away",
            )
        specifier = specifier[: build.start()] + specifier[build.end() :]
    try:
        canonical = _canonical(specifier)
    except (InvalidSpecifier, InvalidVersion):
        raise BadInputError(
            "GS-111",
            f"cannot read the version specifier {specifier!r} of {component}",
            path=f"REQ {text!r}",
            hint=f"write it as in pip: {component}==1.2.*, '{component}>=1.2', {component}~=1.2",
        ) from None
    return Requirement(component=component, specifier=canonical, variant=variant)


def parse_requirements(texts: list[str]) -> tuple[Requirement, ...]:
    """Return all requirements; two for one component are joined when they can be."""
    joined: dict[str, Requirement] = {}
    for text in texts:
        new = parse_requirement(text)
        old = joined.get(new.component)
        if old is None:
            joined[new.component] = new
            continue
        if old.variant and new.variant and old.variant != new.variant:
            raise BadInputError(
                "GS-113",
                f"{new.component} cannot be both the {old.variant} and the {new.variant} build",
                path=f"REQ {text!r}",
                hint="name one build",
            )
        both = ",".join(part for part in (old.specifier, new.specifier) if part)
        joined[new.component] = Requirement(
            component=new.component,
            specifier=str(SpecifierSet(both)),
            variant=old.variant or new.variant,
            latest=old.latest or new.latest,
        )
    return tuple(sorted(joined.values(), key=lambda item: COMPONENTS.index(item.component)))
