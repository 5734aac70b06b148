"""Depthwise forward convolution, channels-last, stride 1: each program keeps 4 x 4 outputs a lane in registers.

Written by `python -m gen render` from templates/fwd_dwt.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=fwd2d_dwt_k3
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ("C_in", "C_out", "channels", "x_*", "x_ptr", "y_*", "y_ptr", )

kernel_h = tl.constexpr(3)
kernel_w = tl.constexpr(3)


@triton.jit
def fwd2d_dwt_k3(
    x_ptr, w_ptr, b_ptr, y_ptr,
    channels,
    in_h, in_w, out_h, out_w,
    x_n, x_h, x_w, w_o, w_h, w_w, y_n, y_h, y_w,
    pad_h, pad_w,
    tiles_h, tiles_v, tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_H: tl.constexpr, BLOCK_V: tl.constexpr,
):
    """y[pixel, c] = b[c] + sum over taps of x[pixel at tap, c] * w[c, tap]; BLOCK_H rows x BLOCK_M * BLOCK_V columns x
    BLOCK_N channels. An input that is loaded and widened once meets every tap of every output of its lane."""
    tl.static_assert(BLOCK_H == 4 and BLOCK_V == 4, "this kernel is unrolled for one tile a lane")
    VECTOR: tl.constexpr = 128 // x_ptr.dtype.element_ty.primitive_bitwidth
    tile = tl.program_id(0)
    c = tile % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    column = (tile // tiles_n % tiles_v * BLOCK_M + tl.arange(0, BLOCK_M)) * BLOCK_V
    row = tile // (tiles_n * tiles_v) % tiles_h * BLOCK_H
    n = tile // (tiles_n * tiles_v * tiles_h)
    c_ok = c < channels
    # channels is a multiple of VECTOR, so a vector is inside or outside as a whole; outside, nothing is read.
    c = tl.max_contiguous(tl.multiple_of(tl.where(c_ok, c, 0), VECTOR), VECTOR)
    w_row = w_ptr + c * w_o
    i_0 = row - pad_h + 0
    ok_0 = (i_0 >= 0) & (i_0 < in_h)
    x_0 = tl.multiple_of(tl.where(ok_0, n * x_n + i_0 * x_h, 0), VECTOR)
    i_1 = row - pad_h + 1
    ok_1 = (i_1 >= 0) & (i_1 < in_h)
    x_1 = tl.multiple_of(tl.where(ok_1, n * x_n + i_1 * x_h, 0), VECTOR)
    i_2 = row - pad_h + 2
    ok_2 = (i_2 >= 0) & (i_2 < in_h)
    x_2 = tl.multiple_of(tl.where(ok_2, n * x_n + i_2 * x_h, 0), VECTOR)
    i_3 = row - pad_h + 3
    ok_3 = (i_3 >= 0) & (i_3 < in_h)
    x_3 = tl.multiple_of(tl.where(ok_3, n * x_n + i_3 * x_h, 0), VECTOR)
    i_4 = row - pad_h + 4
    ok_4 = (i_4 >= 0) & (i_4 < in_h)
    x_4 = tl.multiple_of(tl.where(ok_4, n * x_n + i_4 * x_h, 0), VECTOR)
    i_5 = row - pad_h + 5
    ok_5 = (i_5 >= 0) & (i_5 < in_h)
    x_5 = tl.multiple_of(tl.where(ok_5, n * x_n + i_5 * x_h, 0), VECTOR)
    y_0_0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_0_1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_0_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_0_3 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_1_0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_1_1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_1_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_1_3 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_2_0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_2_1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_2_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_2_3 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_3_0 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_3_1 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_3_2 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    y_3_3 = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    # Input column 0
    w_0_0 = tl.load(w_row + (0 * w_h + 0 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    w_1_0 = tl.load(w_row + (1 * w_h + 0 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    w_2_0 = tl.load(w_row + (2 * w_h + 0 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    i_w = column - pad_w + 0
    inside = (i_w >= 0) & (i_w < in_w)
    at = tl.multiple_of(tl.where(inside, i_w * x_w, 0), VECTOR)[:, None] + c[None, :]
    ok = inside[:, None] & c_ok[None, :]
    x = tl.load(x_ptr + (x_0 + at), mask=ok & ok_0, other=0.0).to(tl.float32)
    y_0_0 += x * w_0_0
    x = tl.load(x_ptr + (x_1 + at), mask=ok & ok_1, other=0.0).to(tl.float32)
    y_0_0 += x * w_1_0
    y_1_0 += x * w_0_0
    x = tl.load(x_ptr + (x_2 + at), mask=ok & ok_2, other=0.0).to(tl.float32)
    y_0_0 += x * w_2_0
    y_1_0 += x * w_1_0
    y_2_0 += x * w_0_0
    x = tl.load(x_ptr + (x_3 + at), mask=ok & ok_3, other=0.0).to(tl.float32)
    y_1_0 += x * w_2_0
    y_2_0 += x * w_1_0
    y_3_0 += x * w_0_0
    x = tl.load(x_ptr + (x_4 + at), mask=ok & ok_4, other=0.0).to(tl.float32)
    y_2_0 += x * w_2_0
    y_3_0 += x * w_1_0
    x = tl.load(x_ptr + (x_5 + at), mask=ok & ok_5, other=0.0).to(tl.float32)
    y_3_0 += x * w_2_0
    # Input column 1
    w_0_1 = tl.load(w_row + (0 * w_h + 1 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    w_1_1 = tl.load(w_row + (1 * w_h + 1 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    w_2_1 = tl.load(w_row + (2 * w_h + 1 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    i_w = column - pad_w + 1
    inside = (i_w >= 0) & (i_w < in_w)
    at = tl.multiple_of(tl.where(inside, i_w * x_w, 0), VECTOR)[:, None] + c[None, :]
    ok = inside[:, None] & c_ok[None, :]
    x = tl.load(x_ptr + (x_0 + at), mask=ok & ok_0, other=0.0).to(tl.float32)
    y_0_0 += x * w_0_1
    y_0_1 += x * w_0_0
    x = tl.load(x_ptr + (x_1 + at), mask=ok & ok_1, other=0.0).to(tl.float32)
    y_0_0 += x * w_1_1
    y_0_1 += x * w_1_0
    y_1_0 += x * w_0_1
    y_1_1 += x * w_0_0
    x = tl.load(x_ptr + (x_2 + at), mask=ok & ok_2, other=0.0).to(tl.float32)
    y_0_0 += x * w_2_1
    y_0_1 += x * w_2_0
    y_1_0 += x * w_1_1
    y_1_1 += x * w_1_0
    y_2_0 += x * w_0_1
    y_2_1 += x * w_0_0
    x = tl.load(x_ptr + (x_3 + at), mask=ok & ok_3, other=0.0).to(tl.float32)
    y_1_0 += x * w_2_1
    y_1_1 += x * w_2_0
    y_2_0 += x * w_1_1
    y_2_1 += x * w_1_0
    y_3_0 += x * w_0_1
    y_3_1 += x * w_0_0
    x = tl.load(x_ptr + (x_4 + at), mask=ok & ok_4, other=0.0).to(tl.float32)
    y_2_0 += x * w_2_1
    y_2_1 += x * w_2_0
    y_3_0 += x * w_1_1
    y_3_1 += x * w_1_0
    x = tl.load(x_ptr + (x_5 + at), mask=ok & ok_5, other=0.0).to(tl.float32)
    y_3_0 += x * w_2_1
    y_3_1 += x * w_2_0
    # Input column 2
    w_0_2 = tl.load(w_row + (0 * w_h + 2 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    w_1_2 = tl.load(w_row + (1 * w_h + 2 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    w_2_2 = tl.load(w_row + (2 * w_h + 2 * w_w), mask=c_ok, other=0.0).to(tl.float32)[None, :]
    i_w = column - pad_w + 2
    inside = (i_w >= 0) & (i_w < in_w)
    at = tl.multiple_of(tl.where(inside, i_w * x_w, 0), VECTOR)[:, None] + c[None, :]
    ok = inside[:, None] & c_ok[None, :]
    x = tl.load(x_ptr + (x_0 + at), mask=ok & ok_0, other=0.0).to(tl.float32)
    y_0_0 += x * w_0_2
    y_0_1 += x * w_0_1
    y_0_2 += x * w_0_0
    x = tl.load(x_ptr + (x_1 + at), mask=ok & ok_1, other=0.0).to(tl.float32)
    y_0_0 += x * w_1_2
    y_0_1 += x * w_1_1
    y_0_2 += x * w_1_0
    y_1_0 += x * w_0_2
    y_1_1 += x * w_0_1
    y_1_2 += x * w_0_0
    x = tl.load(x_ptr + (x_2 + at), mask=ok & ok_2, other=0.0).to(tl.float32)
    y_0_0 += x * w_2_2
    y_0_1 += x * w_2_1
    y_0_2 += x * w_2_0
    y_1_0 += x * w_1_2
    y_1_1 += x * w_1_1
    y_1_2 += x * w_1_0
    y_2_0 += x * w_0_2
    y_2_1 += x * w_0_1
    y_2_2 += x * w_0_0
    x = tl.load(x_ptr + (x_3 + at), mask=ok & ok_3, other=0.0).to(tl.float32)
    y_1_0 += x * w_2_2
    y_1_1 += x * w_2_1
    y_1_2 += x * w_2_0
    y_2_0 += x * w_1_2
    y_2_1 += x * w_1_1
    y_2_2 += x * w_1_0
    y_3_0 += x * w_0_2
    y_3_1 += x * w_0_1
    y_3_2 += x * w_0_0
    x = tl.load(x_ptr + (x_4 + at), mask=ok & ok_4, other=0.0).to(tl.float32)
    y_2_0 += x * w_2_2
    y_2_1 += x * w_2_1
    y_2_2 += x * w_2_0
    y_3_0 += x * w_1_2
    y_3_1 += x * w_1_1
    y_3_2 += x * w_1_0
    x = tl.load(x_ptr + (x_5 + at), mask=ok & ok_5, other=0.0).to(tl.float32)
    y_3_0 += x * w_2_2
    y_3_1 += x * w_2_1
    y_3_2 += x * w_2_0
    # Input column 3
    i_w = column - pad_w + 3
    inside = (i_w >= 0) & (i_w < in_w)
    at = tl.multiple_of(tl.where(inside, i_w * x_w, 0), VECTOR)[:, None] + c[None, :]
    ok = inside[:, None] & c_ok[None, :]
    x = tl.load(x_ptr + (x_0 + at), mask=ok & ok_0, other=0.0).to(tl.float32)
    y_0_1 += x * w_0_2
    y_0_2 += x * w_0_1
    y_0_3 += x * w_0_0
    x = tl.load(x_ptr + (x_1 + at), mask=ok & ok_1, other=0.0).to(tl.float32)
    y_0_1 += x * w_1_2
    y_0_2 += x * w_1_1
    y_0_3 += x * w_1_0
    y_1_1 += x * w_0_2
    y_1_2 += x * w_0_1
    y_1_3 += x * w_0_0
    x = tl.load(x_ptr + (x_2 + at), mask=ok & ok_2, other=0.0).to(tl.float32)
    y_0_1 += x * w_2_2
    y_0_2 += x * w_2_1
    y_0_3 += x * w_2_0
    y_1_1 += x * w_1_2
    y_1_2 += x * w_1_1
    y_1_3 += x * w_1_0
    y_2_1 += x * w_0_2
    y_2_2 += x * w_0_1
    y_2_3 += x * w_0_0
    x = tl.load(x_ptr + (x_3 + at), mask=ok & ok_3, other=0.0).to(tl.float32)
    y_1_1 += x * w_2_2
    y_1_2 += x * w_2_1
    y_1_3 += x * w_2_0
    y_2_1 += x * w_1_2
    y_2_2 += x * w_1_1
    y_2_3 += x * w_1_0
    y_3_1 += x * w_0_2
    y_3_2 += x * w_0_1
    y_3_3 += x * w_0_0
    x = tl.load(x_ptr + (x_4 + at), mask=ok & ok_4, other=0.0).to(tl.float32)
    y_2_1 += x * w_2_2
    y_2_2 += x * w_2_1
    y_2_3 += x * w_2_0
    y_3_1 += x * w_1_2
    y_3_2 += x * w_1_1
    y_3_3 += x * w_1_0
    x = tl.load(x_ptr + (x_5 + at), mask=ok & ok_5, other=0.0).to(tl.float32)
    y_3_1 += x * w_2_2
    y_3_2 += x * w_2_1
    y_3_3 += x * w_2_0
    # Input column 4
    i_w = column - pad_w + 4
    inside = (i_w >= 0) & (i_w < in_w)
    at = tl.multiple_of(tl.where(inside, i_w * x_w, 0), VECTOR)[:, None] + c[None, :]
    ok = inside[:, None] & c_ok[None, :]
    x = tl.load(x_ptr + (x_0 + at), mask=ok & ok_0, other=0.0).to(tl.float32)
    y_0_2 += x * w_0_2
    y_0_3 += x * w_0_1
    x = tl.load(x_ptr + (x_1 + at), mask=ok & ok_1, other=0.0).to(tl.float32)
    y_0_2 += x * w_1_2
    y_0_3 += x * w_1_1
    y_1_2 += x * w_0_2
    y_1_3 += x * w_0_1
    x = tl.load(x_ptr + (x_2 + at), mask=ok & ok_2, other=0.0).to(tl.float32)
    y_0_2 += x * w_2_2
    y_0_3 += x * w_2_1
    y_1_2 += x * w_1_2
    y_1_3 += x * w_1_1
    y_2_2 += x * w_0_2
    y_2_3 += x * w_0_1
    x = tl.load(x_ptr + (x_3 + at), mask=ok & ok_3, other=0.0).to(tl.float32)
    y_1_2 += x * w_2_2
    y_1_3 += x * w_2_1
    y_2_2 += x * w_1_2
    y_2_3 += x * w_1_1
    y_3_2 += x * w_0_2
    y_3_3 += x * w_0_1
    x = tl.load(x_ptr + (x_4 + at), mask=ok & ok_4, other=0.0).to(tl.float32)
    y_2_2 += x * w_2_2
    y_2_3 += x * w_2_1
    y_3_2 += x * w_1_2
    y_3_3 += x * w_1_1
    x = tl.load(x_ptr + (x_5 + at), mask=ok & ok_5, other=0.0).to(tl.float32)
    y_3_2 += x * w_2_2
    y_3_3 += x * w_2_1
    # Input column 5
    i_w = column - pad_w + 5
    inside = (i_w >= 0) & (i_w < in_w)
    at = tl.multiple_of(tl.where(inside, i_w * x_w, 0), VECTOR)[:, None] + c[None, :]
    ok = inside[:, None] & c_ok[None, :]
    x = tl.load(x_ptr + (x_0 + at), mask=ok & ok_0, other=0.0).to(tl.float32)
    y_0_3 += x * w_0_2
    x = tl.load(x_ptr + (x_1 + at), mask=ok & ok_1, other=0.0).to(tl.float32)
    y_0_3 += x * w_1_2
    y_1_3 += x * w_0_2
    x = tl.load(x_ptr + (x_2 + at), mask=ok & ok_2, other=0.0).to(tl.float32)
    y_0_3 += x * w_2_2
    y_1_3 += x * w_1_2
    y_2_3 += x * w_0_2
    x = tl.load(x_ptr + (x_3 + at), mask=ok & ok_3, other=0.0).to(tl.float32)
    y_1_3 += x * w_2_2
    y_2_3 += x * w_1_2
    y_3_3 += x * w_0_2
    x = tl.load(x_ptr + (x_4 + at), mask=ok & ok_4, other=0.0).to(tl.float32)
    y_2_3 += x * w_2_2
    y_3_3 += x * w_1_2
    x = tl.load(x_ptr + (x_5 + at), mask=ok & ok_5, other=0.0).to(tl.float32)
    y_3_3 += x * w_2_2
    bias = tl.load(b_ptr + c * b_c, mask=c_ok & (has_bias != 0), other=0.0).to(tl.float32)[None, :]
    y_row = n * y_n + (row + 0) * y_h
    y_ok = (row + 0 < out_h) & (column + 0 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 0) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_0_0 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 0 < out_h) & (column + 1 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 1) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_0_1 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 0 < out_h) & (column + 2 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 2) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_0_2 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 0 < out_h) & (column + 3 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 3) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_0_3 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_row = n * y_n + (row + 1) * y_h
    y_ok = (row + 1 < out_h) & (column + 0 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 0) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_1_0 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 1 < out_h) & (column + 1 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 1) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_1_1 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 1 < out_h) & (column + 2 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 2) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_1_2 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 1 < out_h) & (column + 3 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 3) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_1_3 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_row = n * y_n + (row + 2) * y_h
    y_ok = (row + 2 < out_h) & (column + 0 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 0) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_2_0 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 2 < out_h) & (column + 1 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 1) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_2_1 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 2 < out_h) & (column + 2 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 2) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_2_2 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 2 < out_h) & (column + 3 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 3) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_2_3 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_row = n * y_n + (row + 3) * y_h
    y_ok = (row + 3 < out_h) & (column + 0 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 0) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_3_0 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 3 < out_h) & (column + 1 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 1) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_3_1 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 3 < out_h) & (column + 2 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 2) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_3_2 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
    y_ok = (row + 3 < out_h) & (column + 3 < out_w)
    y_at = tl.multiple_of(tl.where(y_ok, y_row + (column + 3) * y_w, 0), VECTOR)[:, None] + c[None, :]
    tl.store(y_ptr + y_at, (y_3_3 + bias).to(y_ptr.dtype.element_ty), mask=y_ok[:, None] & c_ok[None, :])
