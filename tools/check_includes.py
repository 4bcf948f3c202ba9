#!/usr/bin/env python3
"""Fails when a C++ file includes against the include table of DESIGN.md.

    tools/check_includes.py              # checks this repository
    tools/check_includes.py --root DIR   # checks another tree of the same shape
    tools/check_includes.py --self-test  # plants violations and expects each to be found

Rules for #include "...":
* a module includes itself and the modules of its row in TABLE, nothing else;
* from another module only public headers: src/<module>/<name>.h, not in a subfolder, not *-inl.h;
* tests and benches (x_test.cc, x_bench.cc, tests/, bench/, tools/) and apps/kuruma may include the
  public headers of any module;
* paths are "module/name.h": no "../", no <module/name.h>, no name without a module (files of apps/,
  tests/, bench/ and tools/ may include files of their own folder, and every test tests/...);
* neither the table nor the includes that exist form a cycle.
"""

import argparse
import pathlib
import re
import sys
import tempfile

TABLE = {
    "base": "",
    "device": "base",
    "kernels": "base device",
    "model": "base device kernels",
    "text": "base",
    "grammar": "base",
    "kv": "base",
    "store": "base device kv",
    "scheduler": "base kv",
    "engine": "base device kernels model kv store scheduler grammar",
    "api": "base text grammar",
    "server": "base text grammar api scheduler engine",
    "balancer": "base",
    "router": "base text api balancer",
    "sim": "base kv scheduler balancer",
}
TABLE = {module: frozenset(row.split()) for module, row in TABLE.items()}

FREE_FOLDERS = ("apps", "tests", "bench", "tools")  # may include any public header
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def cpp_files(root):
    for top in ("src",) + FREE_FOLDERS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix in (".cc", ".h") and path.is_file():
                yield path


def includes(path):
    """(line number, opening quote, included path) of every include of a file."""
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            match = INCLUDE.match(line)
            if match:
                yield number, match[1], match[2]


def is_test(path):
    return path.stem.endswith(("_test", "_bench"))


def is_local(root, path, target):
    """True if a file outside src/ includes a file of its own part of the tree, or a test includes
    the support code of the tests."""
    here = path.relative_to(root).parts
    if is_test(path) and target.startswith("tests/"):
        return (root / target).is_file()
    if here[0] not in FREE_FOLDERS:
        return False
    bases = [path.parent, root, root / here[0]]
    return any((base / target).is_file() for base in bases)


def is_public(target):
    parts = target.split("/")
    return len(parts) == 2 and parts[1].endswith(".h") and not parts[1].endswith("-inl.h")


def complaint(root, path, quote, target):
    """What is wrong with one include, or None."""
    module = target.split("/")[0]
    if quote == "<":
        return f"<{target}> is a module's header: use quotes" if module in TABLE and \
            target.endswith(".h") and (root / "src" / target).is_file() else None
    if ".." in target.split("/") or target.startswith("./"):
        return f'relative include "{target}": write "module/name.h"'
    if is_local(root, path, target):
        return None
    if module not in TABLE or "/" not in target:
        return f'"{target}" names no module of the include table'
    here = path.relative_to(root).parts
    own = here[1] if here[0] == "src" else None
    if own == module:
        return None
    if not is_public(target):
        return f'"{target}" is private to {module}: only src/{module}/*.h (not *-inl.h) is public'
    if own is None or is_test(path):
        return None
    if own not in TABLE:
        return f"src/{own} is not in the include table"
    if module not in TABLE[own]:
        return f'forbidden edge {own} -> {module} ("{target}")'
    return None


def find_cycle(edges):
    """A list of nodes that form a cycle in {node: set of nodes}, or None."""
    done, stack = set(), []

    def visit(node):
        if node in stack:
            return stack[stack.index(node):] + [node]
        if node in done:
            return None
        stack.append(node)
        for following in sorted(edges.get(node, ())):
            cycle = visit(following)
            if cycle:
                return cycle
        stack.pop()
        done.add(node)
        return None

    for node in sorted(edges):
        cycle = visit(node)
        if cycle:
            return cycle
    return None


def check(root):
    """(problems, number of files, number of includes looked at)."""
    problems, files, count = [], 0, 0
    edges = {}
    for path in cpp_files(root):
        files += 1
        here = path.relative_to(root).parts
        for line, quote, target in includes(path):
            count += 1
            what = complaint(root, path, quote, target)
            if what:
                problems.append(f"{path.relative_to(root)}:{line}: {what}")
            module = target.split("/")[0]
            product = here[0] == "src" and not is_test(path)
            if product and quote == '"' and module in TABLE and module != here[1]:
                edges.setdefault(here[1], set()).add(module)
    for name, graph in (("the include table", TABLE), ("the includes of src/", edges)):
        cycle = find_cycle(graph)
        if cycle:
            problems.append(f"{name}: cycle {' -> '.join(cycle)}")
    return problems, files, count


# ------------------------------------------------------------------------------------- self-test

# file -> (text, what must be said about it; None: nothing)
PLANTED = {
    "src/base/status.h": ("#include <string>\n", None),
    "src/kv/cache.h": ('#include "base/status.h"\n', None),
    "src/kv/detail/tree.h": ("", None),
    "src/kv/table-inl.h": ("", None),
    "src/kv/cache.cc": ('#include "kv/cache.h"\n#include "kv/detail/tree.h"\n', None),
    "src/kv/reads_engine.cc": ('#include "engine/engine.h"\n', "forbidden edge kv -> engine"),
    "src/engine/engine.h": ('#include "kv/cache.h"\n', None),
    "src/engine/deep.cc": ('#include "kv/detail/tree.h"\n', "private to kv"),
    "src/engine/inl.cc": ('#include "kv/table-inl.h"\n', "private to kv"),
    "src/engine/relative.cc": ('\n#include "../kv/cache.h"\n', ":2: relative include"),
    "src/engine/angle.cc": ("#include <kv/cache.h>\n", "use quotes"),
    "src/engine/bare.cc": ('#include "engine.h"\n', "names no module"),
    "src/kv/cache_test.cc": ('#include "engine/engine.h"\n', None),
    "tests/support/golden.h": ("", None),
    "src/kv/golden_test.cc": ('#include "tests/support/golden.h"\n', None),
    "src/kv/golden.cc": ('#include "tests/support/golden.h"\n', "names no module"),
    "src/kv/deep_test.cc": ('#include "engine/detail/x.h"\n', "private to engine"),
    "src/gadget/gadget.cc": ('#include "base/status.h"\n', "src/gadget is not in the include"),
    "apps/kuruma/commands.h": ('#include "engine/engine.h"\n', None),
    "apps/kuruma/main.cc": ('#include "kuruma/commands.h"\n#include "kv/cache.h"\n', None),
    "apps/kuruma/deep.cc": ('#include "kv/detail/tree.h"\n', "private to kv"),
    "tools/thing/a.h": ("", None),
    "tools/thing/a.cc": ('#include "thing/a.h"\n#include "kv/cache.h"\n', None),
    "tests/walk_test.cc": ('#include "server/absent.h"\n#include "kv/cache.h"\n', None),
}
PLANTED_CYCLE = "the includes of src/: cycle engine -> kv -> engine"


def self_test():
    failures = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, (text, _) in PLANTED.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        problems, _, _ = check(root)
    for name, (_, expected) in PLANTED.items():
        said = [p for p in problems if p.startswith(name + ":")]
        if expected is None and said:
            failures.append(f"nothing is wrong with {name}, but: {said}")
        if expected is not None and not any(expected in p for p in said):
            failures.append(f"{name}: expected '{expected}', found {said}")
    if PLANTED_CYCLE not in problems:
        failures.append(f"expected '{PLANTED_CYCLE}'")
    if find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}}) != ["a", "b", "c", "a"]:
        failures.append("a cycle of three was not found")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        problems = self_test()
        summary = f"self-test: {len(PLANTED)} planted files judged as expected"
    else:
        problems, files, count = check(args.root)
        summary = f"{count} includes of {files} files follow the table"
    for problem in problems:
        print(problem)
    print(f"check_includes: {f'{len(problems)} problems' if problems else summary}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
