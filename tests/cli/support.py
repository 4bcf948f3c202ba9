"""Runs the kuruma program and reads and damages checkpoints. Standard library only."""

import array
import json
import os
import pathlib
import shutil
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
BINARY = os.environ.get("KURUMA_BINARY") or str(
    pathlib.Path(os.environ.get("KURUMA_BINARY_DIR", ROOT / "build" / "release")) / "kuruma")


def checkpoint(name):
    return GOLDEN / name / "checkpoint"


def run(*args, stdin="", **kwargs):
    """A finished process; its output is text."""
    return subprocess.run([BINARY, *map(str, args)], input=stdin, capture_output=True, text=True,
                          timeout=120, check=False, **kwargs)


def ok(*args, stdin="", **kwargs):
    """Stdout of a run that must succeed."""
    done = run(*args, stdin=stdin, **kwargs)
    assert done.returncode == 0, (args, done.stderr)
    return done.stdout


def refused(*args, words=(), stdin="", code=2, **kwargs):
    """A run that must fail with one line on stderr that holds all `words`."""
    done = run(*args, stdin=stdin, **kwargs)
    assert done.returncode == code, (args, done.returncode, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, (args, done.stderr)
    assert lines[0].startswith("kuruma"), lines[0]
    for sign in ("terminate", "what()", "exception", "std::"):
        assert sign not in lines[0], lines[0]
    for word in words:
        assert word in lines[0], (word, lines[0])
    return done


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


# ------------------------------------------------------------------------------------ safetensors

KINDS = {"F32": "f", "I64": "q", "I32": "i"}


def split(path):
    """(header as a dict, data bytes) of a safetensors file."""
    raw = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8:8 + size]), raw[8 + size:]


def join(path, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


class Tensors:
    """Values of the F32, I32 and I64 tensors of a file."""

    def __init__(self, path):
        self.header, self.data = split(path)

    def names(self):
        return [name for name in self.header if name != "__metadata__"]

    def shape(self, name):
        return self.header[name]["shape"]

    def bytes(self, name):
        begin, end = self.header[name]["data_offsets"]
        return self.data[begin:end]

    def values(self, name):
        values = array.array(KINDS[self.header[name]["dtype"]])
        values.frombytes(self.bytes(name))
        return values

    def rows(self, name):
        flat, width = self.values(name), self.shape(name)[-1]
        return [flat[i:i + width] for i in range(0, len(flat), width)]


# ------------------------------------------------------------------------------------ checkpoints


def copy_of(name, folder):
    """A copy of a golden checkpoint that a test may damage."""
    target = pathlib.Path(folder) / name
    shutil.copytree(checkpoint(name), target)
    for path in target.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


def edit_json(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def shard_of(directory, tensor):
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    return directory / index["weight_map"][tensor]


def edit_header(directory, tensor, change):
    """Changes the header entry of `tensor`; returns the shard's path."""
    path = shard_of(directory, tensor)
    header, data = split(path)
    change(header)
    join(path, header, data)
    return path


# -------------------------------------------------------------------------------------- tokenizer

SPLIT_PATTERNS = [
    "\\p{N}{1,3}",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p"
    "{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


# Control tokens that prompts of plain conversations use; ids from 256 on, when there is room.
SPECIALS = ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜System｜>", "<｜User｜>",
            "<｜Assistant｜>", "<think>", "</think>"]


def byte_tokenizer(vocab=256):
    """A tokenizer.json whose ids are the 256 byte letters, in their order, and behind them added
    tokens: SPECIALS, then <extra_N>."""
    itself = [b for b in range(256) if 33 <= b <= 126 or 161 <= b != 173]
    others = [b for b in range(256) if b not in itself]
    letters = sorted([chr(b) for b in itself] + [chr(0x100 + i) for i in range(len(others))])
    steps = [{"type": "Split", "pattern": {"Regex": p}, "behavior": "Isolated", "invert": False}
             for p in SPLIT_PATTERNS]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "use_regex": False})
    names = SPECIALS + [f"<extra_{i}>" for i in range(256 + len(SPECIALS), vocab)]
    added = [{"id": i, "content": names[i - 256], "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False, "special": True}
             for i in range(256, vocab)]
    return {"version": "1.0", "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(letters)},
                      "merges": []}}


def ids_of_ascii(text):
    """What byte_tokenizer makes of printable ASCII without spaces."""
    return [byte_tokenizer()["model"]["vocab"][c] for c in text]


def copy_with_tokenizer(name, folder, vocab=256):
    target = copy_of(name, folder)
    (target / "tokenizer.json").write_text(json.dumps(byte_tokenizer(vocab)))
    return target
