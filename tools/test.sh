#!/usr/bin/env bash
# Builds preset dev and runs everything: C++ tests, Python tests, the checks of the tree. The last line counts them.
#   tools/test.sh [--demo] [--fuzz SECONDS]    --demo: also the demo, and checks of installation and packages; --fuzz: also fuzzes
# One failure does not hide the others: every part runs, and the exit status tells whether all passed.
set -u
cd "$(dirname "$0")/.."

demo=no fuzz_seconds=0
while [ $# -gt 0 ]; do
  case $1 in
    --demo) demo=yes ;;
    --fuzz) shift; fuzz_seconds=${1:?--fuzz needs a number of seconds} ;;
    *) echo "test: unknown argument \"$1\"; usage: tools/test.sh [--demo] [--fuzz SECONDS]" >&2; exit 2 ;;
  esac
  shift
done

# Tests run beside each other on the same cores: a worker that waits gives its core to another.
export REDLINE_SPIN_COUNT=0

results=build/test-results
rm -rf $results && mkdir -p $results
python=build/venv/bin/python

# A part that is one test: its name and its outcome go to the list that count_tests.py reads. Exit 77 is a skip. The last line of
# the output is the reason of a skip or a failure.
one() {
  local name=$1 begin=$SECONDS status=0 output=$results/output.$BASHPID.txt
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$output"
  status=${PIPESTATUS[0]}
  case $status in
    0) echo "passed $name" >>$results/parts.txt ;;
    77) echo "skipped $name: $(tail -n 1 "$output")" >>$results/parts.txt ;;
    *) echo "failed $name: $(tail -n 1 "$output")" >>$results/parts.txt ;;
  esac
  took "$name" $((SECONDS - begin))
}
took() { printf '%6d s  %s\n' "$2" "$1" >>$results/times.txt; }
build() {
  # A build configured before build/venv was there has no module for Python.
  { [ -f build/dev/build.ninja ] && [ -f build/dev/_redline.abi3.so ]; } || cmake --preset dev || return
  cmake --build --preset dev
}

one build build
tests_in_cpp() {
  printf '\n== tests in C++\n'
  local begin=$SECONDS
  ctest --test-dir build/dev -j "$(nproc)" --output-on-failure --output-junit "$PWD/$results/ctest.xml" \
    --no-tests=error >$results/ctest.log 2>&1 || grep -vE '^ *[0-9]+/[0-9]+ Test.*Passed|^ *Start ' $results/ctest.log
  [ -f $results/ctest.xml ] || echo "failed ctest" >>$results/parts.txt
  took "tests in C++" $((SECONDS - begin))
}
checks() {
  for check in $(tools/check --list); do
    one "check $check" tools/check "$check"
  done
  one "web page" tools/test_web.sh
}
# The Python tests mostly wait for servers; the C++ tests and then the checks run beside them.
{
  [ -f build/dev/build.ninja ] && tests_in_cpp
  checks
} >$results/beside.log 2>&1 &
if [ -n "$(git ls-files 'tests/*test_*.py' 'tests/*_test.py')" ]; then
  printf '\n== tests in Python; those in C++ and the checks beside them\n'
  begin=$SECONDS
  REDLINE_BINARY=$PWD/build/dev/redline $python -m pytest tests -q -p no:cacheprovider \
    --junitxml=$results/pytest.xml || [ -f $results/pytest.xml ] || echo "failed pytest" >>$results/parts.txt
  took "tests in Python" $((SECONDS - begin))
fi
wait
cat $results/beside.log
if [ $demo = yes ]; then
  one demo make --no-print-directory demo PRESET=dev
  one install tools/check_install.sh dev
  one wheel tools/check_wheel.sh dev
  one dist tools/check_dist.sh dev
fi
# The fuzz targets are a build of their own with sanitizers, which takes minutes from cold.
kLatestFuzz=1260
fuzz() {
  [ $SECONDS -le $kLatestFuzz ] || { echo "$SECONDS s have passed, and fuzzing begins within $kLatestFuzz: make fuzz"; return 77; }
  tools/fuzz.sh "$fuzz_seconds"
}
[ "$fuzz_seconds" = 0 ] || one fuzz fuzz

took "all of it" $SECONDS
printf '\n== where the time went\n'
cat $results/times.txt
echo
exec $python tools/count_tests.py $results
