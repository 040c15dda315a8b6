"""Run faults and write their page."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from tests.lab import machine
from tests.lab.faults.catalogue import FAULTS, NOT_RUN
from tests.lab.faults.cuts import every_cut
from tests.lab.faults.machine import controller_killed
from tests.lab.faults.page import PAGE, commit, keep
from tests.lab.faults.row import Row
from tests.lab.faults.seams import every_seam


def main(words: list[str]) -> int:
    """Run the faults whose name holds one of the words, all without words, and write the page."""
    reason = machine.why_not()
    if reason:
        print(f"skipped: {reason}")
        return 0
    machine.prepare()
    rows: list[Row] = []
    noise = threading.Lock()
    tried = commit()

    def report(row: Row) -> None:
        with noise:
            row.commit = tried
            rows.append(row)
            keep(row)
            verdict = "FAILED: " + "; ".join(row.problems) if row.problems else "ok"
            print(
                f"{row.seconds:5.0f} s  {row.fault}: exit {row.exit}, {row.saw} | {row.after} | {row.again} | {verdict}",
                flush=True,
            )

    def one(name: str) -> None:
        row, began = Row(name), time.monotonic()
        try:
            FAULTS[name](row)
        except Exception as error:
            row.problems.append(f"{type(error).__name__}: {error}"[:300])
        row.seconds = time.monotonic() - began
        report(row)

    if not words or "cuts" in words:
        every_cut(report)
    chosen = [name for name in FAULTS if not words or any(word in name for word in words)]
    with ThreadPoolExecutor(int(os.environ.get("GPUSETUP_FAULTS_AT_ONCE", "3"))) as pool:
        jobs = [pool.submit(one, name) for name in chosen]
        if not words or "killed" in words:
            jobs.append(pool.submit(controller_killed, report))
        if not words or "seams" in words:
            jobs.append(pool.submit(every_seam, report))
        for job in jobs:
            job.result()
    print(f"written: {PAGE}")
    failed = [row for row in rows if row.problems]
    print(f"{len(rows)} faults, {len(rows) - len(failed)} as wanted, {len(failed)} not, {len(NOT_RUN)} not run")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
