"""Random expressions and templates through `redline template` and through jinja2: equal texts, and errors where jinja2
raises. The draws are fixed; JINJA_SEED takes other ones, JINJA_DRAWS more of them."""

import os
import random

import pytest
from jinja_reference import compare

SEED = int(os.environ.get("JINJA_SEED", "1"))
DRAWS = int(os.environ.get("JINJA_DRAWS", "1500"))

VARIABLES = {
    "n": 3,
    "zero": 0,
    "big": 1234,
    "neg": -7,
    "f": 2.5,
    "tiny": 1e-7,
    "huge": 1.5e17,
    "yes": True,
    "no": False,
    "nil": None,
    "s": "Hello, World",
    "empty": "",
    "uni": "Größe ß ﬁ 😀 ΣΑΣ",
    "lines": "one\n  two\r\n\nthree\n",
    "spaces": "  a  b\t c ",
    "html": "<a href='x'>&\"</a>",
    "num": " 42 ",
    "hexa": "0x1F",
    "l": [3, 1, 2],
    "mixed": [1, "a", None, 2.0, True],
    "words": ["pear", "Apple", "fig", "apple", "Fig"],
    "nested": [[1, 2], [3], []],
    "d": {"b": 1, "a": "x", "C": None, "items": [1]},
    "ed": {},
    "people": [
        {"name": "Ann", "age": 31, "pet": {"name": "Rex"}},
        {"name": "bob", "age": 25, "pet": {"name": "Tom"}},
        {"name": "Cid", "age": 31, "pet": {}},
        {"name": "dan", "age": 25},
    ],
}
NAMES = [*VARIABLES, "missing"]
STRINGS = ["''", "'a'", "'l'", "', '", "'o'", "'\\n'", "'name'", "'é'", "' '", "'%s-%s'", "'{}|{}'", "'Hello'", "'xyz'", "'12'", "'1.5'"]
NUMBERS = ["0", "1", "2", "-1", "3", "10", "2.5", "0.1", "-0.0", "1e3", "100000", "7"]
BINARY = ["+", "-", "*", "/", "//", "%", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or", "**"]
TESTS = [
    "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable",
    "true", "false", "odd", "even", "divisibleby(2)", "upper", "lower", "callable", "in [1, 2, 'a']", "eq(3)", "ne 'a'", "gt 1",
    "sameas none", "escaped", "filter", "test", "ge(2)", "lt 5", "le 'b'", "equalto(3)", "not none",
]
FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "string", "list", "first", "last", "int", "float", "abs",
    "reverse|list", "sort", "unique|list", "join", "join(', ')", "join('-', attribute='name')", "default('d')", "default('d', true)",
    "replace('a', 'b')", "replace('l', 'LL', 1)", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(ensure_ascii=true)",
    "tojson(separators=(',', ':'))", "dictsort", "dictsort(reverse=true)", "dictsort(by='value')", "items|list", "max", "min", "sum",
    "round", "round(1)", "round(2, 'floor')", "round(method='ceil')", "map('upper')|list", "map(attribute='name')|list",
    "map(attribute='pet.name', default='none')|list", "map('default', 'z')|list", "selectattr('age', 'gt', 26)|list",
    "selectattr('name')|list", "rejectattr('pet', 'defined')|list", "select('string')|list", "reject('none')|list", "select|list",
    "batch(2)|list", "batch(3, 'x')|list", "slice(2)|list", "slice(3, 0)|list", "center(9)", "indent", "indent(2, true)", "indent('> ', blank=true)",
    "truncate(5)", "truncate(8, true)", "truncate(7, false, '..', 0)", "wordcount", "escape", "e|string", "safe", "groupby('age')|list",
    "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='age')", "sort(attribute='age,name')", "sum(attribute='age')",
    "min(attribute='age')", "format(1, 2)", "urlencode", "filesizeformat", "attr('name')", "xmlattr", "forceescape", "count", "d('q')",
    "sort(attribute='pet.name')", "max(attribute='name')", "map('int')|sum", "groupby('pet.name', default='q')|map('first')|list",
    "trim('Ho')", "int(5)", "int(base=16)", "float(1.5)", "unique(attribute='age')|list", "map('length')|list", "list|tojson",
]
METHODS = [
    "upper()", "lower()", "title()", "capitalize()", "strip()", "lstrip()", "rstrip()", "strip('Hd')", "split()", "split(',')",
    "split('l', 1)", "rsplit('o', 1)", "rsplit()", "splitlines()", "splitlines(true)", "startswith('H')", "endswith(('d', 'x'))", "find('o')",
    "find('o', 5)", "rfind('l')", "index('o')", "count('l')", "replace('l', 'L')", "replace('l', 'L', 1)", "replace('', '-')", "join(words)",
    "join(['a', 'b'])", "zfill(20)", "center(20, '*')", "ljust(15)", "rjust(15, '.')", "isdigit()", "isalpha()", "isalnum()", "isspace()",
    "isupper()", "islower()", "istitle()", "swapcase()", "partition(', ')", "rpartition('o')", "format(1, 2)", "removeprefix('He')",
    "removesuffix('ld')", "expandtabs(4)", "isnumeric()", "isdecimal()", "isidentifier()", "casefold()", "items()|list", "keys()|list",
    "values()|list", "get('a')", "get('q', 5)", "get('b') + 1", "index(2)", "count(1)", "copy()", "append(1)", "pop()", "update({})", "name",
    "pet.name", "items", "isprintable()", "isascii()", "split(none, 1)", "startswith('l', 2)", "nothing", "nothing.more",
]
INDEXES = ["[0]", "[-1]", "['a']", "['name']", "[5]", "['items']", "[n]", "[s]", "[none]", "[1.0]"]
# Of names only: slices of constants that cannot be sliced are errors at run time and undefined where jinja2 computes them
# while it compiles.
SLICES = ["[1:]", "[:2]", "[::-1]", "[1:-1]", "[::2]", "[-2:]", "[:none]", "[n:]", "[-1:0:-1]", "[:f]", "[::zero]"]


class Source:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def pick(self, items):
        return self.rng.choice(items)

    def atom(self):
        kind = self.rng.random()
        if kind < 0.6:
            return self.pick(NAMES)
        if kind < 0.8:
            return self.pick(STRINGS)
        return self.pick(NUMBERS)

    def expression(self, depth=3):
        kind = self.rng.random()
        if depth == 0 or kind < 0.15:
            return self.atom()
        inner = depth - 1
        if kind < 0.40:
            return f"{self.operand(inner)}|{self.pick(FILTERS)}"
        if kind < 0.52:
            return f"{self.operand(inner)}.{self.pick(METHODS)}"
        if kind < 0.57:
            return f"{self.operand(inner)}{self.pick(INDEXES)}"
        if kind < 0.60:
            return f"{self.pick(NAMES)}{self.pick(SLICES)}"
        if kind < 0.76:
            return f"{self.operand(inner)} {self.pick(BINARY)} {self.operand(inner)}"
        if kind < 0.84:
            return f"{self.operand(inner)} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if kind < 0.88:
            other = f" else {self.expression(inner)}" if self.rng.random() < 0.8 else ""
            return f"{self.operand(inner)} if {self.operand(inner)}{other}"
        if kind < 0.91:
            return f"{self.pick(['not ', '-', '+'])}{self.operand(inner)}"
        if kind < 0.94:
            return f"[{self.expression(inner)}, {self.expression(inner)}]"
        if kind < 0.96:
            return f"{{{self.pick(STRINGS)}: {self.expression(inner)}, 'k': {self.expression(inner)}}}"
        if kind < 0.98:
            return f"({self.expression(inner)}, {self.expression(inner)})"
        return f"{self.operand(inner)} < {self.operand(inner)} < {self.operand(inner)}"

    def operand(self, depth):
        text = self.expression(depth)
        return text if text.isidentifier() else f"({text})"

    # Templates: statements with scopes, white space control and what loops offer.
    def block(self, depth):
        return "".join(self.statement(depth) for _ in range(self.rng.randint(1, 3)))

    def tag(self, text):
        return f"{{%{self.pick(['', '', '-', '+'])} {text} {self.pick(['', '', '-', '+'])}%}}"

    def gap(self):
        return self.pick(["", "\n", " ", "  \n  ", "text", "\ttext\n", "\r\n", " é "])

    def name(self):
        return self.pick(["x", "y", "n", "s", "ns.v"])

    def short(self):
        return self.pick(["x", "y", "n", "s", "l", "ns.v", "x ~ 1", "loop.index", "loop.last", "m(1)", "y|default('-')", "words|length",
                          "loop.previtem", "loop.nextitem", "loop.length", "loop.revindex", "loop.cycle('a', 'b')", "loop.changed(n)",
                          "item", "caller", "varargs", "kwargs", "a", "b"])

    def statement(self, depth):
        kind = self.rng.random()
        inner = depth - 1
        if depth == 0 or kind < 0.3:
            return self.gap() + f"{{{{{self.pick(['', '-', '+ '])} {self.short()} {self.pick(['', '-'])}}}}}" + self.gap()
        if kind < 0.45:
            return self.gap() + self.tag(f"set {self.name()} = {self.pick([self.short(), '1', 'l', '[x, 2]'])}") + self.gap()
        if kind < 0.58:
            elif_ = self.tag(f"elif {self.short()}") + self.block(inner) if self.rng.random() < 0.3 else ""
            else_ = self.tag("else") + self.block(inner) if self.rng.random() < 0.4 else ""
            return self.tag(f"if {self.short()}") + self.block(inner) + elif_ + else_ + self.tag("endif") + self.gap()
        if kind < 0.78:
            head = self.pick(["item in l", "item in words if item > 'b'", "x in [1, 2]", "item in nested recursive", "a, b in d.items()", "item in s", "item in []",
                              "item in l if item > 1", "n in range(3)", "item in missing", "item in d|dictsort|map('first')"])
            body = self.block(inner)
            if self.rng.random() < 0.25:
                body += self.tag(f"if {self.short()}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") + "tail"
            else_ = self.tag("else") + self.block(inner) if self.rng.random() < 0.3 else ""
            return self.tag(f"for {head}") + body + else_ + self.tag("endfor") + self.gap()
        if kind < 0.84:
            head = self.pick(["m()", "m(a)", "m(a, b=2)", "m(a=n, b=a)", "q(x='d')"])
            return self.tag(f"macro {head}") + self.block(inner) + self.pick(["", "{{ caller() }}"]) + self.tag("endmacro") + "{{ m(1) if m is defined }}"
        if kind < 0.88:
            return self.tag(f"set {self.pick(['x', 'y'])}{self.pick(['', '|upper', '|trim|length'])}") + self.block(inner) + self.tag("endset")
        if kind < 0.91:
            return self.tag(f"filter {self.pick(['upper', 'trim', 'length', 'indent(2)|upper'])}") + self.block(inner) + self.tag("endfilter")
        if kind < 0.94:
            return self.tag(f"with {self.pick(['x = 1', 'x = n, y = x', ''])}") + self.block(inner) + self.tag("endwith")
        if kind < 0.96:
            return self.tag(self.pick(["call m(2)", "call(a) m(2)", "generation"])).replace("generation", "generation") + self.block(inner) + "{% endcall %}"
        if kind < 0.98:
            return self.gap() + f"{{#{self.pick(['', '-', '+'])} comment {self.pick(['', '-', '+'])}#}}" + self.gap()
        return self.tag("raw") + " {{ raw }} {% if %}\n" + self.tag("endraw") + self.gap()


PRELUDE = "{% set ns = namespace(v=0) %}{% macro m(a, b='B') %}[{{ a }}{{ b }}{{ caller() if caller }}]{% endmacro %}"


@pytest.mark.parametrize("part", range(4))
def test_expressions(part, tmp_path):
    source = Source(SEED * 100 + part)
    cases = [(f"seed {SEED}, part {part}, draw {i}", "{{ " + source.expression() + " }}", VARIABLES) for i in range(DRAWS)]
    rendered = compare(cases, tmp_path)
    assert rendered > DRAWS // 5


@pytest.mark.parametrize("part", range(4))
def test_templates(part, tmp_path):
    source = Source(SEED * 1000 + part)
    cases = [(f"seed {SEED}, part {part}, draw {i}", PRELUDE + source.block(4), VARIABLES) for i in range(DRAWS // 3)]
    rendered = compare(cases, tmp_path)
    assert rendered > DRAWS // 15
