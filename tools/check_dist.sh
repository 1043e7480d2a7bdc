#!/usr/bin/env bash
# check_dist.sh [PRESET]: packs build/PRESET (release) as make dist does, unpacks it elsewhere, and runs it with nothing but what
# a system has from the start: every library beside libc and libstdc++ must come from the tarball.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

tools/make_dist.py --level 0 "${1:-release}" "$folder/dist"
(cd "$folder/dist" && sha256sum --quiet -c ./*.sha256)
mkdir "$folder/elsewhere"
tar -C "$folder/elsewhere" -xf "$folder"/dist/redline-*.tar.xz
prefix=$(echo "$folder"/elsewhere/redline-*)
for file in bin/redline share/man/man1/redline.1 share/doc/redline/LICENSE share/doc/redline/licenses/web-page.txt \
  share/bash-completion/completions/redline share/zsh/site-functions/_redline share/fish/vendor_completions.d/redline.fish; do
  [ -s "$prefix/$file" ] || { echo "dist: $file is missing or empty"; exit 1; }
done
[ ! -e "$prefix/include" ] || { echo "dist: headers without a library"; exit 1; }
system=$(env -i PATH="$PATH" ldd "$prefix/bin/redline" | grep -vF "$prefix/" |
  grep -vE '^\s*(linux-vdso|ld-linux|/lib.*/ld-linux|libc|libm|libdl|libpthread|librt|libresolv|libstdc\+\+|libgcc_s)') || true
[ -z "$system" ] || { echo "dist: not in the tarball: $system"; exit 1; }
cd /  # not in the source tree, which has the models too
env -i "$prefix/bin/redline" version
env -i HOME="$folder" "$prefix/bin/redline" run redline-tales "Once" --max-tokens 3 --quiet
env -i HOME="$folder" "$prefix/bin/redline" image redline-shapes "a red house" --steps 2 --output "$folder/house.png" --quiet
[ -s "$folder/house.png" ] || { echo "dist: no image"; exit 1; }
