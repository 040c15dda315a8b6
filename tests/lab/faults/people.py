"""Who runs it, and what their inventory holds."""

import json
from typing import Any

from tests.lab.faults.row import Lab, Row, completes, judged


def no_rights(row: Row) -> None:
    with Lab("rights") as lab:
        lab.write(user="guest")
        judged(row, lab, lab.apply(), 5, "sudo", unchanged=True)
        lab.write(user="admin")
        completes(row, lab)


def sudo_password(row: Row) -> None:
    """A user whose sudo asks: without -K it is refused, with it and a wrong password too, then with the right one."""
    with Lab("sudo-password") as lab:
        lab.write(user="ops")
        judged(row, lab, lab.apply(), 5, "sudo", unchanged=True)
        wrong = lab.apply("-K", stdin="not-this\n")
        row.saw = f"{row.saw}; with a wrong one exit {wrong.code}"
        row.must(wrong.code == 5, f"a wrong password: exit {wrong.code}")
        completes(row, lab, words=("-K",), stdin="lab-password\n")
        written = [path for path in lab.folder.rglob("*") if path.is_file() and b"lab-password" in path.read_bytes()]
        row.must(not written, f"the password is in {[path.name for path in written]}")


def hostile_names(row: Row) -> None:
    with Lab("names") as lab:
        canary = lab.folder / "canary"
        marks = [
            "$(touch {})", "`touch {}`", ";touch {};", "|touch {}", "{{{{lookup('pipe','touch {}')}}}}",
            "-oProxyCommand=touch {}",
        ]  # fmt: skip
        names = [
            marks[number % len(marks)].format(canary).replace(" ", "${IFS}") + str(number) for number in range(200)
        ]
        document: dict[str, dict[str, Any]] = {
            "lab": {"hosts": {lab.host.name: {"ansible_host": lab.host.address}, **{name: {} for name in names}}}
        }
        variables = dict(
            line.split("=", 1) for line in lab.inventory.read_text().partition("[lab:vars]\n")[2].splitlines()
        )
        variables["gpusetup_components"] = json.loads(variables["gpusetup_components"])
        document["lab"]["vars"] = variables
        good, lab.inventory = lab.inventory, lab.folder / "hostile.json"
        lab.inventory.write_text(json.dumps(document))
        answer = lab.apply()
        judged(row, lab, answer, 3)
        states = [outcome["state"] for outcome in answer.hosts.values()] if answer.out.startswith("{") else []
        row.saw = f"{states.count('refused')} refused by name, {states.count('done')} done; {row.saw}"
        if (states.count("refused"), states.count("done")) != (len(names), 1):
            row.problems.append("not every bad name was refused, and the good host done")
        row.must(not canary.exists(), "a name was executed")
        lab.inventory = good
        completes(row, lab)
