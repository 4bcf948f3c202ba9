"""Draws loss and accuracy of a run from its log.csv and accuracy.jsonl."""

import csv
import json

FAMILIES = (
    "faq",
    "talk",
    "copy",
    "json",
    "tool",
    "sort",
    "reverse",
    "count",
    "dates",
    "sum2",
    "sum3",
    "needle",
)


def _smooth(values, width=20):
    out, total = [], 0.0
    for i, value in enumerate(values):
        total += value - (values[i - width] if i >= width else 0)
        out.append(total / min(i + 1, width))
    return out


def plot_run(folder, picture):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with open(folder / "log.csv", newline="") as source:
        lines = list(csv.DictReader(source))
    path = folder / "accuracy.jsonl"
    results = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(13, 5))
    for stage in ("main", "indexer", "draft"):
        points = [
            (int(l["tokens"]) / 1e6, float(l["loss"]))
            for l in lines
            if l["stage"] == stage and l["loss"]
        ]
        if points:
            x, y = zip(*points)
            left.plot(x, _smooth(y), label=f"{stage} stage")
    left.set(
        xlabel="million tokens", ylabel="loss (mean of 20 logged steps)", yscale="log", title="Loss"
    )
    left.legend()
    main = [r for r in results if r["stage"] == "main"]
    for number, family in enumerate(FAMILIES):
        points = [
            (r["tokens"] / 1e6, 100 * r["families"][family]["right"] / r["families"][family]["n"])
            for r in main
            if family in r["families"]
        ]
        if points:
            right.plot(
                *zip(*points), marker=".", linestyle="-" if number < 10 else "--", label=family
            )
    right.set(
        xlabel="million tokens",
        ylabel="held-out items right, %",
        ylim=(-2, 102),
        title="Accuracy by family",
    )
    right.legend(ncol=2, fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)
