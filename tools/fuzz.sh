#!/usr/bin/env bash
# tools/fuzz.sh SECONDS [--keep] [TARGET...]: builds the fuzz targets (clang, address and undefined-behaviour sanitizers) and
# runs each for an equal share of SECONDS, from its seeds (fuzz/make_seeds.py writes them to build/fuzz/seeds) and its kept inputs
# (fuzz/corpus/TARGET.tar.gz, unpacked to build/fuzz/corpus). One line per target; fails when
# any target crashes, hangs or leaks, and leaves the input under build/fuzz/findings/.
# Exit 77, with the reason, where clang or its run-time library for fuzzing is not installed.
# --keep: rewrites the archive with a small set of inputs of the same coverage.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:?usage: tools/fuzz.sh SECONDS [--keep] [TARGET...]}
shift
keep=no
if [[ ${1:-} == --keep ]]; then keep=yes; shift; fi
case $seconds in '' | *[!0-9]*) echo "tools/fuzz.sh: SECONDS is a whole number, not '$seconds'" >&2; exit 2 ;; esac

probe='extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }'
if ! said=$(clang++ -x c++ -fsanitize=fuzzer,address,undefined -o /dev/null - <<<"$probe" 2>&1); then
  echo "fuzzing needs clang and its run-time library (packages clang and libclang-rt-N-dev): $(head -n 1 <<<"$said")"
  exit 77
fi

build=build/fuzz
cmake --preset fuzz > /dev/null
cmake --build $build --target fuzz_targets > $build/build.log 2>&1 || { tail -40 $build/build.log >&2; exit 1; }
if (($#)); then targets=("$@"); else
  targets=()
  for source in fuzz/*_fuzz.cc; do targets+=("$(basename "$source" _fuzz.cc)"); done
fi
python3 fuzz/make_seeds.py $build/seeds
share=$((seconds / ${#targets[@]}))
((share > 0)) || share=1

findings=$build/findings
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p $findings
failed=()
for target in "${targets[@]}"; do
  program=$build/fuzz/${target}_fuzz
  seeds=$build/seeds/$target corpus=$build/corpus/$target
  mkdir -p "$work/$target" "$seeds"
  python3 fuzz/corpus.py unpack "fuzz/corpus/$target.tar.gz" "$corpus"
  status=0
  "$program" -max_total_time=$share -timeout=10 -rss_limit_mb=1024 -max_len=8192 -print_final_stats=1 \
    -artifact_prefix="$findings/$target-" "$work/$target" "$corpus" "$seeds" \
    > "$work/$target.log" 2>&1 || status=$?
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$work/$target.log")
  reached=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$work/$target.log" | tail -1)
  if ((status == 0)); then
    echo "$target: ok, ${runs:-0} inputs in ${share} s, ${reached:-0} branches reached"
  else
    failed+=("$target: $(grep -m 1 -E 'runtime error|ERROR|SUMMARY' "$work/$target.log" || echo "exit status $status")")
    cp "$work/$target.log" "$findings/$target.log"
    echo "$target: FAILED, see $findings/$target.log and the input beside it"
    grep -m 4 -E 'ERROR|SUMMARY|runtime error|^Base64' "$work/$target.log" || true
  fi
  if [[ $keep == yes ]] && ((status == 0)); then
    mkdir "$work/merged"
    "$program" -set_cover_merge=1 -use_counters=0 -max_len=8192 "$work/merged" "$seeds" "$corpus" "$work/$target" \
      > "$work/merge.log" 2>&1
    # The smallest first, up to 64 KB a target: the archive is committed. Seeds are generated each time.
    for seed in "$seeds"/*; do rm -f "$work/merged/$(sha1sum <"$seed" | cut -d ' ' -f 1)"; done
    find "$work/merged" -type f -printf '%s %p\n' | sort -n | awk '{total += $1; if (total > 65536) print $2}' | xargs -r rm
    rm -f "fuzz/corpus/$target.tar.gz"
    if [[ -n $(ls "$work/merged") ]]; then python3 fuzz/corpus.py pack "$work/merged" "fuzz/corpus/$target.tar.gz"; fi
    rm -rf "$work/merged"
  fi
done
if ((${#failed[@]})); then
  echo "${#failed[@]} of ${#targets[@]} targets failed: $(printf '%s; ' "${failed[@]}")their inputs are in $findings"
  exit 1
fi
