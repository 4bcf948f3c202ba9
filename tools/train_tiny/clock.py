"""Progress of a stage, from its step budget or from the time it has used.

With a time budget the progress changes only every INTERVAL steps and every change is recorded: a
run can be repeated exactly from its log, and a resumed run goes on where the first one stopped.
"""

import time

INTERVAL = 10


class Clock:
    def __init__(self, minutes=None, steps=None, replay=None, now=time.monotonic):
        """Exactly one of minutes and steps; `replay` is a list of recorded (step, progress)."""
        assert (minutes is None) != (steps is None)
        self.minutes, self.steps, self._now = minutes, steps, now
        self.history, self._replay = [], dict(replay or [])
        self.used, self._start = 0.0, None  # seconds before this process, start of this process

    def start(self):
        self._start = self._now()

    def seconds(self):
        return self.used + (self._now() - self._start if self._start is not None else 0.0)

    def progress(self, step):
        """Progress 0..1 to be used for `step`; 1 means that the stage is over."""
        if self.steps is not None:
            return min(step / self.steps, 1.0)
        if self._replay:
            return max(p for s, p in self._replay.items() if s <= step)
        if not self.history or step >= self.history[-1][0] + INTERVAL:
            self.history.append((step, min(self.seconds() / (60 * self.minutes), 1.0)))
        return self.history[-1][1]

    def state_dict(self):
        return dict(used=self.seconds(), history=self.history)

    def load_state_dict(self, state):
        self.used, self.history = state["used"], [tuple(entry) for entry in state["history"]]
        self._start = None
