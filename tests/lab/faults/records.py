"""What gpusetup keeps, on the controller and on the host: lost, halved, deleted while in use, or holding a secret."""

import datetime as dt
import re
import subprocess
from collections.abc import Callable

from gpusetup.drive.rundir import new_run
from tests.lab.faults.afterwards import goes_up_and_back, known, leaves
from tests.lab.faults.row import Lab, Row, completes, judged, said
from tests.lab.places import SIMULATED_ROOT
from tests.lab.plays import packages

RECORD = "/var/lib/gpusetup/state.json"
SECRET = "hunter2-of-the-lab"


def many_runs_beside(row: Row) -> None:
    """While a long apply runs, a timer's other commands come and go, more of them than run folders are kept."""
    with Lab("many-runs") as lab:

        def others(_pid: int) -> None:
            for _ in range(51):
                new_run(lab.folder / "state")

        lab.host.break_packages("nvidia-smi", "sleep 8")
        judged(row, lab, lab.apply_until(lab.installing, others), 0)
        completes(row, lab)


def clock_went_back(row: Row) -> None:
    """The controller's clock was years ahead while it made the runs that it keeps, on itself and on the host."""
    with Lab("clock-back") as lab:
        ahead = dt.datetime.now(dt.timezone.utc) + dt.timedelta(days=6 * 365)
        for number in range(50):
            new_run(lab.folder / "state", ahead + dt.timedelta(minutes=number))
        judged(row, lab, lab.apply(), 0)
        completes(row, lab)
        known(row, lab)


def secrets_kept(variables: dict[str, str], *words: str, code: int, names: str = "") -> Callable[[Row], None]:
    """A password in an address: whatever becomes of it, nothing that the controller keeps holds it."""

    def run(row: Row) -> None:
        with Lab("secret-" + re.sub("[^a-z]+", "-", row.fault.lower())) as lab:
            lab.variables = {
                key: value.format(secret=SECRET, base=lab.base.split("//")[1]) for key, value in variables.items()
            }
            lab.write()
            answer = lab.apply(*words)
            judged(row, lab, answer, code, names)
            row.must(SECRET not in answer.out + answer.err, "the password was said")
            argv = ["grep", "-rlaF", "-e", SECRET, str(lab.folder / "state")]
            holding = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
            places = ", ".join(sorted(path.rpartition("/")[2] for path in holding))
            row.must(not holding, f"the password is kept in {places}")
            lab.variables = {}
            lab.write()
            completes(row, lab)

    return run


def record_lost(row: Row) -> None:
    with Lab("no-record") as lab:
        lab.apply()
        lab.host.ssh("rm", "-rf", "/var/lib/gpusetup")
        judged(row, lab, lab.apply(), 0)
        completes(row, lab)
        known(row, lab)
        goes_up_and_back_after_a_loss(row, lab)


def goes_up_and_back_after_a_loss(row: Row, lab: Lab) -> None:
    """Another driver can be had; a removal that cannot know what was there says so, until somebody has taken it away."""
    goes_up_and_back(row, lab)
    for _ in range(2):
        removed = lab.command("remove", "--yes")
        left = sorted(set(packages(lab.host)) - set(lab.before))
        row.must(not (removed.code == 0 and left), f"remove says exit 0 and leaves {', '.join(left[:3])}")
    if left:
        lab.host.ssh("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-y", "purge", *left)
    leaves(row, lab)


def record_halved(row: Row) -> None:
    with Lab("half-record") as lab:
        lab.apply()
        path = lab.host.path(RECORD)
        half = path.read_bytes()[: path.stat().st_size // 2]
        path.write_bytes(half)
        answer = lab.apply()
        judged(row, lab, answer, 0)
        others = [other for other in path.parent.rglob("*") if other.is_file() and other != path]
        if path.read_bytes() != half and not any(other.read_bytes() == half for other in others):
            row.problems.append("the damaged record was overwritten and nothing of it is kept")
        row.must("damaged" in answer.out + answer.err, "nobody is told that the record was damaged")
        completes(row, lab)
        goes_up_and_back_after_a_loss(row, lab)


def package_forced_away(row: Row) -> None:
    """A person takes one recorded package away by force; what needs it stays, broken."""
    with Lab("forced") as lab:
        lab.apply()
        lab.host.ssh("dpkg", "--force-all", "-r", "nvidia-smi")
        differs = lab.command("drift")
        row.must(differs.code == 9, f"drift: exit {differs.code} although a recorded package is gone")
        judged(row, lab, lab.apply(), 0)
        if "nvidia-smi" not in packages(lab.host):
            row.problems.append("the package that was taken away is still missing")
            return
        completes(row, lab)
        known(row, lab)
        leaves(row, lab)


def plan_says_what_apply_does(row: Row) -> None:
    """The module is not loaded any more: whether that takes a reboot, plan and apply say alike."""
    with Lab("plan-reboot") as lab:
        lab.apply()
        modules = lab.host.path(SIMULATED_ROOT) / "proc/modules"
        lines = modules.read_text().splitlines(keepends=True)
        modules.write_text("".join(line for line in lines if not line.startswith("nvidia")))
        for gone in ("proc/driver/nvidia", "sys/module/nvidia"):
            lab.host.ssh("rm", "-rf", f"{SIMULATED_ROOT}/{gone}")
        planned = [bool(host["reboot"]) for host in lab.command("plan").hosts.values()]
        before = lab.host.boot_id()
        answer = lab.apply()
        judged(row, lab, answer, 0)
        rebooted = lab.host.boot_id() != before
        row.saw = f"plan: reboot {'yes' if any(planned) else 'no'}; apply: {'rebooted' if rebooted else 'did not reboot'}; {said(answer)}"
        row.must(planned == [rebooted], "plan and apply differ about the reboot")
        completes(row, lab)
