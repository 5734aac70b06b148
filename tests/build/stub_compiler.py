"""gen.compile with a hash in the place of Triton: `python -m tests.build.stub_compiler ...`, for tests of the build."""

import hashlib
import sys

from aotconv.pack import Artifact
from gen import compile as worker


def stub_compile(job, variant):
    """(Artifact, bytes, seconds): bytes that change with whatever would change a real binary."""
    with open("compiled.log", "a") as log:
        log.write(f"{variant.name}\n")
    call = worker.read_call(job, variant)
    data = hashlib.sha256(repr((job.text, job.toolchain, job.target, variant.name, call)).encode()).digest() * 100
    artifact = Artifact(variant.name, variant.kernel.name, variant.dtype, variant.config.constants, variant.kernel.name, 1, 32,
                        0, 1, 0, 32, 0, call.arguments, hashlib.sha256(data).hexdigest(), len(data))
    return artifact, data, 0.0


worker.compile_variant = stub_compile
worker.FORMAT = "stub"  # part of each artifact's identity: gen.compile takes none of these for its own

if __name__ == "__main__":
    sys.exit(worker.main())
