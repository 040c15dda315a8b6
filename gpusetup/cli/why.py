"""Print the reasons for a choice: why this component, or why (not) this version of it.

examples:
  gpusetup why driver --gpu h100
  gpusetup why torch=2.6.0 --gpu v100
"""

import argparse

import msgspec
from msgspec.structs import replace

from gpusetup.cli.options import add_newer, add_output, add_request
from gpusetup.cli.output import answer, hint, warn, wrapped
from gpusetup.cli.requests import age_warning, request_about
from gpusetup.errors import BadInputError, Exit, NoStackError
from gpusetup.matrix.load import matrix as load_matrix
from gpusetup.model.answers import Asked, Clash, Why, WhyNot
from gpusetup.model.request import Requirement
from gpusetup.model.stack import Resolution, build_of
from gpusetup.resolve.naming import typed
from gpusetup.resolve.requests import joined_words, parse_requirement


def add_subject(parser: argparse.ArgumentParser, metavar: str) -> None:
    """Add the arguments that why and why-not share."""
    parser.add_argument("subject", metavar=metavar, help="a component, or a component and its version: cuda=13.1")
    parser.add_argument("requirements", nargs="*", metavar="REQ", help="other requirements, as in `gpusetup resolve`")
    add_request(parser)
    add_output(parser)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_subject(parser, "NAME[=VERSION]")


def split_subject(arguments: argparse.Namespace) -> Requirement:
    """Return the component in question, its version maybe apart (`why torch 2.6`); other words stay requirements."""
    subject, *others = joined_words([arguments.subject, *arguments.requirements])
    arguments.requirements = others
    return parse_requirement(subject)


def run(arguments: argparse.Namespace) -> Exit:
    """Print the reasons for a choice."""
    from gpusetup.resolve.api import resolve
    from gpusetup.resolve.domains import matches

    matrix = load_matrix()
    wish = split_subject(arguments)
    request = request_about(arguments, matrix)
    # Without a version, keep what the request asks of the component: `why torch --from uv.lock`.
    others = tuple(item for item in request.requirements if item.component != wish.component or not wish.specifier)
    resolution = resolve(replace(request, requirements=others), matrix)
    if resolution.stack.part(wish.component) is None:
        # Not in the default stack: add it to the request.
        free = Requirement(component=wish.component)
        resolution = resolve(replace(request, requirements=(*others, free)), matrix)
    chosen = resolution.stack.part(wish.component)
    document = Why(
        matrix=matrix.stamp,
        component=wish.component,
        chosen=chosen,
        reasons=tuple(item for item in resolution.reasons if item.component == wish.component),
    )
    text = _chosen_text(resolution, wish.component)
    same = wish.variant in ("", build_of(wish.component, chosen)) and chosen.version and matches(wish, [chosen.version])
    if (wish.specifier or wish.variant) and not same:
        asked = replace(request, requirements=(*others, wish))
        try:
            resolve(asked, matrix)
        except NoStackError as error:
            conflict = msgspec.convert(error.to_document()["conflict"], tuple[Clash, ...])
            told = Asked(version=str(wish), fits=False, conflict=conflict)
            document = replace(document, asked=told)
            text += f"\n{wish} does not fit:\n  {error.note}\n"
        else:
            command = f"gpusetup resolve {typed(asked)}"
            document = replace(document, asked=Asked(version=str(wish), fits=True, command=command))
            text += f"\n{wish} fits too; to choose it:\n  {command}\n"
    text = f"{text.rstrip()}\n\nmatrix of {matrix.date}\n"
    age = age_warning(matrix)
    if age:
        warn(age)
    return answer(arguments.format, document, text, arguments.out)


def _chosen_text(resolution: Resolution, component: str) -> str:
    chosen = resolution.stack.part(component)
    lines = [f"{component} {getattr(chosen, 'version', None) or chosen.requires}", ""]
    for reason in resolution.reasons:
        if reason.component == component:
            lines += wrapped(f"- {reason.text} [{reason.rule}]", "", "  ")
            if reason.source:
                lines.append(f"  {reason.source}")
    return "\n".join(lines) + "\n"


def add_why_not_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_subject(parser, "NAME=VERSION")
    add_newer(parser)


def run_why_not(arguments: argparse.Namespace) -> Exit:
    """Print the rules that forbid a version, and the nearest changes that would allow it.

    examples:
      gpusetup why-not cuda=13.1 --gpu v100
      gpusetup why-not torch=2.6.0 --gpu 'rtx 5090'
    """
    from gpusetup.cli.newer import resolve

    matrix = load_matrix()
    wish = split_subject(arguments)
    request = request_about(arguments, matrix)
    others = tuple(item for item in request.requirements if item.component != wish.component)
    try:
        resolution = resolve(replace(request, requirements=(*others, wish)), matrix, newer=arguments.newer)
        if not (wish.specifier or wish.variant):
            chosen = resolution.stack.part(wish.component)
            version = f"=={getattr(chosen, 'version', None) or str(chosen.requires).partition(',')[0].lstrip('>=~')}"
            one = replace(request, requirements=(replace(wish, specifier=version), *others))
            raise BadInputError(
                "GS-129", f"{wish.component} has versions that fit: name the version that you mean",
                path=arguments.subject, hint="gpusetup why-not " + typed(one),
            )  # fmt: skip
    except NoStackError as error:
        found = error.to_document()
        conflict = msgspec.convert(found["conflict"], tuple[Clash, ...])
        document = WhyNot(
            ok=False, matrix=matrix.stamp, version=str(wish), forbidden=True, conflict=conflict,
            suggestions=tuple(found["suggestions"]),
        )  # fmt: skip
        lines = [f"{wish} is forbidden:", ""]
        for item in found["conflict"]:
            lines += wrapped(f"- {item['text']} [{item['rule']}]", "", "  ")
            if item["source"]:
                lines.append(f"  {item['source']}")
        if found["suggestions"]:
            lines += [""]
            for way_out in hint(found["suggestions"]):
                lines += wrapped(way_out, "", " " * 6)
        text, code = "\n".join(lines) + "\n", Exit.NO_STACK
    else:
        limits = resolution.warnings
        document = WhyNot(ok=True, matrix=matrix.stamp, version=str(wish), forbidden=False, warnings=limits)
        lines = [f"nothing forbids {wish}" + (", with these limits:" if limits else "")]
        for limit in limits:
            lines += wrapped(f"- {limit}", "", "  ")
        text, code = "\n".join(lines) + "\n", Exit.DONE
    text = f"{text.rstrip()}\n\nmatrix of {matrix.date}\n"
    if (age := age_warning(matrix)) is not None:
        warn(age)
    answer(arguments.format, document, text, arguments.out)
    return code
