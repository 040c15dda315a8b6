"""The licence of vGPUs, from nvidia-smi's own words."""

import xml.etree.ElementTree as ET

import pytest

from tests.unit.verify.verify_documents import captured, results


def _with_licence(document, *states):
    root = ET.fromstring(document["quick"]["smi"]["stdout"])
    for gpu, state in zip(root.findall("gpu"), states, strict=False):
        product = ET.SubElement(gpu, "vgpu_software_licensed_product")
        ET.SubElement(product, "licensed_product_name").text = "NVIDIA RTX Virtual Workstation"
        ET.SubElement(product, "license_status").text = state
    document["quick"]["smi"]["stdout"] = ET.tostring(root, encoding="unicode")
    return document


@pytest.mark.parametrize(
    ("states", "verdict", "text"),
    [
        ((), "skip", "no GPU here needs a licence"),
        (("Licensed (Expiry: 2026-12-7 16:1:44 GMT)", "Licensed (Expiry: 2026-12-7 16:1:44 GMT)"), "pass", "licensed"),
        (("Licensed (Expiry: 2026-12-7 16:1:44 GMT)", "Unlicensed (Restricted)"), "fail", "has no licence"),
    ],
)
def test_every_gpu_needs_its_licence(states, verdict, text):
    found = results(_with_licence(captured("h200-x2-full"), *states))["vgpu.licence"]
    assert found.verdict == verdict
    assert text in found.text
