#!/bin/sh
# After customize.sh, for the root that wears openSUSE: $1 is the new root. That family's kernel and image, a boot loader
# entry, and zypper's configuration: kernels side by side, which Debian's package of libzypp does not set.
set -eu
root="$1"
kernel=6.4.0-150600.23.47-default
image="initrd-$kernel"
. "$(dirname "$0")/rpm-family.sh"

mkdir -p "$root/boot/grub2" "$root/etc/zypp/repos.d"
cat >"$root/boot/grub2/grub.cfg" <<ENTRY
menuentry 'openSUSE Leap 15.6' {
	linux	/boot/vmlinuz-$kernel root=/dev/vda1 ro quiet
	initrd	/boot/$image
}
ENTRY
cat >"$root/etc/zypp/zypp.conf" <<'CONF'
[main]
multiversion = provides:multiversion(kernel)
multiversion.kernels = latest,latest-1,running
CONF
