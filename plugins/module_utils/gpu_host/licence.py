"""The licence of a vGPU guest: its token, the daemon's settings, and whether a licence was granted."""

import os
import re
import time
from typing import Dict, List

from ..gpu_probe.licence import SETTINGS, TOKENS
from ..gpu_probe.licence import TOKEN as _NAME
from . import followers, process, services, systemd
from .failure import HostFailure
from .files import Content, read_text
from .ledger import Ledger

UNIT = "nvidia-gridd.service"
TOKEN = f"{TOKENS}/{_NAME}"
_FEATURE = re.compile(r"^[#;\s]*FeatureType\s*=.*$", re.MULTILINE)
_LEGACY = re.compile(r"^(\s*(?:Backup)?Server(?:Address|Port)\s*=.*)$", re.MULTILINE)
_STATUS = re.compile(r"License Status\s*: (.*\S)")
_POLL = 2.0


def settings(text: str, feature: int) -> str:
    """Return the daemon's settings with the feature type; legacy servers are commented out for the token's own."""
    line = f"FeatureType={feature}"
    text = _LEGACY.sub(r"# taken out by gpusetup, a token names the server: \1", text)
    if _FEATURE.search(text):
        first = _FEATURE.sub(line, text, count=1)
        head, _, rest = first.partition(line)
        return head + line + re.sub(r"(?m)^\s*FeatureType\s*=.*\n?", "", rest)
    return (text if not text or text.endswith("\n") else text + "\n") + line + "\n"


def write(ledger: Ledger, token: Content, feature: int) -> bool:
    changed = ledger.write(TOKEN, token, 0o600)
    return ledger.write(SETTINGS, settings(read_text(SETTINGS) or "", feature)) or changed


def give_up(ledger: Ledger, env: Dict[str, str], start: bool) -> bool:
    """Delete the token and restore the settings; return whether that changed anything."""
    changed = [path for path in (TOKEN, SETTINGS) if ledger.restore(path)]
    if start and is_behind(env):
        restart(env)
    return bool(changed)


def is_behind(env: Dict[str, str]) -> bool:
    """Return whether the daemon was started before the present token or settings."""
    return followers.Restart(UNIT, (TOKEN, SETTINGS), env).due()


def others() -> List[str]:
    """Return tokens that somebody else put there: of several the daemon takes an arbitrary one."""
    names = os.listdir(TOKENS) if os.path.isdir(TOKENS) else []
    return sorted(f"{TOKENS}/{name}" for name in names if name.endswith(".tok") and f"{TOKENS}/{name}" != TOKEN)


def restart(env: Dict[str, str]) -> None:
    code, _out, error = process.output(["systemctl", "restart", UNIT], env, 60)
    if code:
        raise HostFailure(
            "GS-430", f"{UNIT} did not start", error.strip(), systemd.last_words(UNIT, env), "journalctl -u " + UNIT
        )


def license_now(ledger: Ledger, env: Dict[str, str], seconds: float) -> List[str]:
    """Have the daemon request its licence; if none is granted, restore and use the earlier token and settings."""
    try:
        restart(env)
        return wait(env, seconds)
    except HostFailure:
        for path in (TOKEN, SETTINGS):
            ledger.restore(path, "previous")
        if is_behind(env):
            restart(env)
        raise


def state(env: Dict[str, str]) -> List[str]:
    """Return each GPU's licence status by nvidia-smi, empty if it reports none."""
    code, text, _error = process.output(["nvidia-smi", "-q"], env, 30)
    return _STATUS.findall(text) if code == 0 else []


def granted(states: List[str]) -> bool:
    return bool(states) and all(text.startswith("Licensed") for text in states)


def wait(env: Dict[str, str], seconds: float) -> List[str]:
    """Return the status once a licence is granted; fail after `seconds`."""
    end = time.monotonic() + seconds
    states = state(env)
    while not granted(states):
        if time.monotonic() > end:
            raise HostFailure(
                "GS-431",
                f"no licence was granted within {seconds:.0f} s",
                "; ".join(f"License Status: {text}" for text in states) or "nvidia-smi reports no licence",
                systemd.last_words(UNIT, env),
                "is the licence server reachable, the token in date, the feature right? What was there before is "
                "back. journalctl -u " + UNIT,
            )
        time.sleep(_POLL)
        states = state(env)
    return states


def refuse_without_daemon(env: Dict[str, str]) -> None:
    """Fail if no daemon would use a token."""
    if not services.look([UNIT], env)[UNIT]["exists"]:
        raise HostFailure(
            "GS-434",
            f"there is no {UNIT}: the driver here is not a vGPU guest driver",
            hint="install the vGPU guest driver first, or unset gpusetup_vgpu_token",
        )
