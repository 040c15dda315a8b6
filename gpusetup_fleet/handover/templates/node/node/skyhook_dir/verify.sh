#!/bin/sh
# The stack works: quick checks of this machine, which take no variables, without a CUDA context of their own.
export PATH="$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
exec /opt/gpusetup-controller/bin/gpusetup verify --level quick
