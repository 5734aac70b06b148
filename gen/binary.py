"""What a compiled binary says of itself: parameter sizes, registers, local memory. Checked against what we think it is.

A cubin is an ELF file whose `.nv.info.<kernel>` section lists attributes (NVIDIA's cuobjdump shows the same); an hsaco
carries the metadata that its assembly text spells out (LLVM's AMDGPU back-end guide, "Code Object V5 Metadata").
"""

import re
import struct
from dataclasses import dataclass

PARAMETER, REGISTERS, FRAME = 0x17, 0x2F, 0x11  # EIATTR_KPARAM_INFO, EIATTR_REGCOUNT, EIATTR_FRAME_SIZE
SIZED_FORMAT = 0x04                             # the attribute's value is a counted string of bytes


@dataclass(frozen=True)
class Facts:
    """Sizes of the parameters in order (bytes), registers and local memory of a thread (bytes)."""

    parameters: tuple[int, ...]
    registers: int
    spills: int


def cubin_facts(data: bytes, symbol: str) -> Facts:
    """Read a cubin that holds one kernel."""
    sections = elf_sections(data)
    found = {}
    for attribute, value in nv_info(sections[f".nv.info.{symbol}"]):
        if attribute == PARAMETER:
            _, ordinal, _, packed = struct.unpack("<IHHI", value)
            found[ordinal] = packed >> 18
    totals = {a: struct.unpack("<II", value)[1] for a, value in nv_info(sections[".nv.info"]) if a in (REGISTERS, FRAME)}
    return Facts(tuple(found[i] for i in sorted(found)), totals.get(REGISTERS, 0), totals.get(FRAME, 0))


def elf_sections(data: bytes) -> dict[str, bytes]:
    """Section name -> bytes of a 64-bit little-endian ELF file."""
    table, size, count, names_at = struct.unpack_from("<Q", data, 0x28)[0], *struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    strings = data[headers[names_at][4] :]
    name = lambda at: strings[at : strings.index(b"\0", at)].decode()
    return {name(h[0]): data[h[4] : h[4] + h[5]] for h in headers}


def nv_info(section: bytes):
    """(attribute, value) of each record of an .nv.info section that carries bytes."""
    at = 0
    while at + 4 <= len(section):
        form, attribute, size = struct.unpack_from("<BBH", section, at)
        at += 4
        if form == SIZED_FORMAT:
            yield attribute, section[at : at + size]
            at += size


def hsaco_facts(assembly: str) -> Facts:
    """Read the metadata of an AMD kernel from its assembly text."""
    arguments = assembly[assembly.index(".args:") : assembly.index(".group_segment_fixed_size:", assembly.index(".args:"))]
    number = lambda key: int(re.search(rf"\.{key}:\s*(\d+)", assembly)[1])
    # Hidden arguments follow ours; HIP's own launch fills them in.
    pairs = re.findall(r"\.size:\s*(\d+)\s+\.value_kind:\s*(\w+)", arguments)
    sizes = [int(size) for size, kind in pairs if not kind.startswith("hidden_")]
    return Facts(tuple(sizes), number("vgpr_count"), number("private_segment_fixed_size"))
