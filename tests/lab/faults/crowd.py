"""More names than machines: one machine under two names, and a fleet of which nearly all are dead."""

from tests.lab.applying import gpusetup
from tests.lab.faults.afterwards import leaves
from tests.lab.faults.row import AS_BEFORE, Lab, Row, completes, judged

SCREEN = 50
"""Lines that a person can take in at once."""


def two_names(row: Row, name: str = "two-names", wish: str = "") -> None:
    """One machine stands in the inventory twice: gpusetup refuses both."""
    with Lab(name) as lab:
        lab.write(extra=f"the-same-machine ansible_host={lab.host.address} {wish}")
        answer = lab.apply()
        judged(row, lab, answer, 5, "GS-415", unchanged=True)
        row.must("[Errno" not in answer.out, "a bare system error reached the person")
        row.must({host["state"] for host in answer.hosts.values()} == {"refused"}, "not both are refused")
        lab.write()
        completes(row, lab)
        leaves(row, lab)


def two_names_two_wishes(row: Row) -> None:
    two_names(row, "two-wishes", "gpusetup_driver=570.*")


def nearly_all_dead(row: Row) -> None:
    """200 hosts, 199 of them away: the one that lives is done, and what a person reads fits a screen."""
    with Lab("dead") as lab:
        dead = "\n".join(f"away-{number} ansible_host=10.77.251.{number}" for number in range(1, 200))
        lab.write(extra=dead)
        answer = gpusetup(lab.folder, "apply", lab.inventory, "--verify", "never", timeout=2400)
        lines = len((answer.out + answer.err).splitlines())
        row.exit, row.saw, row.after = str(answer.code), f"{lines} lines in {answer.seconds:.0f} s", lab.state()
        row.must(answer.code == 6, f"exit {answer.code}, expected 6")
        row.must(lines <= SCREEN, f"{lines} lines are no screen")
        row.must(row.after != AS_BEFORE, "the host that lives was not served")
        lab.write()
        completes(row, lab)
