"""RDMA adapters and GPUDirect Storage, from folders that stand in for /sys and /proc."""

from types import MappingProxyType

import msgspec
import pytest

from gpusetup.content import host_code
from gpusetup.facts.properties import rdma_ports
from gpusetup.model.facts_machine import Hca, Port, Rdma, Storage
from tests.hosts.machines import changed
from tests.hosts.machines import machine as captured
from tests.unit.facts.conftest import Machine

HCA = "0000:18:00.0"
SWITCH = "sys/devices/pci0000:15/0000:15:01.0/0000:16:00.0"
ETHTOOL = """Settings for ens1f0np0:
\tSupported ports: [ Backplane ]
\tSupported link modes:   25000baseCR/Full
\t                        100000baseCR4/Full
\t                        200000baseCR4/Full
\tSupported pause frame use: Symmetric
\tAdvertised link modes:  400000baseCR4/Full
\tSpeed: 100000Mb/s
"""


class Adapters(Machine):
    """Adapters that are written piece by piece; commands answer what is given."""

    answers = MappingProxyType({})

    def adapter(self, layer="InfiniBand", **port):
        device = f"{SWITCH}/{HCA}"
        here = f"{device}/infiniband/mlx5_0"
        told = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "200 Gb/sec (4X HDR)", "sm_lid": "0x1"} | port
        texts = {f"{here}/ports/1/{part}": text for part, text in {"link_layer": layer, **told}.items()}
        texts |= {
            f"{here}/fw_ver": "28.39.1002",
            f"{here}/board_id": "MT_0000000838",
            f"{device}/net/ens1f0np0/address": "00",
        }
        for part, text in {"vendor": "0x15b3", "device": "0x1021", "numa_node": "0", "class": "0x020700"}.items():
            texts[f"{device}/{part}"] = text
        for part, text in {"width": "16", "speed": "32.0 GT/s PCIe"}.items():
            texts |= {f"{device}/{which}_link_{part}": text for which in ("current", "max")}
        for path, text in texts.items():
            self.put(path, text + "\n")
        self.put(f"{device}/config", bytes(64)).put(f"{SWITCH}/config", bytes(64))
        self.link(f"{here}/device", f"../../../{HCA}").link("sys/class/infiniband/mlx5_0", f"../../../{here}")
        self.link(f"sys/bus/pci/devices/{HCA}", f"../../../../{device}")
        return self

    def live(self, kind="LiveHost"):
        def run(_label, argv, _seconds=10):
            return {"rc": 0, "out": self.answers.get(argv[0], ""), "err": "", "why": None}

        return super().live(kind, run=run)

    def looked(self, managers=()):
        told = host_code("gpu_probe.rdma").collect(self.live(), self.live(), managers)
        return None if told is None else msgspec.convert(told, Rdma)

    def storage(self):
        told = host_code("gpu_probe.rdma").storage(self.live())
        return None if told is None else msgspec.convert(told, Storage)


@pytest.fixture
def machine(tmp_path):
    return Adapters(tmp_path)


def test_an_adapter_of_ethernet_says_by_ethtool_what_it_can(machine):
    machine.adapter(layer="Ethernet", rate="100 Gb/sec (4X EDR)", sm_lid="0x0").answers = {"ethtool": ETHTOOL}
    (port,) = machine.looked().hcas[0].ports
    assert (port.rate, port.fastest, port.subnet_manager) == (100.0, 200.0, False)


def test_a_port_without_a_subnet_manager_and_a_system_with_peer_memory(machine):
    machine.adapter(state="2: INIT", sm_lid="0x0")
    machine.put("/proc/kallsyms", "0000 T ib_register_peer_memory_client\t[ib_core]\n")
    machine.put("/proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n")
    machine.put("/etc/security/limits.d/20-rdma.conf", "# none\n*  -  memlock  unlimited\n")
    told = machine.looked()
    assert (told.hcas[0].ports[0].state, told.hcas[0].ports[0].fastest) == ("INIT", None)
    assert (told.peer_memory, told.memlock.unlimited, told.memlock.lifted) == (True, True, True)


def test_ports_in_one_line():
    up, down = ({"state": state, "rate": rate} for state, rate in (("ACTIVE", 400.0), ("DOWN", 10.0)))
    ports = [Port(number=1, layer="InfiniBand", **port) for port in (up, up, down)]
    facts = captured("ubuntu24.04-h200-keep")
    assert rdma_ports(facts) == "none"
    hcas = tuple(Hca(name=f"mlx5_{number}", ports=(port,)) for number, port in enumerate(ports))
    assert rdma_ports(changed(facts, rdma=Rdma(hcas=hcas))) == "2 x 400 Gb/s InfiniBand, 1 x DOWN"


def test_soft_roce_has_no_place_on_pci(machine):
    for part, text in {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "2.5 Gb/sec (1X SDR)"}.items():
        machine.put(f"/sys/class/infiniband/rxe0/ports/1/{part}", text)
    (hca,) = machine.looked().hcas
    assert (hca.address, hca.link, hca.way, hca.ports[0].rate) == (None, None, None, 2.5)


def test_storage_and_a_machine_without_any_tells_nothing(machine):
    assert (machine.looked(), machine.storage()) == (None, None)
    machine.put("/etc/cufile.json", '{\n // "use_pci_p2pdma": false,\n "properties": {"use_pci_p2pdma": true}\n}\n')
    machine.put("/proc/kallsyms", "0000 d p2pdma_pgmap_ops\n")
    machine.put("/sys/module/nvme_core/parameters/multipath", "Y\n")
    machine.put("/proc/driver/nvidia/params", 'EnableMSI: 1\nRegistryDwords: "RMForceStaticBar1=1;"\n')
    assert machine.storage().p2pdma is None  # nobody reads by it
    machine.put("/sys/class/nvme/nvme0/model", "x")
    told = Storage(p2pdma=True, multipath=True, registry="RMForceStaticBar1=1;", use_pci_p2pdma=True, drives=1)
    assert machine.storage() == told
