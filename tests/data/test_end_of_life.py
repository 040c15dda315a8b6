"""An end of life is a day, a month or `unknown`; a branch called ended did not end after the data's own date."""

from datetime import date

from tests.data.lint import holds
from tools.refresh.lints import records


def _day(text):
    return date.fromisoformat(text if text.count("-") == 2 else f"{text}-01")


def lint(documents):
    problems = []
    for _, path, record in records(documents):
        for field in ("eol", "date"):
            text = record.get(field, "")
            if text in ("", "unknown"):
                continue
            try:
                _day(text)
            except ValueError:
                problems.append(f"{path}: {field} {text!r} is no day and no month")
    for branch in documents.get("driver", {}).get("branches", ()):
        eol = branch["eol"]
        if branch.get("ended") and eol not in ("", "unknown") and eol > documents["driver"]["date"]:
            problems.append(f"R{branch['branch']} is called ended, its end of life is {eol}")
        if not branch.get("ended") and eol != "unknown" and eol < documents["driver"]["date"][: len(eol)]:
            problems.append(f"R{branch['branch']} ended on {eol} and is not called ended")
    return problems


def test_data():
    holds(lint, "end_of_life")
