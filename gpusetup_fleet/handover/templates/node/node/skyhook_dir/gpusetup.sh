#!/bin/sh
# gpusetup on this node, with the site's variables (gpusetup_source and the like).
export PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
exec /opt/gpusetup-controller/bin/gpusetup "$@" --extra-vars "@$SKYHOOK_DIR/configmaps/variables.json"
