#!/usr/bin/env python3
"""Checks the networks of the node tests of the onnx package: every one is read, and no inferred type or shape differs from
the declared one.

  node_models.py --redline BINARY

Needs the package onnx, which builds the models. Without it the exit status is 77, with the reason.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from onnx.backend.test.loader import load_node_model_tests
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

FIRST_OPSET = 7


def problems(binary, path):
    """What `redline inspect` finds wrong with a model."""
    done = subprocess.run([binary, "inspect", path, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return [done.stderr.strip()]
    document = json.loads(done.stdout)
    error = document.get("runs_error")
    malformed = [error["message"]] if error and error["code"] == "invalid_argument" else []
    return malformed + document["network"]["warnings"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--redline", required=True)
    options = parser.parse_args()
    count, older, failures = 0, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        for test in load_node_model_tests():
            if any(opset.domain == "" and opset.version < FIRST_OPSET for opset in test.model.opset_import):
                older += 1
                continue
            path.write_bytes(test.model.SerializeToString())
            count += 1
            found = problems(options.redline, path)
            failures += bool(found)
            for problem in found:
                print(f"{test.name}: {problem}")
    print(f"{count - failures} of {count} models of node tests agree; {older} are of opsets before {FIRST_OPSET}")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
