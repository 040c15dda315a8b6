"""The lower end of a range is not above its upper end, and lists of CUDA versions and GPU targets go upwards."""

from tests.data.lint import Documents, holds, numbers, records, shipped

RANGES = (
    ("cc_min", "cc_max"),
    ("cuda_min", "cuda_max"),
    ("min_branch", "max_branch"),
    ("min_branch", "last_branch"),
    ("min_version", "max_version"),
)
ORDERED = ("targets", "ptx", "cuda", "cuda_majors", "base_branches")


def _key(value: object) -> object:
    if isinstance(value, int):
        return (value,)
    assert isinstance(value, str)
    return value if "-" in value else numbers(value)


def lint(documents: Documents) -> list[str]:
    problems = []
    for _, path, record in records(documents):
        for low, high in RANGES:
            if record.get(low) and record.get(high) and _key(record[low]) > _key(record[high]):
                problems.append(f"{path}: {low} {record[low]} is above {high} {record[high]}")
        nested = [build for build in record.get("builds", ()) if isinstance(build, dict)]
        codes = [record["code"]] if isinstance(record.get("code"), dict) and "targets" in record["code"] else []
        codes += list(record["code"].values()) if isinstance(record.get("code"), dict) and not codes else []
        for item in (record, *nested, *codes):
            for field in ORDERED:
                value = item.get(field)
                if isinstance(value, list) and sorted(value, key=_key) != value:
                    problems.append(f"{path}: {field} is not in order")
    return problems


def test_shipped() -> None:
    assert lint(shipped()) == []


def test_fixtures() -> None:
    holds(lint, "ranges")
