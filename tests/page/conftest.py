import sys
import pathlib

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import browser as browser_module  # noqa: E402
import mock  # noqa: E402

# Chromium reports every refused request on its console; scripts cannot prevent it.
NETWORK = ("Failed to load resource",)


@pytest.fixture(scope="session")
def chromium():
    chromium = browser_module.Browser()
    yield chromium
    chromium.close()


@pytest.fixture
def server():
    server = mock.Server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def tab(chromium):
    return chromium.page()


@pytest.fixture
def page(tab, server):
    """The page of `server`, freshly opened; at the end nothing may have gone wrong in it. Another
    server is another origin: nothing that a page has stored is seen by the next one."""
    page = tab
    page.resize(1280, 800)
    page.media()
    page.open(server.url)
    page.wait("document.querySelectorAll('#settings [name=model] option').length === 3")
    yield page
    problems = page.problems(NETWORK)
    page.open("about:blank")
    assert not problems
