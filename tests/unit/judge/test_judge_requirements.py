"""A requirements file, as hosts and the controller read its pins."""

from gpusetup.components.judge import requirements


def test_pins_are_read_from_a_requirements_file() -> None:
    lines = [
        "--index-url https://x",
        "CuPy_cuda12x==13.4.0 \\",
        "    --hash=sha256:1",
        "torch[extra] == 2.6.0+cu124",
        "tomli==2 ; python_version<'3.11'",
        "nvidia-nvjitlink<13.1",
        "# x",
    ]
    assert requirements.pins(lines) == {"cupy-cuda12x": "13.4.0", "torch": "2.6.0+cu124"}
