"""The model card: `card.md` with its tables filled in.

`result.json` is what `kuruma eval --drafts --json` prints for `eval.jsonl`; both lie in the folder of
the checkpoint, so that every figure of the card is one that anybody can measure again.
"""

import json
from pathlib import Path

TEMPLATE = Path(__file__).with_name("card.md")
NAMES = {
    "faq": "questions about Kuruma in new phrasings",
    "faq_thinking": "the same, reasoning first",
    "talk": "greetings and small talk in English, Japanese and Chinese, new phrasings",
    "copy": "repeating text, also meaningless",
    "reverse": "reversing up to 6 words",
    "sort": "sorting words or numbers",
    "count": "counting words",
    "dates": "weekdays and dates",
    "sum2": "sums and differences of two-digit numbers",
    "sum3": "of three-digit numbers",
    "sum2_thinking": "two digits, worked out while reasoning",
    "sum3_thinking": "three digits, worked out while reasoning",
    "count_thinking": "counting, reasoning first",
    "json": "filling a JSON schema from a sentence",
    "tool": "tool calls with unseen argument values",
    "tool_thinking": "the same, reasoning first",
    "needle": "finding a code in 256 to 3,800 tokens",
}


def percent(part, whole):
    return f"{100 * part / whole:.1f}" if whole else "-"


def accuracy_table(result):
    rows = ["| family | right | n | % | well-formed % | what |", "|---|---|---|---|---|---|"]
    for family, numbers in result["families"].items():
        valid = percent(numbers["valid"], numbers["total"]) if "valid" in numbers else ""
        rows.append(
            f"| `{family}` | {numbers['passed']} | {numbers['total']} | "
            f"{percent(numbers['passed'], numbers['total'])} | {valid} | {NAMES[family]} |"
        )
    return "\n".join(rows)


def needle_table(result, items):
    """Right of tried by length and fifth of the text."""
    wrong = {failure["id"] for failure in result["failures"]}
    needles = [item for item in items if item["family"] == "needle"]
    lengths = sorted({item["length"] for item in needles})
    rows = [
        "| tokens | " + " | ".join(f"{20 * i}-{20 * i + 20} %" for i in range(5)) + " |",
        "|---" * 6 + "|",
    ]
    for length in lengths:
        cells = []
        for fifth in range(5):
            here = [
                item
                for item in needles
                if item["length"] == length and min(4, int(5 * item["depth"])) == fifth
            ]
            right = sum(item["id"] not in wrong for item in here)
            cells.append(f"{right} of {len(here)}" if here else "-")
        rows.append(f"| {length} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _draft_row(name, offered, accepted):
    shares = [a / o if o else 0.0 for o, a in zip(offered, accepted)]
    places = " | ".join(f"{100 * share:.0f}" for share in shares)
    return f"| {name} | {sum(shares):.2f} | {places} | {offered[0]} |"


def draft_table(result):
    families = {name: n["drafts"] for name, n in result["families"].items() if "drafts" in n}
    places = len(next(iter(families.values()))["offered"])
    rows = [
        "| family | accepted | " + " | ".join(f"{i + 1}" for i in range(places)) + " | blocks |",
        "|---" * (places + 3) + "|",
    ]
    total = [[0] * places, [0] * places]
    for name, drafts in families.items():
        rows.append(_draft_row(f"`{name}`", drafts["offered"], drafts["accepted"]))
        for sums, more in zip(total, (drafts["offered"], drafts["accepted"])):
            sums[:] = [a + b for a, b in zip(sums, more)]
    rows.append(_draft_row("all", *total))
    return "\n".join(rows)


def card(folder):
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    lines = (folder / "eval.jsonl").read_text(encoding="utf-8").splitlines()
    items = [json.loads(line) for line in lines]
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    text = TEMPLATE.read_text(encoding="utf-8")
    for name, value in (
        ("ACCURACY", accuracy_table(result)),
        ("NEEDLES", needle_table(result, items)),
        ("DRAFTS", draft_table(result)),
        ("SIZE", f"{size / 1e6:.1f} MB"),
        ("PASSED", str(result["passed"])),
        ("TOTAL", str(result["total"])),
    ):
        text = text.replace("{{" + name + "}}", value)
    return text
