"""Shared fixtures: a small vocabulary, a micro model with weights that make every part matter."""

import os
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "tools"))

from train_tiny import config, ops  # noqa: E402
from train_tiny.data.stream import sample_texts  # noqa: E402
from train_tiny.draft import Draft  # noqa: E402
from train_tiny.model import Backbone  # noqa: E402
from train_tiny.tokenizer import SYSTEM, build_tokenizer  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)
    ops.use_kernels(False)


@pytest.fixture(scope="session")
def texts():
    return sample_texts(3, rows=150)


@pytest.fixture(scope="session")
def tokenizer(texts):
    return build_tokenizer(texts, 640)


@pytest.fixture(scope="session")
def kuruma():
    """The engine's binary, from KURUMA or the usual build folder."""
    path = Path(os.environ.get("KURUMA", ROOT / "build" / "release" / "kuruma"))
    if not path.exists():
        pytest.skip("kuruma is not built")
    return str(path)


def make_model(tokenizer, seed=0):
    """Random norms, sinks and biases, so that a wrong one shows."""
    classes = tokenizer.classes()
    torch.manual_seed(seed)
    c = config.preset(
        "micro",
        vocab_size=tokenizer.vocab_size,
        engram_compressed_vocab_size=max(classes) + 1,
        dspark_noise_token_id=tokenizer.special(SYSTEM),
    )
    backbone, draft = Backbone(c, classes), Draft(c)
    for name, p in [*backbone.named_parameters(), *draft.named_parameters()]:
        if name.endswith(("attn_sink", "_scale")):
            p.data += 0.5 * torch.randn_like(p)
        elif "norm" in name or name.endswith(("q_weight", "k_weight")):
            p.data += 0.2 * torch.randn_like(p)
    backbone.head.weight.data *= 20
    for gate in [*backbone.gates(), *draft.gates()]:
        gate.bias += 0.3 * torch.randn_like(gate.bias)
    return backbone.eval(), draft.eval()


@pytest.fixture()
def model(tokenizer):
    return make_model(tokenizer)


def some_tokens(tokenizer, length, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, tokenizer.vocab_size, (1, length), generator=generator)
    ids[0, 0] = 0
    return ids
