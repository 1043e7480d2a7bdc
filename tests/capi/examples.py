#!/usr/bin/env python3
"""examples.py C_PROGRAM CPP_PROGRAM LIBRARY TALES SHAPES: the examples tell the same story and draw the same image.

The one in Python runs with the package of this tree over LIBRARY, if its dependencies are installed.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
c_program, cpp_program, library, *models = sys.argv[1:6]
programs = {"C": [c_program], "C++": [cpp_program]}
environment = {**os.environ, "REDLINE_LIBRARY": library, "PYTHONPATH": str(ROOT / "python")}
missing = [name for name in ("numpy",) if importlib.util.find_spec(name) is None]
if missing:
    print(f"left out: the example in Python, which needs {', '.join(missing)}")
elif (ROOT / "examples/python/hello.py").exists():
    programs["Python"] = [sys.executable, str(ROOT / "examples/python/hello.py")]

with tempfile.TemporaryDirectory() as folder:
    results = {}
    for number, (language, program) in enumerate(programs.items()):
        png = pathlib.Path(folder, f"{number}.png")
        run = subprocess.run([*program, *models, str(png)], capture_output=True, text=True, timeout=240, env=environment)
        if run.returncode != 0:
            sys.exit(f"the example in {language} ended with {run.returncode}:\n{run.stderr}")
        results[language] = (run.stdout.splitlines()[:-1], png.read_bytes())
    wrong = subprocess.run([c_program, "no/such/model", models[1], str(png)], capture_output=True, text=True)
story = results["C"][0]
print(*story, sep="\n")
if not story[0].startswith("Once upon a time") or not story[-1].startswith("[80 tokens"):
    sys.exit("this is not a story")
for language, result in results.items():
    if result[0] != story:
        sys.exit(f"the example in {language} tells another story:\n" + "\n".join(result[0]))
    if result[1] != results["C"][1]:
        sys.exit(f"the example in {language} draws another image")
print(f"the same in {', '.join(results)}")
if wrong.returncode != 1 or "not_found: " not in wrong.stderr or "no/such/model" not in wrong.stderr:
    sys.exit(f"a wrong path gives {wrong.returncode} and {wrong.stderr!r}")
