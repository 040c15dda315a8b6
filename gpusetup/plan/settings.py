"""Lay what was asked for over each other: a host's own variables, then gpusetup.toml, then the command line;
but whoever asks for more care there is obeyed.

Every level says the same things under the same names; in an inventory they begin with `gpusetup_`.
"""

from __future__ import annotations

import difflib
import re
import shlex
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, get_args

from gpusetup.components.desktops import desktops_wish
from gpusetup.components.imex import imex_wish
from gpusetup.components.mig import mig_wishes
from gpusetup.components.python.environments import environment_wishes
from gpusetup.components.values import (
    choice,
    extra_sources,
    fingerprints,
    path,
    place,
    sha256,
    source,
    texts,
    wrong,
    yes,
)
from gpusetup.errors import BadInputError
from gpusetup.model.rdma import DirectMemory, RdmaStack, StorageMode
from gpusetup.model.request import COMPONENTS, Requirement
from gpusetup.model.settings import (
    DriverOptions,
    ModuleWay,
    Monitoring,
    RebootPolicy,
    ReloadPolicy,
    RestartPolicy,
    Settings,
    VgpuFeature,
)
from gpusetup.resolve.requests import ALIASES, beside, parse_requirement

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["KNOWN", "NO_EFFECT", "PREFIX", "overruled", "read_level", "settings_for"]

PREFIX = "gpusetup_"
NO_EFFECT = " on the command line has no effect"
"""In every sentence about a wish that a higher level overrules."""

_LISTEN = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:\[\]]*):([0-9]{1,5})")
_MOST_CAREFUL_FIRST = ("never", "schedule", "when-needed")
_CONTAINERS = ("docker", "containerd", "crio", "podman")
_OTHERS = (
    "simulated_root",
    "become",
    "candidates",
    "record",
    "symptoms",
    "domain",
    "node",
    "proxy",
    "no_proxy",
    "ca_file",
)
"""Variables that playbooks and roles read themselves."""


def read_level(values: Mapping[str, Any], where: str, *, prefix: str = "") -> dict[str, Any]:
    """Return one level's settings, checked; `where` is said when one of them is wrong."""
    level: dict[str, Any] = {}
    for full, value in values.items():
        name = full[len(prefix) :]
        label = f"{where}: {full}"
        component = _component(name)
        if component in COMPONENTS:
            wish = _requirement(component, value, label)
            level.setdefault("versions", {})[component] = wish
        elif name in KNOWN:
            level[name] = KNOWN[name](value, label)
        elif name in _OTHERS or name.startswith("verify_"):
            if name in {"proxy", "no_proxy", "ca_file"}:
                level["proxy"] = True
        else:
            raise _unknown(full, name, where, prefix)
    _check_components(level, where, prefix)
    return level


def settings_for(
    host: Mapping[str, Any], file: Mapping[str, Any], line: Mapping[str, Any], wishes: Sequence[Requirement]
) -> Settings:
    """Return one host's wishes; a higher level's list of components leaves out what lower levels ask for.

    Where the command line asks for more care than the host's own variable, the command line is obeyed.
    """
    wanted: dict[str, Requirement] = {item.component: item for item in wishes}
    merged: dict[str, Any] = {}
    for level in (line, file, host):
        listed = level.get("components")
        if listed is not None:
            # Nobody lists Python: what is asked of it holds for whatever is listed.
            kept = [name for name in wanted if name == "python" and name not in listed]
            wanted = {name: wanted.get(name, Requirement(component=name)) for name in (*listed, *kept)}
        for name, wish in level.get("versions", {}).items():
            wanted.pop(name, None)
            if wish is not None:
                wanted[name] = wish
        merged |= {name: value for name, value in level.items() if name not in {"components", "versions"}}
    if "reboot" in line:
        merged["reboot"] = min(line["reboot"], merged["reboot"], key=_MOST_CAREFUL_FIRST.index)
    order = COMPONENTS.index
    requirements = tuple(sorted(wanted.values(), key=lambda item: order(item.component)))
    return Settings(requirements=requirements, **merged)


def overruled(
    host: Mapping[str, Any], file: Mapping[str, Any], wishes: Sequence[Requirement], counts: Settings
) -> tuple[str, ...]:
    """Say which wishes of the command line a higher level overrules; one that it only makes narrower is none.

    It names no host: hosts with equal plans are told together.
    """
    found = []
    for wish in wishes:
        left = next((item for item in counts.requirements if item.component == wish.component), None)
        bare = not (wish.specifier or wish.variant or wish.latest)
        if left == wish or (left is not None and bare):
            continue
        name = wish.component
        for level, prefix, where in ((host, PREFIX, "the inventory"), (file, "", "gpusetup.toml")):
            if name in level.get("versions", {}):
                value = level["versions"][name]
                winner = f"{prefix}{name} = {_said(value)} in {where} wins"
                way = f"change that, or give -e {shlex.quote(f'{PREFIX}{name}={_said(wish)}')}"
                break
            if name not in level.get("components", (name,)):
                winner = f"{prefix}components = {', '.join(level['components'])} in {where} wins"
                way = f"add {name} there"
                break
        else:
            continue
        found.append(f"-w {shlex.quote(str(wish))}{NO_EFFECT}: {winner}; {way}")
    return tuple(found)


def _said(wish: Requirement | None) -> str:
    """Return a version as a variable has it."""
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


def _unknown(full: str, name: str, where: str, prefix: str) -> BadInputError:
    known = [*(item.replace("-", "_") for item in COMPONENTS), *KNOWN, *_OTHERS]
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {prefix}{close[0]}? " if close else ""
    return BadInputError(
        "GS-311",
        f"{where}: unknown setting {full}",
        path=f"{where}: {full}",
        hint=hint + "Known: " + ", ".join(prefix + item.replace("-", "_") for item in (*COMPONENTS, *KNOWN)),
    )


def _requirement(component: str, value: Any, label: str) -> Requirement | None:
    """Read a version, a specifier, `latest`, `true` (whatever fits best), `none` or `false` (not this one); of CUDA a
    list of versions too.
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
    """Read several toolkits; the first one is the default."""
    wishes = [_requirement("cuda", item, label) for item in texts(value, label)]
    found = next(iter(wishes), None)
    for wish in wishes[1:]:
        both = beside(found, wish.specifier) if found is not None and wish is not None else None
        if both is None:
            wanted = 'versions of different toolkits, the default first: ["12.8", "13.0"]'
            raise wrong(label, value, wanted)
        found = both
    return found


def _component(name: str) -> str:
    """Return a component by its own name; variables have an underscore where packages have a dash."""
    found = ALIASES.get(name, name)
    return found if found in COMPONENTS else name.replace("_", "-")


def _components(value: Any, label: str) -> tuple[str, ...]:
    names = [_component(name) for name in texts(value, label)]
    for name in names:
        if name not in COMPONENTS:
            close = difflib.get_close_matches(name, COMPONENTS, n=1, cutoff=0.5)
            raise wrong(label, name, f"{close[0]}?" if close else "some of: " + ", ".join(COMPONENTS))
    return tuple(dict.fromkeys(names))


def _listen(value: Any, label: str) -> str:
    """Read an address and a port; without an address, or with 0.0.0.0, everybody can reach it."""
    match = _LISTEN.fullmatch(str(value).strip())
    if match is None or not 0 < int(match[2]) < 65536:
        raise wrong(label, value, "an address and a port: 127.0.0.1:9400, [::1]:9400, 0.0.0.0:9400")
    try:
        address = match[1] and str(ip_address(match[1].strip("[]")))
    except ValueError:
        if match[1] != "localhost":
            raise wrong(label, value, "an address in numbers, and a port: 127.0.0.1:9400, [::1]:9400") from None
        address = "127.0.0.1"
    return f"[{address}]:{match[2]}" if ":" in address else f"{address or '0.0.0.0'}:{match[2]}"  # noqa: S104


def _runtimes(value: Any, label: str) -> tuple[str, ...]:
    names = texts(value, label)
    for name in names:
        if name not in _CONTAINERS:
            raise wrong(label, name, "some of: " + ", ".join(_CONTAINERS))
    return names


def _storage_mode(value: Any, label: str) -> str:
    """Read how files come into GPU memory; true is whatever fits the host."""
    word = {True: "auto", False: "none"}.get(value, value) if isinstance(value, bool) else value
    return str(choice(*get_args(StorageMode))(word, label))


def _vgpu_release(value: Any, label: str) -> str:
    text = str(value).strip()
    if not re.fullmatch(r"\d{2}(\.\d+)?", text):
        raise wrong(label, value, "a release of vGPU software: 19 or 19.4 (gpusetup matrix vgpu lists them)")
    return text


def _module(value: Any, label: str) -> str:
    if str(value) in {"open", "proprietary"}:
        wanted = ", ".join(get_args(ModuleWay))
        raise wrong(label, value, f"one of: {wanted}. Open or proprietary follows from the GPU and the driver")
    return str(choice(*get_args(ModuleWay))(value, label))


def _options(value: Any, label: str) -> DriverOptions:
    if not isinstance(value, dict) or not all(
        re.fullmatch(r"NVreg_[A-Za-z0-9]+", str(name))
        and isinstance(item, str | int | float)
        and re.fullmatch(r"[\w.,:;=/-]*", str(item))
        for name, item in value.items()
    ):
        raise wrong(label, value, "a mapping of NVreg_… names to plain values")
    return value


KNOWN: dict[str, Callable[[Any, str], Any]] = {
    "components": _components,
    "source": source,
    "source_sha256": sha256,
    "source_fingerprints": fingerprints,
    "source_key": source,
    "extra_sources": extra_sources,
    "reboot": choice(*get_args(RebootPolicy)),
    "reload": choice(*get_args(ReloadPolicy)),
    "native": yes,
    "forward": yes,
    "replace": yes,
    "no_way_back": yes,
    "module": _module,
    "secure_boot": choice("refuse", "enroll"),
    "signing_key": path,
    "signing_certificate": path,
    "cuda_from": choice("auto", "packages", "wheels"),
    "python_adopt": path,
    "python_interpreter": path,
    "python_path": path,
    "python_links": place,
    "environments": environment_wishes,
    "containers": _runtimes,
    "containers_restart": choice(*get_args(RestartPolicy)),
    "mig": mig_wishes,
    "vgpu_host": _vgpu_release,
    "vgpu_token": path,
    "vgpu_feature": choice(*get_args(VgpuFeature)),
    "imex": imex_wish,
    "rdma": choice(*get_args(RdmaStack)),
    "gpudirect": choice(*get_args(DirectMemory)),
    "ipoib": yes,
    "gdrcopy": yes,
    "gds": _storage_mode,
    "desktops": desktops_wish,
    "monitoring": choice(*get_args(Monitoring)),
    "monitoring_listen": _listen,
    "monitoring_textfile": path,
    "monitoring_certificate": path,
    "monitoring_key": path,
    "monitoring_passwords": path,
    "persistence": yes,
    "hold_kernel": yes,
    "dev": yes,
    "upgrade": yes,
    "driver_options": _options,
}
"""Settings beside the components' versions, and how each is read."""
