"""The servers of ../python."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from servers import bundled, scripted  # noqa: E402,F401
