r"""Sign a lock for the hosts of a class with your SSH key, and put it into the collector's folder.

The collector needs no key and cannot make an offer. Options that you leave out stay as in the class's last offer.

examples:
  gpusetup fleet offer /srv/gpusetup h100 --lock gpu.lock.json --sign ~/.ssh/id_ed25519 --wave 1
  gpusetup fleet offer /srv/gpusetup h100 --sign ~/.ssh/id_ed25519 --wave 2           the next wave, the same lock
  gpusetup fleet offer /srv/gpusetup h100 --lock gpu.lock.json --sign ~/.ssh/id_ed25519 \
      --leases https://etcd.example:2379 --at-a-time 50 --of-a-domain 2
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output
from gpusetup.cli.collect import put_on_record
from gpusetup.errors import BadInputError, Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.model.pull import Budget

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    budget.add_argument("--at-a-time", type=int, metavar="N", help="at most N of the whole fleet")
    budget.add_argument("--of-a-domain", type=int, metavar="N", help="at most N of one failure domain")
    budget.add_argument("--stop-after", type=int, metavar="N", help="begin on no more hosts after failures on N")
    budget.add_argument(
        "--hold-for-reboot",
        type=int,
        metavar="HOURS",
        help="hours for which a host that waits for its reboot keeps its place",
    )
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Sign, put in place, say what is offered."""
    from gpusetup.cli.lock import load_lock
    from gpusetup.model.pull import OfferMade
    from gpusetup.pull.offers import in_words, publish

    for option in ("wave", "days"):
        if getattr(arguments, option) < 0:
            raise BadInputError("GS-983", f"--{option} cannot be negative", path=f"--{option}")
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
    if arguments.format == "json":
        output.write_answer(output.json_text(made), arguments.out)
        return Exit.DONE
    waves = f"waves up to {offer.wave}" if offer.wave else "all waves"
    text = f"{path}: offer {offer.serial} of class {offer.kind}, lock {offer.lock.digest[:12]}, {waves}, "
    output.write_answer(text + in_words(offer.budget), arguments.out)
    return Exit.DONE


def _budget(arguments: argparse.Namespace) -> Budget | None:
    from gpusetup.model.pull import Budget

    more = (arguments.stop_after, arguments.hold_for_reboot)
    numbers = (arguments.at_a_time, arguments.of_a_domain, *more)
    if arguments.leases is None:
        if any(number is not None for number in numbers):
            raise BadInputError("GS-983", "a budget needs a place for its leases", path="--leases", hint="--leases URL")
        return None
    if arguments.leases == "none":
        if any(number is not None for number in numbers):
            raise BadInputError("GS-983", "without leases nothing is counted", path="--leases", hint="leave it out")
        return Budget()
    members = arguments.leases.split(",")
    if not all(one.startswith(("https://", "http://")) for one in members) or not any(numbers):
        raise BadInputError(
            "GS-983", "a budget is an address and at least one number", path="--leases",
            hint="--leases https://etcd.example:2379 --at-a-time 50",
        )  # fmt: skip
    if min(number for number in numbers if number is not None) < 1:
        raise BadInputError("GS-983", "a budget below 1 would let no host change", path="--at-a-time")
    return Budget(
        leases=arguments.leases, at_a_time=numbers[0] or 0, of_a_domain=numbers[1] or 0,
        failures=arguments.stop_after or 0, reboot_hours=arguments.hold_for_reboot or 0,
    )  # fmt: skip
