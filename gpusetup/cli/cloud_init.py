r"""Write user-data for a new machine that installs and verifies its GPU stack unattended.

First make a bundle and serve its folder: gpusetup bundle --controller-only --out gpusetup-bundle

examples:
  gpusetup cloud-init 'torch==2.6.*' --gpu h100 --os ubuntu22.04 --out user-data \
      --source https://files.example/gpusetup-bundle --manifest gpusetup-bundle/manifest.json
  gpusetup cloud-init … --format shell > user-data.sh    for clouds that take only a script
  gpusetup cloud-init … --join mine.yaml > user-data     beside your own user-data
"""

import argparse
import re
from pathlib import Path

import msgspec

from gpusetup.bootstrap.userdata import Config, UserData, checked_hosts, checked_text, checked_url, render
from gpusetup.cli import options, output
from gpusetup.cli.grammar import tables
from gpusetup.errors import BadInputError, Exit, reason
from gpusetup.model import Reading
from gpusetup.model.bundle import Manifest
from gpusetup.model.lock import Lock

_STARTS: dict[str, str] = tables()["user_data"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_requirements(parser)
    options.add_request(parser)
    where = parser.add_argument_group("where the machine gets gpusetup")
    where.add_argument("--source", metavar="URL", help="URL of the served bundle folder")
    where.add_argument("--manifest", metavar="FILE", help="that bundle's manifest.json, whose digest is pinned")
    what = parser.add_argument_group("stack")
    what.add_argument("--lock", metavar="FILE", help="exactly this lock instead of a request")
    what.add_argument("--lock-url", metavar="URL", help="with --lock-digest: address of the lock, for the machine")
    what.add_argument("--lock-digest", metavar="SHA256", help="with --lock-url: required SHA-256 of that file")
    what.add_argument(
        "--set", dest="variables", action="append", default=[], metavar="NAME=VALUE",
        help="a gpusetup_ variable, as in an inventory: gpusetup_source=https://mirror.example/nvidia",
    )  # fmt: skip
    what.add_argument(
        "--keep-driver", action=argparse.BooleanOptionalAction,
        help="keep a working driver of the image if it fits; default: when no driver is requested",
    )  # fmt: skip
    how = parser.add_argument_group("on the machine")
    how.add_argument("--reboots", type=int, default=2, metavar="N", help="maximum number; default: %(default)s")
    how.add_argument(
        "--stage", choices=("image",), help="make an image: install what needs no GPU, clean up; copies verify"
    )
    how.add_argument(
        "--splay", type=int, default=0, metavar="SECONDS", help="each machine waits a random time up to this"
    )
    how.add_argument("--proxy", metavar="URL", help="proxy for all downloads")
    how.add_argument("--no-proxy", default="", metavar="LIST", help="with --proxy: hosts that bypass it")
    how.add_argument("--ca", metavar="FILE", help="certificate authority (PEM) for the machine to trust")
    how.add_argument("--callback", metavar="URL", help="URL that gets the status document by POST at every change")
    how.add_argument(
        "--token-file", metavar="FILE", help="with --callback: its bearer token; readable in the user-data"
    )
    shape = parser.add_argument_group("user-data")
    shape.add_argument(
        "--format", choices=("cloud-config", "shell", "mime", "json"), default=None,
        help="default: cloud-config, with --join mime; json: the user-data in a document",
    )  # fmt: skip
    shape.add_argument("--join", action="append", default=[], metavar="FILE", help="your own user-data, repeatable")
    shape.add_argument("--size-limit", type=int, default=16384, metavar="BYTES", help="default: %(default)s")
    shape.add_argument("--out", metavar="FILE", help="write the answer to FILE")


def run(arguments: argparse.Namespace) -> Exit:
    """Write the user-data."""
    if not arguments.source or not arguments.manifest:
        raise BadInputError(
            "GS-701",
            "the machine has no source for gpusetup",
            context=f"{'--manifest' if arguments.source else '--source'} is missing",
            note="the machine installs gpusetup from a bundle that you serve; gpusetup is not on PyPI",
        )
    data = _data(arguments)
    shape = arguments.format if arguments.format not in (None, "json") else ""
    shape = shape or ("mime" if arguments.join else "cloud-config")
    if arguments.join and shape != "mime":
        raise BadInputError("GS-702", f"--join makes several parts, which {shape} cannot hold")
    text = render(data, shape)
    size = len(text.encode())
    if size > arguments.size_limit:
        raise BadInputError(
            "GS-703", f"the user-data has {size} bytes, {size - arguments.size_limit} more than the limit"
        )
    if arguments.format == "json":
        from gpusetup.model.documents import UserDataMade

        text = output.json_text(UserDataMade(shape=shape, bytes=size, user_data=text))
    output.write_answer(text, arguments.out)
    return Exit.DONE


def _data(arguments: argparse.Namespace) -> UserData:
    from gpusetup.bootstrap.bundle import read_manifest

    manifest, digest = read_manifest(Path(arguments.manifest))
    lock, about = _lock(arguments)
    if lock is not None:
        _refuse_unserved(manifest, lock)
    variables = variables_of(arguments.variables)
    checked_text(variables, "--set")
    if proxy := variables.get("gpusetup_proxy"):
        checked_url(str(proxy), "--set gpusetup_proxy")
    listed = variables.get("gpusetup_no_proxy", "")
    for hosts in listed if isinstance(listed, list) else (listed,):
        checked_hosts(str(hosts), "--set gpusetup_no_proxy")
    checked_hosts(arguments.no_proxy, "--no-proxy")
    if arguments.proxy:
        variables.setdefault("gpusetup_proxy", checked_url(arguments.proxy, "--proxy"))
        if arguments.no_proxy:
            variables.setdefault("gpusetup_no_proxy", arguments.no_proxy)
    if arguments.reboots < 0 or arguments.splay < 0:
        raise BadInputError("GS-704", "--reboots and --splay must be 0 or more")
    config = Config(
        source=checked_url(arguments.source, "--source").rstrip("/"),
        manifest_sha256=digest,
        variables=variables,
        lock_url=checked_url(arguments.lock_url, "--lock-url") if arguments.lock_url else "",
        lock_sha256=(arguments.lock_digest or "").removeprefix("sha256:"),
        keep_driver=_keeps_driver(arguments),
        stage=arguments.stage or "",
        callback=checked_url(arguments.callback, "--callback") if arguments.callback else "",
        reboots=arguments.reboots,
        splay=arguments.splay,
    )
    if config.callback.startswith("http:") and arguments.token_file:
        output.warn("the token goes to --callback unencrypted: use https")
    return UserData(
        config=config,
        about=(*about, f"with gpusetup {manifest.gpusetup}"),
        lock=msgspec.json.encode(lock) if lock is not None else b"",
        ca=_certificates(arguments.ca) if arguments.ca else "",
        token=_token(arguments.token_file) if arguments.token_file else "",
        proxy=arguments.proxy or "",
        no_proxy=arguments.no_proxy,
        joined=tuple(_part(path) for path in arguments.join),
    )


def _keeps_driver(arguments: argparse.Namespace) -> bool:
    """Return whether to keep a working driver: by default if no lock and no driver is requested."""
    if arguments.keep_driver is not None:
        return bool(arguments.keep_driver)
    from gpusetup.resolve.requests import parse_requirements

    named = {item.component for item in parse_requirements(list(arguments.requirements)) if item.specifier}
    return not (arguments.lock or arguments.lock_url or arguments.driver or "driver" in named)


def _refuse_unserved(manifest: Manifest, lock: Lock) -> None:
    """Refuse a bundle without wheels for the machine, which would otherwise fail only after booting."""
    from gpusetup.bootstrap.bundle import sets_for, unusable_wheels
    from gpusetup.matrix.load import matrix as load_matrix
    from gpusetup.matrix.systems import by_id

    matrix = load_matrix()
    system = by_id(matrix, lock.request.os)
    if system is None or system.python == "unknown":
        return
    arch = lock.request.arch or "x86_64"
    wanted = sets_for(system, arch)
    for kind in [kind for kind in wanted if kind in manifest.sets]:
        unusable = unusable_wheels(manifest, kind, system.glibc)
        if unusable:
            glibc = "" if system.glibc == "unknown" else f" with glibc {system.glibc}"
            raise BadInputError(
                "GS-737", f"the bundle's wheels for {kind} do not install on {system.name}{glibc}", path="--manifest",
                context=", ".join(unusable[:4]) + (f" and {len(unusable) - 4} more" if len(unusable) > 4 else ""),
                hint=f"gpusetup bundle --controller-only --python {kind.partition('-')[0]} --arch {arch} --out DIR",
            )  # fmt: skip
    if not set(wanted) & set(manifest.sets):
        python = wanted[0].partition("-")[0] if wanted else system.python
        raise BadInputError(
            "GS-729", f"the bundle has no wheels for {system.name} on {arch}", path="--manifest",
            context=f"usable there: {', '.join(wanted) or 'none'}; in the bundle: {', '.join(manifest.sets) or 'none'}",
            hint=f"gpusetup bundle --controller-only --python {python} --arch {arch} --out DIR",
        )  # fmt: skip


def _lock(arguments: argparse.Namespace) -> tuple[Lock | None, tuple[str, ...]]:
    from gpusetup.cli.lock import load_lock

    asked = [name for name, given in (("--lock", arguments.lock), ("--lock-url", arguments.lock_url),
             ("a request", arguments.requirements or arguments.gpu or arguments.on or arguments.os))
             if given]  # fmt: skip
    if len(asked) > 1:
        raise BadInputError("GS-706", f"{asked[0]} already says what {asked[1]} says")
    if arguments.lock_url:
        if not re.fullmatch(r"(sha256:)?[0-9a-f]{64}", arguments.lock_digest):
            raise BadInputError("GS-708", "--lock-digest is not a SHA-256", path="--lock-digest")
        return None, (f"the lock at {arguments.lock_url}",)
    from gpusetup.cli.plan import stack_line

    if arguments.lock:
        lock = load_lock(arguments.lock)
    else:
        from gpusetup.cli.requests import request_of
        from gpusetup.matrix.load import matrix as load_matrix
        from gpusetup.plan.lock import lock_of
        from gpusetup.resolve.api import resolve

        named = arguments.gpu or arguments.on
        if not named or not arguments.os:
            raise BadInputError(
                "GS-709", "exact versions depend on GPU and distribution", path="--os" if named else "--gpu"
            )
        matrix = load_matrix()
        resolution = resolve(request_of(arguments, matrix), matrix)
        for text in resolution.warnings:
            output.warn(text)
        lock = lock_of(resolution, matrix)
    return lock, (stack_line(lock.stack),)


def variables_of(given: list[str]) -> dict[str, object]:
    """Return the variables of `--set`."""
    from gpusetup.plan.settings import PREFIX, read_level

    variables: dict[str, object] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.startswith(PREFIX):
            raise BadInputError("GS-724", f"{text!r} is not of the form {PREFIX}NAME=VALUE", path="--set")
        variables[name] = _value(value)
    read_level(variables, "--set", prefix=PREFIX)
    return variables


def _value(text: str) -> object:
    """Parse lists and mappings as JSON; keep everything else as text, since versions are not numbers."""
    if not text.startswith(("[", "{")):
        return text
    with Reading("--set", ("GS-727", f"{text!r} is not valid JSON")):
        return msgspec.json.decode(text)


def _part(path: str) -> tuple[str, str]:
    text = _file(path, "--join")
    for start, kind in _STARTS.items():
        if text.startswith(start):
            return kind, text
    raise BadInputError("GS-725", f"{path} does not start like user-data", path=path)


def _token(path: str) -> str:
    token = _file(path, "--token-file").strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInputError(
            "GS-739", f"{path} does not hold a token", path="--token-file",
            hint="one line of letters, digits and signs, without blanks",
        )  # fmt: skip
    return token


def _certificates(path: str) -> str:
    """Return the PEM certificates in a file, with the comments between them."""
    text = _file(path, "--ca")
    if "-----BEGIN CERTIFICATE-----" not in text or not all(line.isprintable() for line in text.split("\n")):
        raise BadInputError(
            "GS-739", f"{path} does not hold certificates as plain text", path="--ca",
            hint="PEM: openssl x509 -in FILE -inform DER -out ca.pem",
        )  # fmt: skip
    return text


def _file(path: str, option: str) -> str:
    try:
        return Path(path).read_bytes().decode()  # read_text would convert line ends
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError("GS-726", f"cannot read {path}: {reason(error)}", path=f"{option} {path}") from error
