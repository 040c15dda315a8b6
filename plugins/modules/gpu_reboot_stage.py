#!/usr/bin/python
"""Ansible module: a scheduled reboot, and a unit that continues after it."""

DOCUMENTATION = r"""
module: gpu_reboot_stage
short_description: Schedule a reboot and a unit that continues once after it
description:
  - Uses C(shutdown), so that people who are logged in are told and can cancel with C(shutdown -c).
extends_documentation_fragment: [gpusetup.stack.options.host, gpusetup.stack.options.gpu_reboot_stage]
author: The gpusetup authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Reboot tonight, then go on
  gpusetup.stack.gpu_reboot_stage:
    when: "02:30"
    resume: [/usr/bin/gpusetup, apply]
"""

RETURN = r"""
when:
  description: When the host reboots.
  returned: always
  type: str
"""

import datetime
import os
import re
from typing import Sequence

from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host import files, package_manager, params, process
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.failure import HostFailure
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_host.ledger import Ledger

UNIT = "/etc/systemd/system/gpusetup-resume.service"
STARTS = "/etc/systemd/system/multi-user.target.wants/gpusetup-resume.service"
MARK = "resume"
_TEXT = """# Written by gpusetup: continues once after the reboot.
[Unit]
Description=gpusetup continues after a reboot
After=network-online.target multi-user.target
Wants=network-online.target
ConditionPathExists={mark}

[Service]
Type=oneshot
ExecStart=/bin/sh -c {script} {mark} {command}

[Install]
WantedBy=multi-user.target
"""
_SCRIPT = 'again=$(find "$0" -mmin -60); rm -f "$0"; [ -z "$again" ] || exec "$@"'
"""Continues up to an hour after the time of the reboot: after a later one, the scheduled one had been cancelled."""


def quoted(word: str) -> str:
    if re.search(r"[\x00-\x1f]", word):
        raise HostFailure("GS-491", "the command after the reboot has control characters in it")
    return '"{}"'.format(word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$"))


def stage(ledger: Ledger, mark: str, resume: Sequence[str]) -> None:
    """Write the unit that continues after the boot if its mark is there, and the link that enables it."""
    ledger.write(UNIT, _TEXT.format(mark=mark, script=quoted(_SCRIPT), command=" ".join(map(quoted, resume))))
    ledger.link(STARTS, UNIT)


def moment(when: str) -> float:
    """Return when a host reboots, in seconds."""
    now = datetime.datetime.now()  # noqa: DTZ005 - shutdown takes the host's own time of day
    if when.startswith("+"):
        return (now + datetime.timedelta(minutes=int(when))).timestamp()
    hour, minute = map(int, when.split(":"))
    today = now.replace(hour=hour, minute=minute, second=0)
    return (today if today > now else today + datetime.timedelta(days=1)).timestamp()


SPEC = {
    "when": params.text("Time as C(shutdown) takes it.", "+1"),
    "resume": params.texts("Program and arguments to run once after the boot."),
    "text": params.text("Message to people who are logged in.", "gpusetup: the new GPU driver needs a reboot"),
}


def main() -> None:
    module, request = params.opened(SPEC)
    when, env = module.params["when"], process.environment()
    with params.failing(module):
        ledger = Ledger(request["state_dir"], module.check_mode)
        if not re.fullmatch(r"\+[1-9]\d{0,3}|\d{1,2}:\d{2}", when):
            raise HostFailure("GS-491", f"{when!r} is not a time for a reboot", hint="give +1, +MINUTES or HH:MM")
        if not module.check_mode:
            if when.startswith("+"):  # in some minutes it might cut off what changes packages now
                package_manager.wait_until_free(600, lambda *_words: None)
            mark = os.path.join(ledger.folder, MARK)
            if os.path.exists(mark):  # of a reboot that was cancelled
                os.unlink(mark)
            if module.params["resume"]:
                stage(ledger, mark, module.params["resume"])
            code, _out, error = process.output(["shutdown", "-r", when, module.params["text"]], env, 30)
            if code:
                raise HostFailure("GS-491", "the reboot could not be scheduled", when, error.strip())
            if module.params["resume"]:  # now: a mark without a reboot would continue after some later one
                try:
                    files.write_atomically(mark, "", 0o600)
                    os.utime(mark, (moment(when),) * 2)
                except OSError:
                    process.output(["shutdown", "-c"], env, 30)
                    raise
    module.exit_json(changed=True, when=when)


if __name__ == "__main__":
    main()
