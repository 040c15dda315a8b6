"""What the doctor answers to a message or a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli import output
from gpusetup.doctor.outside import names_gpu, outside, routine
from gpusetup.doctor.text import CLEAN, NO_LINE_KNOWN, NO_TEXT, NO_WORD_OF_IT, NOT_RECOGNISED, messages, outside_text
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.doctor.logs import Log
    from gpusetup.model.diagnosis import Finding

__all__ = ["answer"]


def answer(arguments: argparse.Namespace, found: tuple[Finding, ...], log: Log) -> Exit:
    """Tell what a text means; where nothing was found, whether it is healthy, and what it is about instead.

    It is healthy when it has no word of trouble, or only routine ones, and the doctor knows what it is a log of.
    """
    shown = () if found else outside(log.text)
    clean = not found and (routine(shown) or (log.quiet and log.known))
    if clean or routine(shown):
        shown = ()
    code = Exit.DONE if found or clean or shown else Exit.BAD_INPUT
    unknown = _unknown(log)
    if arguments.format == "json":
        from msgspec import UNSET

        from gpusetup.model.examined import DoctorText, OutsideTold

        document = DoctorText(
            ok=code == Exit.DONE,
            recognised=bool(found),
            clean=clean,
            findings=found,
            outside=tuple(OutsideTold(*one) for one in shown) if shown else UNSET,
            send=unknown if not (shown or found or clean) else UNSET,
        )
        said = output.json_text(document)
    elif shown:
        said = outside_text(shown)
    elif found or clean:
        said = CLEAN if clean else output.painted(messages(found), arguments.out)
    else:
        said = unknown
    output.write_answer(said, arguments.out)
    return code


def _unknown(log: Log) -> str:
    if log.binary:
        return NO_TEXT
    if log.quiet and log.lines:
        return NO_LINE_KNOWN
    return NOT_RECOGNISED + (NO_WORD_OF_IT if log.text and not names_gpu(log.text) else "")
