"""The offline half of aotconv: from a matrix to a wheel.

    python -m gen plan      what would be built: counts, time, size, and what was rejected
    python -m gen render    matrix -> sources, manifest, build.ninja
    python -m gen build     render, then ninja: artifacts, packs, tables, launcher
    python -m gen table     records -> tables, packs again; nothing is compiled
    python -m gen wheel     build, then dist/*.whl
    python -m gen list      what is built
    python -m gen why       what became of a variant or kernel
    python -m gen verify    whether a wheel holds what it should
    python -m gen admit     on a device: test each artifact of a wheel, write records
    python -m gen tune      on a device: time artifacts and aten, write records
    python -m gen bench     on a device: what dispatch makes of them, beside aten
    python -m gen fit       records -> cost models; needs numpy
    python -m gen check     on a device: run and judge every call of problem files
    python -m gen fuzz      on a device: run and judge random calls
"""

import sys
from importlib import import_module

# Run on a GPU machine from a wheel: torch and the standard library must do, so typer is not imported before them.
STANDALONE = {"admit": "gen.admit", "tune": "gen.tune", "bench": "gen.bench", "fit": "gen.fit", "check": "gen.check", "fuzz": "gen.fuzz"}


def main(arguments: list[str]) -> int:
    if arguments and arguments[0] in STANDALONE:
        return import_module(STANDALONE[arguments[0]]).main(arguments[1:])
    return import_module("gen.cli").main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
