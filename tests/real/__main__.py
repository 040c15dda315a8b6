"""./dev test real: a real distribution from its first look to the removal, and a row of docs/reference/support.md.

examples:
  ./dev test real --image https://cloud.debian.org/images/cloud/bookworm/latest/debian-12-genericcloud-amd64.qcow2
  ./dev test real --image rocky9.qcow2 --older 'driver==570.*' --want 'driver==580.*'
  ./dev test real --host ubuntu@gpu07 --yes            a machine of yours, with its GPU; changed and rebooted
  ./dev test real --image lab --source stand-in        what can be seen without any network
  ./dev test real --collect DIR                        rows that other machines wrote, into the page
"""

import argparse
import contextlib
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tests.lab.captures import MACHINES
from tests.lab.places import CACHE, LabError
from tests.programs import QEMU
from tests.vm.emulator import VIRTUALISED

from . import images, page
from .journey import Journey
from .machine import OUTSIDE, Booted, Remote, require

STAND_IN = "stand-in"
SOURCES = {
    **dict.fromkeys(("", "nvidia"), "NVIDIA's repository"), "distro": "the distribution's own archive",
    STAND_IN: "stand-ins for NVIDIA's packages, from a repository of the lab",
}  # fmt: skip
BOOT, BOOT_EMULATED = 600.0, 1800.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser("./dev test real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    several = {"action": "append", "default": []}
    what = made.add_argument_group("what is tried (repeatable)")
    what.add_argument("--image", **several, metavar="FILE|URL", help=f"a cloud image; {images.LAB}: one made here")
    what.add_argument("--host", **several, metavar="[USER@]HOST[:PORT]", help="a host that is there")
    what.add_argument("--yes", action="store_true", help="with --host: it may be changed and rebooted")
    what.add_argument("--collect", metavar="DIR", type=Path, help="write the rows found below DIR into the page")
    how = made.add_argument_group("how")
    how.add_argument("--want", "-w", **several, metavar="REQ", help="default: driver")
    how.add_argument("--older", **several, metavar="REQ", help="applied first, to come back to by rollback")
    where = f"nvidia (default), distro, {STAND_IN}, or a mirror's address"
    how.add_argument("--source", default="", metavar="WHERE", help=where)
    how.add_argument("--set", dest="variables", **several, metavar="NAME=VALUE", help="inventory variable")
    shown = "what an image's machine shows on PCI; default: %(default)s"
    how.add_argument("--gpu", default="t4", choices=sorted(MACHINES), help=shown)
    machine = made.add_argument_group("images")
    machine.add_argument("--accelerator", default="", choices=("kvm", "tcg"), help="default: what boots a kernel here")
    machine.add_argument("--memory", type=int, default=3072, metavar="MIB", help="default: %(default)s")
    machine.add_argument("--disk", default="24G", metavar="SIZE", help="default: %(default)s")
    machine.add_argument("--firmware", default="", metavar="FILE", help="for images that need UEFI: OVMF.fd")
    made.add_argument("--out", type=Path, default=CACHE / "real/runs", metavar="DIR", help="what is kept of each run")
    return made


def main(words: Sequence[str]) -> int:
    made = parser()
    arguments = made.parse_args(words)
    if bool(arguments.collect) == bool(arguments.image or arguments.host):
        made.error("name what is to be tried: --image FILE|URL or --host USER@HOST; or --collect DIR alone")
    if arguments.host and not arguments.yes:
        made.error(f"{arguments.host[0]} would be changed and rebooted: say --yes")
    try:
        if arguments.collect:
            found = sorted(arguments.collect.rglob("row.md"))
            page.write(path.read_text(encoding="utf-8").strip() for path in found)
            print(f"{len(found)} rows in {page.PAGE}")
            return 0 if found else 3
        variables = inventory_variables(arguments)
        with served(arguments, variables):
            ended = [each(one, arguments, variables) for one in targets(arguments)]
    except LabError as error:
        print(f"real: {error}", file=sys.stderr)
        return 5
    return 0 if all(ended) else 1


def inventory_variables(arguments: argparse.Namespace) -> dict[str, Any]:
    """What the inventory says beside how the host is reached."""
    told: dict[str, Any] = {}
    for text in arguments.variables:
        name, equals, value = text.partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise LabError(f"{text!r} is no NAME=VALUE")
        told[name] = value
    if arguments.source and arguments.source != STAND_IN:
        told["gpusetup_source"] = arguments.source
    return told


@contextlib.contextmanager
def served(arguments: argparse.Namespace, variables: dict[str, Any]) -> Iterator[None]:
    """While it runs, the stand-in repositories are there for machines on QEMU's network, if they are asked for."""
    if arguments.source != STAND_IN:
        yield
        return
    if arguments.host:
        raise LabError("stand-ins are for images: a real host gets real packages")
    from tests.lab.lifecycle import stand_ins
    from tests.lab.repository import build, serve

    web = serve.server("127.0.0.1", 0)
    base = f"http://{OUTSIDE}:{web.server_port}"
    variables.update(stand_ins(replace(build.ready(), base=base)))
    threading.Thread(target=web.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        web.shutdown()


def targets(arguments: argparse.Namespace) -> Iterator[Remote | str]:
    """Hosts first: they need nothing made."""
    require({} if not arguments.image else QEMU)
    yield from (Remote(address) for address in arguments.host)
    yield from arguments.image


def each(target: Remote | str, arguments: argparse.Namespace, variables: dict[str, Any]) -> bool:
    """One that cannot be tried is told and is no row; the next one is tried all the same."""
    try:
        return tried(target, arguments, variables)
    except LabError as error:
        print(f"real: {error}", file=sys.stderr, flush=True)
        return False


def tried(target: Remote | str, arguments: argparse.Namespace, variables: dict[str, Any]) -> bool:
    began = datetime.now(timezone.utc)
    name = re.sub(r"[^A-Za-z0-9.]+", "-", target.name if isinstance(target, Remote) else target.rpartition("/")[2])
    folder = (arguments.out / f"{began:%Y%m%dT%H%M%S}-{name}").resolve()
    folder.mkdir(parents=True)
    if isinstance(target, Remote):
        return travelled(target, target.name, folder, arguments, variables)
    image = images.ready(target)
    print(f"{image.name}: booting {image.path}; kept in {folder}", flush=True)
    own = (arguments.gpu, arguments.memory, arguments.disk, arguments.firmware, arguments.accelerator)
    with Booted(image, folder, *own) as machine:
        seconds = machine.wait(BOOT if machine.fast_words() == VIRTUALISED else BOOT_EMULATED)
        print(f"boot: {seconds:.0f} s, as {machine.user}, {machine.about}", flush=True)
        return travelled(machine, image.name, folder, arguments, variables)


def travelled(
    machine: Remote | Booted, image: str, folder: Path, arguments: argparse.Namespace, variables: dict[str, Any]
) -> bool:
    journey = Journey(
        machine.name, folder, {**machine.variables(), **variables}, arguments.want or ["driver"], arguments.older,
        lambda text: print(text, flush=True),
    )  # fmt: skip
    steps = journey.run()
    source = SOURCES.get(arguments.source, arguments.source)
    day = datetime.now(timezone.utc).date()
    text = page.row(page.Seen(image, machine.about, source, journey.facts, day, page.commit()), steps)
    (folder / "row.md").write_text(text + "\n", encoding="utf-8")
    if journey.facts:
        page.write([text])
    print(f"{text}\nwritten: {page.PAGE}" if journey.facts else "nothing was seen: no row", flush=True)
    return all(step.as_wanted for step in steps)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
