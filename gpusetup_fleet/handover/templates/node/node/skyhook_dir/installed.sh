#!/bin/sh
# gpusetup is there and starts.
exec /opt/gpusetup-controller/bin/gpusetup --version
