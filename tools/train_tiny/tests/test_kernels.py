"""The C++ extension against plain PyTorch, values and gradients, at awkward sizes."""

import pytest
import torch

from conftest import make_model, some_tokens
from train_tiny import ops

@pytest.fixture(scope="module")
def both():
    """Runs a function with plain PyTorch and with kernels."""
    assert ops.use_kernels(True), "the extension cannot be built: is there a C++ compiler?"

    def run(function):
        results = []
        for enabled in (False, True):
            ops.use_kernels(enabled)
            results.append(function())
        ops.use_kernels(False)
        return results

    yield run
    ops.use_kernels(False)


def _random(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return (torch.randn(*shape, generator=generator) * scale).requires_grad_()


def _mask(*shape):
    bias = torch.zeros(shape).masked_fill(
        torch.rand(shape, generator=torch.Generator().manual_seed(5)) < 0.4, -float("inf")
    )
    return bias


def _outputs(result):
    return [
        r
        for r in (result if isinstance(result, tuple) else (result,))
        if r is not None and r.numel()
    ]


CASES = {
    "rms_norm": lambda: (ops.rms_norm, [_random(3, 7, 96), _random(96)], [1e-20]),
    "hc_split": lambda: (
        ops.hc_split,
        [_random(13, 24, scale=2), _random(3), _random(24)],
        [4, 20, 1e-6],
    ),
    "hc_collapse": lambda: (ops.hc_collapse, [_random(9, 4, 40), _random(9, 4)], []),
    "hc_expand": lambda: (
        ops.hc_expand,
        [_random(9, 40), _random(9, 4, 40, seed=1), _random(9, 4), _random(9, 4, 4)],
        [],
    ),
    "swiglu": lambda: (
        ops.swiglu,
        [_random(11, 33, scale=6), _random(11, 33, seed=1, scale=6)],
        [10.0],
    ),
    "engram": lambda: (ops.engram, [_random(9, 4, 32), _random(9, 160), _random(4, 32)], [1e-20]),
    "rotate": lambda: (
        lambda x: ops.rotate(
            x, *(f(torch.arange(40.0).view(5, 1, 8)) for f in (torch.cos, torch.sin))
        ),
        [_random(2, 5, 3, 24)],
        [],
    ),
    "rotate_flat": lambda: (
        lambda x: ops.rotate(
            x, *(f(torch.arange(40.0).view(5, 8)) for f in (torch.cos, torch.sin))
        ),
        [_random(2, 5, 24)],
        [],
    ),
    "sink_softmax": lambda: (
        lambda n, f, s: ops.sink_softmax(n, _mask(6, 1, 9), f, _mask(2, 6, 1, 5), s, 0.3),
        [_random(2, 6, 3, 9, scale=4), _random(2, 6, 3, 5, scale=4), _random(3)],
        [],
    ),
    "sink_softmax_near": lambda: (
        lambda n, s: ops.sink_softmax(n, _mask(2, 1, 1, 9), None, None, s, 0.3),
        [_random(2, 6, 3, 9, scale=4), _random(3)],
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree(name, both):
    def run():
        function, inputs, settings = CASES[name]()
        outputs = _outputs(function(*inputs, *settings))
        sum((o * torch.arange(1, o.numel() + 1).view_as(o).cos()).sum() for o in outputs).backward()
        return [o.detach() for o in outputs] + [x.grad for x in inputs]

    plain, fast = both(run)
    for a, b in zip(plain, fast, strict=True):
        assert torch.allclose(a, b, rtol=2e-4, atol=2e-5), float((a - b).abs().max())


def test_gradients_agree_with_differences(both):
    """hc_split is the longest backward pass: check it against finite differences as well."""
    ops.use_kernels(True)
    raw, scale, base = _random(1, 24), _random(3), _random(24)
    weights = torch.randn(16, generator=torch.Generator().manual_seed(3))

    def value(x):
        return ops.hc_split(x, scale, base, 4, 20, 1e-6)[2].flatten() @ weights

    value(raw).backward()
    for i in range(8, 24, 5):
        step = torch.zeros_like(raw)
        step[0, i] = 1e-2
        slope = (value(raw.detach() + step) - value(raw.detach() - step)).detach() / 2e-2
        assert abs(float(slope) - float(raw.grad[0, i])) < 2e-3


def test_whole_model_gradients_agree(tokenizer, both):
    ids = some_tokens(tokenizer, 64)

    def run():
        backbone, _ = make_model(tokenizer)
        torch.nn.functional.cross_entropy(
            backbone.logits(backbone(ids))[0, :-1], ids[0, 1:]
        ).backward()
        return {n: p.grad for n, p in backbone.named_parameters() if p.grad is not None}

    plain, fast = both(run)
    for name, grad in plain.items():
        assert float((grad - fast[name]).norm()) <= 1e-3 * float(grad.norm()) + 1e-7, name


def test_results_do_not_depend_on_threads(both):
    ops.use_kernels(True)
    results = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        x, w = _random(500, 64), _random(64)
        ops.rms_norm(x, w, 1e-20).square().sum().backward()
        results.append(w.grad)
    torch.set_num_threads(1)
    assert torch.equal(*results)
