"""The stub, which the kernel kills for its memory at f16 of the flat kernel."""

import os
import signal
import sys

from gen import compile as worker
from tests.build.stub_compiler import stub_compile


def broken(job, variant):
    if (variant.kernel.layout, variant.dtype) == ("flat", "f16"):
        os.kill(os.getpid(), signal.SIGKILL)
    return stub_compile(job, variant)


worker.compile_variant = broken

if __name__ == "__main__":
    sys.exit(worker.main())
