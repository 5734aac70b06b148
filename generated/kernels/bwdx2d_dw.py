"""Depthwise gradient of the input (or transposed convolution) of channels-last tensors, by phase.

Written by `python -m gen render` from templates/bwdx_dw.py.j2; edit that, not this.
Remake: python -m gen render --only kernel=bwdx2d_dw
"""

import triton
import triton.language as tl

# Promised to the compiler to be multiples of 16 bytes; dispatch checks each one.
ALIGNED = ("C_in", "C_out", "channels", "x_*", "x_ptr", "y_*", "y_ptr", )



@triton.jit
def bwdx2d_dw(
    x_ptr, w_ptr, b_ptr, y_ptr,
    pixels, channels,
    in_h, in_w, out_h, out_w, cell_h, cell_w,
    x_n, x_h, x_w, w_o, w_h, w_w, y_n, y_h, y_w,
    kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w, dil_h, dil_w,
    step_h, step_w, hop_h, hop_w,
    tiles_m, tiles_n, has_bias, b_c,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):
    """x[pixel, c] = b[c] + sum over taps of y[pixel at tap, c] * w[c, tap]; BLOCK_M pixels x BLOCK_N channels."""
    VECTOR: tl.constexpr = 128 // y_ptr.dtype.element_ty.primitive_bitwidth
    # A flat grid, since only the x axis may pass 65,535: channel tiles, pixel tiles of a phase, phases, groups.
    tile = tl.program_id(0)
    tile_n = tile % tiles_n
    tile_m = tile // tiles_n % tiles_m
    group = tile // (tiles_n * tiles_m)
    phase_w = group % stride_w
    group = group // stride_w
    phase_h = group % stride_h
    group = group // stride_h
    pixel = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    c = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c_ok = c < channels
    # channels is a multiple of VECTOR, so a vector is inside or outside as a whole; outside, nothing is read.
    c = tl.max_contiguous(tl.multiple_of(tl.where(c_ok, c, 0), VECTOR), VECTOR)
    i_w = pixel % cell_w
    n = pixel // cell_w
    i_h = n % cell_h
    n = n // cell_h
    pixel_ok = pixel < pixels
    i_h = i_h * stride_h + phase_h
    pixel_ok &= i_h < in_h
    first_h = step_h * 0
    while (first_h < step_h) & ((phase_h + pad_h - first_h * dil_h) % stride_h != 0):
        first_h += 1
    # No tap of this phase meets an output position when the search ran through.
    taps_h = tl.where(first_h < step_h, tl.maximum(tl.cdiv(kernel_h - first_h, step_h), 0), 0)
    start_h = (i_h + pad_h - first_h * dil_h) // stride_h
    i_w = i_w * stride_w + phase_w
    pixel_ok &= i_w < in_w
    first_w = step_w * 0
    while (first_w < step_w) & ((phase_w + pad_w - first_w * dil_w) % stride_w != 0):
        first_w += 1
    # No tap of this phase meets an output position when the search ran through.
    taps_w = tl.where(first_w < step_w, tl.maximum(tl.cdiv(kernel_w - first_w, step_w), 0), 0)
    start_w = (i_w + pad_w - first_w * dil_w) // stride_w
    visits = taps_h * taps_w
    # Divisors must not be 0 even where nothing is visited: the pipeliner divides before it knows, and LLVM then takes
    # the loop to run at least once.
    taps_h = tl.maximum(taps_h, 1)
    taps_w = tl.maximum(taps_w, 1)
    taps = taps_h * taps_w
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tap in range(visits):
        t_w = tap % taps_w
        place = tap // taps_w
        t_h = place
        k_h = first_h + t_h * step_h
        k_w = first_w + t_w * step_w
        inside = pixel_ok
        o_h = start_h - t_h * hop_h
        inside &= (o_h >= 0) & (o_h < out_h)
        o_w = start_w - t_w * hop_w
        inside &= (o_w >= 0) & (o_w < out_w)
        y_row = tl.multiple_of(tl.where(inside, n * y_n + o_h * y_h + o_w * y_w, 0), VECTOR)
        a = tl.load(y_ptr + (y_row[:, None] + c[None, :]), mask=inside[:, None] & c_ok[None, :], other=0.0)
        b = tl.load(w_ptr + (c * w_o + k_h * w_h + k_w * w_w), mask=c_ok, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)[None, :]
    if has_bias:
        acc += tl.load(b_ptr + c * b_c, mask=c_ok, other=0.0).to(tl.float32)[None, :]
    x_row = tl.multiple_of(tl.where(pixel_ok, n * x_n + i_h * x_h + i_w * x_w, 0), VECTOR)
    tl.store(
        x_ptr + (x_row[:, None] + c[None, :]), acc.to(x_ptr.dtype.element_ty),
        mask=pixel_ok[:, None] & c_ok[None, :],
    )
