"""Depthwise forward convolution of channels-last tensors: multiply and add over 16-byte channel vectors.

Written by `python -m gen render` from templates/fwd_dw.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=fwd1d_dw
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ("C_in", "C_out", "channels", "x_*", "x_ptr", "y_*", "y_ptr", )



@triton.jit
def fwd1d_dw(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, channels,
    in_w, out_w,
    x_n, x_w, w_o, w_w, y_n, y_w,
    kernel_w, stride_w, pad_w, dil_w,
    tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """y[pixel, c] = b[c] + sum over taps of x[pixel at tap, c] * w[c, tap]; BLOCK_M pixels x BLOCK_N channels."""
    VECTOR: tl.constexpr = 128 // x_ptr.dtype.element_ty.primitive_bitwidth
    tile = tl.program_id(0)
    pixel = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    pixel_ok = pixel < pixels
    c_ok = c < channels
    # channels is a multiple of VECTOR, so a vector is inside or outside as a whole; outside, nothing is read.
    c = tl.max_contiguous(tl.multiple_of(tl.where(c_ok, c, 0), VECTOR), VECTOR)
    o_w = pixel % out_w
    n = pixel // out_w
    start_w = o_w * stride_w - pad_w
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tap in range(kernel_w):
        k_w = tap
        inside = pixel_ok
        i_w = start_w + k_w * dil_w
        inside &= (i_w >= 0) & (i_w < in_w)
        x_row = tl.multiple_of(tl.where(inside, n * x_n + i_w * x_w, 0), VECTOR)
        a = tl.load(x_ptr + (x_row[:, None] + c[None, :]), mask=inside[:, None] & c_ok[None, :], other=0.0)
        b = tl.load(w_ptr + (c * w_o + k_w * w_w), mask=c_ok, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)[None, :]
    if has_bias:
        acc += tl.load(b_ptr + c * b_c, mask=c_ok, other=0.0).to(tl.float32)[None, :]
    y_row = tl.multiple_of(tl.where(pixel_ok, n * y_n + o_w * y_w, 0), VECTOR)
    tl.store(
        y_ptr + (y_row[:, None] + c[None, :]), acc.to(y_ptr.dtype.element_ty),
        mask=pixel_ok[:, None] & c_ok[None, :],
    )
