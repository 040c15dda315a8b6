"""Every record says where it is from, every source that is cited is there, and none is there for nothing."""

from tests.data.lint import Documents, holds, records, shipped


def _cited(record: object) -> list[str]:
    if isinstance(record, dict):
        own = record["sources"] if isinstance(record.get("sources"), list) else []
        return [*own, *(key for value in record.values() for key in _cited(value))]
    return [key for item in record for key in _cited(item)] if isinstance(record, list) else []


def lint(documents: Documents) -> list[str]:
    problems = []
    used: dict[str, set[str]] = {name: set() for name in documents}
    for name, path, record in records(documents):
        if not record.get("sources"):
            problems.append(f"{path} has no source")
        for key in _cited(record):
            used[name].add(key)
            if key not in documents[name]["sources"]:
                problems.append(f"{path} cites {key}, which is no source of {name}")
    for name, document in documents.items():
        problems += [f"{name}: nobody cites the source {key}" for key in document["sources"] if key not in used[name]]
        problems += [
            f"{name}: the source {key} has no title" for key, item in document["sources"].items() if not item["title"]
        ]
        problems += [
            f"{name}: the address of the source {key} is none"
            for key, item in document["sources"].items()
            if item.get("url") and (not item["url"].startswith("https://") or " " in item["url"])
        ]
    return problems


def test_shipped() -> None:
    assert lint(shipped()) == []


def test_fixtures() -> None:
    holds(lint, "sources")
