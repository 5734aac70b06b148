"""The stub, which cannot compile f16 of the flat kernel."""

import sys

from gen import compile as worker
from tests.build.stub_compiler import stub_compile


def broken(job, variant):
    if (variant.kernel.layout, variant.dtype) == ("flat", "f16"):
        raise RuntimeError("no such instruction")
    return stub_compile(job, variant)


worker.compile_variant = broken

if __name__ == "__main__":
    sys.exit(worker.main())
