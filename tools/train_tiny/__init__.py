"""Trains the small DeepSeek-V4.1 checkpoint that Kuruma ships; see README.md beside this file."""
