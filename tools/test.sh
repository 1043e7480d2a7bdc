#!/usr/bin/env bash
# Builds preset dev and runs everything: C++ tests, Python tests, the checks of the tree. The last line counts them.
#   tools/test.sh [--demo] [--fuzz SECONDS]    also runs the demo and the installed package (of dev); also fuzzes
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

results=build/test-results
rm -rf $results && mkdir -p $results
python=build/venv/bin/python

# A part that is one test: its name and its outcome go to the list that count_tests.py reads.
one() {
  local name=$1 begin=$SECONDS
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then echo "passed $name" >>$results/parts.txt; else echo "failed $name" >>$results/parts.txt; fi
  echo "== $name: $((SECONDS - begin)) s"
}
build() {
  [ -f build/dev/build.ninja ] || cmake --preset dev || return
  cmake --build --preset dev
}

one build build
if [ -f build/dev/build.ninja ]; then
  printf '\n== tests in C++\n'
  ctest --test-dir build/dev -j "$(nproc)" --output-on-failure --output-junit "$PWD/$results/ctest.xml" \
    --no-tests=error >$results/ctest.log 2>&1 || grep -vE '^ *[0-9]+/[0-9]+ Test.*Passed|^ *Start ' $results/ctest.log
  [ -f $results/ctest.xml ] || echo "failed ctest" >>$results/parts.txt
fi
if [ -n "$(git ls-files 'tests/*test_*.py' 'tests/*_test.py')" ]; then
  printf '\n== tests in Python\n'
  REDLINE_BINARY=$PWD/build/dev/redline $python -m pytest tests -q -p no:cacheprovider \
    --junitxml=$results/pytest.xml || [ -f $results/pytest.xml ] || echo "failed pytest" >>$results/parts.txt
fi
for check in $(tools/check --list); do
  one "check $check" tools/check "$check"
done
if [ $demo = yes ]; then
  one demo make --no-print-directory demo PRESET=dev
  one install tools/check_install.sh dev
fi
if [ "$fuzz_seconds" != 0 ]; then
  if [ -x tools/fuzz.sh ]; then one fuzz tools/fuzz.sh "$fuzz_seconds"
  else echo "skipped fuzz: there is no tools/fuzz.sh" >>$results/parts.txt
  fi
fi

echo
exec $python tools/count_tests.py $results
