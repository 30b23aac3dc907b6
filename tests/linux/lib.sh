# What the jobs of this folder share. Jobs only measure and print; the host tool, which
# reads the console, judges.

# A fact: a name and its values.
fact() {
    echo "fact $*"
}

# The interrupt counts, between two lines, the first with a name and the time since boot
# in seconds. Both are read before anything is printed, since printing takes interrupts.
snapshot() {
    local counts
    read -r uptime _ < /proc/uptime
    counts=$(cat /proc/interrupts)
    echo "snapshot $1 $uptime"
    echo "$counts"
    echo "snapshot-end"
}

# The whole log of this kernel, between two lines.
kernel_log() {
    echo "log $1"
    dmesg
    echo "log-end"
}

# Keeps every CPU busy, each with a process of its own, for $1 seconds.
spin_everywhere() {
    local cpu=0
    while [ $cpu -lt "$(nproc)" ]; do
        timeout "$1" taskset -c $cpu sh -c 'while :; do :; done' &
        cpu=$((cpu + 1))
    done
}
