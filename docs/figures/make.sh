#!/usr/bin/env bash
# Draw the screenshots of the docs: needs chromium. Run it in the root of the repository after `make demo`.
set -euo pipefail
page="file://$PWD/demo/report.html"
shot() { chromium --headless --no-sandbox --hide-scrollbars --window-size=1100,1000 "$@" "$page" >/dev/null 2>&1; }
shot --screenshot="docs/figures/session-page.png"
shot --screenshot="docs/figures/session-page-dark.png" --blink-settings=preferredColorScheme=0
