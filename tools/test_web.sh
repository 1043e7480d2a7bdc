#!/usr/bin/env bash
# The tests of the server's page in headless Chromium. Exit 77 and a reason: not run here.
set -u
cd "$(dirname "$0")/../web"
command -v node >/dev/null && command -v npm >/dev/null || { echo "Node is not installed"; exit 77; }
[ "$(node -p 'parseInt(process.versions.node)')" -ge 20 ] || { echo "Node is older than 20"; exit 77; }
found=${REDLINE_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome)}
[ -n "$found" ] ||
  { echo "no Chromium is installed (Debian: apt-get install chromium; Ubuntu: snap install chromium);" \
      "REDLINE_CHROMIUM names one"; exit 77; }
if [ ! node_modules/.package-lock.json -nt package-lock.json ]; then
  npm ci --silent >/dev/null 2>&1 || { echo "npm could not install what the page is tested with"; exit 77; }
fi
REDLINE_CHROMIUM=$found node --test tests/
