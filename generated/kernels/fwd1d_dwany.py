"""Depthwise forward convolution of tensors with any strides and any channel multiplier.

Written by `python -m gen render` from templates/fwd_dwany.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=fwd1d_dwany
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ()



@triton.jit
def fwd1d_dwany(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, outputs, C_out,
    in_w, out_w,
    x_n, x_c, x_w, w_o, w_w, y_n, y_c, y_w,
    kernel_w, stride_w, pad_w, dil_w,
    tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """y[o, pixel] = b[o] + sum over taps of w[o, tap] * x[o / C_out, pixel at tap]; BLOCK_N outputs x BLOCK_M pixels."""
    tile = tl.program_id(0)
    pixel = tile // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    o = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    pixel_ok = pixel < pixels
    o_ok = o < outputs
    o = tl.where(o_ok, o, 0)
    o_w = pixel % out_w
    n = pixel // out_w
    start_w = o_w * stride_w - pad_w
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for tap in range(kernel_w):
        k_w = tap
        inside = pixel_ok
        i_w = start_w + k_w * dil_w
        inside &= (i_w >= 0) & (i_w < in_w)
        x_row = tl.where(inside, n * x_n + i_w * x_w, 0)
        x_ok = o_ok[:, None] & inside[None, :]
        a = tl.load(x_ptr + ((o // C_out * x_c)[:, None] + x_row[None, :]), mask=x_ok, other=0.0)
        b = tl.load(w_ptr + (o * w_o + k_w * w_w), mask=o_ok, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)[:, None]
    if has_bias:
        acc += tl.load(b_ptr + o * b_c, mask=o_ok, other=0.0).to(tl.float32)[:, None]
    y_row = tl.where(pixel_ok, n * y_n + o_w * y_w, 0)
    y_ok = o_ok[:, None] & pixel_ok[None, :]
    tl.store(y_ptr + ((o * y_c)[:, None] + y_row[None, :]), acc.to(y_ptr.dtype.element_ty), mask=y_ok)
