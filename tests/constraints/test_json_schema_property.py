"""JSON that `redline run --json-schema` generates, checked by the jsonschema package.

Schemas for every keyword and random ones; text is sampled at a high temperature from the bundled model, so that it is nearly
random among what the constraint allows.
"""
import json
import pathlib
import random
import subprocess

import pytest

jsonschema = pytest.importorskip("jsonschema")
from redline_binary import binary  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = str(ROOT / "assets" / "redline-tales")

STRING, INTEGER = {"type": "string"}, {"type": "integer"}
SHORT = {"type": "string", "maxLength": 8}


def obj(properties, required=None, **more):
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required, **more}


SCHEMAS = [
    {"type": "null"}, {"type": "boolean"}, {"type": "integer"}, {"type": "number"}, {"type": ["boolean", "null"]},
    {"type": ["integer", "null", "boolean"]}, {"const": "once"}, {"const": 5}, {"const": {"a": [1, None]}}, {"enum": ["a", "b", 1, None]},
    {"enum": [[1], {"x": 2}, "\"\\\n"]}, {"enum": ["red", "green", 3], "type": "string"}, {"enum": [1, 5, 9], "minimum": 4},
    {"enum": ["a", "bcd"], "maxLength": 1}, {"const": "\u00e9\u20ac\U0001f600"},
    # Strings
    SHORT, {"type": "string", "minLength": 3, "maxLength": 12}, {"type": "string", "maxLength": 0},
    {"type": "string", "minLength": 30, "maxLength": 31}, {"type": "string", "pattern": "^[a-z]+$", "maxLength": 20},
    {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}$"}, {"type": "string", "pattern": "^(ab|cd)*$", "maxLength": 9},
    {"type": "string", "pattern": "^(foo|bar)+$", "minLength": 7, "maxLength": 20}, {"type": "string", "pattern": "x", "maxLength": 6},
    {"type": "string", "pattern": "^a", "maxLength": 6}, {"type": "string", "pattern": "z$", "maxLength": 6},
    {"type": "string", "pattern": "^\\d+(\\.\\d+)?$", "maxLength": 10}, {"type": "string", "pattern": "^\\w{3,10}$"},
    {"type": "string", "pattern": "^[^\"\\\\]{1,9}$"}, {"type": "string", "pattern": "^[\\s\\S]{2,5}$"},
    {"type": "string", "pattern": "^\\W{1,4}$"}, {"type": "string", "pattern": "^\\S{1,5}$"}, {"type": "string", "pattern": "^.{4,6}$"},
    {"type": "string", "pattern": "^(\\([0-9]{3}\\))?[0-9]{3}-[0-9]{4}$"}, {"type": "string", "pattern": "^\\n\"\\t$"},
    {"type": "string", "pattern": "^\u00e9+$", "maxLength": 4}, {"type": "string", "pattern": "^a{500}$"},
    {"allOf": [{"type": "string", "pattern": "^[a-m]+$"}, {"pattern": "^[h-z]+$", "maxLength": 7}]},
    {"type": "string", "pattern": "^[a-z]{3,5}$", "maxLength": 4},
    *({"type": "string", "format": f} for f in ("date", "time", "date-time", "uuid", "ipv4", "ipv6", "duration")),
    {"type": "string", "format": "email", "maxLength": 30}, {"type": "string", "format": "hostname", "maxLength": 20},
    {"type": "string", "format": "uri", "maxLength": 40}, {"type": "string", "format": "date", "pattern": "^20"},
    # Numbers
    *({"type": "integer", **b} for b in ({"minimum": 0}, {"maximum": 100}, {"minimum": -5, "maximum": 5}, {"minimum": 17, "maximum": 17},
      {"exclusiveMinimum": 9, "exclusiveMaximum": 12}, {"minimum": 995, "maximum": 10020}, {"minimum": 0.5, "maximum": 3.5},
      {"multipleOf": 7}, {"multipleOf": 5, "minimum": 12, "maximum": 31}, {"multipleOf": 12, "maximum": -3}, {"maximum": -1000},
      {"minimum": 123456789012})),
    *({"type": "number", **b} for b in ({"minimum": 0}, {"maximum": 1}, {"minimum": 0.25, "maximum": 0.75}, {"minimum": -1.5, "maximum": 1.5},
      {"exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"exclusiveMinimum": 2.5, "maximum": 2.75}, {"minimum": 99.9, "maximum": 100.1},
      {"exclusiveMaximum": -3}, {"multipleOf": 3}, {"minimum": 1e3, "maximum": 1e6}, {"minimum": 0.001, "maximum": 0.002})),
    {"allOf": [{"type": "number"}, {"minimum": 2}, {"maximum": 4}, {"exclusiveMaximum": 4}]},
    # Arrays
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 5}, {"type": "array", "items": INTEGER, "minItems": 2, "maxItems": 4},
    {"type": "array", "items": {"enum": [0, 1]}, "minItems": 40, "maxItems": 45}, {"type": "array", "maxItems": 0},
    {"type": "array", "prefixItems": [INTEGER, SHORT], "items": False, "minItems": 1},
    {"type": "array", "prefixItems": [INTEGER, {"type": "null"}], "items": {"type": "boolean"}, "maxItems": 6},
    {"type": "array", "prefixItems": [INTEGER], "items": {"type": "boolean"}, "minItems": 3, "maxItems": 4},
    {"type": "array", "items": {"enum": ["a", "b", "c", "d"]}, "uniqueItems": True},
    {"type": "array", "items": {"enum": [1, 1.0, 2]}, "uniqueItems": True, "minItems": 2},
    {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "maxItems": 1},
    {"type": "array", "items": {"type": "array", "items": {"type": "null"}, "maxItems": 2}, "maxItems": 3},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INTEGER, {"type": "boolean"}], "additionalItems": {"type": "null"}, "maxItems": 4},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [INTEGER], "additionalItems": False},
    {"allOf": [{"type": "array", "items": INTEGER, "maxItems": 3}, {"items": {"minimum": 5, "maximum": 8}}]},
    {"type": "array", "items": INTEGER, "unevaluatedItems": False, "maxItems": 2},
    # Objects
    obj({"a": INTEGER, "b": {"type": "boolean"}}), obj({"a": INTEGER, "b": {"type": "boolean"}, "c": {"type": "null"}}, ["b"]),
    obj({"a": SHORT}, additionalProperties=False), obj({"a": INTEGER}, [], additionalProperties={"type": "null"}, maxProperties=3),
    {"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 2, "propertyNames": {"maxLength": 5}},
    {"type": "object", "maxProperties": 0}, {"type": "object", "additionalProperties": False},
    obj({"a": INTEGER, "b": INTEGER, "c": INTEGER, "d": INTEGER}, [], minProperties=2, maxProperties=3),
    obj({"a": {"const": 1}, "b": {"const": 2}}, [], minProperties=1), obj({"a": {"const": 1}}, [], minProperties=2, additionalProperties={"type": "null"}, propertyNames={"maxLength": 4}),
    {"type": "object", "patternProperties": {"^n_": INTEGER, "_s$": {"type": ["integer", "boolean"]}}, "additionalProperties": False, "maxProperties": 3, "propertyNames": {"maxLength": 6}},
    obj({"n_x": {"minimum": 3}}, patternProperties={"^n_": {"type": "integer", "maximum": 9}}, additionalProperties=False, maxProperties=2, propertyNames={"maxLength": 5}),
    {"type": "object", "patternProperties": {"^[a-c]$": INTEGER}, "additionalProperties": {"type": "null"}, "maxProperties": 2, "propertyNames": {"pattern": "^[a-e]{1,2}$"}},
    {"type": "object", "propertyNames": {"enum": ["x", "y"]}, "additionalProperties": INTEGER, "maxProperties": 2},
    {"type": "object", "propertyNames": {"pattern": "^[A-Z]{2,3}$"}, "additionalProperties": {"type": "null"}, "minProperties": 1, "maxProperties": 2},
    {"type": "object", "required": ["q", "r"], "additionalProperties": INTEGER, "maxProperties": 2},
    obj({"q\"uote": INTEGER, "t\tab": INTEGER, "\u00e9": INTEGER, "": INTEGER, "a/b~c": INTEGER}),
    obj({"a": False, "b": INTEGER}, ["b"]), obj({"o": obj({"p": obj({"q": {"type": "null"}})})}),
    obj({"a": INTEGER}, unevaluatedProperties=False), obj({f"p{i}": {"type": "boolean"} for i in range(30)}, ["p3", "p29"]),
    obj({"list": {"type": "array", "items": obj({"id": INTEGER, "tag": {"enum": ["x", "y"]}}), "maxItems": 3}}),
    # Conditions and complements
    {"type": "integer", "not": {"enum": [1, 2]}, "minimum": 0, "maximum": 9}, {"not": {"type": ["string", "array", "object", "number"]}},
    {"type": "number", "not": {"type": "integer"}, "minimum": 0, "maximum": 3}, {"type": "string", "not": {"pattern": "^[a-m]"}, "maxLength": 5},
    obj({"a": INTEGER, "b": INTEGER}, [], additionalProperties=False, **{"not": {"required": ["a", "b"]}}),
    obj({"k": {"enum": ["x", "y"]}, "v": {"type": "boolean"}}, ["k"], additionalProperties=False,
        **{"if": {"properties": {"k": {"const": "x"}}}, "then": {"required": ["v"]}, "else": {"properties": {"v": False}}}),
    obj({"a": INTEGER, "b": INTEGER, "c": INTEGER}, [], additionalProperties=False, dependentRequired={"a": ["b"]},
        dependentSchemas={"b": {"required": ["c"]}}),
    {"type": "array", "items": {"type": ["integer", "null"]}, "contains": INTEGER, "minContains": 2, "maxContains": 3, "maxItems": 6},
    {"type": "array", "items": {"enum": list("abcdefghijkl")}, "uniqueItems": True}, {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
    {"type": "number", "multipleOf": 0.5, "minimum": -3, "maximum": 3}, {"oneOf": [INTEGER, {"type": "number", "minimum": 2, "maximum": 5}]},
    {"oneOf": [{"required": ["a"]}, {"required": ["b"]}], **obj({"a": INTEGER, "b": INTEGER}, [], additionalProperties=False)},
    {"allOf": [obj({"a": INTEGER}, []), {"properties": {"b": INTEGER}}], "unevaluatedProperties": False},
    {"type": "string", "pattern": "^(?!\\.)(?!.*\\.\\.)[a-z.]{1,6}@[a-z]{1,4}$"}, {"type": "string", "pattern": "\\bab", "maxLength": 8},
    # Combinations
    {"anyOf": [INTEGER, {"type": "boolean"}]}, {"anyOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": 2}]},
    {"anyOf": [{"minimum": 5}, {"maximum": 2}], "type": "integer"}, {"anyOf": [{"const": 1}, {"const": "x"}], "type": "string"},
    {"oneOf": [INTEGER, {"type": "null"}]}, {"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "exclusiveMinimum": 3}]},
    {"oneOf": [obj({"k": {"const": "a"}, "v": INTEGER}), obj({"k": {"const": "b"}, "w": {"type": "boolean"}})]},
    {"oneOf": [{"enum": [1, 2]}, {"type": "boolean"}, {"const": "z"}]}, {"oneOf": [obj({"a": INTEGER}, additionalProperties=False), obj({"b": INTEGER}, additionalProperties=False)]},
    {"oneOf": [{"type": "string", "pattern": "^a+$", "maxLength": 5}, {"type": "string", "pattern": "^b+$", "maxLength": 5}]},
    {"allOf": [obj({"a": INTEGER}), obj({"b": {"type": "boolean"}})]}, {"allOf": [obj({"a": INTEGER}), {"properties": {"a": {"minimum": 3, "maximum": 4}}}]},
    {"allOf": [{"anyOf": [{"const": 1}, {"const": 2}, {"const": 3}]}, {"anyOf": [{"const": 2}, {"const": 3}, {"const": 4}]}]},
    {"$defs": {"n": {"type": "integer", "maximum": 9, "minimum": 0}}, "type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 3},
    {"$ref": "#/definitions/a~1b", "definitions": {"a/b": {"type": "boolean"}}}, {"$ref": "#here", "$defs": {"x": {"$anchor": "here", "type": "null"}}},
    {"$defs": {"node": obj({"v": {"type": "boolean"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}})}, "$ref": "#/$defs/node"},
    {"$defs": {"t": obj({"kids": {"type": "array", "items": {"$ref": "#/$defs/t"}, "maxItems": 1}})}, "$ref": "#/$defs/t"},
    {"$ref": "#/$defs/i", "minimum": 3, "maximum": 5, "$defs": {"i": INTEGER}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/definitions/i", "minimum": 3, "definitions": {"i": {"type": "integer", "maximum": 2}}},
    {"title": "t", "description": "d", "default": 1, "examples": [2], "$comment": "c", "x-own": {}, "type": "integer", "maximum": 5, "readOnly": True},
    obj({"name": SHORT, "age": {"type": "integer", "minimum": 0, "maximum": 130}, "email": {"type": "string", "format": "email", "maxLength": 24}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}}),
    {"type": ["object", "array", "integer"], "properties": {"a": {"const": 1}}, "items": {"const": 2}, "minimum": 7, "maxItems": 2, "maximum": 99},
]

REFUSED = {
    "not": {"not": {"uniqueItems": True}}, "uniqueItems": {"type": "array", "items": STRING, "uniqueItems": True},
    "multipleOf": {"type": "number", "multipleOf": 0.123456789}, "$ref": {"$ref": "other.json"},
    "oneOf": {"oneOf": [{"propertyNames": {"maxLength": 1}}, {"type": "object"}]},
    "minProperties": {"type": "object", "minProperties": 3},
}


def random_schema(rng, depth=3):
    kind = rng.choice(["string", "integer", "number", "enum", "boolean", "null"] + (["array", "object", "anyOf", "allOf"] if depth else []))
    if kind == "string":
        low = rng.randint(0, 6)
        schema = {"type": "string", "minLength": low, "maxLength": low + rng.randint(0, 6)}
        if rng.random() < 0.4:
            schema = {"type": "string", "pattern": rng.choice(["^[a-f]+$", "^(x|yz)*$", "^[0-9]{2,4}$", "q", "^\\w+ \\w+$"]), "maxLength": 9}
        return schema
    if kind in ("integer", "number"):
        low = rng.choice([rng.randint(-2000, 2000), rng.randint(-9, 9) / 8])
        schema = {"type": kind, rng.choice(["minimum", "exclusiveMinimum"]): low, rng.choice(["maximum", "exclusiveMaximum"]): low + rng.choice([2, 3.5, 77, 1e4])}
        if kind == "integer" and rng.random() < 0.3:
            schema = {"type": kind, "multipleOf": rng.randint(2, 9), "minimum": int(low), "maximum": int(low) + 50}
        return schema
    if kind == "enum":
        return {"enum": rng.sample(["a", "bc", 1, 2.5, None, True, [1], {"k": 1}, "\u20ac"], rng.randint(1, 4))}
    if kind == "array":
        low = rng.randint(0, 2)
        return {"type": "array", "items": random_schema(rng, depth - 1), "minItems": low, "maxItems": low + rng.randint(0, 2)}
    if kind == "object":
        properties = {name: random_schema(rng, depth - 1) for name in rng.sample(["a", "b", "key", "\u00e9", "x y"], rng.randint(0, 3))}
        schema = obj(properties, [name for name in properties if rng.random() < 0.6])
        schema["additionalProperties"] = rng.choice([False, False, {"type": "boolean"}])
        if schema["additionalProperties"]:
            schema |= {"maxProperties": len(properties) + 1, "propertyNames": {"maxLength": 4}}
        return schema
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth - 1) for _ in range(rng.randint(1, 3))]}
    if kind == "allOf":
        return {"allOf": [random_schema(rng, depth - 1), {"description": "no bounds"}]}
    return {"type": kind}


def generate(schema, seed):
    compact = ["--json-compact"] if seed % 2 else []
    command = [binary(), "run", MODEL, "Once", "--json", "-n", "380", "--temperature", "4", "--seed", str(seed), "-t", "1",
               "--json-schema", json.dumps(schema, ensure_ascii=False), *compact]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (schema, done.stderr)
    result = json.loads(done.stdout)
    return result["text"] if result["finish_reason"] == "stop" else None


def check(schema, seeds):
    """The number of texts that ended; each validates."""
    validator = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    ended = 0
    for seed in seeds:
        text = generate(schema, seed)
        if text is None:
            continue
        ended += 1
        validator(schema, format_checker=validator.FORMAT_CHECKER).validate(json.loads(text))
    return ended


@pytest.mark.parametrize("first", range(0, len(SCHEMAS), 20))
def test_every_keyword(first):
    ended = [check(schema, (1, 2)) for schema in SCHEMAS[first:first + 20]]
    assert sum(n > 0 for n in ended) >= 0.8 * len(ended), "too few texts end within the context"


def test_random_schemas():
    rng, accepted = random.Random(7), 0
    for seed in range(60):
        schema = random_schema(rng)
        accepted += check(schema, (seed,))
    assert accepted > 30


def test_refused_keywords_are_named():
    for keyword, schema in REFUSED.items():
        done = subprocess.run([binary(), "run", MODEL, "Once", "-n", "1", "-q", "--json-schema", json.dumps(schema)], capture_output=True, text=True)
        assert done.returncode != 0 and keyword in done.stderr and "not supported" in done.stderr, (schema, done.stderr)
