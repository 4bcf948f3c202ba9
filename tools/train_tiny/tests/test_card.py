"""The model card states what the evaluation found."""

import json

from train_tiny import card


def test_tables_count_right_and_wrong(tmp_path):
    drafts = dict(offered=[10, 8], accepted=[9, 4])
    result = dict(
        total=5,
        passed=3,
        families=dict(
            faq=dict(total=2, passed=2, drafts=drafts),
            json=dict(total=1, passed=0, valid=1, drafts=dict(offered=[0, 0], accepted=[0, 0])),
            needle=dict(total=2, passed=1, drafts=drafts),
        ),
        failures=[dict(id="needle-2", output="x"), dict(id="json-1", output="{}")],
    )
    items = [
        dict(id="faq-1", family="faq"),
        dict(id="needle-1", family="needle", length=256, depth=0.1),
        dict(id="needle-2", family="needle", length=256, depth=1.0),
    ]
    (tmp_path / "result.json").write_text(json.dumps(result))
    (tmp_path / "eval.jsonl").write_text("\n".join(map(json.dumps, items)) + "\n")
    (tmp_path / "model.safetensors").write_bytes(bytes(1_500_000))
    text = card.card(tmp_path)
    assert "{{" not in text and "1.5 MB" in text and "3 of 5 right" in text
    assert "| `faq` | 2 | 2 | 100.0 |" in text
    assert "| `json` | 0 | 1 | 0.0 | 100.0 |" in text
    assert "| 256 | 1 of 1 | - | - | - | 0 of 1 |" in text
    assert "| `faq` | 1.40 | 90 | 50 | 10 |" in text
    assert "| all | 1.40 | 90 | 50 | 20 |" in text
