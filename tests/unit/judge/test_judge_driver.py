"""Does the wanted driver run, can it be loaded, or does only a reboot help? Hosts and controller ask the same files."""

import pytest
from ansible_collections.gpusetup.stack.plugins.module_utils.gpu_judge import driver

from tests.stored import stored_rows

VERSION = "580.95.05"
WISH = driver.Wish(VERSION, "open")


def loaded(version, flavour):
    return {"driver": {"loaded": {"version": version, "flavour": flavour}}}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (loaded("570.1", "open"), ["nvidia 570.1 is loaded, 580.95.05 is wanted"]),
        (loaded(VERSION, "proprietary"), ["the proprietary module is loaded, the open one is wanted"]),
        (loaded(VERSION, None), []),
        ({"driver": None, "nouveau": {"loaded": True}}, ["nouveau is loaded", "nvidia 580.95.05 is wanted, none is loaded"]),
    ],
)  # fmt: skip
def test_the_need_for_a_reboot_comes_from_the_hosts_state(facts, change, says):
    assert driver.reboot_reasons({**facts, **change}, WISH) == says
    nothing = {**facts, "driver": None}, driver.Wish("")  # no driver is wanted
    assert (driver.reboot_reasons(*nothing), driver.module_problems(*nothing)) == ([], {})


def test_an_unknown_key_is_told_with_where_its_password_is(facts):
    facts.update(secure_boot=True, driver=None)
    key = {"serial": "1a", "issuer": "DKMS", "key": "2b", "enrolled": False}
    facts["firmware"] = {"signing_keys": [key], "password": "/var/lib/gpusetup/mok-password"}
    facts["kernel"]["installed"][0]["nvidia"].update(signed=True, signer="DKMS", key="1a")
    assert "mok-password" in driver.reboot_reasons(facts, WISH)[-1]
    facts["firmware"]["password"] = None
    assert driver.reboot_reasons(facts, WISH)[-1].endswith("Enroll MOK at the console")
    assert "does not trust the key that signed" in (driver.obstacle(facts, WISH) or "")
    key["enrolled"] = True
    assert driver.obstacle(facts, WISH) is None
    key.update(enrolled=False, serial="1b")
    assert driver.obstacle(facts, WISH) is None  # signed by somebody else: whether the kernel knows them, it shows


@pytest.mark.parametrize(("users", "says"), stored_rows("modules-in-use.json"))
def test_modules_of_others_and_displays_are_seen_before_anything_is_unloaded(facts, users, says):
    facts["module_users"] = {name: {"references": count, "holders": by} for name, (count, by) in users.items()}
    assert driver.obstacle(facts, WISH) == (says and f"in use by {says}")


def test_programs_are_in_the_way_and_the_drivers_own_services_are_not(facts):
    own = ["nvidia-persiste", "nv-fabricmanage", "nv-hostengine", "nvidia-imex", "nvidia-smi"]  # cut by the kernel
    facts["processes"] = [{"pid": number, "command": name} for number, name in enumerate(own)]
    assert driver.obstacle(facts, WISH) is None
    facts["processes"].append({"pid": 77, "command": "python3"})
    assert driver.obstacle(facts, WISH) == "in use by python3 (77)"


@pytest.mark.parametrize(
    ("image", "opens"),
    [((True, False), True), ((True, True), False), ((True, None), False), ((False, False), False), ((None, None), False)],
)  # fmt: skip
def test_an_initramfs_lets_nouveau_in_only_when_that_was_seen(facts, image, opens):
    told = {"path": "/boot/initrd", "kernel": "6.1.0-2", "nouveau": image[0], "blacklist": image[1]}
    facts["nouveau"]["initramfs"] = [told, {**told, "kernel": "5.10", "nouveau": True, "blacklist": False}]
    assert [way.id for way in driver.nouveau_ways(facts)] == (["initramfs"] if opens else [])
