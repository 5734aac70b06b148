"""The matrix: what is to be built, read from TOML into frozen values. Checks every field; expands nothing but lists."""

import hashlib
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from aotconv.problem import OPS
from aotconv.target import Target
from gen.variants import DTYPES, NAME_LIMIT, Config, Kernel, Variant, parse_config, parse_variant

FORMAT = 1
DEFAULT = Path(__file__).with_name("matrix.toml")
TEMPLATES = Path(__file__).parent.parent / "templates"
TABLES = ("format", "build", "budgets", "options", "seed", "kernel")
RANKS, INDEXES = (1, 2, 3), ("i32", "i64")
MAPS = ("", "im2col", "tiled")
HALF = ("f16", "bf16")


class MatrixError(ValueError):
    """A matrix that cannot be used: names the file, what was found and what was expected."""


@dataclass(frozen=True)
class Entry:
    """One [[kernel]] table: a template in several structures, and the configs that ship for each dtype.

    targets: names of the only targets it is compiled for; empty for all. maps: how x is read through a tensor map,
    empty where every tensor is read through pointers. swapped: channels, not pixels, are the rows of the product.
    """

    template: str
    kernels: tuple[Kernel, ...]
    vector: tuple[str, ...]
    unit: tuple[str, ...]
    requires: tuple[tuple, ...]
    ship: tuple[tuple[str, tuple[Config, ...]], ...]
    targets: tuple[str, ...] = ()
    maps: str = ""
    swapped: bool = False

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
    depthwise: tuple[tuple[int, ...], ...]
    depthwise_batches: tuple[int, ...]


@dataclass(frozen=True)
class Budgets:
    """Limits for each target."""

    artifacts: int
    megabytes: float
    cpu_seconds: float
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
    default: tuple[str, ...]

    @cached_property
    def kernels(self) -> dict[Kernel, Entry]:
        return {kernel: entry for entry in self.entries for kernel in entry.kernels}


def load_matrix(path: Path = DEFAULT) -> Matrix:
    """Read and check a matrix file."""
    try:
        data = path.read_bytes()
        table = tomllib.loads(data.decode())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise MatrixError(f"{path}: {error}") from None
    check_tables(path, table)
    try:
        matrix = Matrix(
            path, hashlib.sha256(data).hexdigest(), tuple(map(Target.parse, table["build"]["targets"])),
            Budgets(**table["budgets"]), table["options"], read_seed(table["seed"]),
            tuple(read_entry(path, row) for row in table["kernel"]),
            tuple(table["build"].get("default", table["build"]["targets"])),
        )
    except KeyError as error:
        raise MatrixError(f"{path}: {error} is missing; gen/matrix.toml shows every key") from None
    except (TypeError, ValueError) as error:
        raise error if isinstance(error, MatrixError) else MatrixError(f"{path}: {error}") from None
    if strangers := sorted(set(matrix.default) - {target.name for target in matrix.targets}):
        raise MatrixError(f"{path}: build.default names {strangers[0]!r}, which is not in build.targets")
    check_unique(matrix)
    return matrix


def check_tables(path: Path, table: dict):
    if table.get("format") != FORMAT:
        raise MatrixError(f"{path}: format {table.get('format')!r}, this gen reads {FORMAT}; rewrite the file for it")
    if unknown := sorted(set(table) - set(TABLES)):
        raise MatrixError(f"{path}: unknown table {unknown[0]!r}, expected {', '.join(TABLES)}")


def read_seed(row: dict) -> Seed:
    lists = {key: tuple(map(tuple, row[key])) for key in ("configs", "small", "classes")}
    lists["depthwise"] = tuple(map(tuple, row.get("depthwise", ())))  # a matrix without depthwise kernels needs none
    return Seed(**lists, min_block=row["min_block"], accumulators_per_warp=row["accumulators_per_warp"],
                depthwise_batches=tuple(row.get("depthwise_batches", ())))


def read_entry(path: Path, row: dict) -> Entry:
    row = dict(row)
    template, op, layout = row.pop("template"), row.pop("op"), row.pop("layout")
    ranks, pins, index, ship = row.pop("ranks"), row.pop("pins"), row.pop("index", "i32"), row.pop("ship")
    vector, unit = tuple(row.pop("vector", ())), tuple(row.pop("unit", ()))
    requires = tuple(map(tuple, row.pop("requires", ())))
    targets, maps, swapped = tuple(row.pop("targets", ())), row.pop("maps", ""), row.pop("swapped", False)
    if row:
        raise MatrixError(f"{path}: unknown key {sorted(row)[0]!r} in [[kernel]] {template}/{layout}")
    if op not in OPS:
        raise MatrixError(f"{path}: op {op!r}, expected one of {', '.join(OPS)}")
    if index not in INDEXES or not set(ranks) <= set(RANKS):
        raise MatrixError(f"{path}: index {index!r} and ranks {ranks}, expected {' or '.join(INDEXES)} and some of {list(RANKS)}")
    if maps not in MAPS:
        raise MatrixError(f"{path}: maps {maps!r} in [[kernel]] {template}/{layout}, expected im2col or tiled, or no such key")
    for name in targets:
        Target.parse(name)
    if not (TEMPLATES / f"{template}.py.j2").is_file():
        raise MatrixError(f"{path}: template {template!r}, expected one in templates/: no {template}.py.j2 there")
    kernels = tuple(Kernel(op, rank, layout, pin, index) for rank in ranks for pin in pins)
    return Entry(template, kernels, vector, unit, requires, tuple(read_ship(path, ship)), targets, maps, swapped)


def read_ship(path: Path, ship: dict):
    for key, names in ship.items():
        dtypes = HALF if key == "half" else (key,)
        if not set(dtypes) <= set(DTYPES):
            raise MatrixError(f"{path}: ship.{key}, expected half or one of {', '.join(DTYPES)}")
        for dtype in dtypes:
            yield dtype, tuple(map(parse_config, names))


def check_unique(matrix: Matrix):
    """Names are what they stand for: each once, no kernel from two templates, and each reads back as its variant."""
    seen, makers = set(), {}
    for name in [t.name for t in matrix.targets] + [v.name for entry in matrix.entries for v in entry.variants]:
        if name in seen:
            raise MatrixError(f"{matrix.path}: {name} is listed twice; remove one")
        seen.add(name)
    for entry in matrix.entries:
        for variant in entry.variants:
            check_name(matrix.path, variant)
            if makers.setdefault(variant.kernel.name, entry) is not entry:
                raise MatrixError(f"{matrix.path}: {variant.kernel.name} comes from two [[kernel]] tables; give it one")


def check_name(path: Path, variant: Variant):
    try:
        same = parse_variant(variant.name) == variant
    except ValueError:
        same = False
    if not same or len(variant.name) > NAME_LIMIT:
        raise MatrixError(f"{path}: the name {variant.name!r} does not read back as its variant in {NAME_LIMIT} bytes; "
                          "a layout is lower-case letters, a pin a number, a tile letter-number pairs")
