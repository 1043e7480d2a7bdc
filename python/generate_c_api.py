#!/usr/bin/env python3
"""Writes redline/_c_api.py, the ctypes declarations, from include/redline/c_api.h.

  generate_c_api.py           writes the file
  generate_c_api.py --check   exits 1 if the file is not what the header gives
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER = ROOT / "include/redline/c_api.h"
OUTPUT = ROOT / "python/redline/_c_api.py"
SCALARS = {"int32_t": "c_int32", "int64_t": "c_int64", "uint64_t": "c_uint64", "uint8_t": "c_uint8", "size_t": "c_size_t",
           "float": "c_float", "double": "c_double", "redline_code": "c_int32", "redline_finish_reason": "c_int32"}
# Text with a length may contain zero bytes, which c_char_p does not give back.
TEXT_WITH_LENGTH = {("redline_piece", "text"), ("redline_completion", "text")}


def declarations(text):
    """The statements of the header between extern "C" { and }, without comments and preprocessor lines."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"^#.*?(?<!\\)$", "", text, flags=re.S | re.M)
    text = text.split('extern "C" {', 1)[1]
    statement, depth = "", 0
    for c in text:
        depth += (c == "{") - (c == "}")
        if depth < 0:
            break
        if c == ";" and depth == 0:
            yield " ".join(statement.split())
            statement = ""
        else:
            statement += c


def split_declarator(text):
    """"const char* const* stop" -> ("char**", "stop")."""
    text = re.sub(r"\bconst\b", " ", text).strip()
    kind, stars, name = re.fullmatch(r"(\w+)\s*([\s*]*)\s*(\w*)", text).groups()
    return kind + re.sub(r"\s", "", stars), name


class Header:
    def __init__(self, text):
        self.structs, self.callbacks, self.constants, self.functions = {}, {}, {}, {}
        self.macros = dict(re.findall(r"^#define (REDLINE_VERSION_(?:MAJOR|MINOR|PATCH)) (\d+)$", text, flags=re.M))
        for statement in declarations(text):
            self.read(statement)

    def read(self, statement):
        if found := re.fullmatch(r"typedef struct (\w+) \{(.*)\} \1", statement):
            self.structs[found[1]] = list(self.fields(found[1], found[2]))
        elif found := re.fullmatch(r"enum \{(.*)\}", statement):
            following = 0
            for item in filter(None, (part.strip() for part in found[1].split(","))):
                name, _, value = (part.strip() for part in item.partition("="))
                self.constants[name] = following = int(value or following)
                following += 1
        elif found := re.fullmatch(r"typedef (.+?)\(\*\s*(\w+)\)\((.*)\)", statement):
            self.callbacks[found[2]] = self.callback(found[1], found[3])
        elif found := re.fullmatch(r"REDLINE_C_API (.+?)(\w+)\((.*)\)", statement):
            result = split_declarator(found[1])[0]
            self.functions[found[2]] = (self.result(result), [self.argument(a) for a in self.arguments(found[3])])
        elif not re.fullmatch(r"typedef (struct (\w+) \2|int32_t \w+)", statement):
            sys.exit(f"generate_c_api.py: cannot read this declaration of c_api.h: {statement}")

    @staticmethod
    def arguments(text):
        return [] if text.strip() in ("", "void") else [split_declarator(part)[0] for part in text.split(",")]

    def fields(self, struct, body):
        for field in filter(None, (part.strip() for part in body.split(";"))):
            if found := re.fullmatch(r"(.+?)\(\*\s*(\w+)\)\((.*)\)", field):
                yield found[2], self.callback(found[1], found[3])
                continue
            first, *others = field.split(",")
            kind, name = split_declarator(first)
            for each in [name, *(other.strip() for other in others)]:
                yield each, "c_void_p" if (struct, each) in TEXT_WITH_LENGTH else self.field(kind)

    def callback(self, result, arguments):
        kind = split_declarator(result)[0]
        kinds = [f"POINTER({a[:-1]})" if a[:-1] in self.structs else self.field(a) for a in self.arguments(arguments)]
        return f"CFUNCTYPE({', '.join(['None' if kind == 'void' else SCALARS[kind], *kinds])})"

    def field(self, kind):
        if kind in SCALARS or kind in self.structs:
            return SCALARS.get(kind, kind)
        if kind in self.callbacks:
            return kind
        inner = kind[:-1]
        if kind == "char*":
            return "c_char_p"
        if kind == "char**":
            return "POINTER(c_char_p)"
        if inner in SCALARS or inner in self.structs:
            return f"POINTER({SCALARS.get(inner, inner)})"
        return "c_void_p"

    def argument(self, kind):
        """Arguments are pointers of any kind, so that byref(), arrays and addresses of NumPy's memory are passed as they are."""
        if kind == "char*":
            return "c_char_p"
        if kind.endswith("*"):
            return "c_void_p"
        return "c_void_p" if kind in self.callbacks else SCALARS.get(kind, kind)

    def result(self, kind):
        if kind == "void":
            return "None"
        return "c_char_p" if kind == "char*" else "c_void_p" if kind.endswith("*") else SCALARS.get(kind, kind)

    def text(self):
        lines = ['"""ctypes declarations of the C interface. Written by python/generate_c_api.py from include/redline/c_api.h."""',
                 "# ruff: noqa",
                 "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,",
                 "                    c_uint8, c_uint64, c_void_p)", "from typing import Any", ""]
        lines += [f"{name[8:]} = {value}" for name, value in self.macros.items()]
        lines += [f"{name[8:]} = {value}" for name, value in self.constants.items()]
        written = set()

        def write(name):
            if name in written:
                return
            written.add(name)
            kinds = [kind for _, kind in self.structs[name]] if name in self.structs else [self.callbacks[name]]
            for used in re.findall(r"redline_\w+", " ".join(kinds)):
                write(used)
            if name in self.callbacks:
                lines.extend(["", f"{name} = {self.callbacks[name]}"])
                return
            lines.extend(["", "", f"class {name}(Structure):", "    _fields_ = ["])
            lines.extend(f'        ("{field}", {kind}),' for field, kind in self.structs[name])
            lines.append("    ]")

        for name in [*self.structs, *self.callbacks]:
            write(name)
        lines += ["", "", "# Name, result, arguments.", "FUNCTIONS: list[tuple[str, Any, list[Any]]] = ["]
        lines += [f'    ("{name}", {result}, [{", ".join(arguments)}]),' for name, (result, arguments) in self.functions.items()]
        lines.append("]")
        return "\n".join(lines) + "\n"


def main():
    text = Header(HEADER.read_text()).text()
    if sys.argv[1:] == ["--check"]:
        if not OUTPUT.exists() or OUTPUT.read_text() != text:
            sys.exit("python/redline/_c_api.py is not what c_api.h gives; run python/generate_c_api.py")
        return
    OUTPUT.write_text(text)


if __name__ == "__main__":
    main()
