# Starts a guest with KVM and reports on both kernels. Variables: VCPUS; MEMORY of the
# guest in MiB; SEED; APPEND to the guest's command line.

. /job.d/lib.sh

# Marks the guest's lines, each with this machine's time since boot.
mark() {
    awk '{ getline now < "/proc/uptime"; close("/proc/uptime"); split(now, time, " ")
           print "guest", time[1], $0; fflush() }'
}

if [ -c /dev/kvm ]; then fact kvm-device yes; else fact kvm-device no; fi
cat /kvm/initrd /job.d/guest.cpio > /tmp/initrd
snapshot host-start
{
    qemu-system-loongarch64 -M virt -accel kvm -cpu la464 -smp "$VCPUS" -m "$MEMORY" \
        -vga none -display none -nic none -no-reboot -serial stdio -monitor none \
        -seed "$SEED" -kernel /kvm/kernel -initrd /tmp/initrd -append "$APPEND" < /dev/null 2>&1
    echo "$?" > /tmp/status
} | mark
fact qemu "$(cat /tmp/status)"
snapshot host-end
kernel_log host
