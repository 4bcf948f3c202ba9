"""The small operations of the forward pass in plain PyTorch, with optional C++ kernels.

Formulas follow the DeepSeek-V4.1 inference code. N is tokens, h streams, d the hidden size.
`use_kernels` switches the process to the extension in `kernels/`; results agree to float32
rounding.
"""

import sys

import torch
import torch.nn.functional as F

_kernels = None


def use_kernels(enabled):
    """Builds or drops the C++ extension; returns whether kernels are in use afterwards."""
    global _kernels
    _kernels = None
    if enabled:
        from . import kernels

        try:
            _kernels = kernels.load()
        except (ImportError, OSError, RuntimeError) as error:
            print(f"building the kernels failed: {error}", file=sys.stderr)
    return _kernels is not None


def rms_norm(x, weight, eps):
    if _kernels is not None:
        return _kernels.rms_norm(x, weight, eps)
    return weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps))


def sinkhorn(comb, iterations, eps):
    """comb [N, h, h] logits -> rows softmaxed, then alternately normalised; the last pass is by
    column.
    """
    comb = torch.softmax(comb, -1) + eps
    comb = comb / (comb.sum(-2, keepdim=True) + eps)
    for _ in range(iterations - 1):
        comb = comb / (comb.sum(-1, keepdim=True) + eps)
        comb = comb / (comb.sum(-2, keepdim=True) + eps)
    return comb


def hc_split(raw, scale, base, streams, iterations, eps):
    """raw [N, h(2+h)] -> pre [N, h], post [N, h], comb [N, h, h]."""
    if _kernels is not None and streams == 4:
        return _kernels.hc_split(raw, scale, base, iterations, eps)
    h = streams
    pre = torch.sigmoid(raw[:, :h] * scale[0] + base[:h]) + eps
    post = 2 * torch.sigmoid(raw[:, h : 2 * h] * scale[1] + base[h : 2 * h])
    comb = (raw[:, 2 * h :] * scale[2] + base[2 * h :]).view(-1, h, h)
    return pre, post, sinkhorn(comb, iterations, eps)


def hc_mix(x, fn, scale, base, config):
    """Coefficients of one site from the streams x [N, h, d]."""
    flat = x.flatten(1)
    square = _kernels.mean_square(flat) if _kernels is not None else flat.square().mean(-1)
    rstd = torch.rsqrt(square + config.rms_norm_eps).unsqueeze(-1)
    return hc_split(
        (flat @ fn.T) * rstd, scale, base, config.hc_mult, config.hc_sinkhorn_iters, config.hc_eps
    )


def hc_collapse(x, pre):
    """sum_i pre[i] x[i]: [N, h, d], [N, h] -> [N, d]."""
    if _kernels is not None and x.shape[1] == 4:
        return _kernels.hc_collapse(x, pre)
    return torch.bmm(pre.unsqueeze(1), x).squeeze(1)


def hc_expand(y, x, post, comb):
    """post[k] y + sum_j comb[j][k] x[j]: the FIRST index of comb is summed."""
    if _kernels is not None and x.shape[1] == 4:
        return _kernels.hc_expand(y, x, post, comb)
    return torch.baddbmm(post.unsqueeze(-1) * y.unsqueeze(1), comb.transpose(1, 2), x)


def rotate(x, cos, sin):
    """Rotates adjacent pairs of the last 2 * cos.shape[-1] entries; cos, sin broadcast against
    pairs.
    """
    if _kernels is not None:
        return _kernels.rotate(x, cos, sin)
    width = 2 * cos.shape[-1]
    even, odd = x[..., -width::2], x[..., x.shape[-1] - width + 1 :: 2]
    turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)
    return torch.cat([x[..., :-width], turned], -1)


def swiglu(gate, up, limit):
    if _kernels is not None:
        return _kernels.swiglu(gate, up, limit)
    return F.silu(gate.clamp(max=limit)) * up.clamp(-limit, limit)


def engram(x, kv, weight, eps):
    """x [N, h, d] plus gated values; kv [N, (h + 1) d] holds a key per stream and the value."""
    if _kernels is not None:
        return _kernels.engram(x, kv, weight, eps)
    d = x.shape[-1]
    key, value = kv[:, :-d].view_as(x), kv[:, -d:].unsqueeze(1)
    rstd = torch.rsqrt(x.square().mean(-1) + eps) * torch.rsqrt(key.square().mean(-1) + eps)
    z = (x * weight * key).sum(-1) * rstd * d**-0.5
    gate = torch.sigmoid(torch.copysign(torch.sqrt(z.abs().clamp(min=1e-6)), z))
    return x + gate.unsqueeze(-1) * value


def sink_softmax(near, near_bias, far, far_bias, sink, scale):
    """One softmax over two sets of keys (`far` may be None) and a logit `sink` per head without a
    value.

    Scores [.., Q, H, K] are multiplied by `scale`; biases, 0 or -inf, are broadcastable [.., Q or
    1, 1, K].
    """
    if _kernels is not None:
        return _kernels.sink_softmax(near, near_bias, far, far_bias, sink, scale)
    parts = [near * scale + near_bias]
    if far is not None:
        parts.append(far * scale + far_bias)
    parts.append(sink[:, None].expand(near.shape[:-1] + (1,)))
    p = torch.softmax(torch.cat(parts, -1), -1)
    count = near.shape[-1]
    return p[..., :count], p[..., count:-1] if far is not None else None
