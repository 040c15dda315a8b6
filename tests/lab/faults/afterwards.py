"""What must still be true of a host once a fault is over: it is known, it is kept, it goes up and back, and everything leaves."""

from tests.lab.faults.row import Lab, Row, said
from tests.lab.plays import packages

NOUVEAU = "/etc/modprobe.d/gpusetup-nouveau.conf"


def known(row: Row, lab: Lab) -> None:
    """The record says what is there: no drift."""
    answer = lab.command("drift")
    if answer.code != 0:
        told = [item["id"] for host in answer.hosts.values() for item in host.get("differences", ())]
        row.problems.append(f"drift says exit {answer.code} ({', '.join(told[:4]) or said(answer)})")


def leaves(row: Row, lab: Lab) -> None:
    """What was brought goes again, all of it, and that is said truthfully."""
    answer = lab.command("remove", "--yes")
    row.must(answer.code in {0, 9}, f"remove: exit {answer.code}: {said(answer)}")
    left = sorted(set(packages(lab.host)) - set(lab.before))
    row.must(not left, f"remove, exit {answer.code}, leaves {', '.join(left[:4])}{' …' if len(left) > 4 else ''}")
    files = [str(path.relative_to(lab.host.root)) for path in lab.host.path("/etc").rglob("*gpusetup*")]
    files = [path for path in files if "lab" not in path]
    row.must(not files, f"remove leaves {', '.join(files[:3])}")


def kept(row: Row, lab: Lab) -> None:
    """What somebody undoes comes back by the same command: holds and the file that keeps nouveau away."""
    before = _held(lab)
    if not before:
        row.problems.append("nothing is held")
        return
    lab.host.ssh("apt-mark", "unhold", *sorted(before)[:2])
    lab.host.path(NOUVEAU).unlink(missing_ok=True)
    answer = lab.apply()
    row.must(answer.code == 0, f"mending what somebody undid: exit {answer.code}: {said(answer)}")
    row.must(_held(lab) == before, f"after the mending {len(_held(lab))} of {len(before)} packages are held")
    row.must(lab.host.path(NOUVEAU).exists(), "the file that keeps nouveau away stays away")


def goes_up_and_back(row: Row, lab: Lab) -> None:
    """To another driver, and by rollback to the one before it."""
    lab.variables["gpusetup_driver"] = "590.*"
    lab.write()
    up = lab.apply()
    if up.code != 0 or not _driver(lab).startswith("590"):
        row.problems.append(f"to another driver: exit {up.code}: {said(up)}; the host has {_driver(lab) or 'none'}")
        return
    back = lab.command("rollback")
    if back.code == 5 and "GS-815" in back.out:  # what was lost with a record: the way out that it names
        back = lab.command("apply", "-e", "gpusetup_driver=580.*")
    if back.code != 0 or not _driver(lab).startswith("580"):
        row.problems.append(f"rollback: exit {back.code}: {said(back)}; the host has {_driver(lab) or 'none'}")


def lives_on(row: Row, lab: Lab) -> None:
    for look in (known, kept, goes_up_and_back, leaves):
        look(row, lab)


def _held(lab: Lab) -> set[str]:
    return set(lab.host.ssh("apt-mark", "showhold").stdout.split())


def _driver(lab: Lab) -> str:
    return packages(lab.host).get("nvidia-smi", "")
