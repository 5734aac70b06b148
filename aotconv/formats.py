"""Which memory format aten gives to a convolution's result on CUDA. Standard library only.

Source: aten/src/ATen/native/Convolution.cpp and ConvUtils.h (cudnn_conv_suggest_memory_format): channels-last when the
input's or the weight's strides say so, else contiguous; a 1-D input is made contiguous and seen as 2-D of height 1.
"""

from aotconv.problem import Layout, channels_last, contiguous


def says_channels_last(sizes, strides) -> bool:
    """c10's is_channels_last_strides_2d/3d: strides grow from the channel outwards; ambiguous ones say no."""
    if len(sizes) not in (4, 5) or strides[1] == 0:
        return False
    least = 0
    for dim in (1, *range(len(sizes) - 1, 1, -1), 0):
        if sizes[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(sizes[dim], 1)
    return True


def result_is_channels_last(input_layout: Layout, weight: Layout) -> bool:
    """Whether aten makes its results (output, both gradients) channels-last for these two tensors."""
    if len(input_layout.sizes) == 3:
        return any(says_channels_last(*lift(t)) for t in (made_contiguous(input_layout), weight))
    return any(says_channels_last(t.sizes, t.strides) for t in (input_layout, weight))


def made_contiguous(layout: Layout) -> Layout:
    """What Tensor.contiguous gives: the same tensor where only dimensions of size 1 have other strides."""
    dense = contiguous(layout.sizes, layout.align)
    same = all(size == 1 or have == want for size, have, want in zip(layout.sizes, layout.strides, dense.strides))
    return layout if same else dense


def lift(layout: Layout):
    """Sizes and strides of a 1-D tensor seen as 2-D with height 1, as unsqueeze(2) gives them."""
    (n, c, size), (sn, sc, step) = layout.sizes, layout.strides
    return (n, c, 1, size), (sn, sc, size * step, step)


def result_layout(sizes, last: bool) -> Layout:
    """A dense result. A fresh allocation is aligned."""
    return channels_last(sizes) if last else contiguous(sizes)
