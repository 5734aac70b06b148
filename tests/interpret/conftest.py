"""Kernels run on the CPU by Triton's interpreter: the variable must be set before Triton is first imported."""

import os

os.environ["TRITON_INTERPRET"] = "1"
