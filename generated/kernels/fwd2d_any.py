"""Forward convolution of tensors with any strides: an implicit GEMM that gathers element by element.

Written by `python -m gen render` from templates/fwd_any.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=fwd2d_any
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ()



@triton.jit
def fwd2d_any(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, C_in, C_out,
    in_h, in_w, out_h, out_w,
    x_n, x_c, x_h, x_w, w_o, w_c, w_h, w_w, y_n, y_c, y_h, y_w,
    kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w,
    tiles_m, tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):
    """y[o, pixel] = b[o] + sum over k = (c, tap) of w[o, k] * x[k, pixel]; BLOCK_N channels x BLOCK_M pixels."""
    # A flat grid, since only the x axis may pass 65,535. Channel tiles vary fastest: they share their pixels.
    tile = tl.program_id(0)
    tile_n = tile % tiles_n
    tile_m = tile // tiles_n % tiles_m
    group = tile // (tiles_n * tiles_m)
    pixel = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    o = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    pixel_ok = pixel < pixels
    o_ok = o < C_out
    o = tl.where(o_ok, group * C_out + o, 0)
    o_w = pixel % out_w
    n = pixel // out_w
    o_h = n % out_h
    n = n // out_h
    start_h = o_h * stride_h - pad_h
    start_w = o_w * stride_w - pad_w
    taps = kernel_h * kernel_w
    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for k in range(0, C_in * taps, BLOCK_K):
        k = k + tl.arange(0, BLOCK_K)
        k_ok = k < C_in * taps
        c = k // taps
        tap = k % taps
        k_w = tap % kernel_w
        tap = tap // kernel_w
        k_h = tap
        inside = k_ok[:, None] & pixel_ok[None, :]
        i_h = start_h[None, :] + (k_h * dil_h)[:, None]
        inside &= (i_h >= 0) & (i_h < in_h)
        i_w = start_w[None, :] + (k_w * dil_w)[:, None]
        inside &= (i_w >= 0) & (i_w < in_w)
        x_offset = (n * x_n)[None, :] + ((group * C_in + c) * x_c)[:, None] + i_h * x_h + i_w * x_w
        w_offset = (o * w_o)[:, None] + (c * w_c + k_h * w_h + k_w * w_w)[None, :]
        w_ok = o_ok[:, None] & k_ok[None, :]
        a = tl.load(w_ptr + tl.where(w_ok, w_offset, 0), mask=w_ok, other=0.0)
        b = tl.load(x_ptr + tl.where(inside, x_offset, 0), mask=inside, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    if has_bias:
        acc += tl.load(b_ptr + o * b_c, mask=o_ok, other=0.0).to(tl.float32)[:, None]
    y_ok = o_ok[:, None] & pixel_ok[None, :]
    y_offset = (o * y_c)[:, None] + (n * y_n + o_h * y_h + o_w * y_w)[None, :]
    tl.store(y_ptr + tl.where(y_ok, y_offset, 0), acc.to(y_ptr.dtype.element_ty), mask=y_ok)
