"""Command line: `python -m train_tiny COMMAND --help` from the folder above this one."""

import argparse
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]


def run_all(a):
    """Facts check, vocabulary, training, export, evaluation file: the one command."""
    from .run import Options, Run, recorded_progress

    if not a.skip_checks:
        facts(a)
    replay = recorded_progress(a.replay) if a.replay else None
    run = Run(
        Options(
            out=a.out,
            preset=a.preset,
            vocab_size=a.vocab,
            seed=a.seed,
            start=a.start,
            minutes=a.minutes,
            steps=a.steps,
            tokens_per_step=a.tokens_per_step,
            kernels=not a.no_kernels,
            threads=a.threads,
            vocabulary_rows=a.vocabulary_rows,
            evaluations=a.evaluations,
            stop_after=a.stop_after,
        ),
        replay,
    )
    if not a.skip_checks and prove(
        argparse.Namespace(tokenizer=Path(a.out) / "tokenizer.json", seed=a.seed, steps=200)
    ):
        return 1
    run.stop_on_signals()
    if not run.train():
        print("stopped; the same command goes on from here")
        return 0
    write_model(run, Path(a.model or Path(a.out) / "checkpoint"))
    return 0


def write_model(run, folder):
    """The checkpoint and, beside it, the held-out items for `kuruma eval`."""
    from .data import evalset

    size = run.export(folder)
    evalset.write(evalset.held_out(run.tokenizer.texts()), run.tokenizer, folder / "eval.jsonl")
    print(f"wrote {folder}: {size / 1e6:.2f} MB of tensors")


def facts(a):
    """Captures the help texts (with --kuruma) and checks every fact against the documents."""
    from .data import faq, help_texts

    if a.kuruma:
        help_texts.refresh(a.kuruma)
    known = faq.load_facts()
    complaints = faq.check_facts(known, ROOT)
    print("\n".join(complaints) or f"{len(known)} facts agree with the documents")
    if complaints:
        sys.exit(1)


def prove(a):
    """Searches the training data for held-out items."""
    from .data import evalset, proof
    from .data.stream import Stream
    from .tokenizer import Tokenizer

    tokenizer = Tokenizer(Path(a.tokenizer).read_text(encoding="utf-8"))
    items = evalset.held_out(tokenizer.texts())
    complaints = proof.complaints(items, Stream(tokenizer, a.seed), a.steps)
    print(
        "\n".join(complaints[:20]) or f"none of {len(items)} held-out items is in the training data"
    )
    return int(bool(complaints))


def export_state(a):
    """Exports the state of a run that is under way or finished."""
    from .run import Options, Run

    state = torch.load(Path(a.out) / "state.pt", weights_only=True)
    run = Run(Options(**{**state["options"], "out": a.out, "stop_after": 0}))
    write_model(run, Path(a.model))


def card(a):
    """Fills the model card from the evaluation of `kuruma eval --drafts --json`."""
    from . import card as module

    folder = Path(a.model)
    (folder / "README.md").write_text(module.card(folder), encoding="utf-8")


def compare(a):
    """Writes PyTorch logits of prompts, or checks them against a file of the engine."""
    from . import compare as module

    return module.main(a)


def evaluate_checkpoint(a):
    """Accuracy of an exported folder by family, rounded weights, float32 activations."""
    from . import evaluate
    from .data import evalset
    from .export import load_checkpoint

    torch.set_num_threads(a.threads)
    backbone, draft, tokenizer = load_checkpoint(a.model)
    items = evalset.held_out(tokenizer.texts())
    for family, (right, n, tokens) in evaluate.accuracy(
        backbone, tokenizer, items, selects=True
    ).items():
        print(
            f"{family:16} {right:4} / {n:4}  {100 * right / n:5.1f} %"
            f"   tokens {100 * tokens:5.1f} %"
        )
    some = [item for item in items if item["family"] != "needle"]
    for family, (mean, places, n) in evaluate.acceptance(backbone, draft, tokenizer, some).items():
        print(
            f"{family:16} accepted {mean:.2f} of {len(places)}  n {n}"
            f"  by place {[round(p, 2) for p in places]}"
        )


def plot(a):
    """Draws the curves of a run."""
    from .plot import plot_run

    plot_run(Path(a.out), Path(a.picture))


def _run_arguments(sub):
    def add(*names, **settings):
        sub.add_argument(*names, **settings)

    add("--out", required=True, help="working folder; an unfinished run in it is continued")
    budget = sub.add_mutually_exclusive_group(required=True)
    budget.add_argument("--minutes", type=float, help="time budget of the whole run")
    budget.add_argument("--steps", type=int, help="steps of the main stage instead")
    add("--model", help="where the checkpoint goes (default: OUT/checkpoint)")
    add("--from", dest="start", metavar="DIR", help="checkpoint to go on from, of its sizes and vocabulary")
    add("--seed", type=int, default=1)
    add("--preset", default="tiny", choices=("tiny", "micro"))
    add("--vocab", type=int, default=2048, help="entries of the vocabulary")
    add("--vocabulary-rows", type=int, default=6000, help="rows the vocabulary is learned on")
    add("--tokens-per-step", type=int, default=2048)
    add("--evaluations", type=int, default=12, help="quick looks at accuracy in the main stage")
    add("--threads", type=int, default=2)
    add("--no-kernels", action="store_true", help="plain PyTorch instead of the C++ extension")
    add("--replay", metavar="LOG", help="log.csv of a run whose progress is to be repeated")
    add("--stop-after", type=int, help="stop after so many steps, as if cut")
    add("--kuruma", help="binary whose help texts are captured first, so that facts follow it")
    add("--skip-checks", action="store_true", help="check neither facts nor the held-out split")


def _parser():
    parser = argparse.ArgumentParser(prog="train_tiny", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, function):
        sub = commands.add_parser(name, help=function.__doc__.splitlines()[0])
        sub.set_defaults(function=function)
        return sub

    _run_arguments(command("run", run_all))
    command("facts", facts).add_argument("--kuruma", help="binary whose help texts are captured")

    sub = command("prove", prove)
    sub.add_argument("--tokenizer", required=True)
    sub.add_argument("--seed", type=int, default=1)
    sub.add_argument("--steps", type=int, default=500, help="training steps to search")

    sub = command("export", export_state)
    sub.add_argument("--out", required=True, help="working folder of a run")
    sub.add_argument("--model", required=True, help="folder to write")

    sub = command("card", card)
    sub.add_argument("--model", required=True, help="folder with eval.jsonl and result.json")

    sub = command("compare", compare)
    sub.add_argument("--model", required=True)
    sub.add_argument("--tokens", required=True, help='JSON Lines of {"id", "tokens"}')
    sub.add_argument("--write", help="safetensors file for the PyTorch logits")
    sub.add_argument("--layers", help="safetensors file for every layer of the first line")
    sub.add_argument("--against", help="file of `kuruma score --numerics exact --logits`")
    sub.add_argument("--tolerance", type=float, default=2e-4)

    sub = command("evaluate", evaluate_checkpoint)
    sub.add_argument("--model", required=True)
    sub.add_argument("--threads", type=int, default=1)

    sub = command("plot", plot)
    sub.add_argument("--out", required=True, help="working folder of a run")
    sub.add_argument("--picture", required=True, help="PNG to write")
    return parser


if __name__ == "__main__":
    arguments = _parser().parse_args()
    sys.exit(arguments.function(arguments))
