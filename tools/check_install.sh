#!/usr/bin/env bash
# check_install.sh [PRESET]: installs build/PRESET (release) to a temporary place, looks for every piece, and builds a small
# project against it.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

cmake --install "build/${1:-release}" --prefix "$folder/prefix" >"$folder/log" || { cat "$folder/log"; exit 1; }
for file in bin/redline include/redline/text.h include/redline/status.h include/redline/c_api.h \
  include/redline/text_engine_options.inc share/doc/redline/LICENSE \
  share/bash-completion/completions/redline share/zsh/site-functions/_redline share/fish/vendor_completions.d/redline.fish; do
  [ -s "$folder/prefix/$file" ] || { echo "install: $file is missing or empty"; exit 1; }
done
bash -n "$folder/prefix/share/bash-completion/completions/redline"
"$folder/prefix/bin/redline" version
(cd / && "$folder/prefix/bin/redline" run redline-tales "Once" --max-tokens 3 --quiet)  # the bundled models are found by name

cmake -S tests/package -B "$folder/build" -G Ninja -DCMAKE_PREFIX_PATH="$folder/prefix" \
  -DCMAKE_CXX_COMPILER="$(tools/setup.sh --compiler)" >"$folder/log" &&
  cmake --build "$folder/build" >>"$folder/log" || { cat "$folder/log"; exit 1; }
"$folder/build/redline_user"

# The C interface, found by pkg-config.
PKG_CONFIG_PATH=$(dirname "$(find "$folder/prefix" -name redline.pc)")
export PKG_CONFIG_PATH
library=$(pkg-config --variable=libdir redline)
# shellcheck disable=SC2046  # flags are words
cc -std=c99 -Wall -Wextra -Werror examples/c/hello.c $(pkg-config --cflags --libs redline) -Wl,-rpath,"$library" -o "$folder/hello"
(cd / && "$folder/hello" "$folder/prefix/share/redline/redline-tales" "$folder/prefix/share/redline/redline-shapes" "$folder/hello.png") 2>"$folder/log" ||
  { cat "$folder/log"; exit 1; }
[ -s "$folder/hello.png" ] || { echo "install: the example drew nothing"; exit 1; }
