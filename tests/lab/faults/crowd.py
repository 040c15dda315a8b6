"""More names than machines: one machine under two names, and a fleet of which nearly all are dead."""

from tests.lab.applying import gpusetup
from tests.lab.faults.afterwards import leaves
from tests.lab.faults.row import Lab, Row, completes, judged

SCREEN = 50
"""Lines that a person can take in at once."""


def two_names(row: Row) -> None:
    """One machine stands in the inventory twice."""
    lab = Lab("two-names")
    try:
        lab.write(extra=f"the-same-machine ansible_host={lab.host.address}")
        answer = lab.apply()
        judged(row, lab, answer, 5, "GS-415", unchanged=True)
        if "[Errno" in answer.out:
            row.problems.append("a bare system error reached the person")
        lab.write()
        completes(row, lab)
        leaves(row, lab)
    finally:
        lab.close()


def two_names_two_wishes(row: Row) -> None:
    """One machine twice, with two drivers asked for: not both can be had, and nobody says so of both."""
    lab = Lab("two-wishes")
    try:
        lab.write(extra=f"the-same-machine ansible_host={lab.host.address} gpusetup_driver=570.*")
        answer = lab.apply()
        judged(row, lab, answer, 5, "GS-415", unchanged=True)
        states = sorted(str(host["state"]) for host in answer.hosts.values())
        row.saw = f"{', '.join(states)}; {row.saw}"
        if set(states) != {"refused"}:
            row.problems.append("not both are refused")
        lab.write()
        completes(row, lab)
        leaves(row, lab)
    finally:
        lab.close()


def nearly_all_dead(row: Row) -> None:
    """200 hosts, 199 of them away: the one that lives is done, and what a person reads fits a screen."""
    lab = Lab("dead")
    try:
        dead = "\n".join(f"away-{number} ansible_host=10.77.251.{number}" for number in range(1, 200))
        lab.write(extra=dead)
        answer = gpusetup(lab.folder, "apply", lab.inventory, "--verify", "never", timeout=2400)
        lines = len((answer.out + answer.err).splitlines())
        row.exit, row.saw, row.after = str(answer.code), f"{lines} lines in {answer.seconds:.0f} s", lab.state()
        if answer.code != 6:
            row.problems.append(f"exit {answer.code}, expected 6")
        if lines > SCREEN:
            row.problems.append(f"{lines} lines are no screen")
        if row.after == "packages as before":
            row.problems.append("the host that lives was not served")
        lab.write()
        completes(row, lab)
    finally:
        lab.close()
