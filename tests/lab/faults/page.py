"""The page of the docs, which keeps the rows that were tried."""

import re
from collections import Counter
from pathlib import Path

from tests.lab.faults.catalogue import FAULTS, NOT_RUN
from tests.lab.faults.cuts import NAMES
from tests.lab.faults.machine import STEPS, killed_at
from tests.lab.faults.row import Row
from tests.lab.faults.seams import PREFIX
from tests.lab.places import CHECKOUT, locked
from tests.lab.process import run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "faults.md"


def commit() -> str:
    """What is tried: the commit, marked when files differ from it; the page of an earlier row is no difference."""
    named = run(["git", "describe", "--always", "--exclude=*"], cwd=CHECKOUT).stdout.strip()
    ours = f":(exclude){PAGE.relative_to(CHECKOUT)}"
    same = run(["git", "diff", "--quiet", "HEAD", "--", ".", ours], cwd=CHECKOUT, check=False).returncode == 0
    return named if same else f"{named}-dirty"


def keep(row: Row) -> None:
    """Put a row onto the page; a run of some faults leaves the others as they were. Seams are those of one apply: with
    the first one those of an older apply go.
    """
    with locked("faults"):
        found = {old.fault: old for old in kept()}
        if row.fault.startswith(f"{PREFIX}01"):
            found = {name: old for name, old in found.items() if not name.startswith(PREFIX)}
        found[row.fault] = row
        seams = sorted(name for name in found if name.startswith(PREFIX))
        order = (*FAULTS, *map(killed_at, STEPS), *seams, *NAMES)
        PAGE.write_text(page([found[name] for name in order if name in found]))


def kept() -> list[Row]:
    text = PAGE.read_text() if PAGE.exists() else ""
    usual = "".join(re.findall(r"^\*\*Commit (\S+),", text, re.MULTILINE))
    rows = []
    for line in re.findall(r"^\| (.*) \|$", text.partition("|---")[2].partition("Not run:")[0], re.MULTILINE):
        *cells, last = (cell.replace("\\|", "|") for cell in re.split(r" ?(?<!\\)\| ?", line))
        again, problems, at = re.findall(r"^(.*?)(?:; \*\*wrong\*\*: (.*?))?(?: \((\w{7,})\))?$", last)[0]
        rows.append(Row(*cells, again, problems=[problems] if problems else [], commit=at or usual))
    return rows


def page(rows: list[Row]) -> str:
    ran = {row.fault for row in rows}
    not_run = {name: "not run yet" for name in (*FAULTS, *map(killed_at, STEPS), *NAMES) if name not in ran} | NOT_RUN
    failed = sum(1 for row in rows if row.problems)
    seams = sum(1 for row in rows if row.fault.startswith(PREFIX))
    not_run |= {} if seams else {"everything cut at every seam": "not run yet"}
    usual = Counter(row.commit for row in rows).most_common(1)[0][0] if rows else commit()
    lines = [
        "# Faults that were tried",
        "",
        "Each row is an apply of a driver on a throw-away Debian host (real SSH, apt, dpkg and DKMS; stand-in packages, a simulated T4), then",
        "the same command without the fault. `./dev test faults` writes this page.",
        "",
        "- *killed at*: the controller gets SIGKILL at that step, always on the same host; the next row continues.",
        "- *cut*: host and controller lose power there; the row resumes from a copy of the disks.",
        "- *at every call*: on a host in memory, each call that writes or runs something fails, or is cut before or after. Then the same command",
        "  ends as if undisturbed, and removal restores the host.",
        "",
        f"**Commit {usual}, {len(rows)} faults: {len(rows) - failed} ended as they must, {failed} did not. {len(not_run)} were not run.**"
        + (" A commit in brackets: another run." if any(row.commit != usual for row in rows) else ""),
        "",
        "| fault | exit | message | packages on the host | the same command again |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        verdict = "; **wrong**: " + "; ".join(row.problems) if row.problems else ""
        verdict += f" ({row.commit})" if row.commit != usual else ""
        cells = (row.fault, row.exit, row.saw, row.after, row.again + verdict)
        lines.append("| " + " | ".join(clean(cell) for cell in cells) + " |")
    lines += ["", "Not run:", "", "| fault | why |", "|---|---|"]
    lines += [f"| {name} | {why} |" for name, why in not_run.items()]
    return "\n".join(lines) + "\n"


def clean(text: str) -> str:
    """Text for a table cell: no lab names, addresses, keys or durations, which change with every run."""
    text = re.sub(r"http://10\.77\.0\.1:\d+\S*", "the mirror", text)
    text = re.sub(r" ?\[IP: [^\]]*\]", "", text)
    text = re.sub(r"\b[0-9A-F]{16}\b", "(its id)", text)
    text = re.sub(r"\b\d+d \d+h \d+min \d+s", "(years)", text)
    text = re.sub(r"10\.77\.\d+\.\d+", "the host", text)
    text = re.sub(r"/tmp/gpusetup-fault-\w+", "…", text)
    return " ".join(text.split()).replace("|", "\\|")
