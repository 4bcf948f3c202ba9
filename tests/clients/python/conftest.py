"""One scripted server and one with the bundled model for all tests."""

import os

import pytest

from serving import SCRIPT, Server

# Clients read their own variables; only what a test says may count.
for name in list(os.environ):
    if name.startswith(("OPENAI_", "ANTHROPIC_", "DEEPSEEK_")) or name.lower().endswith("_proxy"):
        del os.environ[name]


@pytest.fixture(scope="session")
def scripted():
    with Server(script=SCRIPT) as server:
        yield server
        server.wait_idle()  # whatever the tests did, nothing was left running


@pytest.fixture(scope="session")
def bundled():
    with Server("--thinking", "false") as server:
        yield server
        server.wait_idle()
