#!/bin/sh
# After customize.sh, for the root that wears Enterprise Linux: $1 is the new root. That family's kernel and image, a boot
# loader entry, dnf's folders, and packages that cannot be held yet.
set -eu
root="$1"
kernel=5.14.0-570.12.1.el9_6.x86_64
image="initramfs-$kernel.img"
. "$(dirname "$0")/rpm-family.sh"

mkdir -p "$root/boot/loader/entries" "$root/etc/dnf/vars" "$root/etc/yum.repos.d" "$root/usr/src/kernels"
cat >"$root/boot/loader/entries/lab-$kernel.conf" <<ENTRY
title Rocky Linux ($kernel) 9.6 (Blue Onyx)
version $kernel
linux /vmlinuz-$kernel
initrd /$image
options root=/dev/vda1 ro quiet
ENTRY
# There the plugin that holds packages is a package of its own, which a minimal host does not have: the lab's repository offers
# python3-dnf-plugin-versionlock, and what it installs is Debian's plugin, laid aside here.
aside="$root/usr/share/gpusetup-lab/versionlock"
if [ -e "$root/usr/bin/dnf5" ]; then # it can hold packages by itself, and goes by the name of dnf
  ln -s dnf5 "$root/usr/bin/dnf"
else
  for file in usr/lib/python3/dist-packages/dnf-plugins/versionlock.py etc/dnf/plugins/versionlock.conf etc/dnf/plugins/versionlock.list; do
    mkdir -p "$aside/$(dirname "$file")"
    mv "$root/$file" "$aside/$file"
  done
  rm -f "$root"/usr/lib/python3/dist-packages/dnf-plugins/__pycache__/versionlock.*
fi
