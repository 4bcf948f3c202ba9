"""Training and evaluation data, generated from a seed: facts, checkable tasks, tools, talk,
needles.
"""
