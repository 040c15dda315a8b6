"""What the doctor answers to a message or a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusetup.cli import output
from gpusetup.doctor.outside import names_gpu, outside, routine
from gpusetup.doctor.text import CLEAN, NO_WORD_OF_IT, NOT_RECOGNISED, messages, outside_text
from gpusetup.errors import Exit

if TYPE_CHECKING:
    import argparse

    from gpusetup.model.diagnosis import Finding

__all__ = ["answer"]


def answer(arguments: argparse.Namespace, found: tuple[Finding, ...], text: str, *, quiet: bool, log: bool) -> Exit:
    """Tell what a text means; where nothing was found, whether a log is healthy, and what a text is about instead.

    `quiet`: a log without any word of trouble.
    """
    shown = () if found else outside(text)
    clean = log and not found and (quiet or routine(shown))
    if clean or routine(shown):
        shown = ()
    code = Exit.VERIFY_FAILED if found else Exit.DONE if clean or shown else Exit.BAD_INPUT
    if found and all(finding.kind == "notice" for finding in found):
        code = Exit.DONE
    if arguments.format == "json":
        from msgspec import UNSET

        from gpusetup.model.examined import DoctorText, OutsideTold

        document = DoctorText(
            ok=code == Exit.DONE,
            recognised=bool(found),
            clean=clean,
            findings=found,
            outside=tuple(OutsideTold(*one) for one in shown) if shown else UNSET,
            send=NOT_RECOGNISED if not (shown or found or clean) else UNSET,
        )
        said = output.json_text(document)
    elif shown:
        said = outside_text(shown)
    elif found or clean:
        said = CLEAN if clean else output.painted(messages(found), arguments.out)
    else:
        said = NOT_RECOGNISED + (NO_WORD_OF_IT if text and not names_gpu(text) else "")
    output.write_answer(said, arguments.out)
    return code
