"""The audit stage: an SBOM that leaves something out is told, and a package nobody looked up is no clean bill."""

from tests.audit import differences, judged


def sbom(*components, about="gpusetup"):
    listed = [{"name": name, "version": version} for name, version in components]
    return {"metadata": {"component": {"name": about}}, "components": listed}


def test_an_sbom_lists_exactly_what_is_needed():
    needed = {"ansible-core": "2.21.5", "jinja2": "3.1.6"}
    assert differences(sbom(("ansible-core", "2.21.5"), ("Jinja2", "3.1.6")), needed) == []
    (missing,) = differences(sbom(("ansible-core", "2.21.5")), needed)
    assert "jinja2" in missing
    (foreign,) = differences(sbom(("ansible-core", "2.21.5"), ("Jinja2", "3.1.6"), ("pip", "24")), needed)
    assert "pip" in foreign
    assert len(differences(sbom(("ansible_core", "2.20"), ("Jinja2", "3.1.6"), about="x"), needed)) == 2


def test_vulnerabilities_are_named_and_what_nobody_looked_up_too():
    report = {
        "dependencies": [
            {"name": "gpusetup", "skip_reason": "not on PyPI"},
            {"name": "rich", "version": "15.0.0", "vulns": []},
            {"name": "jinja2", "version": "3.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3.1"]}]},
            {"name": "certifi", "skip_reason": "Dependency not found on PyPI and could not be audited"},
        ]
    }
    known, unseen = judged(report)
    assert known == ["jinja2 3.0: PYSEC-1, fixed in 3.1"]
    assert unseen == ["certifi"]
