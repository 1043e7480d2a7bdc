"""Sphinx: the API pages of the Python package, from its docstrings. `make docs` writes them to build/api."""
import importlib.util
import os
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

project = "Redline"
author = "the Redline authors"
release = re.search(r"project\(redline VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
extensions = ["sphinx.ext.autodoc", "sphinx.ext.viewcode"]
html_theme = "alabaster"
html_theme_options = {"description": "Inference of language models and diffusion models on the CPU", "page_width": "1250px",
                      "body_max_width": "1000px", "code_font_size": "0.82em"}
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
# Pages without a build, and of redline.diffusers without PyTorch.
autodoc_mock_imports = ["redline._redline", *([] if importlib.util.find_spec("torch") else ["torch"])]
os.environ.pop("REDLINE_LIBRARY", None)
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100


def setup(app):
    def without_private(app, name, value, options, bases):
        bases[:] = [base for base in bases if "Closable" not in str(base)] or [object]

    app.connect("autodoc-process-bases", without_private)
