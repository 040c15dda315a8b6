"""From what people call a GPU or a cloud's machine to what the rules ask of it."""

import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.gpus import find_gpu, gpus_named
from gpusetup.matrix.load import matrix
from tests.property.test_command_line import run
from tests.refusals import refused
from tests.stored import stored_rows


@pytest.mark.parametrize(("text", "cc"), stored_rows("gpu-names.json"))
def test_names(shipped, text, cc):
    assert find_gpu(shipped, text).cc == cc


def test_whole_tokens_only(shipped):
    names = find_gpu(shipped, "a100").names
    assert names
    assert not any("A1000" in name for name in names)
    assert all("A10" not in name.replace("A100", "") for name in names)


def test_products_that_agree_are_taken_together(shipped):
    kind = find_gpu(shipped, "h100")
    assert len(kind.names) > 1
    assert kind.label == "h100"


@pytest.mark.parametrize("text", ["quadro", "geforce", "tesla", "rtx"])
def test_a_name_that_fits_too_much_lists_candidates(shipped, text):
    with refused(BadInputError, hint="PCI id") as caught:
        find_gpu(shipped, text)
    assert caught.value.note.startswith("candidates: ")


@pytest.mark.parametrize("text", ["", "nvidia", "rx 7900", "10de:ffff", "10de:ZZZZ", "sm_1", "sm_٩٠"])
def test_what_is_no_gpu(shipped, text):
    with pytest.raises(BadInputError):
        find_gpu(shipped, text)


def test_a_capability_that_no_gpu_has_gets_one_answer(shipped):
    for ask in (find_gpu, gpus_named):
        with pytest.raises(BadInputError, match=r"capability 9\.9"):
            ask(shipped, "sm_99")


def test_every_pci_id_is_answered(shipped):
    for pci_id in sorted({pci_id for gpu in shipped.gpus.gpus for pci_id in gpu.ids}):
        assert find_gpu(shipped, pci_id).cc


def test_every_product_is_found_by_its_own_name(shipped):
    for gpu in shipped.gpus.gpus:
        assert gpu.name in find_gpu(shipped, gpu.name).names


def test_every_gpu_is_known():
    assert all(find_gpu(matrix(), item.gpu).names and item.count > 0 for item in matrix().instances.instances)


SAID = {
    "P5.48xlarge": (0, "H100"), "nd96isr_h100_v5": (0, "H100"), "NV36ads_A10_v5": (4, "gpusetup_source"), "p5.48xl": (3, "p5.48xlarge"),
    "p6e-gb200.36xlarge": (0, "GB200 (Blackwell)"), "ND128isr_GB300_v6": (0, "GB300 (Blackwell)"), "g5g.metal": (4, "(T4G) on aarch64"),
}  # fmt: skip


@pytest.mark.parametrize("asked", SAID)
def test_a_type_asks_for_its_gpus(asked):
    code, *texts = run(["resolve", "torch", "--on", asked, "--os", "ubuntu24.04"])
    assert (code, SAID[asked][1] in "".join(texts)) == (SAID[asked][0], True), texts


def test_the_page_of_a_gpu_has_the_mig_profiles_of_its_json(shipped):
    for product in shipped.mig.products:
        for gpu in (gpu for gpu in shipped.gpus.gpus if {*gpu.ids} & {*product.ids}):
            text = " ".join(run(["matrix", "gpu", gpu.name])[1].split())
            assert f"MIG profiles {', '.join(profile.name for profile in product.profiles)} " in text, gpu.name


def test_the_table_is_narrowed_by_cloud_and_gpu():
    text = run(["matrix", "instances", "aws", "--gpu", "h100"])[1]
    assert ("p5.48xlarge" in text, "p4d" in text) == (True, False)
