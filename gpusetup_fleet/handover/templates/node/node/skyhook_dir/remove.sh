#!/bin/sh
# Back to what was here before the first apply; gpusetup itself stays.
exec sh "$SKYHOOK_DIR/skyhook_dir/gpusetup.sh" remove --yes
