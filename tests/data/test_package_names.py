"""For every driver branch there is one answer to what its packages are called, never two and never none."""

from tests.data.lint import holds

LISTS = {"drivers": ("family", "module"), "fabric": ("format",)}


def _covers(record, branch):
    return record.get("min_branch", 0) <= branch <= record.get("max_branch", branch)


def lint(documents):
    repos = documents["repos"]
    branches = [row["branch"] for row in documents["driver"]["branches"]]
    open_from = 515
    problems = []
    for field, keys in LISTS.items():
        groups: dict[tuple[str, ...], list[dict]] = {}
        for record in repos[field]:
            groups.setdefault(tuple(record[key] for key in keys), []).append(record)
        for group, records in groups.items():
            last = max((record.get("max_branch", 10**6) for record in records), default=0)
            for branch in branches:
                if ("open" in group and branch < open_from) or branch > last:
                    continue
                found = sum(_covers(record, branch) for record in records)
                if found != 1:
                    problems.append(f"{field} {' '.join(group)}: {found} answers for R{branch}")
    families = {row["family"] for row in repos["directories"]}
    named = {row["family"] for row in repos["drivers"]}
    return problems + [f"no driver packages for {family}" for family in sorted(families - named)]


def test_data():
    holds(lint, "package_names")
