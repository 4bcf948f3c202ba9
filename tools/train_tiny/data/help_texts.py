"""Captures `kuruma --help` of every command and reads flags and defaults out of it."""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

HELP_FILE = Path(__file__).parents[1] / "facts" / "help.json"
_DEFAULT = re.compile(r"\s*\(default: ([^()]*(?:\([^()]*\))?[^()]*)\)$", re.IGNORECASE)


@dataclass
class Flag:
    command: str
    name: str
    description: str
    default: str  # empty: none stated


def capture(binary):
    """{command: help text}, with "" for the program itself."""

    def run(*arguments):
        done = subprocess.run(
            [binary, *arguments, "--help"], capture_output=True, text=True, check=True
        )
        return done.stdout

    texts = {"": run()}
    for command in _commands(texts[""]):
        texts[command] = run(command)
    return texts


def _commands(text):
    block = text.split("Subcommands:\n", 1)[1].split("\n\n")[0]
    return re.findall(r"^  ([a-z][a-z-]*)", block, re.MULTILINE)


def refresh(binary):
    HELP_FILE.write_text(
        json.dumps(capture(binary), indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


def load():
    return json.loads(HELP_FILE.read_text(encoding="utf-8"))


def descriptions(texts):
    """{command: its one-line description}, from the overview."""
    found = re.findall(
        r"^  ([a-z][a-z-]*) +(\S.*)$",
        texts[""].split("Subcommands:\n", 1)[1].split("\n\n")[0],
        re.MULTILINE,
    )
    return dict(found)


def _options(text):
    """(head, description) of every entry of the Options; long heads stand on their own line."""
    if "Options:\n" not in text:
        return
    head, description = None, []
    for line in text.split("Options:\n", 1)[1].split("\n\n")[0].splitlines():
        start = re.match(r"  (-\S.*?)(?:\s{2,}(\S.*))?$", line)
        if start:
            if head:
                yield head, " ".join(description)
            head, description = start[1], [start[2]] if start[2] else []
        else:
            description.append(line.strip())
    if head:
        yield head, " ".join(description)


def flags(texts):
    """All long flags except --help, in the order of the texts."""
    out = []
    for command, text in texts.items():
        for head, description in _options(text):
            name = re.search(r"--[a-z][a-z-]*", head)
            if not name or name[0] in ("--help", "--version") or not description:
                continue
            # A head that is too long runs into its description with a single space.
            stated, inline = _DEFAULT.search(description), re.search(r"=([^\s]+)", head)
            default = stated[1] if stated else inline[1] if inline else ""
            out.append(Flag(command, name[0], _DEFAULT.sub("", description), default))
    return out
