"""The life of a stack on one host, by the command line as a person uses it: each step with its exit code, time and verdict."""

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.applying import Answer, gpusetup

STEPS = ("facts", "apply", "second run", "drift", "another driver", "rollback", "remove")
DEADLINE = 4 * 3600.0
PATIENT = {"ANSIBLE_TIMEOUT": "120"}
"""For machines in emulation, where a handshake takes its time."""


@dataclass(frozen=True)
class Step:
    """How one step ended; without an exit code it was not run, and `said` is why."""

    name: str
    code: int | None
    seconds: float
    as_wanted: bool
    said: str = ""


@dataclass
class Journey:
    host: str
    folder: Path
    variables: Mapping[str, Any]
    want: Sequence[str]
    older: Sequence[str]
    """Applied first, so that there is something to go back to."""
    say: Callable[[str], None]
    ask: Callable[..., Answer] = gpusetup
    steps: list[Step] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def run(self) -> list[Step]:
        """Go as far as the host lets us; what was installed is removed in any case."""
        self.inventory = self.folder / "inventory.json"
        self.inventory.write_text(json.dumps({"all": {"hosts": {self.host: dict(self.variables)}}}, indent=1) + "\n")
        self.inventory.chmod(0o600)
        looked = self._step("facts", "facts", self.inventory)
        if not looked.as_wanted:
            return self._rest("the host could not be looked at")
        applied = self._apply("apply", self.older or self.want, wanted="done")
        if applied.said == NO_GPU:
            return self._rest("there is no GPU to install for")
        if not applied.as_wanted:
            self._leave_out("the first apply failed", "second run", "drift", "another driver", "rollback")
        else:
            self._apply("second run", self.older or self.want, wanted="unchanged")
            self._step("drift", "drift", self.inventory)
            if not self.older:
                self._leave_out("no older driver was asked for", "another driver", "rollback")
            elif self._apply("another driver", self.want, wanted="done").as_wanted:
                self._step("rollback", "rollback", self.inventory, "--reboot", "when-needed", wanted="done")
            else:
                self._leave_out("there is nothing to go back from", "rollback")
        self._step("remove", "remove", self.inventory, "--yes")
        return self.steps

    def _apply(self, name: str, want: Sequence[str], *, wanted: str) -> Step:
        words = [word for wish in want for word in ("--want", wish)]
        return self._step(name, "apply", self.inventory, *words, "--reboot", "when-needed", wanted=wanted)

    def _step(self, name: str, command: str, *words: Any, wanted: str = "") -> Step:
        own = {key: os.environ[key] for key in ("SSH_AUTH_SOCK",) if key in os.environ}
        answer = self.ask(self.folder, command, *words, "--format", "json", timeout=DEADLINE, **PATIENT, **own)
        kept = self.folder / name.replace(" ", "-")
        kept.with_suffix(".json").write_text(answer.out)
        kept.with_suffix(".err").write_text(answer.err)
        try:
            document: dict[str, Any] = json.loads(answer.out)
        except ValueError:
            document = {}
        told: dict[str, Any] = next(iter(document.get("hosts", {}).values()), {})
        if command == "facts":
            self.facts = told
        good, said = judged(command, answer.code, told, wanted)
        said = said if good else reason(document, told, answer.err) or said
        step = Step(name, answer.code, answer.seconds, good, said)
        self.steps.append(step)
        self.say(line(step))
        return step

    def _leave_out(self, why: str, *names: str) -> None:
        self.steps += [Step(name, None, 0.0, as_wanted=True, said=why) for name in names]

    def _rest(self, why: str) -> list[Step]:
        known = {step.name for step in self.steps}
        self._leave_out(why, *(name for name in STEPS if name not in known))
        return self.steps


NO_GPU = "no NVIDIA GPU: nothing to do"


def judged(command: str, code: int, told: Mapping[str, Any], wanted: str) -> tuple[bool, str]:
    """Return whether a step went as it should, and what is worth saying about it."""
    state = told.get("state", "")
    if command == "facts":
        return code == 0 and bool(told), ""
    if command == "drift":
        return code == 0 and state == "same", ", ".join(str(item["what"]) for item in told.get("differences") or ())
    if command == "remove":
        left = ", ".join(told.get("left_over") or ())
        return code in (0, 9) and state in {"done", "pending-reboot"} and not left, left and f"left over: {left}"
    if state == "nothing-to-do":
        return code == 0, NO_GPU
    changed = "" if wanted == "done" or not told.get("changed") else f"{told['changed']} changed"
    return code == 0 and state == wanted and not changed, changed or checks(told)


def checks(told: Mapping[str, Any]) -> str:
    """Return what became of the checks: "41 skip" is no pass."""
    counted = Counter(str(check["verdict"]) for check in told.get("checks") or ())
    shown = ", ".join(f"{number} {verdict}" for verdict, number in sorted(counted.items()))
    return shown and f"checks: {shown}"


def reason(document: Mapping[str, Any], told: Mapping[str, Any], stderr: str) -> str:
    """Return why a step did not go as it should, in the program's own words."""
    failures = document.get("failures") or {}
    places = (told.get("failure"), *(told.get("refusals") or ()), *failures.values(), document.get("error"))
    for place in places:
        if isinstance(place, dict) and place.get("message"):
            return f"{' '.join(str(place['message']).split())} [{place.get('reference', '')}]"
    checked = [check for check in told.get("checks") or () if check["verdict"] == "fail"]
    failed = [str(check.get("text") or check.get("id")) for check in checked]
    if failed or document.get("conflict"):
        return "; ".join(failed or [str(item["text"]) for item in document["conflict"]])
    return "" if told else next((line for line in stderr.splitlines() if line.startswith("error")), "no answer")


def line(step: Step) -> str:
    """A step as it is told while it goes on."""
    verdict = "as wanted" if step.as_wanted else "NOT as wanted"
    return f"{step.name}: exit {step.code}, {step.seconds:.0f} s, {verdict}" + (f": {step.said}" if step.said else "")
