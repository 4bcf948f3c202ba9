"""The reduced tokenizer: same kind of file as the release, a vocabulary learned on our own data.

Byte-level BPE with the release's three splits. Merges are learned with every digit apart, so the
file holds no digit merges and each digit is one token although the first split takes up to three.
"""

import heapq
import json
from collections import Counter

import tokenizers
from tokenizers import pre_tokenizers

from .engram_hash import token_classes

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK, DSML, IMAGE = "<think>", "</think>", "｜DSML｜", "<｜deepseek_image｜>"

# (content, normalized, special) in the order of their ids in the release.
FIRST_TOKENS = [(BOS, False, True), (EOS, False, True), (PAD, False, True)]
LAST_TOKENS = (
    [
        (text, True, False)
        for text in (
            SYSTEM,
            "<｜fim▁hole｜>",
            "<｜fim▁begin｜>",
            "<｜fim▁end｜>",
            USER,
            ASSISTANT,
            "<|EOT|>",
            THINK,
            END_THINK,
            DSML,
            "<｜latest_reminder｜>",
        )
    ]
    + [(IMAGE, False, False)]
    + [
        (f"<｜{name}｜>", False, True)
        for name in ("/polygon", "polygon", "/point", "point", "/box", "box", "/ref", "ref")
    ]
)

DIGITS = r"\p{N}{1,3}"
SPLITS = [
    DIGITS,
    "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
]


def byte_alphabet():
    """The printable letter of each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (b for b in range(256) if b not in set(plain))
    letters = {b: chr(b) for b in plain}
    letters.update({b: chr(256 + i) for i, b in enumerate(others)})
    return [letters[b] for b in range(256)]


def _pre_tokenizer(splits):
    steps = [pre_tokenizers.Split(tokenizers.Regex(s), "isolated") for s in splits]
    return pre_tokenizers.Sequence(
        [*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )


def count_pieces(texts):
    """How often each piece occurs, spelled in the byte alphabet, digits one by one."""
    split, counts = _pre_tokenizer([r"\p{N}", *SPLITS[1:]]), Counter()
    for text in texts:
        counts.update(piece for piece, _ in split.pre_tokenize_str(text))
    return counts


def learn_merges(counts, wanted):
    """`wanted` merges: always the most frequent pair, of equals the first by code points."""
    words = [(list(piece), n) for piece, n in sorted(counts.items()) if len(piece) > 1]
    pairs, where = Counter(), {}
    for number, (symbols, n) in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pairs[pair] += n
            where.setdefault(pair, set()).add(number)
    heap, merges = [(-n, pair) for pair, n in pairs.items()], []
    heapq.heapify(heap)
    while len(merges) < wanted and heap:
        count, pair = heapq.heappop(heap)
        if pairs[pair] != -count or not count:
            continue  # an outdated entry; a newer one is in the heap
        merges.append(pair)
        changed = set()
        for number in sorted(where.pop(pair)):
            symbols, n = words[number]
            for old in zip(symbols, symbols[1:]):
                pairs[old] -= n
                changed.add(old)
            i = 0
            while i < len(symbols) - 1:
                if (symbols[i], symbols[i + 1]) == pair:
                    symbols[i : i + 2] = ["".join(pair)]
                i += 1
            for new in zip(symbols, symbols[1:]):
                pairs[new] += n
                changed.add(new)
                where.setdefault(new, set()).add(number)
        pairs[pair] = 0
        for touched in changed - {pair}:
            if pairs[touched]:
                heapq.heappush(heap, (-pairs[touched], touched))
    return merges


def build_json(merges):
    """The text of a tokenizer.json with these merges; ids: three control tokens, bytes, merges, the
    rest.
    """
    spellings = [t for t, _, _ in FIRST_TOKENS] + sorted(byte_alphabet())
    seen = set(spellings)
    for left, right in merges:
        if left + right not in seen:  # two pairs may build the same piece
            seen.add(left + right)
            spellings.append(left + right)
    ids = {text: i for i, text in enumerate(spellings)}
    added = [
        dict(
            id=ids.get(text, len(ids) + i - 3),
            content=text,
            single_word=False,
            lstrip=False,
            rstrip=False,
            normalized=normalized,
            special=special,
        )
        for i, (text, normalized, special) in enumerate(FIRST_TOKENS + LAST_TOKENS)
    ]
    split = [
        dict(type="Split", pattern=dict(Regex=s), behavior="Isolated", invert=False) for s in SPLITS
    ]
    byte_level = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=False)
    whole = dict(type="ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)
    model = dict(
        type="BPE",
        dropout=None,
        unk_token=None,
        continuing_subword_prefix=None,
        end_of_word_suffix=None,
        fuse_unk=False,
        byte_fallback=False,
        vocab=ids,
        merges=[f"{a} {b}" for a, b in merges],
    )
    return (
        json.dumps(
            dict(
                version="1.0",
                truncation=None,
                padding=None,
                added_tokens=added,
                normalizer=dict(type="Sequence", normalizers=[]),
                pre_tokenizer=dict(type="Sequence", pretokenizers=[*split, byte_level]),
                post_processor=dict(whole, trim_offsets=False),
                decoder=whole,
                model=model,
            ),
            ensure_ascii=False,
            indent=1,
        )
        + "\n"
    )


def build_tokenizer(texts, vocab_size):
    """A tokenizer of exactly `vocab_size` tokens learned on `texts`."""
    counts = count_pieces(texts)
    base = len(FIRST_TOKENS) + 256 + len(LAST_TOKENS)
    wanted = vocab_size - base
    while True:
        tokenizer = Tokenizer(build_json(learn_merges(counts, wanted)))
        missing = vocab_size - tokenizer.vocab_size
        if missing <= 0:
            return tokenizer
        wanted += missing


class Tokenizer:
    """Encodes plain text; control tokens only by name."""

    def __init__(self, json_text):
        self.json_text = json_text
        content = json.loads(json_text)
        self._special = {entry["content"]: entry["id"] for entry in content["added_tokens"]}
        self._spelling = {i: text for text, i in content["model"]["vocab"].items()}
        self._spelling.update({i: text for text, i in self._special.items()})
        self.vocab_size = len(self._spelling)
        # Without added tokens their spellings are ordinary text, as in the engine's prompts.
        self._plain = tokenizers.Tokenizer.from_str(json.dumps({**content, "added_tokens": []}))
        letters = byte_alphabet()
        self._byte = {letter: byte for byte, letter in enumerate(letters)}

    def special(self, spelling):
        return self._special[spelling]

    def encode(self, text):
        return self._plain.encode(text, add_special_tokens=False).ids

    def token_bytes(self, token):
        spelling = self._spelling[token]
        if spelling in self._special:
            return spelling.encode()
        return bytes(self._byte[letter] for letter in spelling)

    def decode(self, ids):
        return b"".join(map(self.token_bytes, ids)).decode(errors="replace")

    def classes(self):
        """Engram class of every id."""
        return token_classes(
            [(self.decode([i]), self._spelling[i]) for i in range(self.vocab_size)]
        )

    def texts(self):
        """The distinct printable texts of single tokens: material for copying."""
        out = {
            self.decode([i]).strip()
            for i in range(self.vocab_size)
            if self._spelling[i] not in self._special
        }
        return sorted(t for t in out if t and "\ufffd" not in t and t.isprintable())
