"""The stub, whose f16 of the flat kernel spills."""

import sys
from dataclasses import replace

from gen import compile as worker
from tests.build.stub_compiler import stub_compile


def broken(job, variant):
    artifact, data, seconds = stub_compile(job, variant)
    spills = 4096 if (variant.kernel.layout, variant.dtype) == ("flat", "f16") else 0
    return replace(artifact, spills=spills), data, seconds


worker.compile_variant = broken

if __name__ == "__main__":
    sys.exit(worker.main())
