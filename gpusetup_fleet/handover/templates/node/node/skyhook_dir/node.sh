#!/bin/sh
# What the DaemonSet's pod starts on the node itself: install, apply, check. It never reboots.
set -eu
package=$SKYHOOK_DIR/skyhook_dir
python3 "$package/install"
sh "$package/installed.sh"
code=0
sh "$package/apply.sh" || code=$?
[ "$code" = 0 ] || [ "$code" = 9 ] || exit "$code"
/opt/gpusetup-controller/bin/python "$package/applied"
[ "$code" = 0 ] || echo "this node waits for a reboot"
