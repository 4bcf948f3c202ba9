"""Number formats of the released checkpoint and safetensors files of them.

FP8: E4M3 with one E8M0 (power of two) scale per 32x32 tile, or per row and 32 columns for Engram
tables. FP4: E2M1, two per byte along the columns, the even column in the low nibble, one scale per
row and 32.
"""

import json
import struct

import numpy as np
import torch

LEVELS = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_TORCH_TYPES = {
    "F32": torch.float32,
    "BF16": torch.bfloat16,
    "I8": torch.int8,
    "I64": torch.int64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E8M0": torch.uint8,
}


def ceil_log2(x):
    """Smallest integer e with 2**e >= x, for positive float32."""
    bits = x.view(torch.int32).to(torch.int64)
    return (bits >> 23) - 127 + ((bits & 0x7FFFFF) != 0)


def _pow2(exponent):
    return torch.ldexp(torch.ones(exponent.shape), exponent)


def _scale_exponent(amax, top):
    return ceil_log2((amax.clamp(min=1e-20) * np.float32(1 / top)).float()).clamp(-126, 127)


def quantise_fp8_tiles(w):
    """[R, C] -> E4M3 [R, C], scale bytes [R / 32, C / 32]."""
    rows, cols = w.shape
    tiles = w.detach().float().reshape(rows // 32, 32, cols // 32, 32)
    exponent = _scale_exponent(tiles.abs().amax((1, 3)), 448)
    q = (tiles / _pow2(exponent)[:, None, :, None]).reshape(rows, cols)
    return q.to(torch.float8_e4m3fn), (exponent + 127).to(torch.uint8)


def quantise_fp8_rows(w):
    """[R, C] -> E4M3 [R, C], scale bytes [R, C / 32]."""
    groups = w.detach().float().reshape(len(w), -1, 32)
    exponent = _scale_exponent(groups.abs().amax(-1), 448)
    q = (groups / _pow2(exponent)[..., None]).reshape(w.shape)
    return q.to(torch.float8_e4m3fn), (exponent + 127).to(torch.uint8)


def e2m1_codes(x):
    """Nearest code, ties to the even one; |x| saturates at 6."""
    middle = (LEVELS[1:] + LEVELS[:-1]) / 2
    magnitude = x.abs().clamp(max=6)
    code = torch.bucketize(magnitude, middle)  # a tie goes to the lower code
    tie = torch.isin(magnitude, middle) & (code % 2 == 1)
    return (code + tie).to(torch.uint8) | (torch.signbit(x).to(torch.uint8) << 3)


def e2m1_values(codes):
    magnitude = LEVELS[(codes & 7).long()]
    return torch.where(codes & 8 != 0, -magnitude, magnitude)


def quantise_fp4_rows(w):
    """[R, C] -> packed int8 [R, C / 2], scale bytes [R, C / 32].

    Of the smallest power of two that does not clip and the one below, each group takes the one with
    the smaller squared error.
    """
    groups = w.detach().float().reshape(len(w), -1, 32)
    safe = _scale_exponent(groups.abs().amax(-1), 6)
    best = None
    for exponent in (safe, (safe - 1).clamp(min=-126)):
        scale = _pow2(exponent)[..., None]
        codes = e2m1_codes(groups / scale)
        error = (e2m1_values(codes) * scale - groups).square().sum(-1)
        if best is None:
            best = (error, codes, exponent)
            continue
        better = error < best[0]
        best = (
            error,
            torch.where(better[..., None], codes, best[1]),
            torch.where(better, exponent, best[2]),
        )
    codes = best[1].reshape(w.shape)
    packed = codes[:, 0::2] | (codes[:, 1::2] << 4)
    return packed.view(torch.int8), (best[2] + 127).to(torch.uint8)


def dequantise(weight, scale):
    """float32 values of any of the three layouts, told apart by type and shape."""
    factor = _pow2(scale.to(torch.int64) - 127)
    if weight.dtype == torch.int8:
        raw = weight.view(torch.uint8)
        values = e2m1_values(torch.stack([raw & 15, raw >> 4], -1).flatten(-2))
    else:
        values = weight.float()
        if scale.shape[0] != weight.shape[0]:
            factor = factor.repeat_interleave(32, 0)
    return values * factor.repeat_interleave(32, 1)


def type_name(name, tensor):
    if name.endswith(".scale") and tensor.dtype == torch.uint8:
        return "F8_E8M0"
    return next(key for key, value in _TORCH_TYPES.items() if value == tensor.dtype)


def _bytes(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def write_safetensors(path, tensors):
    """tensors: {name: tensor}; the header is padded to 8 bytes, data follow in the given order."""
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": type_name(name, tensor),
            "shape": list(tensor.shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            out.write(_bytes(tensor))


def read_safetensors(path):
    """{name: tensor}; E8M0 scales come as bytes."""
    with open(path, "rb") as source:
        header = json.loads(source.read(struct.unpack("<Q", source.read(8))[0]))
        blob = bytearray(source.read())
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        raw = torch.frombuffer(blob, dtype=torch.uint8, count=end - begin, offset=begin).clone()
        out[name] = raw.view(_TORCH_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return out
