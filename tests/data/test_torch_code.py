"""A torch build says which GPU code it carries, or says that nobody knows: then it is never chosen."""

from tests.data.lint import holds


def lint(documents):
    problems = []
    for build in documents["torch"]["builds"]:
        name = f"torch {build['version']}+{build['variant']}"
        if build["code"] is None and not build.get("note"):
            problems.append(f"{name} carries unknown code and no note says so")
        for arch, code in (build["code"] or {}).items():
            if not code["targets"]:
                problems.append(f"{name} has an empty list for {arch}")
            if not code.get("sources"):
                problems.append(f"{name} does not say where its list for {arch} is from")
    return problems


def test_data():
    holds(lint, "torch_code")
