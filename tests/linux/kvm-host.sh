# Starts a guest with KVM and reports on both kernels. Variables: CPU, the guest's model;
# VCPUS; MEMORY of the guest in MiB; SEED; APPEND to the guest's command line; DISTURB,
# "yes" to move the guest's memory about while it runs; NEIGHBOUR, if it is set, the command
# line of a second guest like the first, on CPUs 4 to 7, with the first on CPUs 0 to 3.

. /job.d/lib.sh

# Marks the guest's lines, each with this machine's time since boot.
mark() {
    awk '{ getline now < "/proc/uptime"; close("/proc/uptime"); split(now, time, " ")
           print "guest", time[1], $0; fflush() }'
}

# A guest with the command line $1; what follows is put before the emulator.
guest() {
    local append=$1
    shift
    "$@" qemu-system-loongarch64 -M virt -accel kvm -cpu "$CPU" -smp "$VCPUS" -m "$MEMORY" \
        -vga none -display none -nic none -no-reboot -serial stdio -monitor none \
        -seed "$SEED" -kernel /kvm/kernel -initrd /tmp/initrd -append "$append" < /dev/null 2>&1
}

# Moves pages and joins them to large ones, which takes mappings away from the guest.
disturb() {
    echo 0 > /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs
    while [ ! -e /tmp/status ]; do
        echo 1 > /proc/sys/vm/compact_memory
        usleep 200000
    done
}

if [ -c /dev/kvm ]; then fact kvm-device yes; else fact kvm-device no; fi
cat /kvm/initrd /job.d/guest.cpio > /tmp/initrd
snapshot host-start
[ "$DISTURB" = yes ] && disturb &
pin=
if [ -n "$NEIGHBOUR" ]; then
    pin="taskset -c 0-3"
    guest "$NEIGHBOUR" taskset -c 4-7 | awk '{ print "neighbour", $0; fflush() }' &
fi
{
    guest "$APPEND" $pin
    echo "$?" > /tmp/status
} | mark
fact qemu "$(cat /tmp/status)"
[ -n "$NEIGHBOUR" ] && wait
snapshot host-end
fact moved $(awk '/^pgmigrate_success|^thp_collapse_alloc |^thp_split_pmd/ { print $2 }' /proc/vmstat)
kernel_log host
