#!/usr/bin/env bash
# Installs what building (default) or testing Redline needs on Debian 12+ and Ubuntu 22.04+.
#   tools/setup.sh [build|test]     prints what is missing, installs it, does nothing the second time
#   tools/setup.sh --check [...]    prints what is missing and exits 1; installs nothing
#   tools/setup.sh --compiler       prints the C++ compiler to build with
set -euo pipefail
cd "$(dirname "$0")/.."

build_packages=(g++ cmake ninja-build pkg-config libfmt-dev libhwloc-dev nlohmann-json3-dev libpcre2-dev libutf8proc-dev
                libpng-dev libjpeg-dev libwebp-dev zlib1g-dev libboost-dev libssl-dev libcurl4-openssl-dev libedit-dev
                python3-dev)
test_packages=(ccache mold libgtest-dev libgmock-dev python3-venv clang clang-format clang-tidy)
# Without them the property tests are left out, by name, and so is the comparison of kernels with oneDNN.
optional_packages=(librapidcheck-dev libdnnl-dev)

die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# GCC 12 is the oldest that builds Redline; Ubuntu 22.04 has it beside its default 11.
compiler() {
  local version
  version=$(g++ -dumpversion 2>/dev/null | cut -d. -f1) || true
  if [ "${version:-0}" -ge 12 ]; then echo g++
  elif command -v g++-12 >/dev/null; then echo g++-12
  else return 1
  fi
}

name=unknown version=0
os_release=${SETUP_OS_RELEASE:-/etc/os-release}  # its test says otherwise
if [ -r "$os_release" ]; then
  name=$(. "$os_release" && echo "${ID:-unknown}")
  version=$(. "$os_release" && echo "${VERSION_ID:-999}")  # Debian testing has no number
fi
distribution="$name $version"
supported=no
case $name in
  debian) [ "${version%%.*}" -lt 12 ] || supported=yes ;;
  ubuntu) [ "${version%%.*}" -lt 22 ] || supported=yes ;;
esac
case $distribution in  # clang's run-time library (sanitizers, fuzzing) is a package of its own
  "debian 12") optional_packages+=(libclang-rt-14-dev) ;;
  "debian 13") optional_packages+=(libclang-rt-19-dev) ;;
  "ubuntu 22.04") build_packages[0]=g++-12 ;;  # its package clang has the run-time library
  "ubuntu 24.04") optional_packages+=(libclang-rt-18-dev) ;;
esac

check=no group=build
for argument in "$@"; do
  case $argument in
    --check) check=yes ;;
    --compiler) compiler || die "no g++ of version 12 or later is installed; run tools/setup.sh"; exit ;;
    build | test) group=$argument ;;
    *) die "unknown argument \"$argument\"; usage: tools/setup.sh [--check] [build|test], or tools/setup.sh --compiler" ;;
  esac
done
packages=("${build_packages[@]}")
[ $group = build ] || packages+=("${test_packages[@]}")

if [ $supported = no ] || ! command -v dpkg-query >/dev/null; then
  # Another system is welcome as long as it has the tools; we only cannot install them there.
  for tool in cmake ninja pkg-config; do
    command -v $tool >/dev/null || missing_tools="${missing_tools:-} $tool"
  done
  compiler >/dev/null || missing_tools="${missing_tools:-} g++ (12 or later)"
  [ -z "${missing_tools:-}" ] && exit 0
  die "this is \"$distribution\", and packages are installed for Debian 12+ and Ubuntu 22.04+ only.
Missing:$missing_tools. Install by hand what these Debian packages hold, then run make again:
  ${packages[*]}"
fi

# Those of "$@" that are not installed. dpkg-query fails when it knows none of a name, which is an answer too.
not_installed() {
  local installed
  installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^ii *//p') || true
  for package in "$@"; do
    grep -qxF "$package" <<<"$installed" || echo "$package"
  done
}

mapfile -t missing < <(not_installed "${packages[@]}")
# Optional packages that the archive did not have, with the distribution that was asked. Forgotten after a day, so that a
# package which appears later, or was hidden by a stale list, is found.
unavailable_file=build/.packages-unavailable
unavailable=$(find $unavailable_file -mmin -1440 -exec grep -qxF "$distribution" {} \; -exec cat {} \; 2>/dev/null) || true
wanted=()
if [ $group = test ]; then
  while read -r package; do
    grep -qxF "$package" <<<"$unavailable" || wanted+=("$package")
  done < <(not_installed "${optional_packages[@]}")
fi

if [ $check = yes ]; then
  [ ${#missing[@]} = 0 ] || die "missing: ${missing[*]}"
  exit 0
fi

by_hand="install by hand: apt-get install ${missing[*]} ${wanted[*]}"
root=()
as_root() { "${root[@]}" env DEBIAN_FRONTEND=noninteractive "$@" </dev/null; }
# The whole answer is read before it is searched: `apt-cache | grep -q` fails under pipefail when grep leaves first.
has_candidate() {
  local policy
  policy=$(LC_ALL=C apt-cache policy "$1" 2>/dev/null) || return 1
  grep -q 'Candidate: [^(]' <<<"$policy"
}

if [ ${#missing[@]} -gt 0 ] || [ ${#wanted[@]} -gt 0 ]; then
  printf 'setup: installing %s\n' "${missing[*]} ${wanted[*]}"
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null || die "installing needs root and there is no sudo; as root, $by_hand"
    root=(sudo)
  fi
  for package in "${missing[@]}" "${wanted[@]}"; do
    has_candidate "$package" && continue
    as_root apt-get update -qq || die "apt-get update failed: is there a network? With one, $by_hand"
    break
  done
  install=("${missing[@]}") absent=()
  for package in "${wanted[@]}"; do
    if has_candidate "$package"; then install+=("$package")
    else
      echo "setup: $package is not packaged for $distribution; the tests that need it are left out"
      absent+=("$package")
    fi
  done
  if [ ${#absent[@]} -gt 0 ]; then
    mkdir -p build && printf '%s\n' "$distribution" "${absent[@]}" >$unavailable_file
  fi
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  get=(apt-get install -y -qq --no-install-recommends)
  if [ ${#install[@]} -gt 0 ] && ! as_root "${get[@]}" "${install[@]}" >"$log" 2>&1; then
    # Package lists that are out of date name files that are gone.
    { as_root apt-get update -qq && as_root "${get[@]}" "${install[@]}"; } >"$log" 2>&1 ||
      { tail -n 15 "$log" >&2; die "apt-get could not install everything: is there a network? With one, $by_hand"; }
  fi
fi

if [ $group = test ]; then
  venv=build/venv requirements=tools/requirements-test.txt
  if ! cmp -s $requirements $venv/requirements.txt; then
    echo "setup: Python packages into $venv: $(grep -v '^#' $requirements | tr '\n' ' ')"
    python=/usr/bin/python3  # the one that python3-venv serves
    [ -x $python ] || python=python3
    $python -m venv $venv
    $venv/bin/pip install --quiet --disable-pip-version-check -r $requirements ||
      die "pip could not install $requirements: is there a network?"
    cp $requirements $venv/requirements.txt
    # Large, and a snap on Ubuntu, so it is left to the person.
    command -v chromium chromium-browser google-chrome >/dev/null ||
      echo "setup: the web page's tests also need Node 20 or later, and Chromium (Debian: apt-get install chromium)"
  fi
fi
