"""Forward convolution of channels-last tensors: an implicit GEMM that reads 16-byte channel vectors.

Written by `python -m gen render` from templates/fwd_cl.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=fwd2d_cl_k1
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ("C_in", "C_out", "channels", "w_*", "w_ptr", "x_*", "x_ptr", "y_*", "y_ptr", )

kernel_h = tl.constexpr(1)
kernel_w = tl.constexpr(1)


@triton.jit
def fwd2d_cl_k1(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, C_in, C_out,
    in_h, in_w, out_h, out_w,
    x_n, x_h, x_w, w_o, w_h, w_w, y_n, y_h, y_w,
    stride_h, stride_w, pad_h, pad_w, dil_h, dil_w,
    tiles_m, tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):
    """y[pixel, o] = b[o] + sum over taps and c of x[pixel at tap, c] * w[o, tap, c]; BLOCK_M pixels x BLOCK_N channels."""
    VECTOR: tl.constexpr = 128 // x_ptr.dtype.element_ty.primitive_bitwidth
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
    taps = 1 * 1
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(taps * tl.cdiv(C_in, BLOCK_K)):
        # Taps vary fastest: what neighbouring taps read of x is still in cache.
        tap = step % taps
        c = step // taps * BLOCK_K + tl.arange(0, BLOCK_K)
        c_ok = c < C_in
        # C_in is a multiple of VECTOR, so a vector is inside or outside as a whole; outside, nothing is read.
        c = tl.max_contiguous(tl.multiple_of(tl.where(c_ok, c, 0), VECTOR), VECTOR)
        k_w = tap % 1
        tap = tap // 1
        k_h = tap
        inside = pixel_ok
        i_h = start_h + k_h * dil_h
        inside &= (i_h >= 0) & (i_h < in_h)
        i_w = start_w + k_w * dil_w
        inside &= (i_w >= 0) & (i_w < in_w)
        x_row = tl.multiple_of(tl.where(inside, n * x_n + i_h * x_h + i_w * x_w + group * C_in, 0), VECTOR)
        w_row = o * w_o + k_h * w_h + k_w * w_w
        a = tl.load(x_ptr + (x_row[:, None] + c[None, :]), mask=inside[:, None] & c_ok[None, :], other=0.0)
        b = tl.load(w_ptr + (w_row[None, :] + c[:, None]), mask=c_ok[:, None] & o_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    if has_bias:
        acc += tl.load(b_ptr + o * b_c, mask=o_ok, other=0.0).to(tl.float32)[None, :]
    y_row = tl.where(pixel_ok, n * y_n + o_h * y_h + o_w * y_w, 0)
    y_row = tl.multiple_of(y_row, VECTOR)
    o = tl.max_contiguous(tl.multiple_of(o, VECTOR), VECTOR)
    tl.store(
        y_ptr + (y_row[:, None] + o[None, :]), acc.to(y_ptr.dtype.element_ty),
        mask=pixel_ok[:, None] & o_ok[None, :],
    )
