"""Builds the C++ sources beside it and wraps them as differentiable functions like those of `ops`."""

import functools
import os
import sys
from pathlib import Path

import torch


@functools.cache
def _extension():
    from torch.utils.cpp_extension import load

    # ninja lies beside the interpreter of a virtual environment that may not be activated.
    os.environ["PATH"] = os.pathsep.join(
        [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    )
    flags = [
        "-O3",
        "-march=native",
        "-fopenmp",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-std=c++20",
    ]
    folder = Path(__file__).parent
    return load(
        name="train_tiny_kernels",
        sources=[str(folder / name) for name in ("kernels.cpp", "hyper.cpp")],
        extra_cflags=flags,
        extra_ldflags=["-fopenmp"],
    )


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return _extension().rms_norm(x, weight, eps)

    @staticmethod
    def backward(ctx, grad):
        return (
            *_extension().rms_norm_backward(grad.contiguous(), *ctx.saved_tensors, ctx.eps),
            None,
        )


class _MeanSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return _extension().mean_square(x)

    @staticmethod
    def backward(ctx, grad):
        return _extension().mean_square_backward(grad.contiguous(), *ctx.saved_tensors)


class _HcSplit(torch.autograd.Function):
    @staticmethod
    def forward(ctx, raw, scale, base, iterations, eps):
        ctx.save_for_backward(raw, scale, base)
        ctx.settings = iterations, eps
        return tuple(_extension().hc_split(raw, scale, base, iterations, eps))

    @staticmethod
    def backward(ctx, *grads):
        grads = [g.contiguous() for g in grads]
        return (
            *_extension().hc_split_backward(grads, ctx.saved_tensors, *ctx.settings),
            None,
            None,
        )


class _HcCollapse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, pre):
        ctx.save_for_backward(x, pre)
        return _extension().hc_collapse(x, pre)

    @staticmethod
    def backward(ctx, grad):
        return tuple(_extension().hc_collapse_backward(grad.contiguous(), *ctx.saved_tensors))


class _HcExpand(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, x, post, comb):
        ctx.save_for_backward(y, x, post, comb)
        return _extension().hc_expand(y, x, post, comb)

    @staticmethod
    def backward(ctx, grad):
        return tuple(_extension().hc_expand_backward(grad.contiguous(), *ctx.saved_tensors))


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cos, sin, heads):
        ctx.save_for_backward(cos, sin)
        ctx.heads = heads
        return _extension().rotate(x, cos, sin, heads, 1.0)

    @staticmethod
    def backward(ctx, grad):
        return (
            _extension().rotate(grad.contiguous(), *ctx.saved_tensors, ctx.heads, -1.0),
            None,
            None,
            None,
        )


class _SwiGlu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, gate, up, limit):
        ctx.save_for_backward(gate, up)
        ctx.limit = limit
        return _extension().swiglu(gate, up, limit)

    @staticmethod
    def backward(ctx, grad):
        return (
            *_extension().swiglu_backward(grad.contiguous(), *ctx.saved_tensors, ctx.limit),
            None,
        )


class _Engram(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kv, weight, eps):
        ctx.save_for_backward(x, kv, weight)
        ctx.eps = eps
        return _extension().engram(x, kv, weight, eps)

    @staticmethod
    def backward(ctx, grad):
        return (*_extension().engram_backward(grad.contiguous(), *ctx.saved_tensors, ctx.eps), None)


class _SinkSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, near, near_bias, far, far_bias, sink, scale):
        p = _extension().sink_softmax(near, near_bias, far, far_bias, sink, scale)
        ctx.save_for_backward(*p)
        ctx.settings = len(sink), scale
        return tuple(p)

    @staticmethod
    def backward(ctx, near, far):
        near, far, sink = _extension().sink_softmax_backward(
            near.contiguous(), far.contiguous(), *ctx.saved_tensors, *ctx.settings
        )
        return near, None, far, None, sink, None


class Kernels:
    """Inputs become contiguous here; shapes are those of `ops`."""

    @staticmethod
    def rms_norm(x, weight, eps):
        return _RmsNorm.apply(x.contiguous(), weight, eps)

    @staticmethod
    def mean_square(x):
        return _MeanSquare.apply(x.contiguous())

    @staticmethod
    def hc_split(raw, scale, base, iterations, eps):
        return _HcSplit.apply(raw.contiguous(), scale, base, iterations, eps)

    @staticmethod
    def hc_collapse(x, pre):
        return _HcCollapse.apply(x.contiguous(), pre.contiguous())

    @staticmethod
    def hc_expand(y, x, post, comb):
        return _HcExpand.apply(y.contiguous(), x.contiguous(), post.contiguous(), comb.contiguous())

    @staticmethod
    def rotate(x, cos, sin):
        """Tables [places, pairs] for x [.., places, width], or [places, 1, pairs] for [.., places,
        heads, width].
        """
        heads = x.shape[-2] if cos.ndim > 2 and cos.shape[-2] == 1 else 1
        return _Rotate.apply(x.contiguous(), cos.contiguous(), sin.contiguous(), heads)

    @staticmethod
    def swiglu(gate, up, limit):
        return _SwiGlu.apply(gate.contiguous(), up.contiguous(), limit)

    @staticmethod
    def engram(x, kv, weight, eps):
        return _Engram.apply(x.contiguous(), kv.contiguous(), weight, eps)

    @staticmethod
    def sink_softmax(near, near_bias, far, far_bias, sink, scale):
        def rows(bias, scores):
            if bias.shape[-3] != scores.shape[-3]:
                bias = bias.expand(*bias.shape[:-3], scores.shape[-3], *bias.shape[-2:])
            return bias.contiguous()

        if far is None:
            far = near.new_zeros(*near.shape[:-1], 0)
            far_bias = far
        return _SinkSoftmax.apply(
            near.contiguous(),
            rows(near_bias, near),
            far.contiguous(),
            rows(far_bias, far),
            sink,
            scale,
        )


def load():
    _extension()
    return Kernels
