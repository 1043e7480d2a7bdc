#!/usr/bin/env bash
# check_wheel.sh [PRESET]: makes a wheel of build/PRESET (release), installs it into an empty environment, and generates text.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

tools/make_wheel.sh "${1:-release}" "$folder/wheels"
python=${PYTHON:-build/venv/bin/python}
$python -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-index --no-deps "$folder"/wheels/redline-*.whl
# The dependency that pip would bring; NumPy is loaded by calls that return arrays.
cp -r "$($python -c 'import nanobind_backend; print(nanobind_backend.__path__[0])')" "$folder"/venv/lib/python3*/site-packages/
cd /  # not in the source tree, which has the models too
env -u PYTHONPATH -u REDLINE_LIBRARY -u LD_LIBRARY_PATH "$folder/venv/bin/python" -W error - "$folder/venv" <<'END'
import importlib.metadata, pathlib, sys
import redline
assert pathlib.Path(redline.__file__).is_relative_to(sys.argv[1]), redline.__file__
wheel = importlib.metadata.distribution("redline").read_text("WHEEL")
assert "Tag: cp310-abi3-manylinux" in wheel, wheel
assert any(text.startswith("nanobind-backend") for text in importlib.metadata.requires("redline"))
assert redline.__version__ == importlib.metadata.version("redline")
assert (pathlib.Path(redline.__file__).parent / "py.typed").exists()
model = redline.Model("redline-tales")  # the three lines of the README
assert pathlib.Path(model.path).is_relative_to(sys.argv[1]), model.path
text = model.generate("Once upon a time", max_tokens=20, seed=1).text
assert text.strip()
try:
    redline.ImagePipeline("redline-shapes")
except redline.NotFound as error:
    assert "not in the wheel" in str(error), error
# The libraries beside libc and libstdc++ come from the wheel.
mapped = {line.split()[-1] for line in pathlib.Path("/proc/self/maps").read_text().splitlines() if ".so" in line}
system = sorted(pathlib.Path(p).name for p in mapped if not p.startswith(sys.argv[1]))
foreign = [n for n in system if n.startswith(("libfmt", "libhwloc", "libpcre2", "libutf8proc", "libpng", "libjpeg", "libwebp"))]
assert not foreign, foreign
print(f"wheel: redline {redline.__version__} says:{text}")
END
