"""Gradient of the input (or transposed convolution) of channels-last tensors: an implicit GEMM by phase.

Written by `python -m gen render` from templates/bwdx_cl.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdx1d_cl
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ("C_in", "C_out", "channels", "w_*", "w_ptr", "x_*", "x_ptr", "y_*", "y_ptr", )



@triton.jit
def bwdx1d_cl(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, C_in, C_out,
    in_w, out_w, cell_w,
    x_n, x_w, w_o, w_w, y_n, y_w,
    kernel_w, stride_w, pad_w, dil_w,
    step_w, hop_w,
    tiles_m, tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PRECISION: tl.constexpr,
):
    """x[pixel, c] = b[c] + sum over taps and o of y[pixel at tap, o] * w[o, tap, c]; BLOCK_M pixels x BLOCK_N channels."""
    VECTOR: tl.constexpr = 128 // y_ptr.dtype.element_ty.primitive_bitwidth
    # A flat grid, since only the x axis may pass 65,535: channel tiles, pixel tiles of a phase, phases, groups.
    tile = tl.program_id(0)
    tile_n = tile % tiles_n
    tile_m = tile // tiles_n % tiles_m
    group = tile // (tiles_n * tiles_m)
    phase_w = group % stride_w
    group = group // stride_w
    pixel = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ok = c < C_in
    c = tl.max_contiguous(tl.multiple_of(tl.where(c_ok, c, 0), VECTOR), VECTOR)
    i_w = pixel % cell_w
    n = pixel // cell_w
    pixel_ok = pixel < pixels
    i_w = i_w * stride_w + phase_w
    pixel_ok &= i_w < in_w
    first_w = step_w * 0
    while (first_w < step_w) & ((phase_w + pad_w - first_w * dil_w) % stride_w != 0):
        first_w += 1
    # No tap of this phase meets an output position when the search ran through.
    taps_w = tl.where(first_w < step_w, tl.maximum(tl.cdiv(kernel_w - first_w, step_w), 0), 0)
    start_w = (i_w + pad_w - first_w * dil_w) // stride_w
    visits = taps_w
    # Divisors must not be 0 even where nothing is visited: the pipeliner divides before it knows, and LLVM then takes
    # the loop to run at least once.
    taps_w = tl.maximum(taps_w, 1)
    taps = taps_w
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(visits * tl.cdiv(C_out, BLOCK_K)):
        tap = step % taps
        o = step // taps * BLOCK_K + tl.arange(0, BLOCK_K)
        o_ok = o < C_out
        # C_out is a multiple of VECTOR, so a vector is inside or outside as a whole; outside, nothing is read.
        o = tl.max_contiguous(tl.multiple_of(tl.where(o_ok, o, 0), VECTOR), VECTOR)
        t_w = tap
        k_w = first_w + t_w * step_w
        inside = pixel_ok
        o_w = start_w - t_w * hop_w
        inside &= (o_w >= 0) & (o_w < out_w)
        y_row = tl.multiple_of(tl.where(inside, n * y_n + o_w * y_w + group * C_out, 0), VECTOR)
        w_row = tl.multiple_of((group * C_out + o) * w_o + k_w * w_w, VECTOR)
        a = tl.load(y_ptr + (y_row[:, None] + o[None, :]), mask=inside[:, None] & o_ok[None, :], other=0.0)
        b = tl.load(w_ptr + (w_row[:, None] + c[None, :]), mask=o_ok[:, None] & c_ok[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    column = tl.max_contiguous(tl.multiple_of(tl.where(c_ok, group * C_in + c, 0), VECTOR), VECTOR)
    if has_bias:
        acc += tl.load(b_ptr + column * b_c, mask=c_ok, other=0.0).to(tl.float32)[None, :]
    x_row = tl.multiple_of(tl.where(pixel_ok, n * x_n + i_w * x_w, 0), VECTOR)
    tl.store(
        x_ptr + (x_row[:, None] + column[None, :]), acc.to(x_ptr.dtype.element_ty),
        mask=pixel_ok[:, None] & c_ok[None, :],
    )
