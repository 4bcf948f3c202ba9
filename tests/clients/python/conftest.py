"""The servers of all tests here."""

from servers import bundled, scripted  # noqa: F401
