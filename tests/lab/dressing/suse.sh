#!/bin/sh
# After customize.sh, for the root that wears openSUSE: $1 is the new root. That family's kernel name, its name for the
# initramfs, a boot loader entry, and rpm's database where rpm and libzypp both look.
set -eu
root="$1"
suse=6.4.0-150600.23.47-default
debian="$(basename "$root"/lib/modules/*)"

mv "$root/lib/modules/$debian" "$root/lib/modules/$suse"
rm -f "$root/lib/modules/$suse/build" "$root/lib/modules/$suse/source"
for file in vmlinuz config System.map; do mv "$root/boot/$file-$debian" "$root/boot/$file-$suse"; done
depmod -b "$root" "$suse"

sed -i 's#/boot/initrd.img-${kernel}"#/boot/initrd-${kernel}"#' "$root/usr/bin/dracut"
# Few modules of dracut, so that an initramfs takes seconds; for this host, as SUSE's default is: with its /etc/modprobe.d.
cat >"$root/etc/dracut.conf.d/lab.conf" <<'CONF'
add_drivers+=" nouveau "
hostonly="yes"
dracutmodules="base kernel-modules systemd udev-rules"
compress="cat"
CONF
rm -f "$root"/boot/initrd.img-*
chroot "$root" dracut --force --quiet "/boot/initrd-$suse" "$suse"

mkdir -p "$root/boot/grub2" "$root/etc/rpm" "$root/etc/zypp/repos.d"
cat >"$root/boot/grub2/grub.cfg" <<ENTRY
menuentry 'openSUSE Leap 15.6' {
	linux	/boot/vmlinuz-$suse root=/dev/vda1 ro quiet
	initrd	/boot/initrd-$suse
}
ENTRY
echo '%_dbpath /var/lib/rpm' >"$root/etc/rpm/macros"
rm -rf "$root/root/.rpmdb"
chroot "$root" rpm --initdb
