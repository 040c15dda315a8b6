#!/bin/sh
# Last step of the image: $1 is its file system, $2 its identifier, both still without a running system.
set -eu
root="$1"
uuid="$2"
here="$(dirname "$0")"
kernel="$(basename "$(ls -d "$root"/lib/modules/* | sort -V | tail -n 1)")"

# The kernel package is the real one; of its 4000 modules those are kept that this machine and a display driver need,
# so that depmod and the initramfs take seconds in emulation instead of minutes.
tree="$root/lib/modules/$kernel"
wanted='nouveau|virtio_net|virtio_blk|virtio_pci|virtio_rng|ext4|isofs|nls_ascii|nls_utf8|crc32c_generic|crc32c-intel|autofs4'
keep="$(grep -E "/($wanted)\\.ko[^/:]*:" "$tree/modules.dep" | tr -d ':' | tr ' ' '\n' | sort -u)"
find "$tree/kernel" -name '*.ko*' | while read -r module; do
  case "
$keep
" in *"
${module#"$tree/"}
"*) ;; *) rm -f "$module" ;; esac
done
find "$tree/kernel" -depth -type d -empty -delete
depmod -b "$root" "$kernel"

# What a desktop's boot splash does: the display driver goes into the initramfs, and starts there unless it is blacklisted in it.
install -D -m 755 "$here/../../lab/rootfs/initramfs-splash" "$root/etc/initramfs-tools/hooks/lab-splash"
install -D -m 755 "$here/initramfs-display" "$root/etc/initramfs-tools/scripts/init-top/lab-display"
install -D -m 755 "$here/machine" "$root/usr/local/lib/gpusetup-lab/machine"
install -D -m 644 "$here/machine.service" "$root/etc/systemd/system/gpusetup-lab-machine.service"
mkdir -p "$root/etc/systemd/system/sysinit.target.wants"
ln -s ../gpusetup-lab-machine.service "$root/etc/systemd/system/sysinit.target.wants/gpusetup-lab-machine.service"

# In emulation, on a busy machine, a minute and a half is not long.
mkdir -p "$root/etc/systemd/system.conf.d"
printf '[Manager]\nDefaultTimeoutStartSec=15min\nDefaultTimeoutStopSec=5min\n' >"$root/etc/systemd/system.conf.d/lab.conf"

# Ansible asks its workers every millisecond, which in emulation takes a third of a processor.
mkdir -p "$root/etc/ansible"
printf '[defaults]\ninternal_poll_interval = 0.02\n' >"$root/etc/ansible/ansible.cfg"

# Nothing runs by itself while a test looks.
for timer in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
  ln -sf /dev/null "$root/etc/systemd/system/$timer"
done
echo "# No network but the lab's." >"$root/etc/apt/sources.list"
printf 'UseDNS no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n' >"$root/etc/ssh/sshd_config.d/lab.conf"
printf 'datasource_list: [NoCloud, None]\n' >"$root/etc/cloud/cloud.cfg.d/99-lab.cfg"
rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
: >"$root/etc/resolv.conf"
printf 'UUID=%s / ext4 errors=remount-ro 0 1\n' "$uuid" >"$root/etc/fstab"

# What boots: the settings are Debian's with a serial console; update-grub in the machine writes grub.cfg anew from them.
# The emulator translates a program anew for each address that it is loaded to: at one and the same, a process starts in a third of the time.
arguments="net.ifnames=0 console=ttyS0 mitigations=off norandmaps"
cat >"$root/etc/default/grub" <<END
GRUB_DEFAULT=0
GRUB_TIMEOUT=0
GRUB_DISTRIBUTOR=Debian
GRUB_TERMINAL=console
GRUB_CMDLINE_LINUX_DEFAULT="quiet"
GRUB_CMDLINE_LINUX="$arguments"
END
mkdir -p "$root/boot/grub/i386-pc"
cp "$root"/usr/lib/grub/i386-pc/*.mod "$root"/usr/lib/grub/i386-pc/*.lst "$root/boot/grub/i386-pc/"
cat >"$root/boot/grub/grub.cfg" <<END
menuentry 'Debian' {
	linux /boot/vmlinuz-$kernel root=UUID=$uuid ro $arguments quiet
	initrd /boot/initrd.img-$kernel
}
set timeout=0
END
chroot "$root" grub-mkimage -O i386-pc -p '(hd0,msdos1)/boot/grub' -o /boot/grub/i386-pc/core.img biosdisk part_msdos ext2

# The first initramfs is made here, where there is no disk to ask for its driver; from then on the machine asks its own.
echo 'MODULES=most' >"$root/etc/initramfs-tools/conf.d/lab"
chroot "$root" update-initramfs -c -k "$kernel"
printf 'MODULES=dep\nCOMPRESSLEVEL=1\n' >"$root/etc/initramfs-tools/conf.d/lab"
