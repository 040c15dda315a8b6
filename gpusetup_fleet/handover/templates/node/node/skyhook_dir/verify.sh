#!/bin/sh
# The stack works: quick checks, without a CUDA context of their own.
exec sh "$SKYHOOK_DIR/skyhook_dir/gpusetup.sh" verify --level quick
