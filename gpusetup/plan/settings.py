"""Merges settings: a host's own variables win over gpusetup.toml, and that over the command line.

Only for `reboot` the more careful of command line and others wins. All levels use the same names; in an inventory they
begin with `gpusetup_`.
"""

import difflib
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, get_args

from gpusetup.components.parsing import choice, extra_sources, fingerprints, sha256, source, texts, wrong, yes
from gpusetup.components.registry import COMPONENTS
from gpusetup.errors import BadInputError
from gpusetup.model.request import COMPONENTS as VERSIONED
from gpusetup.model.request import SAID_AS, SITE_FILE, Requirement
from gpusetup.model.settings import RebootPolicy, Settings
from gpusetup.resolve.requests import parse_requirement, with_toolkit

PREFIX = "gpusetup_"
NO_EFFECT = " on the command line has no effect"
"""Part of every warning about an overruled wish."""

_MOST_CAREFUL_FIRST = ("never", "schedule", "when-needed")
_OTHERS = (
    "simulated_root", "become", "candidates", "record", "symptoms", "domain", "node", "proxy", "no_proxy", "ca_file",
)  # fmt: skip
"""Variables that playbooks and roles read directly."""


def read_level(values: Mapping[str, Any], where: str, *, prefix: str = "", also: Iterable[str] = ()) -> dict[str, Any]:
    """Return the parsed settings of one level; errors name `where`, and suggest names in `also` too."""
    level: dict[str, Any] = {}
    for full, value in values.items():
        name = full[len(prefix) :]
        label = f"{where}: {full}"
        component = _component(name)
        if component in VERSIONED:
            wish = _requirement(component, value, label)
            level.setdefault("versions", {})[component] = wish
        elif name in KNOWN:
            level[name] = KNOWN[name](value, label)
        elif name in _OTHERS or name.startswith("verify_"):
            if name in {"proxy", "no_proxy", "ca_file"}:
                level["proxy"] = True
        else:
            raise _unknown(full, name, where, prefix, also)
    _check_components(level, where, prefix)
    return level


def settings_for(
    host: Mapping[str, Any], file: Mapping[str, Any], line: Mapping[str, Any], wishes: Sequence[Requirement]
) -> Settings:
    """Return one host's merged settings; a higher level's list of components drops what lower levels add to it.

    For `reboot` the more careful of command line and higher levels wins.
    """
    wanted: dict[str, Requirement] = {item.component: item for item in wishes}
    merged: dict[str, Any] = {}
    for level in (line, file, host):
        listed = level.get("components")
        if listed is not None:
            # Lists of components do not name Python: its requirement stays.
            kept = [name for name in wanted if name == "python" and name not in listed]
            wanted = {name: wanted.get(name, Requirement(component=name)) for name in (*listed, *kept)}
        for name, wish in level.get("versions", {}).items():
            wanted.pop(name, None)
            if wish is not None:
                wanted[name] = wish
        merged |= {name: value for name, value in level.items() if name not in {"components", "versions"}}
    if "reboot" in line:
        merged["reboot"] = min(line["reboot"], merged["reboot"], key=_MOST_CAREFUL_FIRST.index)
    order = VERSIONED.index
    requirements = tuple(sorted(wanted.values(), key=lambda item: order(item.component)))
    return Settings(requirements=requirements, **merged)


def overruled(
    host: Mapping[str, Any], file: Mapping[str, Any], wishes: Sequence[Requirement], counts: Settings
) -> tuple[str, ...]:
    """Return a warning for each wish of the command line that a higher level overrules, not for one it narrows.

    The texts name no host, since hosts with equal plans are printed together.
    """
    found = []
    for wish in wishes:
        left = next((item for item in counts.requirements if item.component == wish.component), None)
        bare = not (wish.specifier or wish.variant or wish.latest)
        if left == wish or (left is not None and bare):
            continue
        name = wish.component
        for level, prefix, where in ((host, PREFIX, "the inventory"), (file, "", SITE_FILE)):
            if name in level.get("versions", {}):
                value = level["versions"][name]
                winner = f"{prefix}{name} = {_version_text(value)} in {where} wins"
                way = f"change that, or give -e {shlex.quote(f'{PREFIX}{name}={_version_text(wish)}')}"
                break
            if name not in level.get("components", (name,)):
                winner = f"{prefix}components = {', '.join(level['components'])} in {where} wins"
                way = f"add {name} there"
                break
        else:
            continue
        found.append(f"-w {shlex.quote(str(wish))}{NO_EFFECT}: {winner}; {way}")
    return tuple(found)


def _version_text(wish: Requirement | None) -> str:
    """Return a version requirement as the value of a variable."""
    if wish is None:
        return "none"
    if wish.latest:
        return "latest"
    text = str(wish).removeprefix(wish.component)
    return (text if "," in text else text.removeprefix("==")) or "any"


def _check_components(level: Mapping[str, Any], where: str, prefix: str) -> None:
    listed = level.get("components")
    for name, wish in level.get("versions", {}).items():
        if listed is not None and wish is not None and name not in listed and name != "python":
            raise BadInputError(
                "GS-312",
                f"{where} asks for {name} {wish.specifier or ''}".rstrip()
                + f", but its list of components does not contain {name}",
                path=f"{where}: {prefix}components",
                hint=f"add {name} to {prefix}components, or remove {prefix}{name}",
            )


def _unknown(full: str, name: str, where: str, prefix: str, also: Iterable[str]) -> BadInputError:
    known = [*(item.replace("-", "_") for item in VERSIONED), *KNOWN, *_OTHERS, *also]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {prefix}{close[0]}? " if close else ""
    return BadInputError(
        "GS-311",
        f"{where}: unknown setting {full}",
        path=f"{where}: {full}",
        hint=hint + "Known: " + ", ".join(prefix + item.replace("-", "_") for item in (*VERSIONED, *KNOWN)),
    )


def _requirement(component: str, value: Any, label: str) -> Requirement | None:
    """Read a version, a specifier, `latest`, `true` (any that fits), `none` or `false` (leave it out).

    CUDA takes a list of versions too.
    """
    if component == "cuda" and (isinstance(value, list | tuple) or str(value).lstrip().startswith("[")):
        return _toolkits(value, label)
    if isinstance(value, bool) or value is None:
        return Requirement(component=component) if value else None
    if isinstance(value, float) and str(value).rpartition(".")[2] in {"1", "2"}:
        text = str(value)
        raise BadInputError(
            "GS-314",
            f"{label} = {text} may have been {text}0: without quotes it was read as a number",
            path=label,
            hint=f'write it in quotes within quotes where Ansible reads INI: {label.rpartition(" ")[2]}="=={text}.*"',
        )
    if not isinstance(value, str | int | float):
        raise wrong(label, value, 'one version in quotes: "580" or ">=12.4"')
    text = str(value).strip()
    if text.lower() == "latest":
        return Requirement(component=component, latest=True)
    if text.lower() in {"", "any", "true", "yes"}:
        return Requirement(component=component)
    if text.lower() in {"none", "false", "no"}:
        return None
    if text[0].isdigit():
        text = f"={text}"
    try:
        return parse_requirement(component + text)
    except BadInputError as error:
        raise BadInputError(error.reference, error.message, path=label, hint=error.hint) from None


def _toolkits(value: Any, label: str) -> Requirement | None:
    """Read several CUDA versions; the first is the default toolkit."""
    wishes = [_requirement("cuda", item, label) for item in texts(value, label)]
    found = next(iter(wishes), None)
    for wish in wishes[1:]:
        both = with_toolkit(found, wish.specifier) if found is not None and wish is not None else None
        if both is None:
            wanted = 'versions of different toolkits, the default first: ["12.8", "13.0"]'
            raise wrong(label, value, wanted)
        found = both
    return found


def _component(name: str) -> str:
    """Return the component that a variable names: aliases resolved, `_` for `-` allowed."""
    found = SAID_AS.get(name, name)
    return found if found in VERSIONED else name.replace("_", "-")


def _components(value: Any, label: str) -> tuple[str, ...]:
    names = [_component(name) for name in texts(value, label)]
    for name in names:
        if name not in VERSIONED:
            close = difflib.get_close_matches(name, VERSIONED, n=1, cutoff=0.5)
            raise wrong(label, name, f"{close[0]}?" if close else "some of: " + ", ".join(VERSIONED))
    return tuple(dict.fromkeys(names))


_GENERAL: dict[str, Callable[[Any, str], Any]] = {
    "components": _components, "source": source, "source_sha256": sha256, "source_fingerprints": fingerprints,
    "source_key": source, "extra_sources": extra_sources, "reboot": choice(*get_args(RebootPolicy)), "native": yes,
    "forward": yes, "allow_vulnerable": yes, "replace": yes, "no_way_back": yes, "older_source": yes,
    "despite_maintenance": yes, "upgrade": yes,
}  # fmt: skip
_ALL = _GENERAL | {name: read for component in COMPONENTS for name, read in component.settings.items()}
KNOWN = {name: _ALL[name] for name in ("components", *Settings.__struct_fields__) if name in _ALL}
"""Setting name → parser, for all settings except the components' versions."""
