#!/usr/bin/env bash
# make_wheel.sh [PRESET [FOLDER]]: packs libredline.so and the extension module of build/PRESET (release) into a wheel in FOLDER
# (build/wheelhouse). auditwheel adds the libraries that it needs, so that it installs on a machine without them.
# `pip wheel .` compiles instead.
set -euo pipefail
cd "$(dirname "$0")/.."
library=$PWD/build/${1:-release}/libredline.so folder=${2:-build/wheelhouse} python=${PYTHON:-build/venv/bin/python}
kMaxMiB=30

[ -f "$library" ] || { echo "wheel: $library is not built"; exit 1; }
if [ ! -f "$(dirname "$library")/_redline.abi3.so" ]; then  # configured before nanobind was there
  cmake --preset "${1:-release}"
  cmake --build --preset "${1:-release}" --target redline_python
fi
for module in scikit_build_core auditwheel; do
  $python -c "import $module" 2>/dev/null || { echo "wheel: $python has no $module; run tools/setup.sh test"; exit 77; }
done
plain=$(mktemp -d)
trap 'rm -rf "$plain"' EXIT
$python -m pip wheel . --no-deps --no-build-isolation --disable-pip-version-check --quiet --wheel-dir "$plain" \
  --config-settings=build-dir="$plain/build" --config-settings=build.targets=all \
  --config-settings=cmake.define.REDLINE_PYTHON=OFF --config-settings=cmake.define.REDLINE_PYTHON_LIBRARY="$library"
mkdir -p "$folder"
rm -f "$folder"/redline-*.whl
PATH=$(cd "$(dirname "$python")" && pwd):$PATH $python -m auditwheel repair --wheel-dir "$folder" "$plain"/redline-*.whl >"$plain/log" 2>&1 || { cat "$plain/log"; exit 1; }
wheel=$(echo "$folder"/redline-*.whl)
bytes=$(stat -c %s "$wheel")
[ "$bytes" -le $((kMaxMiB << 20)) ] || { echo "wheel: $wheel has $((bytes >> 20)) MiB, more than $kMaxMiB"; exit 1; }
echo "$wheel: $((bytes >> 10)) KiB"
