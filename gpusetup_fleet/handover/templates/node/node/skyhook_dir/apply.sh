#!/bin/sh
# Bring this node to the lock. Exit 9: it waits for a reboot, which is NodeWright's (or yours).
exec sh "$SKYHOOK_DIR/skyhook_dir/gpusetup.sh" apply --lock "$SKYHOOK_DIR/configmaps/gpu.lock.json" --reboot never
