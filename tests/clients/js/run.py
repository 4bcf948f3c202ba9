"""Runs the JavaScript tests in a folder that has their packages, against a scripted server."""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))

from serving import SCRIPT, Server  # noqa: E402

with Server(script=SCRIPT) as server:
    done = subprocess.run(["npm", "test"], cwd=sys.argv[1], check=False, timeout=600,
                          env={**os.environ, "KURUMA_URL": server.url})
    server.wait_idle()
sys.exit(done.returncode)
