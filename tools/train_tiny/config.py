"""Sizes of the model under the names of the released `text_config`, and its config.json.

`tiny` is what gets trained and shipped, `micro` the same architecture at a size for tests. Both
cover window-only layers, a ratio-2 source and its reuse, a ratio-1 source with candidate pool, a
layer that selects anew inside the pool, a reuse of that, and Engram outside and inside compressed
layers.
"""

from dataclasses import asdict, dataclass, field, fields

from .engram_hash import engram_primes


def _yarn():
    return dict(
        rope_type="yarn",
        factor=16,
        beta_fast=32,
        beta_slow=1,
        original_max_position_embeddings=4096,
    )


@dataclass(frozen=True)
class TextConfig:
    """`vocab_size` and `engram_compressed_vocab_size` belong to the tokenizer."""

    vocab_size: int = 2048
    engram_compressed_vocab_size: int = 2048
    dspark_noise_token_id: int = 0
    hidden_size: int = 128
    moe_intermediate_size: int = 64
    num_hidden_layers: int = 8
    num_attention_heads: int = 4
    head_dim: int = 64
    qk_rope_head_dim: int = 32
    q_lora_rank: int = 64
    o_lora_rank: int = 64
    o_groups: int = 2
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    sliding_window: int = 64
    compress_ratios: tuple = (0, 0, 2, 2, 2, 1, 1, 1, 0, 0)
    kv_source_layer_ids: tuple = (2, 5)
    index_source_layer_ids: tuple = (2, 5, 6)
    index_n_heads: int = 2
    index_head_dim: int = 32
    index_topk: int = 64
    candidate_source_layer_id: int = 5
    candidate_topk_blocks: int = 16
    candidate_block_size: int = 8
    engram_layer_ids: tuple = (1, 4)
    engram_max_ngram_size: int = 4
    engram_vocab_size: int = 1009
    engram_n_heads: int = 2
    engram_head_dim: int = 32
    engram_pad_token_id: int = 2
    num_nextn_predict_layers: int = 2
    dspark_block_size: int = 4
    dspark_target_layer_ids: tuple = (5, 6, 7)
    dspark_markov_rank: int = 32
    dspark_n_routed_experts: int = 4
    dspark_num_experts_per_tok: int = 2
    max_position_embeddings: int = 4096
    rope_theta: int = 10000
    compress_rope_theta: int = 160000
    rope_scaling: dict = field(default_factory=_yarn)
    rms_norm_eps: float = 1e-20
    swiglu_limit: float = 10.0
    routed_scaling_factor: float = 1.5
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6

    def ratio(self, layer):
        return self.compress_ratios[layer]

    def source(self, ids, layer):
        """The latest of `ids` at or before `layer`."""
        return max(i for i in ids if i <= layer)

    def engram_primes(self):
        return engram_primes(
            len(self.engram_layer_ids),
            self.engram_max_ngram_size,
            self.engram_n_heads,
            self.engram_vocab_size,
        )


PRESETS = {
    "tiny": {},
    "micro": dict(
        hidden_size=64,
        moe_intermediate_size=32,
        num_attention_heads=2,
        head_dim=32,
        qk_rope_head_dim=16,
        q_lora_rank=32,
        o_lora_rank=32,
        n_routed_experts=4,
        sliding_window=16,
        index_topk=8,
        candidate_topk_blocks=4,
        candidate_block_size=4,
        engram_vocab_size=61,
        dspark_block_size=3,
    ),
}

_FIXED = dict(
    model_type="deepseek_v41_text",
    num_key_value_heads=1,
    hidden_act="silu",
    attention_bias=False,
    attention_dropout=0.0,
    tie_word_embeddings=False,
    n_shared_experts=1,
    scoring_func="sqrtsoftplus",
    topk_method="noaux_tc",
    norm_topk_prob=True,
)


def preset(name, **overrides):
    return TextConfig(**{**PRESETS[name], **overrides})


def config_json(config, image_token_id):
    """The dictionary written as config.json."""
    text = dict(_FIXED, **asdict(config))
    text["engram_num_embeddings"] = [sum(map(sum, layer)) for layer in config.engram_primes()]
    text = {key: list(value) if isinstance(value, tuple) else value for key, value in text.items()}
    quantization = dict(
        quant_method="fp8",
        activation_scheme="dynamic",
        weight_block_size=[32, 32],
        scale_fmt="ue8m0",
        expert_dtype="fp4",
    )
    return dict(
        architectures=["DeepseekV41ForCausalLM"],
        model_type="deepseek_v41",
        dtype="bfloat16",
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
        image_token_id=image_token_id,
        quantization_config=quantization,
        text_config=text,
    )


def from_config_json(top):
    """The TextConfig of a config.json as `config_json` writes it."""
    text, names = top["text_config"], {f.name for f in fields(TextConfig)}
    values = {key: value for key, value in text.items() if key in names}
    return TextConfig(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
