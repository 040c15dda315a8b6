"""Get this host's lock from a collector, apply it within the fleet's budget, verify and report.

The offer must be signed by a pinned signer, for this host's class, and no older than the last one. Without the
collector the last offer counts and reports wait; without the lease store nothing changes. gpusetup never reboots
here: the state is pending-reboot until you reboot the host.

examples:
  gpusetup fleet pull https://collector.example:8443 --class h100
  gpusetup fleet pull https://collector.example:8443 --class h100 --domain rack7 --wave 2 --timer '*:0/10'
  gpusetup fleet pull https://collector.example:8443 --class h100 --timer never
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from gpusetup.cli import options, output, streams, timers
from gpusetup.cli.cloud_init import variables_of
from gpusetup.errors import BadInputError, Exit, PreflightError, gravest

if TYPE_CHECKING:
    import argparse

    from gpusetup_fleet.model.pull import PullReport
    from gpusetup_fleet.pull.client import Settings

_EXITS = {
    "failed": Exit.FAILED, "verify-failed": Exit.VERIFY_FAILED, "refused": Exit.REFUSED,
    "waiting": Exit.PENDING, "pending-reboot": Exit.PENDING, "no-lock": Exit.UNREACHABLE,
}  # fmt: skip
_CODES = "# 6: the collector is away; 9: it waits for its wave, a lease or a reboot. Neither is a failed unit.\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("url", metavar="URL", help="the collector: https://collector.example:8443")
    who = parser.add_argument_group("this host")
    who.add_argument("--class", dest="kind", required=True, metavar="CLASS", help="the class of its offers")
    who.add_argument("--domain", default="", metavar="NAME", help="its failure domain: a rack, a switch")
    who.add_argument("--wave", type=int, default=1, metavar="N", help="change when wave N is released; default: 1")
    who.add_argument("--name", metavar="NAME", help="its name at the collector; default: its host name")
    trust = parser.add_argument_group("keys and tokens")
    trust.add_argument("--token-file", default="/etc/gpusetup/pull.token", metavar="FILE", help="default: %(default)s")
    trust.add_argument(
        "--signers", default="/etc/gpusetup/offer-signers", metavar="FILE",
        help="trusted signers of offers, as in ssh-keygen's ALLOWED SIGNERS; default: %(default)s",
    )  # fmt: skip
    trust.add_argument("--ca", metavar="FILE", help="certificate authority of collector and lease store")
    trust.add_argument("--lease-certificate", metavar="FILE", help="this host's certificate for the lease store (PEM)")
    trust.add_argument(
        "--lease-key", metavar="FILE", help="with --lease-certificate: its private key, if that is in another file"
    )
    trust.add_argument("--lease-login", metavar="FILE", help="NAME:PASSWORD of the lease store's own users; mode 0600")
    parser.add_argument(
        "--set", dest="variables", action="append", default=[], metavar="NAME=VALUE",
        help="a gpusetup_ variable, as in an inventory",
    )  # fmt: skip
    timers.add_argument(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> Exit:
    """Pull once, or install a timer that does."""
    settings = _settings(arguments)
    if os.geteuid() != 0:
        raise PreflightError("GS-970", "a host is changed by root alone", hint="run the command with sudo")
    if arguments.timer is not None:
        task = timers.Task(does="pull the stack of {what}", codes=f"{_CODES}SuccessExitStatus=6 9\n", longest="5h")
        return timers.answer(arguments, task, os.environ)
    from gpusetup_fleet.pull.client import pull

    with streams.terminated_is_interrupted():
        report, told = pull(settings, output.say)
    output.answer(arguments.format, report, _text(report, told), arguments.out)
    return gravest([_EXITS.get(report.state, Exit.DONE), Exit.DONE if told else Exit.UNREACHABLE])


def _settings(arguments: argparse.Namespace) -> Settings:
    import socket

    from gpusetup_fleet.pull.client import Settings
    from gpusetup_fleet.pull.offers import checked_name

    local = arguments.url.startswith(("http://127.0.0.1:", "http://localhost:"))
    if (not arguments.url.startswith("https://") and not local) or "@" in arguments.url:
        raise BadInputError(
            "GS-970", f"{arguments.url} is not an address of a collector", path="URL",
            hint="https://collector.example:8443; a token goes into --token-file",
        )  # fmt: skip
    if arguments.wave < 1:
        raise BadInputError("GS-970", "waves count from 1", path="--wave")
    for option in ("ca", "lease_certificate", "lease_key", "lease_login"):
        file = getattr(arguments, option)
        if file and not Path(file).is_file():
            raise BadInputError("GS-970", f"there is no {file}", path=f"--{option.replace('_', '-')}")
    return Settings(
        url=arguments.url.rstrip("/"),
        host=checked_name(arguments.name or socket.gethostname(), "--name"),
        kind=checked_name(arguments.kind, "--class"),
        domain=checked_name(arguments.domain, "--domain") if arguments.domain else "",
        wave=arguments.wave,
        token=Path(arguments.token_file),
        signers=Path(arguments.signers),
        ca=arguments.ca or True,
        variables=variables_of(arguments.variables),
        certificate=arguments.lease_certificate or "",
        key=arguments.lease_key or "",
        login=Path(arguments.lease_login) if arguments.lease_login else None,
    )


def _text(report: PullReport, told: bool) -> str:
    has = f"lock {report.lock[:12]} ({report.stack})" if report.lock else "no lock"
    lines = [f"{report.host}: {report.state}, {has}"]
    if report.message:
        lines.append(f"  {report.message}" + (f" [{report.reference}]" if report.reference else ""))
    if report.hint:
        lines.append(f"  {report.hint}")
    lines += [f"  {note}" for note in report.notes]
    if not told:
        lines.append("  the report waits on this host until the collector takes it")
    return "\n".join(lines)
