"""GPU targets and which device may run what. Standard library only.

A target is named as its compiler names it: `sm_80`, `sm_90a`, `gfx942`. The shared-memory limits are the opt-in
limits per block of CUDA's programming guide and the LDS size of AMD's; the launcher asks the device again.
"""

import re
from dataclasses import dataclass

SHARED_LIMIT = {  # bytes a block may use
    "sm_80": 166_912, "sm_86": 101_376, "sm_89": 101_376, "sm_90a": 232_448, "sm_100a": 232_448, "sm_120a": 101_376,
    "gfx90a": 65_536, "gfx942": 65_536, "gfx950": 163_840, "gfx1100": 65_536,
}
# Oldest CUDA driver version (as cuDriverGetVersion gives it) that loads the target's binaries: ptxas 12.x binaries load
# on every 12.x driver that knows the architecture.
MINIMUM_DRIVER = {"sm_100a": 12_080, "sm_120a": 12_080}
OLDEST_CUDA = 12_000


@dataclass(frozen=True, order=True)
class Target:
    """One compilation target; `Target.parse` refuses what is not known."""

    name: str

    @staticmethod
    def parse(name: str) -> "Target":
        if name not in SHARED_LIMIT:
            raise ValueError(f"unknown target {name!r}; known are {', '.join(SHARED_LIMIT)}; add it to aotconv/target.py")
        return Target(name)

    @property
    def backend(self) -> str:
        return "cuda" if self.name.startswith("sm_") else "hip"

    @property
    def arch(self) -> int | str:
        """What Triton's GPUTarget takes: 90 for sm_90a, 'gfx942' for itself."""
        return int(re.sub(r"\D", "", self.name)) if self.backend == "cuda" else self.name

    @property
    def warp_size(self) -> int:
        return 64 if self.name.startswith("gfx9") else 32

    @property
    def shared_limit(self) -> int:
        return SHARED_LIMIT[self.name]

    @property
    def minimum_driver(self) -> int:
        """0 where any driver will do."""
        return MINIMUM_DRIVER.get(self.name, OLDEST_CUDA) if self.backend == "cuda" else 0

    @property
    def binary(self) -> str:
        """File suffix of an artifact."""
        return "cubin" if self.backend == "cuda" else "hsaco"


@dataclass(frozen=True)
class Device:
    """What dispatch may know of a device: never its marketing name."""

    backend: str                       # cuda or hip
    capability: tuple[int, int] = (0, 0)
    arch: str = ""                     # HIP: gfx name with features, "gfx942:sramecc+:xnack-"
    multiprocessors: int = 1
    shared_limit: int = 0


def runs_on(target: Target, device: Device) -> bool:
    """Whether binaries of `target` load on `device`.

    A plain sm_XY runs on the same major version with a minor of at least Y; an `a` target on exactly its own
    capability (CUDA programming guide, "Application Compatibility"); a gfx target on exactly its own name.
    """
    if target.backend != device.backend:
        return False
    if target.backend == "hip":
        return device.arch.split(":")[0] == target.name
    major, minor = divmod(target.arch, 10)
    if target.name.endswith("a"):
        return device.capability == (major, minor)
    return device.capability[0] == major and device.capability[1] >= minor


def best_target(names, device: Device) -> str | None:
    """The closest of `names` that runs on `device`: the highest architecture; None when there is none."""
    able = [name for name in names if name in SHARED_LIMIT and runs_on(Target(name), device)]
    return max(able, key=lambda name: (name.endswith("a"), name), default=None)
