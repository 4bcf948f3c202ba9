"""Vocabulary and prompt rendering, against the Hugging Face library and the engine."""

import json
import random
import subprocess

import pytest
import tokenizers

from train_tiny import render, tokenizer as tk
from train_tiny.data import mixture
from train_tiny.data.stream import Stream

PIECES = [
    "Hello",
    " world",
    "don't",
    "1234567",
    "½",
    "こんにちは",
    "你好，",
    " ",
    "\n\n",
    "\t",
    "<think>",
    "｜DSML｜",
    "<｜User｜>",
    "é",
    "ñandú",
    "한국어",
    "😀",
    "\x00",
    "a  1",
    "a  b",
    "#include",
    "@user",
    "...",
    " --top-p",
    "kuruma",
    "\r\n",
    "‮",
    "𠀀",
]


def strings(count, seed=0):
    rng = random.Random(seed)
    return ["".join(rng.choice(PIECES) for _ in range(rng.randint(1, 9))) for _ in range(count)]


def test_plain_text_round_trips(tokenizer):
    for text in strings(300):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_size_and_order_of_ids(tokenizer):
    assert tokenizer.vocab_size == 640
    assert [tokenizer.special(t) for t in (tk.BOS, tk.EOS, tk.PAD)] == [0, 1, 2]
    last = [tokenizer.special(text) for text, _, _ in tk.LAST_TOKENS]
    assert last == list(range(640 - len(last), 640))


def test_every_digit_is_a_token(tokenizer):
    assert len(tokenizer.encode("9081726354")) == 10
    assert tokenizer.decode(tokenizer.encode("12")[:1]) == "1"


def test_the_vocabulary_is_deterministic(texts, tokenizer):
    assert tk.build_tokenizer(texts, 640).json_text == tokenizer.json_text


def test_spelled_control_tokens_stay_plain(tokenizer):
    assert tokenizer.special(tk.USER) not in tokenizer.encode("<｜User｜>")


def test_agrees_with_the_library_on_the_written_file(tokenizer):
    """With added tokens recognised, as a chat template elsewhere would use the file."""
    whole = tokenizers.Tokenizer.from_str(tokenizer.json_text)
    for text in strings(200, seed=1):
        assert (
            whole.decode(
                whole.encode(text, add_special_tokens=False).ids, skip_special_tokens=False
            )
            == text
        )


def _lines(kuruma, command, path, lines, *flags):
    done = subprocess.run(
        [kuruma, command, "--tokenizer", path, *flags],
        input="\n".join(map(json.dumps, lines)),
        text=True,
        capture_output=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.split("\n") if line]


@pytest.fixture()
def written(tokenizer, tmp_path):
    (tmp_path / "tokenizer.json").write_text(tokenizer.json_text, encoding="utf-8")
    return tmp_path / "tokenizer.json"


def test_the_engine_tokenizes_alike(tokenizer, kuruma, written):
    texts = strings(400, seed=2)
    plain = _lines(kuruma, "tokenize", written, [dict(text=t) for t in texts], "--plain")
    whole = _lines(kuruma, "tokenize", written, [dict(text=t) for t in texts])
    library = tokenizers.Tokenizer.from_str(tokenizer.json_text)
    for text, a, b in zip(texts, plain, whole, strict=True):
        assert a["ids"] == tokenizer.encode(text)
        assert b["ids"] == library.encode(text, add_special_tokens=False).ids


def _request(conversation):
    """A Chat Completions body of a conversation; calls get ids that their results name."""
    messages, calls = [], []
    for message in conversation["messages"]:
        body = {k: v for k, v in message.items() if k not in ("tool_calls", "reasoning")}
        if message.get("reasoning"):
            body["reasoning_content"] = message["reasoning"]
        if message.get("tool_calls"):
            calls = [f"call{len(messages)}-{i}" for i in range(len(message["tool_calls"]))]
            body["tool_calls"] = [
                dict(
                    id=i,
                    type="function",
                    function=dict(
                        name=c["name"], arguments=json.dumps(c["arguments"], ensure_ascii=False)
                    ),
                )
                for i, c in zip(calls, message["tool_calls"])
            ]
        if message["role"] == "tool":
            body["tool_call_id"] = calls.pop(0)
        messages.append(body)
    thinking = "enabled" if conversation.get("thinking") else "disabled"
    body = dict(messages=messages, thinking=dict(type=thinking))
    if conversation.get("thinking"):
        body["reasoning_effort"] = conversation.get("effort", 75)
    if conversation.get("tools"):
        body["tools"] = [dict(type="function", function=t) for t in conversation["tools"]]
    if conversation.get("schema"):
        body["response_format"] = dict(
            type="json_schema", json_schema=dict(name="x", schema=conversation["schema"])
        )
    return body


def test_the_engine_renders_alike(tokenizer, kuruma, written):
    """Prompts of all kinds of training rows, cut before their last answer."""
    stream, rng, conversations = Stream(tokenizer, 4), random.Random(4), []
    for number in range(60):
        row = stream.row(rng, mixture.KINDS[number % 5], mixture.PHASES[0], 256)
        conversations.append(dict(row.conversation, messages=row.conversation["messages"][:-1]))
    answers = _lines(kuruma, "render", written, map(_request, conversations))
    for conversation, answer in zip(conversations, answers, strict=True):
        ids, _ = render.encode(render.render_prompt(conversation), tokenizer)
        assert answer.get("ids") == ids, answer.get("prompt", answer)
