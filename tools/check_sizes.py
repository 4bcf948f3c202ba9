#!/usr/bin/env python3
"""Fails when C++ code outgrows the limits of the design.

    tools/check_sizes.py              # checks this repository
    tools/check_sizes.py --root DIR   # checks another tree; its allow-list is DIR/tools/check_sizes.allow
    tools/check_sizes.py --self-test  # plants violations and expects each to be found

Limits: LIMITS below. A file, function or class that must exceed one has a line in
tools/check_sizes.allow: "path reason" (length of a file) or "path:symbol reason" (a function
Class::Name, a test Suite.Name, a class). An entry that no longer excuses anything is an error.

The scanner is a heuristic, not a compiler: it removes comments, literals and preprocessor lines and
follows braces. Lambdas count as part of the function around them; constructors, destructors,
operators and defaulted or deleted functions do not count as public methods. Of overriding functions
only the length counts: the base class decided the rest.
"""

import argparse
import bisect
import pathlib
import re
import sys
import tempfile
from typing import NamedTuple

LIMITS = {".cc lines": 800, ".h lines": 250, "function lines": 70, "parameters": 5,
          "public methods": 8}
FOLDERS = ("src", "apps", "tests", "bench", "tools")
ALLOW_LIST = "tools/check_sizes.allow"


class Problem(NamedTuple):
    path: str
    line: int
    symbol: str  # "" for the file as a whole
    text: str


# ------------------------------------------------------------------------------------- the scanner

NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/'                                  # comments
    r'|\bu?8?R"(?P<tag>[^(\s]*)\(.*?\)(?P=tag)"'           # raw strings
    r'|"(?:\\.|[^"\\\n])*"'                                # strings
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'"                # characters, not digit separators
    r'|^[ \t]*\#(?:\\\n|[^\n])*',                          # preprocessor lines
    re.DOTALL | re.MULTILINE)
CONTROL = {"if", "for", "while", "switch", "catch", "return", "do", "else", "sizeof", "co_return"}
NOT_A_NAME = {"alignas", "decltype", "__attribute__", "noexcept", "explicit", "requires", "throw",
              "static_assert", "void", "int", "bool", "auto", "asm"}
TEST_MACRO = re.compile(r"^(TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)$")
CLASS_HEAD = re.compile(
    r"\b(class|struct|union)\s+(?:alignas\s*\([^)]*\)\s*|\[\[.*?\]\]\s*)*([A-Za-z_][\w:]*)")
ACCESS = re.compile(r"^\s*(?:(public|private|protected)\s*:(?!:)\s*)+")


def strip_noise(text):
    """The text with comments, literals and directives blanked out, line numbers kept."""

    def blank(match):
        piece = match[0]
        filler = '""' if piece[0] in "\"'uR8" else " "
        return filler + "\n" * piece.count("\n")

    return NOISE.sub(blank, text)


def closing(text, start):
    """Index of the bracket that closes the one at `start`, or len(text)."""
    depth = 0
    for match in re.compile(r"[(\[{)\]}]").finditer(text, start):
        depth += 1 if match[0] in "([{" else -1
        if depth == 0:
            return match.start()
    return len(text)


def skip_angles(text, start):
    """Index just behind the <...> that opens at `start`."""
    depth, i = 0, start
    while i < len(text):
        if text[i] in "([{":
            i = closing(text, i)
        elif text[i] == "<":
            depth += 1
        elif text[i] == ">" and text[i - 1] != "-":
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return len(text)


def drop_template_heads(head):
    """`head` without its leading template <...> clauses and [[attributes]]."""
    while True:
        head = head.lstrip()
        match = re.match(r"template\s*<", head)
        if match:
            head = head[skip_angles(head, match.end() - 1):]
        elif head.startswith("[["):
            head = head[closing(head, 0) + 1:]
        else:
            return head


def top_level(text):
    """(index, character) of the characters of `text` outside every bracket."""
    i = 0
    while i < len(text):
        if text[i] in "([{":
            end = closing(text, i)
            yield i, text[i]
            i = end + 1
        else:
            yield i, text[i]
            i += 1


def count_parameters(text):
    """Number of parameters between the parentheses of a declaration."""
    if text.strip() in ("", "void"):
        return 0
    count, i = 1, 0
    while i < len(text):
        if text[i] in "([{":
            i = closing(text, i)
        elif text[i] == "<" and re.search(r"[\w>]\s*$", text[:i]):
            i = skip_angles(text, i) - 1
        elif text[i] == ",":
            count += 1
        i += 1
    return count


class Function(NamedTuple):
    name: str
    parameters: int | None  # None for a test or an override
    special: bool           # constructor, destructor, operator, defaulted, deleted or overriding


def parse_function(head, owner):
    """The function that `head` declares or begins to define, or None. `owner`: enclosing class."""
    head = drop_template_heads(head)
    for i, char in top_level(head):
        before = head[:i]
        name = re.search(r"(operator\s*(?:[^\w\s(]+|\(\s*\)|\w[\w\s*&:<>]*)|~?[A-Za-z_][\w:~]*)\s*$",
                         before)
        if char == "=" and not re.search(r"operator\s*[^\w\s(]*$", before):
            return None
        if char == "(" and re.search(r"operator\s*$", before):
            continue  # the first pair of operator()
        if char != "(" or not name or name[1] in NOT_A_NAME:
            continue
        word, inside = name[1], head[i + 1:closing(head, i)]
        if word in CONTROL:
            return None
        if TEST_MACRO.match(word):
            return Function(".".join(re.findall(r"\w+", inside)), None, True)
        if inside.lstrip().startswith("*") or re.match(r"\s*\w+::\*", inside):
            return None  # a pointer to a function
        tail = head[closing(head, i) + 1:]
        last = word.split("::")[-1]
        if re.search(r"\boverride\b", tail):
            return Function(word, None, True)
        special = (word.startswith("operator") or "operator" in before.split() or "~" in word or
                   last == owner or bool(re.search(r"=\s*(default|delete)\s*$", tail)))
        return Function(word, count_parameters(inside), special)
    return None


class Scope(NamedTuple):
    kind: str    # "namespace", "class"
    name: str
    first: int   # offset where its head begins


class Scanner:
    """Walks one file and collects its problems."""

    def __init__(self, path, text):
        self.path = path
        self.text = strip_noise(text)
        self.line_starts = [0] + [m.end() for m in re.finditer("\n", self.text)]
        self.scopes = []
        self.access = []    # access of the innermost class, one per class scope
        self.methods = []   # public methods counted, one per class scope
        self.problems = []

    def run(self):
        start, i = 0, 0
        token = re.compile(r"[;{}(\[]")
        while match := token.search(self.text, i):
            i, char = match.start(), match[0]
            if char in "([":
                i = closing(self.text, i) + 1
            elif char == ";":
                self.declaration(start, i)
                start = i = i + 1
            elif char == "}":
                self.leave()
                start = i = i + 1
            else:
                kind, end = self.open_brace(start, i)
                i = end
                if kind != "initialiser":
                    start = end
        return self.problems

    def line(self, offset):
        return bisect.bisect_right(self.line_starts, offset)

    def head(self, start, end):
        """The text from `start` to `end` after access labels, and where it begins."""
        text = self.text[start:end]
        label = ACCESS.match(text)
        if label:
            if self.access:
                self.access[-1] = label[1]
            text = text[label.end():]
        stripped = text.lstrip()
        return stripped, end - len(stripped)

    def open_brace(self, start, brace):
        """Handles `{`; returns what it was and where to go on."""
        head, first = self.head(start, brace)
        plain = drop_template_heads(head)
        if re.match(r"(inline\s+)?namespace\b|extern\s*\"\"\s*$", plain):
            self.scopes.append(Scope("namespace", "", first))
            return "scope", brace + 1
        if re.match(r"(typedef\s+)?enum\b", plain):
            return "initialiser", closing(self.text, brace) + 1
        function = parse_function(head, self.owner())
        kind = CLASS_HEAD.search(plain)
        if kind and (function is None or kind.start() == 0 and "(" not in
                     re.sub(r"alignas\s*\([^)]*\)", "", plain.split(":")[0])):
            self.scopes.append(Scope("class", kind[2].split("::")[-1], first))
            self.access.append("private" if kind[1] == "class" else "public")
            self.methods.append(0)
            return "scope", brace + 1
        end = closing(self.text, brace)
        if function is None or self.starts_member_initialiser(head):
            return "initialiser", end + 1
        self.add_function(function, first, end)
        return "function", end + 1

    @staticmethod
    def starts_member_initialiser(head):
        """True if the brace behind `head` initialises a member in a constructor's list."""
        colons = [i for i, c in top_level(head) if c == ":" and head[i - 1:i] != ":" and
                  head[i + 1:i + 2] != ":"]
        return bool(colons) and ")" in head[:colons[0]] and bool(re.search(r"[\w>]\s*$", head))

    def owner(self):
        return self.scopes[-1].name if self.scopes and self.scopes[-1].kind == "class" else ""

    def declaration(self, start, end):
        head, first = self.head(start, end)
        if re.match(r"(using|typedef|friend|static_assert|return|extern\s+template)\b", head):
            return
        function = parse_function(head, self.owner())
        if function:
            self.add_function(function, first, None)

    def add_function(self, function, first, end):
        names = [s.name for s in self.scopes if s.kind == "class"]
        symbol = "::".join(names + [function.name])
        line = self.line(first)
        if end is not None:
            length = self.line(end) - line + 1
            self.limit("function lines", length, line, symbol)
        if function.parameters is not None:
            self.limit("parameters", function.parameters, line, symbol)
        if self.owner() and self.access[-1] == "public" and not function.special:
            self.methods[-1] += 1

    def leave(self):
        if not self.scopes:
            return
        scope = self.scopes.pop()
        if scope.kind == "class":
            self.access.pop()
            names = [s.name for s in self.scopes if s.kind == "class"] + [scope.name]
            self.limit("public methods", self.methods.pop(), self.line(scope.first),
                       "::".join(names))

    def limit(self, what, value, line, symbol):
        if value > LIMITS[what]:
            self.problems.append(Problem(self.path, line, symbol,
                                         f"{value} {what}, limit {LIMITS[what]}"))


# ----------------------------------------------------------------------------------- tree and list

def read_allow_list(path):
    """({key: line number}, problems); a key is "path" or "path:symbol"."""
    entries, problems = {}, []
    if not path.is_file():
        return entries, problems
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        key, _, reason = line.partition(" ")
        if not reason.strip():
            problems.append(f"{ALLOW_LIST}:{number}: {key} has no reason")
        if key in entries:
            problems.append(f"{ALLOW_LIST}:{number}: {key} is listed twice")
        entries[key] = number
    return entries, problems


def measure(root):
    """(all violations, number of files)."""
    found, files = [], 0
    for top in FOLDERS:
        for path in sorted((root / top).rglob("*")):
            if path.suffix not in (".cc", ".h") or not path.is_file():
                continue
            files += 1
            text = path.read_text(encoding="utf-8")
            name = path.relative_to(root).as_posix()
            what, lines = f"{path.suffix} lines", text.count("\n")
            if lines > LIMITS[what]:
                found.append(Problem(name, 1, "", f"{lines} {what}, limit {LIMITS[what]}"))
            found += Scanner(name, text).run()
    return found, files


def check(root):
    """(problems, number of files, number of excused violations)."""
    allowed, problems = read_allow_list(root / ALLOW_LIST)
    found, files = measure(root)
    used = set()
    for problem in found:
        key = f"{problem.path}:{problem.symbol}" if problem.symbol else problem.path
        if key in allowed:
            used.add(key)
        else:
            subject = f"{problem.symbol}: " if problem.symbol else ""
            problems.append(f"{problem.path}:{problem.line}: {subject}{problem.text}")
    for key, number in allowed.items():
        if key not in used:
            problems.append(f"{ALLOW_LIST}:{number}: {key} exceeds no limit, delete this line")
    return problems, files, len(used)


# --------------------------------------------------------------------------------------- self-test

LONG_BODY = "  Step();\n" * 69
PLANTED = {
    "src/a/long.cc": "// line\n" * 801,
    "src/a/long.h": "\n" * 251,
    "src/a/fits.cc": "\n" * 700,
    "src/a/function.cc": f"namespace a {{\nint Long(int x) {{\n{LONG_BODY}}}\n"
                         f"int Fits(int x) {{\n{LONG_BODY[10:]}}}\n}}  // namespace a\n",
    "src/a/constructor.cc": f"A::A(int x) : a_{{x}}, b_(2) {{\n{LONG_BODY}}}\n",
    "src/a/lambda.cc": f"void Outer() {{\n  auto f = [](int) {{\n{LONG_BODY}  }};\n}}\n",
    "src/a/named_test.cc": f"TEST(Promise, Holds) {{\n{LONG_BODY}}}\n",
    "src/a/parameters.h": "int Many(int a, int b, std::map<int, int> c, int d, int e, int f);\n"
                          "int Five(int a, std::map<int, int> c, void (*f)(int, int), int d, "
                          "std::function<int(int, int)> e = {});\n",
    "src/a/methods.h": "class Wide {\n public:\n  Wide();\n  ~Wide();\n"
                       "  Wide& operator=(const Wide&) = delete;\n" +
                       "".join(f"  int M{i}() const {{ return {i}; }}\n" for i in range(9)) +
                       " private:\n  void Hidden();\n};\n",
    "src/a/narrow.h": "class Narrow : public Base {\n public:\n" +
                      "".join(f"  void M{i}(int x);\n" for i in range(8)) +
                      " private:\n  void P();\n  int x_ = F(1);\n};\n",
    "src/a/handler.cc": "class Handler : public Base {\n public:\n" +
                        "".join(f"  bool M{i}(int, int, int, int, int, int) override;\n"
                                for i in range(9)) + "};\n",
    "src/a/tricky.cc": "const char* s = \"{ } ( \"; char c = '{'; int n = 1'000'000;\n"
                       "auto r = R\"({ { {)\";\n/* { */ // {\n#define OPEN {\n"
                       "enum class E { kA, kB };\nstd::array<int, 2> x = {1, 2};\n"
                       "template <typename T, int N = (3 > 2)>\n"
                       f"auto Tricky(T t) -> std::vector<int> {{\n{LONG_BODY}}}\n",
    "src/a/excused.cc": f"void Excused() {{\n{LONG_BODY}}}\n",
    "tools/check_sizes.allow": "# comment\nsrc/a/excused.cc:Excused a table in code\n"
                               "src/a/gone.cc it was split\nsrc/a/fits.cc:Fine\n",
}
EXPECTED = [
    "src/a/long.cc:1: 801 .cc lines", "src/a/long.h:1: 251 .h lines",
    "src/a/function.cc:2: Long: 71 function lines",
    "src/a/constructor.cc:1: A::A: 71 function lines",
    "src/a/lambda.cc:1: Outer: 73 function lines",
    "src/a/named_test.cc:1: Promise.Holds: 71 function lines",
    "src/a/parameters.h:1: Many: 6 parameters", "src/a/methods.h:1: Wide: 9 public methods",
    "src/a/tricky.cc:7: Tricky: 72 function lines",
    "tools/check_sizes.allow:3: src/a/gone.cc exceeds no limit",
    "tools/check_sizes.allow:4: src/a/fits.cc:Fine has no reason",
    "tools/check_sizes.allow:4: src/a/fits.cc:Fine exceeds no limit",
]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in PLANTED.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        problems, _, excused = check(root)
    failures = [f"expected '{e}'" for e in EXPECTED if not any(p.startswith(e) for p in problems)]
    failures += [f"unexpected: {p}" for p in problems if not p.startswith(tuple(EXPECTED))]
    if excused != 1:
        failures.append(f"{excused} violations excused, expected 1")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        problems = self_test()
        summary = f"self-test: {len(EXPECTED)} planted violations found, nothing else"
    else:
        problems, files, excused = check(args.root)
        summary = f"{files} files within limits, {excused} exceptions with a reason"
    for problem in problems:
        print(problem)
    print(f"check_sizes: {f'{len(problems)} problems' if problems else summary}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
