"""Depthwise forward convolution of channels-last tensors: multiply and add over 16-byte channel vectors.

Written by `python -m gen render` from templates/fwd_dw.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=fwd2d_dw_k3
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ("C_in", "C_out", "channels", "x_*", "x_ptr", "y_*", "y_ptr", )

kernel_h = tl.constexpr(3)
kernel_w = tl.constexpr(3)


@triton.jit
def fwd2d_dw_k3(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, channels,
    in_h, in_w, out_h, out_w,
    x_n, x_h, x_w, w_o, w_h, w_w, y_n, y_h, y_w,
    stride_h, stride_w, pad_h, pad_w, dil_h, dil_w,
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
    o_h = n % out_h
    n = n // out_h
    start_h = o_h * stride_h - pad_h
    start_w = o_w * stride_w - pad_w
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tap in tl.static_range(3 * 3):
        k_w = tap % 3
        place = tap // 3
        k_h = place
        inside = pixel_ok
        i_h = start_h + k_h * dil_h
        inside &= (i_h >= 0) & (i_h < in_h)
        i_w = start_w + k_w * dil_w
        inside &= (i_w >= 0) & (i_w < in_w)
        x_row = tl.multiple_of(tl.where(inside, n * x_n + i_h * x_h + i_w * x_w, 0), VECTOR)
        a = tl.load(x_ptr + (x_row[:, None] + c[None, :]), mask=inside[:, None] & c_ok[None, :], other=0.0)
        b = tl.load(w_ptr + (c * w_o + k_h * w_h + k_w * w_w), mask=c_ok, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)[None, :]
    if has_bias:
        acc += tl.load(b_ptr + c * b_c, mask=c_ok, other=0.0).to(tl.float32)[None, :]
    y_row = tl.multiple_of(tl.where(pixel_ok, n * y_n + o_h * y_h + o_w * y_w, 0), VECTOR)
    tl.store(
        y_ptr + (y_row[:, None] + c[None, :]), acc.to(y_ptr.dtype.element_ty),
        mask=pixel_ok[:, None] & c_ok[None, :],
    )
