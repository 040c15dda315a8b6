"""The smallest 64-bit ELF file with a .modinfo section: a kernel module's description without a module."""

import struct


def module(fields: dict[str, str]) -> bytes:
    information = b"".join(f"{key}={value}".encode() + b"\0" for key, value in fields.items())
    names = b"\0.modinfo\0.shstrtab\0"
    start = 64
    names_at = start + len(information)
    table = (names_at + len(names) + 7) // 8 * 8
    header = (
        b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 1, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2)
    )
    body = header + information + names
    return (
        body + bytes(table - len(body)) + bytes(64)
        + _section(1, 1, start, len(information)) + _section(10, 3, names_at, len(names))
    )  # fmt: skip


def _section(name: int, kind: int, at: int, size: int) -> bytes:
    return struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, at, size, 0, 0, 1, 0)
