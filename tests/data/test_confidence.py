"""Confidence is one of the three words; a derived value is never called the vendor's, and inferred ones say why."""

from tests.data.lint import Documents, holds, records, shipped

LEGAL = ("vendor", "observed", "inferred")


def lint(documents: Documents) -> list[str]:
    problems = []
    for name, path, record in records(documents):
        if record.get("confidence") not in LEGAL:
            problems.append(f"{path} has confidence {record.get('confidence')!r}")
        derived = name == "gpus" and "follows from the die" in record.get("note", "")
        if derived and record["confidence"] == "vendor":
            problems.append(f"{path} is derived from the die and called the vendor's")
        if name == "gpus" and ".gpus[" in path and record.get("confidence") == "inferred" and not record.get("note"):
            problems.append(f"{path} is inferred and does not say from what")
    return problems


def test_shipped() -> None:
    assert lint(shipped()) == []


def test_fixtures() -> None:
    holds(lint, "confidence")
