# Read by the scripts of the families, after customize.sh: what hosts with rpm have alike. $root is the new root; $kernel and
# $image are that family's names for its kernel and for the kernel's initramfs. rpm's database is made where all programs look.
debian="$(basename "$root"/lib/modules/*)"

mv "$root/lib/modules/$debian" "$root/lib/modules/$kernel"
rm -f "$root/lib/modules/$kernel/build" "$root/lib/modules/$kernel/source" "$root/boot/initrd.img-$debian" "$root/usr/sbin/update-initramfs"
for file in vmlinuz config System.map; do mv "$root/boot/$file-$debian" "$root/boot/$file-$kernel"; done
depmod -b "$root" "$kernel"

# Debian's name of the image: older dracuts have it in the program, newer ones in a setting.
named="$(printf '%s' "$image" | sed "s/$kernel/\${kernel}/")"
sed -i "s#/boot/initrd.img-\${kernel}\"#/boot/$named\"#" "$root/usr/bin/dracut"
# Few modules of dracut, so that an initramfs takes seconds; for this host, as these families' default is: with its /etc/modprobe.d.
cat >"$root/etc/dracut.conf.d/lab.conf" <<CONF
add_drivers+=" nouveau "
hostonly="yes"
dracutmodules="base kernel-modules systemd udev-rules"
compress="cat"
initrdname="$named"
CONF
chroot "$root" dracut --force --quiet "/boot/$image" "$kernel"

mkdir -p "$root/etc/rpm"
echo '%_dbpath /var/lib/rpm' >"$root/etc/rpm/macros"
rm -rf "$root/root/.rpmdb"
chroot "$root" rpm --initdb
