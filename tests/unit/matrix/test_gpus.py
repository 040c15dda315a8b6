"""From what people call a GPU or a cloud's machine to what the rules ask of it."""

import pytest

from gpusetup.errors import BadInputError
from gpusetup.matrix.gpus import find_gpu, gpus_named
from tests.property.test_command_line import run
from tests.refusals import refused


@pytest.mark.parametrize("text", ["quadro", "geforce", "tesla", "rtx"])
def test_a_name_that_fits_too_much_lists_candidates(shipped, text):
    with refused(BadInputError, hint="PCI id") as caught:
        find_gpu(shipped, text)
    assert caught.value.note.startswith("candidates: ")


def test_every_product_is_found_by_its_own_name_and_ids_and_every_cloud_s_gpu(shipped):
    for gpu in shipped.gpus.gpus:
        assert gpu.name in find_gpu(shipped, gpu.name).names
        assert all(find_gpu(shipped, pci_id).cc for pci_id in gpu.ids)
    assert all(find_gpu(shipped, item.gpu).names and item.count > 0 for item in shipped.instances.instances)


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


def test_a_capability_that_no_gpu_has_gets_one_answer(shipped):
    for ask in (find_gpu, gpus_named):
        with pytest.raises(BadInputError, match=r"capability 9\.9"):
            ask(shipped, "sm_99")
