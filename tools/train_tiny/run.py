"""A whole run in one folder: vocabulary, three training stages, log, checkpoints, export.

Everything is a function of the options and the seed, and of the recorded progress where the budget
is time. `state.pt` is replaced atomically; starting the same command again goes on from it. A run
may start from an exported checkpoint: it keeps its vocabulary and repeats the last phase of the
main stage, with today's facts.
"""

import csv
import dataclasses
import json
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from . import config, evaluate, export, ops
from .clock import Clock
from .data import evalset, mixture
from .data.stream import Stream, sample_texts
from .draft import Draft
from .model import Backbone
from .stages import STAGES
from .tokenizer import SYSTEM, Tokenizer, build_tokenizer

# Share of the time budget, and of the step count relative to the main stage.
SHARES = {"main": 0.86, "indexer": 0.04, "draft": 0.10}
STEP_SHARES = {"main": 1.0, "indexer": 0.05, "draft": 0.2}
LOG_EVERY = 10
FIELDS = (
    "stage",
    "step",
    "progress",
    "seconds",
    "tokens",
    "loss",
    "norm",
    "rate",
    "imbalance",
    "overlap",
)


@dataclass
class Options:
    out: str
    preset: str = "tiny"
    vocab_size: int = 2048
    seed: int = 1
    start: str | None = None  # folder of a checkpoint to go on from
    minutes: float | None = None
    steps: int | None = None
    tokens_per_step: int = 2048
    evaluations: int = 12  # during the main stage
    save_minutes: float = 3.0
    vocabulary_rows: int = 6000
    kernels: bool = True
    threads: int = 1
    stop_after: int | None = None  # steps in this process; for tests of resuming


class Run:
    def __init__(self, options, replay=None):
        self.o, self.out = options, Path(options.out)
        self.out.mkdir(parents=True, exist_ok=True)
        torch.set_num_threads(options.threads)
        if options.kernels and not ops.use_kernels(True):
            print(
                "the C++ extension could not be built: going on with plain PyTorch, half as fast",
                flush=True,
            )
        torch.manual_seed(options.seed)
        self.backbone, self.draft, self.tokenizer = self._model()
        self.stream = Stream(self.tokenizer, options.seed, options.tokens_per_step)
        self.replay, self.stage_number, self.step, self.tokens, self.left = (
            replay or {},
            0,
            0,
            0,
            options.stop_after,
        )
        self._enter(0)
        self._load()

    def _model(self):
        """(backbone, draft, tokenizer) of the checkpoint to go on from, else new ones."""
        path = self.out / "tokenizer.json"
        if self.o.start:
            model = export.load_checkpoint(self.o.start)
            _write(path, model[2].json_text.encode())
            return model
        if not path.exists():
            built = build_tokenizer(
                sample_texts(self.o.seed, self.o.vocabulary_rows), self.o.vocab_size
            )
            _write(path, built.json_text.encode())
        tokenizer = Tokenizer(path.read_text(encoding="utf-8"))
        classes = tokenizer.classes()
        sizes = config.preset(
            self.o.preset,
            vocab_size=tokenizer.vocab_size,
            engram_compressed_vocab_size=max(classes) + 1,
            dspark_noise_token_id=tokenizer.special(SYSTEM),
        )
        return Backbone(sizes, classes), Draft(sizes), tokenizer

    # -- state -------------------------------------------------------------

    def _enter(self, number):
        """Makes stage `number` current, at its first step."""
        self.stage_number, self.step = number, 0
        self.backbone.train(), self.draft.train()
        for name, p in [*self.backbone.named_parameters(), *self.draft.named_parameters()]:
            p.requires_grad_(True)
        self.stage = STAGES[number](self.backbone, self.draft, self.stream)
        o, name = self.o, self.stage.name
        if o.minutes is not None:
            self.clock = Clock(minutes=o.minutes * SHARES[name], replay=self.replay.get(name))
        else:
            self.clock = Clock(steps=max(2, round(o.steps * STEP_SHARES[name])))
        self.evaluated = 0

    def _load(self):
        path = self.out / "state.pt"
        if not path.exists():
            return
        state = torch.load(path, weights_only=True)
        known = {**dataclasses.asdict(self.o), **state["options"]}
        for name in ("preset", "vocab_size", "seed", "start", "tokens_per_step"):
            if known[name] != getattr(self.o, name):
                raise ValueError(f"{path} was made with {name} {known[name]}; use another folder")
        self._enter(state["stage"])
        self.step, self.tokens, self.evaluated = state["step"], state["tokens"], state["evaluated"]
        self.backbone.load_state_dict(state["backbone"])
        self.draft.load_state_dict(state["draft"])
        for gate, load in zip([*self.backbone.gates(), *self.draft.gates()], state["load"]):
            gate.load.copy_(load)
        self.stage.optimiser.load_state_dict(state["optimiser"])
        self.clock.load_state_dict(state["clock"])
        self._cut_log()

    def save(self):
        gates = [*self.backbone.gates(), *self.draft.gates()]
        state = dict(
            options=dataclasses.asdict(self.o),
            stage=self.stage_number,
            step=self.step,
            tokens=self.tokens,
            evaluated=self.evaluated,
            backbone=self.backbone.state_dict(),
            draft=self.draft.state_dict(),
            load=[gate.load for gate in gates],
            optimiser=self.stage.optimiser.state_dict(),
            clock=self.clock.state_dict(),
        )
        torch.save(state, self.out / "state.pt.partial")
        os.replace(self.out / "state.pt.partial", self.out / "state.pt")

    def _cut_log(self):
        """Drops lines after the saved step: they will be written again."""
        order = {stage.name: i for i, stage in enumerate(STAGES)}
        for name in ("log.csv", "accuracy.jsonl"):
            path = self.out / name
            if not path.exists():
                continue
            lines, kept = path.read_text().splitlines(), []
            for line in lines:
                if name == "log.csv":
                    stage, step = (line.split(",") + ["", ""])[:2]
                else:  # written after its step, which the saved state therefore includes
                    entry = json.loads(line)
                    stage, step = entry["stage"], entry["step"] - 1
                if stage not in order or (order[stage], int(step)) < (self.stage_number, self.step):
                    kept.append(line)
            _write(path, ("\n".join(kept) + "\n" if kept else "").encode())

    # -- training ----------------------------------------------------------

    def stop_on_signals(self):
        """SIGTERM and Ctrl-C save the state after the current step and end the run."""

        def stop(number, frame):
            self.left = 0

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, stop)

    def train(self):
        """Runs to the end; False when `stop_after` or a signal ended it before."""
        while True:
            self.clock.start()
            if not self._train_stage():
                return False
            self._evaluate()
            if self.stage_number + 1 == len(STAGES):
                self.save()
                return True
            self._enter(self.stage_number + 1)
            self.save()

    def _train_stage(self):
        last_save = time.monotonic()
        while (progress := self.clock.progress(self.step)) < 1:
            if self.left is not None:
                if self.left == 0:
                    self.save()
                    return False
                self.left -= 1
            at = self._schedule(progress)
            batch = self.stage.batch(self.step, at)
            numbers = self.stage.step(batch, self.step, at)
            self.tokens += batch.tokens.numel()
            if self.step % LOG_EVERY == 0:
                self._log(progress, numbers)
            self.step += 1
            if self.stage.name == "main" and progress * self.o.evaluations >= self.evaluated + 1:
                self.evaluated += 1
                self._evaluate(quick=True)
            if time.monotonic() - last_save > 60 * self.o.save_minutes:
                self.save()
                last_save = time.monotonic()
        return True

    def _schedule(self, progress):
        """Where in the plan of data and rates a stage is: from a checkpoint, in its last phase."""
        if self.o.start and self.stage.name == "main":
            first = mixture.PHASES[-1].start
            return first + (1 - first) * progress
        return progress

    def _log(self, progress, numbers):
        path = self.out / "log.csv"
        fresh = not path.exists() or path.stat().st_size == 0
        with open(path, "a", newline="") as out:
            writer = csv.DictWriter(out, FIELDS, extrasaction="ignore", lineterminator="\n")
            if fresh:
                writer.writeheader()
            line = dict(
                stage=self.stage.name,
                step=self.step,
                progress=f"{progress:.6f}",
                seconds=f"{self.clock.seconds():.1f}",
                tokens=self.tokens,
            )
            writer.writerow({**line, **{k: f"{v:.5g}" for k, v in numbers.items()}})
        if self.step % (10 * LOG_EVERY) == 0:
            print(
                f"{self.stage.name} step {self.step} progress {progress:.3f} tokens {self.tokens} "
                + " ".join(f"{k} {v:.4g}" for k, v in numbers.items()),
                flush=True,
            )

    def _evaluate(self, quick=False):
        """Accuracy by family, with the selection applied once the indexers are trained."""
        share = 0.4 if quick else 1.0
        items = evalset.held_out(self.tokenizer.texts(), share=share, needles=not quick)
        selects = self.stage.name != "main"
        result = evaluate.accuracy(self.backbone, self.tokenizer, items, selects)
        entry = dict(
            stage=self.stage.name,
            step=self.step,
            tokens=self.tokens,
            seconds=round(self.clock.seconds()),
            selects=selects,
            families={f: dict(right=r, n=n, tokens=round(t, 4)) for f, (r, n, t) in result.items()},
        )
        if self.stage.name == "draft":
            some = [item for item in items if item["family"] != "needle"][::4]
            accepted = evaluate.acceptance(self.backbone, self.draft, self.tokenizer, some)
            entry["accepted"] = {
                f: dict(mean=round(m, 3), places=[round(p, 3) for p in places], anchors=n)
                for f, (m, places, n) in accepted.items()
            }
        with open(self.out / "accuracy.jsonl", "a") as out:
            out.write(json.dumps(entry) + "\n")
        print(
            f"accuracy {self.stage.name} {self.tokens} tokens: "
            + ", ".join(f"{f} {100 * r / n:.0f}%" for f, (r, n, _) in result.items()),
            flush=True,
        )

    def export(self, folder):
        return export.export_checkpoint(self.backbone, self.draft, self.tokenizer, folder)


def recorded_progress(path):
    """{stage: [(step, progress)]} of a log, to repeat a time-budgeted run exactly."""
    out = {}
    with open(path, newline="") as source:
        for line in csv.DictReader(source):
            out.setdefault(line["stage"], []).append((int(line["step"]), float(line["progress"])))
    return out


def _write(path, data):
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    os.replace(partial, path)
