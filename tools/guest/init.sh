#!/bin/busybox sh
# First process of the guest of tools/emulated_guest.py: finds its disk.
/bin/busybox mount -t devtmpfs dev /dev
for module in $(/bin/busybox cat /modules); do
	/bin/busybox insmod "/$module" || echo "guest: no module $module"
done
/bin/busybox mkdir -p /disk
/bin/busybox mount -t ext4 /dev/vda /disk || echo "guest: no disk"
/bin/busybox cp /guest/* /disk/guest/
/bin/busybox mount -o move /dev /disk/dev
exec /bin/busybox switch_root /disk /guest/run.sh
