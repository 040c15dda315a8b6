"""Render the report as JUnit XML: a suite per host, a case per check. A warning passes; its output mentions it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from gpusetup.report.model import BLAME, figures

if TYPE_CHECKING:
    from gpusetup.model.verdict import Result
    from gpusetup.report.model import HostReport, Report

# XML 1.0 forbids these characters; a kernel log may contain them.
_FORBIDDEN = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def to_junit(report: Report) -> str:
    """Return the XML text."""
    suites = ET.Element("testsuites", name=_clean(report.title), time=f"{report.seconds:.3f}")
    total = failed = skipped = 0
    for host in report.hosts:
        suite = _suite(suites, host, report)
        total += int(suite.get("tests", 0))
        failed += int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped += int(suite.get("skipped", 0))
    suites.set("tests", str(total))
    suites.set("failures", str(failed))
    suites.set("skipped", str(skipped))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _suite(parent: ET.Element, host: HostReport, report: Report) -> ET.Element:
    verdicts = [result.verdict for result in host.results]
    suite = ET.SubElement(
        parent,
        "testsuite",
        name=_clean(host.name),
        hostname=_clean(host.name),
        timestamp=report.started.removesuffix("Z").split("+")[0],
        tests=str(len(verdicts) + bool(host.problem)),
        failures=str(verdicts.count("fail")),
        errors=str(int(bool(host.problem))),
        skipped=str(verdicts.count("skip") + verdicts.count("unsupported")),
        time=f"{host.seconds:.3f}",
    )
    if host.rows:
        properties = ET.SubElement(suite, "properties")
        for row in host.rows:
            ET.SubElement(properties, "property", name=_clean(row.label), value=_clean(row.text))
    if host.problem:
        case = ET.SubElement(suite, "testcase", classname="gpusetup.host", name="reached", time="0")
        ET.SubElement(case, "error", message=_clean(host.problem))
    for result in host.results:
        _case(suite, result)
    return suite


def _case(suite: ET.Element, result: Result) -> None:
    case = ET.SubElement(
        suite, "testcase", classname=f"gpusetup.{result.level}", name=result.id, time=f"{result.seconds:.3f}"
    )
    numbers = figures(result)
    if result.verdict == "fail":
        failure = ET.SubElement(case, "failure", message=_clean(result.text), type="fail")
        parts = [f"{item.subject}: {item.text}" for item in result.items if item.verdict == "fail"]
        fault = f"at fault: {BLAME[result.blame]}" if result.blame else ""
        failure.text = _clean("\n".join(filter(None, [numbers, *parts, fault])))
    elif result.verdict in ("skip", "unsupported"):
        prefix = "" if result.verdict == "skip" else "unsupported: "
        ET.SubElement(case, "skipped", message=_clean(prefix + result.text))
    else:
        output = ET.SubElement(case, "system-out")
        output.text = _clean(
            "\n".join(filter(None, [f"{'warning: ' if result.verdict == 'warn' else ''}{result.text}", numbers]))
        )


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("�", text)
