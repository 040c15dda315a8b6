"""Serve locks to hosts that pull, and collect their reports, over TLS. Ctrl-C ends it.

Needs gpusetup[collector]. SIGHUP reloads the certificate; refusals go to standard error with address and reason.

DIR holds the database of reports and tokens, and the signed offers. Readers open the fleet's page at /, Prometheus
reads /metrics, programs /v1/fleet; each with its own token.

examples:
  gpusetup fleet token /srv/gpusetup gpu07 --out gpu07.token          a host's token; only its hash is stored here
  gpusetup fleet offer /srv/gpusetup h100 --lock gpu.lock.json --sign ~/.ssh/id_ed25519
  gpusetup fleet collect /srv/gpusetup --certificate site.pem --key site.key
  gpusetup fleet collect /srv/gpusetup --certificate site.pem --key site.key --unit > gpusetup-collector.service
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpusetup.cli import options, output
from gpusetup.errors import BadInputError, Exit
from gpusetup_fleet.cli import serving

if TYPE_CHECKING:
    import argparse

    from gpusetup_fleet.model.pull import Budget


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the collector's folder")
    serving.add_server(parser, "0.0.0.0:8443")
    parser.add_argument(
        "--client-ca",
        metavar="FILE",
        help="with --certificate: a host may show a certificate of this authority instead of a token",
    )
    parser.add_argument("--keep", type=int, default=100, metavar="N", help="reports of each host; default: %(default)s")
    parser.add_argument("--unit", action="store_true", help="print a systemd service that does this in a sandbox")


def run(arguments: argparse.Namespace) -> Exit:
    """Serve until interrupted, or print the service."""
    serving.check_server()
    from gpusetup_fleet.pull.store import Store
    from gpusetup_fleet.pull.web import collector_of

    place = serving.listen_address(arguments.listen)
    tls = serving.tls_of(arguments.certificate, arguments.key, arguments.client_ca)
    if arguments.keep < 1:
        raise BadInputError("GS-983", "a collector keeps at least one report of a host", path="--keep")
    if arguments.unit:
        output.write_answer(unit_of(arguments, place[1]), None)
        return Exit.DONE
    store = Store(database(arguments.folder), arguments.keep)
    try:
        server = collector_of(Path(arguments.folder), store, place, tls, output.say)
        output.say(f"collecting at {'https' if tls else 'http'}://{place[0]}:{server.server_port}; Ctrl-C ends it")
        return serving.served(server)
    finally:
        store.close()


def unit_of(arguments: argparse.Namespace, port: int) -> str:
    """Return a systemd service that runs as the folder's owner, in a sandbox."""
    from gpusetup.cli.timers import quoted

    folder = Path(arguments.folder).absolute()
    try:
        user = folder.owner()
    except (OSError, KeyError):
        user = ""
    if user == "root" or not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", user):
        raise BadInputError(
            "GS-971", f"{folder} must belong to the user that the service runs as, and not to root", path="DIR",
            hint=f"useradd --system gpusetup && install -d -o gpusetup -m 0700 {shlex.quote(str(folder))}",
        )  # fmt: skip
    words = [sys.executable, "-m", "gpusetup", "fleet", "collect", str(folder)]
    words += ["--listen", arguments.listen, "--keep", str(arguments.keep)]
    files = {"--certificate": arguments.certificate, "--key": arguments.key, "--client-ca": arguments.client_ca}
    words += [word for name, path in files.items() if path for word in (name, str(Path(path).absolute()))]
    low = "CapabilityBoundingSet=CAP_NET_BIND_SERVICE\nAmbientCapabilities=CAP_NET_BIND_SERVICE\n"
    template = (Path(__file__).parents[1] / "pull/collector.service").read_text(encoding="utf-8")
    return template.format(
        command=" ".join(quoted(word) for word in words), user=user, folder=quoted(str(folder)),
        port=low if 0 < port < 1024 else "CapabilityBoundingSet=\nPrivateUsers=yes\n",
    )  # fmt: skip


def database(folder: str, *, exists: bool = False) -> Path:
    """Return the path of the database; create its folder, unreadable to others, if it need not exist."""
    from gpusetup_fleet.pull.store import FILE

    place = Path(folder)
    if exists and not place.is_dir():
        raise BadInputError("GS-971", f"there is no collector in {folder}", path="DIR", hint="name its folder")
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError("GS-971", f"cannot make {folder}: {error.strerror}", path="DIR") from error
    return place / FILE


def put_on_record(folder: Path, event: Literal["offer", "token"], command: str, note: str) -> None:
    """Record an action in the collector's audit log, before it is done."""
    from gpusetup.drive.audit import add, line_of

    add(folder, line_of(event, command, note=note))


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the collector's folder")
    parser.add_argument("name", metavar="NAME", help="the host's name in its reports, or the reader's")
    parser.add_argument("--reader", action="store_true", help="a reader of the page, the metrics and all hosts' states")
    parser.add_argument("--days", type=int, default=0, metavar="N", help="expires after N days; default: never")
    parser.add_argument(
        "--overlap",
        type=int,
        default=0,
        metavar="HOURS",
        help="hours during which the old token stays valid; default: 0",
    )
    parser.add_argument("--remove", action="store_true", help="revoke the token")
    options.add_format(parser)
    parser.add_argument("--out", metavar="FILE", help="write the token to FILE, readable by you alone")


def run_token(arguments: argparse.Namespace) -> Exit:
    """Make the token of a host that reports, or of a reader.

    A new token replaces the old one, at once or after --overlap hours.

    The collector stores only its hash. The token goes into the file of --out, or to standard output, never into a log.

    examples:
      gpusetup fleet token /srv/gpusetup gpu07 --out gpu07.token
      gpusetup fleet token /srv/gpusetup prometheus --reader --out prometheus.token
      gpusetup fleet token /srv/gpusetup gpu07 --days 90 --overlap 24 --out gpu07.token
      gpusetup fleet token /srv/gpusetup gpu07 --remove
    """
    from gpusetup_fleet.model.pull import TokenMade
    from gpusetup_fleet.pull.offers import checked_name
    from gpusetup_fleet.pull.store import make_token, remove_token

    if arguments.days < 0 or arguments.overlap < 0:
        raise BadInputError("GS-984", "a time cannot be negative", path="--days" if arguments.days < 0 else "--overlap")
    name = checked_name(arguments.name, "NAME")
    role: Literal["host", "reader"] = "reader" if arguments.reader else "host"
    if arguments.remove:
        options.refuse_beside(arguments, "--remove", "it makes no token", "--days", "--overlap", "--out")
    path = database(arguments.folder, exists=arguments.remove)
    put_on_record(path.parent, "token", "fleet token", f"{role} {name}{': taken back' if arguments.remove else ''}")
    if arguments.remove:
        if not remove_token(path, name, role):
            raise BadInputError("GS-984", f"there is no {role} {name} here", path="NAME")
        said = f"{name}: its token is worth nothing from now on"
    else:
        if arguments.format == "json" and not arguments.out:
            raise BadInputError(
                "GS-984", "the JSON answer does not contain the token, and no file was named for it", path="--out",
                hint=f"add --out {name}.token: it goes there, readable by you alone, and the answer names the file",
            )  # fmt: skip
        out = arguments.out
        give = partial(_write, out) if out else partial(output.write_answer, out=None)
        make_token(path, name, role, days=arguments.days, overlap=arguments.overlap, give=give)
        if not out:
            return Exit.DONE
        said = f"{arguments.out}: the token of {name}"
    return _told(arguments.format, TokenMade(name=name, role=role, path=arguments.out or ""), said)


def _told(form: str, document: Any, said: str) -> Exit:
    """Print the document, or say that it is done."""
    if form == "json":
        return output.answer(form, document, "", None)
    output.say(said)
    return Exit.DONE


def _write(out: str, token: str) -> None:
    from gpusetup.drive.rundir import write_whole

    try:
        write_whole(Path(out), f"{token}\n".encode(), 0o600)
    except OSError as error:
        raise BadInputError("GS-103", f"cannot write {out}: {os.strerror(error.errno or 0)}", path=out) from error


def add_forget_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the collector's folder")
    parser.add_argument("name", metavar="HOST", help="the host's name in its reports")
    parser.add_argument("--keep-token", action="store_true", help="remove only its reports")
    options.add_format(parser)


def run_forget(arguments: argparse.Namespace) -> Exit:
    """Remove a host from a collector: its reports and its token.

    With --keep-token gpusetup removes only the reports and accepts the next one, whatever its number.

    examples:
      gpusetup fleet forget /srv/gpusetup gpu07
      gpusetup fleet forget /srv/gpusetup gpu07 --keep-token
    """
    from gpusetup_fleet.model.pull import HostForgotten
    from gpusetup_fleet.pull.offers import checked_name
    from gpusetup_fleet.pull.store import forget

    name = checked_name(arguments.name, "HOST")
    path = database(arguments.folder, exists=True)
    put_on_record(
        path.parent, "token", "fleet forget", f"host {name}{'' if arguments.keep_token else ', with its token'}"
    )
    if not forget(path, name, keep_token=arguments.keep_token):
        raise BadInputError("GS-984", f"there is no host {name} here", path="HOST")
    said = f"{name}: forgotten{'; its token is still valid' if arguments.keep_token else ', and its token ended'}"
    return _told(arguments.format, HostForgotten(name=name, token=not arguments.keep_token), said)


def add_offer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("folder", metavar="DIR", help="the collector's folder, or a copy of it")
    parser.add_argument("kind", metavar="CLASS", help="the class of the hosts")
    parser.add_argument("--lock", metavar="FILE", help="the lock; needed for a class's first offer")
    parser.add_argument("--sign", metavar="KEY", required=True, help="sign it with this SSH key")
    parser.add_argument("--wave", type=int, default=0, metavar="N", help="release the waves up to N; default: all")
    parser.add_argument("--days", type=float, default=0, metavar="N", help="no host applies it after N days")
    budget = parser.add_argument_group("budget: how many hosts change at once")
    budget.add_argument(
        "--leases", metavar="URL", help="etcd for the leases, members separated by commas; none: no budget"
    )
    budget.add_argument("--at-a-time", type=int, metavar="N", help="with --leases: at most N of the whole fleet")
    budget.add_argument("--of-a-domain", type=int, metavar="N", help="with --leases: at most N of one failure domain")
    budget.add_argument(
        "--stop-after", type=int, metavar="N", help="with --leases: begin on no more hosts after failures on N"
    )
    budget.add_argument(
        "--hold-for-reboot",
        type=int,
        metavar="HOURS",
        help="with --leases: hours for which a host that waits for its reboot keeps its place",
    )
    options.add_output(parser)


def run_offer(arguments: argparse.Namespace) -> Exit:
    r"""Sign a lock for the hosts of a class with your SSH key, and put it into the collector's folder.

    The collector needs no key and cannot make an offer. Options that you leave out stay as in the class's last offer.

    examples:
      gpusetup fleet offer /srv/gpusetup h100 --lock gpu.lock.json --sign ~/.ssh/id_ed25519 --wave 1
      gpusetup fleet offer /srv/gpusetup h100 --sign ~/.ssh/id_ed25519 --wave 2           the next wave, the same lock
      gpusetup fleet offer /srv/gpusetup h100 --lock gpu.lock.json --sign ~/.ssh/id_ed25519 \
          --leases https://etcd.example:2379 --at-a-time 50 --of-a-domain 2
    """
    from gpusetup.cli.lock import load_lock
    from gpusetup_fleet.model.pull import OfferMade
    from gpusetup_fleet.pull.offers import checked_name, in_words, publish

    checked_name(arguments.kind, "CLASS")
    for option in ("wave", "days"):
        if not 0 <= getattr(arguments, option) <= 1_000_000:
            raise BadInputError("GS-983", f"--{option} is a number from 0 to a million", path=f"--{option}")
    lock = load_lock(arguments.lock) if arguments.lock else None
    put_on_record(
        Path(arguments.folder), "offer", "fleet offer",
        f"class {arguments.kind}, lock {lock.digest[:12] if lock else 'as before'}, "
        f"{f'waves up to {arguments.wave}' if arguments.wave else 'all waves'}",
    )  # fmt: skip
    path, offer = publish(
        Path(arguments.folder), arguments.kind, lock, Path(arguments.sign),
        wave=arguments.wave, budget=_budget(arguments), days=arguments.days,
    )  # fmt: skip
    made = OfferMade(
        path=str(path), kind=offer.kind, serial=offer.serial, wave=offer.wave, expires=offer.expires,
        lock=offer.lock.digest,
    )  # fmt: skip
    waves = f"waves up to {offer.wave}" if offer.wave else "all waves"
    text = f"{path}: offer {offer.serial} of class {offer.kind}, lock {offer.lock.digest[:12]}, {waves}, "
    return output.answer(arguments.format, made, text + in_words(offer.budget), arguments.out)


def _budget(arguments: argparse.Namespace) -> Budget | None:
    from gpusetup_fleet.model.pull import Budget

    more = (arguments.stop_after, arguments.hold_for_reboot)
    numbers = (arguments.at_a_time, arguments.of_a_domain, *more)
    if arguments.leases is None:
        return None
    if arguments.leases == "none":
        if any(number is not None for number in numbers):
            raise BadInputError("GS-983", "without leases nothing is counted", path="--leases", hint="leave it out")
        return Budget()
    members = arguments.leases.split(",")
    if not all(one.startswith(("https://", "http://")) for one in members) or not any(numbers):
        raise BadInputError("GS-983", "a budget is an address and at least one number", path="--leases")
    if min(number for number in numbers if number is not None) < 1:
        raise BadInputError("GS-983", "a budget below 1 would let no host change", path="--at-a-time")
    return Budget(
        leases=arguments.leases, at_a_time=numbers[0] or 0, of_a_domain=numbers[1] or 0,
        failures=arguments.stop_after or 0, reboot_hours=arguments.hold_for_reboot or 0,
    )  # fmt: skip
