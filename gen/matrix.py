"""The matrix: what is to be built, read from TOML into frozen values. Checks every field; expands nothing but lists."""

import hashlib
import tomllib
from dataclasses import dataclass
from pathlib import Path

from aotconv.problem import OPS
from aotconv.target import Target
from gen.variants import DTYPES, Config, Kernel, Variant, parse_config

FORMAT = 1
DEFAULT = Path(__file__).with_name("matrix.toml")
HALF = ("f16", "bf16")


class MatrixError(ValueError):
    """A matrix that cannot be used: names the file, what was found and what was expected."""


@dataclass(frozen=True)
class Entry:
    """One [[kernel]] table: a template in several structures, and the configs that ship for each dtype."""

    template: str
    kernels: tuple[Kernel, ...]
    vector: tuple[str, ...]
    unit: tuple[str, ...]
    ship: tuple[tuple[str, tuple[Config, ...]], ...]

    @property
    def variants(self) -> tuple[Variant, ...]:
        return tuple(Variant(k, dtype, c) for k in self.kernels for dtype, configs in self.ship for c in configs)


@dataclass(frozen=True)
class Seed:
    """The seed's config list and its scaling rule."""

    configs: tuple[tuple[int, ...], ...]
    small: tuple[tuple[int, ...], ...]
    classes: tuple[tuple[int, ...], ...]
    min_block: int
    accumulators_per_warp: int


@dataclass(frozen=True)
class Budgets:
    """Limits for each target."""

    artifacts: int
    megabytes: float
    spill_bytes: int


@dataclass(frozen=True)
class Matrix:
    """All of it. `digest` is the SHA-256 of the file's bytes."""

    path: Path
    digest: str
    targets: tuple[Target, ...]
    budgets: Budgets
    options: dict
    seed: Seed
    entries: tuple[Entry, ...]

    @property
    def kernels(self) -> dict[Kernel, Entry]:
        return {kernel: entry for entry in self.entries for kernel in entry.kernels}


def load_matrix(path: Path = DEFAULT) -> Matrix:
    """Read and check a matrix file."""
    try:
        data = path.read_bytes()
        table = tomllib.loads(data.decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MatrixError(f"{path}: {error}") from None
    if table.get("format") != FORMAT:
        raise MatrixError(f"{path}: format {table.get('format')!r}, this gen reads {FORMAT}; rewrite the file for it")
    try:
        matrix = Matrix(
            path, hashlib.sha256(data).hexdigest(), tuple(map(Target.parse, table["build"]["targets"])),
            Budgets(**table["budgets"]), table["options"], read_seed(table["seed"]),
            tuple(read_entry(path, row) for row in table["kernel"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise MatrixError(f"{path}: {type(error).__name__}: {error}") from None
    check_unique(matrix)
    return matrix


def read_seed(row: dict) -> Seed:
    lists = {key: tuple(map(tuple, row[key])) for key in ("configs", "small", "classes")}
    return Seed(**lists, min_block=row["min_block"], accumulators_per_warp=row["accumulators_per_warp"])


def read_entry(path: Path, row: dict) -> Entry:
    row = dict(row)
    template, op, layout = row.pop("template"), row.pop("op"), row.pop("layout")
    ranks, pins, index, ship = row.pop("ranks"), row.pop("pins"), row.pop("index", "i32"), row.pop("ship")
    vector, unit = tuple(row.pop("vector", ())), tuple(row.pop("unit", ()))
    if row:
        raise MatrixError(f"{path}: unknown key {sorted(row)[0]!r} in [[kernel]] {template}/{layout}")
    if op not in OPS:
        raise MatrixError(f"{path}: op {op!r}, expected one of {', '.join(OPS)}")
    kernels = tuple(Kernel(op, rank, layout, pin, index) for rank in ranks for pin in pins)
    return Entry(template, kernels, vector, unit, tuple(read_ship(path, ship)))


def read_ship(path: Path, ship: dict):
    for key, names in ship.items():
        dtypes = HALF if key == "half" else (key,)
        if not set(dtypes) <= set(DTYPES):
            raise MatrixError(f"{path}: ship.{key}, expected half or one of {', '.join(DTYPES)}")
        for dtype in dtypes:
            yield dtype, tuple(map(parse_config, names))


def check_unique(matrix: Matrix):
    seen = set()
    for entry in matrix.entries:
        for variant in entry.variants:
            if variant.name in seen:
                raise MatrixError(f"{matrix.path}: {variant.name} is listed twice; remove one")
            seen.add(variant.name)
