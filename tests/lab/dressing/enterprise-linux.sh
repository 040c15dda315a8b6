#!/bin/sh
# After customize.sh, for the root that wears Enterprise Linux: $1 is the new root. That family's kernel name, dracut's own
# name for the image, a boot loader entry, and rpm's database at its place.
set -eu
root="$1"
el=5.14.0-570.12.1.el9_6.x86_64
debian="$(basename "$root"/lib/modules/*)"

mv "$root/lib/modules/$debian" "$root/lib/modules/$el"
rm -f "$root/lib/modules/$el/build" "$root/lib/modules/$el/source" "$root/boot/initrd.img-$debian" "$root/usr/sbin/update-initramfs"
for file in vmlinuz config System.map; do mv "$root/boot/$file-$debian" "$root/boot/$file-$el"; done
depmod -b "$root" "$el"

# Debian's name of the image: older dracuts have it in the program, newer ones in a setting.
sed -i 's#/boot/initrd.img-${kernel}"#/boot/initramfs-${kernel}.img"#' "$root/usr/bin/dracut"
# Few modules of dracut, so that an initramfs takes seconds; for this host, as EL's default is: with its /etc/modprobe.d.
cat >"$root/etc/dracut.conf.d/lab.conf" <<'CONF'
add_drivers+=" nouveau "
hostonly="yes"
dracutmodules="base kernel-modules systemd udev-rules"
compress="cat"
initrdname="initramfs-${kernel}.img"
CONF
chroot "$root" dracut --force --quiet "/boot/initramfs-$el.img" "$el"

mkdir -p "$root/boot/loader/entries" "$root/etc/rpm" "$root/etc/dnf/vars" "$root/etc/yum.repos.d" "$root/usr/src/kernels"
cat >"$root/boot/loader/entries/lab-$el.conf" <<ENTRY
title Rocky Linux ($el) 9.6 (Blue Onyx)
version $el
linux /vmlinuz-$el
initrd /initramfs-$el.img
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

echo '%_dbpath /var/lib/rpm' >"$root/etc/rpm/macros"
rm -rf "$root/root/.rpmdb"
chroot "$root" rpm --initdb
