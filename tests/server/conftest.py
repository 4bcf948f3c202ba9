import pytest
from support import FAST, LATE, PLAIN, SLOW, Server, write_script


@pytest.fixture(scope="session")
def model():
    """The bundled model."""
    with Server() as server:
        yield server
        server.settle()


@pytest.fixture(scope="session")
def scripted(tmp_path_factory):
    """Answers "Fine.", forever or slowly, as the prompt asks."""
    script = write_script(tmp_path_factory.mktemp("script"), SLOW, FAST, PLAIN)
    with Server("--scripted", script) as server:
        yield server
        server.settle()


@pytest.fixture
def serve(tmp_path):
    """Starts a scripted server of its own with more options."""
    def start(*args, lines=(SLOW, LATE, FAST, PLAIN), **kwargs):
        return Server("--scripted", write_script(tmp_path, *lines), *args, **kwargs)
    return start
