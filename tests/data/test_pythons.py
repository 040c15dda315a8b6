"""A packaged Python is another one than the distribution's own, is named by its packages, and lies where its name says."""

import re

from tests.data.lint import holds


def lint(documents):
    problems = []
    for system in documents["os"]["systems"]:
        rows = system.get("pythons", [])
        versions = [row["version"] for row in rows]
        problems += [
            f"{system['id']}: Python {one} twice" for one in dict.fromkeys(versions) if versions.count(one) > 1
        ]
        for row in rows:
            name = f"{system['id']}: Python {row['version']}"
            plain = row["version"].replace(".", "")
            if row["version"] == system["python"]:
                problems.append(f"{name} is its own")
            if row["path"] != f"/usr/bin/python{row['version']}":
                problems.append(f"{name} lies at {row['path']}")
            problems += [
                f"{name} is not what {package} is called after"
                for package in row["packages"]
                if not re.fullmatch(rf"python{plain}(-(pip|venv))?", package.replace(".", ""))
            ]
            if not row["packages"]:
                problems.append(f"{name} has no package")
            if row.get("prerelease") and not row.get("note"):
                problems.append(f"{name} is no final release, and nothing says which")
    return problems


def test_data():
    holds(lint, "pythons")
