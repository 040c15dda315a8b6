#!/bin/sh
# Last step of every root file system: $1 is the new root, still without a running system.
set -eu
root="$1"
here="$(dirname "$0")"

# The kernel package is the real one; of its 4000 modules only the display drivers' closure is kept, so that an
# initramfs is rebuilt in seconds instead of half a minute.
for tree in "$root"/lib/modules/*; do
  [ -f "$tree/modules.dep" ] || continue
  keep="$(grep -E '/(nouveau|virtio_net|virtio_blk|ext4|overlay)\.ko[^/:]*:' "$tree/modules.dep" | tr -d ':' | tr ' ' '\n' | sort -u)"
  find "$tree/kernel" -name '*.ko*' | while read -r module; do
    case "
$keep
" in *"
${module#"$tree/"}
"*) ;; *) rm -f "$module" ;; esac
  done
  find "$tree/kernel" -depth -type d -empty -delete
  depmod -b "$root" "$(basename "$tree")"
done

# What a desktop's boot splash does: nouveau goes into the initramfs, and starts there unless it is blacklisted in it.
if [ -d "$root/etc/initramfs-tools" ]; then
  mkdir -p "$root/etc/initramfs-tools/hooks"
  install -m 755 "$here/initramfs-splash" "$root/etc/initramfs-tools/hooks/lab-splash"
fi

# Nothing runs by itself while a test looks.
for timer in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer; do
  ln -sf /dev/null "$root/etc/systemd/system/$timer"
done

# People: root by key; "admin" with sudo, "ops" with sudo and a password, "guest" without rights.
chroot "$root" useradd -m -s /bin/bash admin
chroot "$root" useradd -m -s /bin/bash ops
chroot "$root" useradd -m -s /bin/bash guest
echo 'ops:lab-password' | chroot "$root" chpasswd
printf 'admin ALL=(ALL) NOPASSWD: ALL\nops ALL=(ALL) ALL\n' >"$root/etc/sudoers.d/lab"
chmod 440 "$root/etc/sudoers.d/lab"
printf 'UseDNS no\nPasswordAuthentication no\nPermitRootLogin prohibit-password\n' >"$root/etc/ssh/sshd_config.d/lab.conf"

rm -f "$root"/etc/ssh/ssh_host_* "$root/var/lib/dbus/machine-id"
: >"$root/etc/machine-id"
: >"$root/etc/resolv.conf"
# Kernels know their initramfs only now, after the pruning.
if [ -x "$root/usr/sbin/update-initramfs" ]; then
  for tree in "$root"/lib/modules/*; do
    [ -e "$root/boot/vmlinuz-$(basename "$tree")" ] && chroot "$root" update-initramfs -c -k "$(basename "$tree")"
  done
fi
