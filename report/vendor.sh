#!/bin/sh
# Fetches the chart library that package-lock.json pins, checked against its integrity there, and
# brings it to vendor/. With --check it says whether vendor/ holds just that. Needs npm and network.
# To take another version: npm install --package-lock-only --save-exact uplot@VERSION, then this.
# Usage: report/vendor.sh [--check]
set -eu
cd "$(dirname "$0")"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp package.json package-lock.json "$work"
npm ci --prefix "$work" --ignore-scripts --no-audit --no-fund --silent
package=$work/node_modules/uplot
mkdir "$work/vendor"
cp "$package/dist/uPlot.iife.min.js" "$package/dist/uPlot.min.css" "$work/vendor"
cp "$package/LICENSE" "$work/vendor/uPlot-LICENSE"

if [ "${1:-}" = --check ]; then
  diff -r vendor "$work/vendor" && echo "vendor/ is what package-lock.json pins"
else
  mkdir -p vendor
  cp "$work"/vendor/* vendor/
fi
