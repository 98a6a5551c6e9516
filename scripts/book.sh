#!/usr/bin/env bash
# Renders the book in docs/ into target/book, and fails if a picture is stale, mdBook warns, or a link
# or an anchor leads nowhere.
#
#   scripts/book.sh
#   scripts/book.sh serve      renders at each change, on http://localhost:3000
set -euo pipefail
cd "$(dirname "$0")/.."

version=0.5.4
tools=${CARGO_TARGET_DIR:-target}/tools
mdbook=$tools/bin/mdbook
if [ "$("$mdbook" --version 2>/dev/null)" != "mdbook v$version" ]; then
    cargo install --locked --quiet --force mdbook --version "$version" --no-default-features \
        --root "$tools" --target-dir "$tools/build"
    rm -rf "$tools/build"
fi
docs/pictures/draw.py --check
if [ "${1:-build}" != build ]; then
    exec "$mdbook" "$@" docs
fi
log=$("$mdbook" build docs 2>&1) || { echo "$log" >&2; exit 1; }
if grep -E 'WARN|ERROR' <<<"$log"; then
    exit 1
fi
scripts/book-links.py target/book docs README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md SECURITY.md
