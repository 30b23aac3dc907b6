# What runs in a guest costs more than on the machine: how much. Each load is of one
# kind, and its time is measured from outside. Variables: WORK, how much of each.

. /job.d/lib.sh

# The kernel's clock in ns; busybox's own date knows only seconds.
now() {
    local word at ns rest
    while read -r word at ns rest; do
        [ "$word $at" = "now at" ] && echo "$ns" && return
    done < /proc/timer_list
}

# Runs the command after the name $1, and reports how many ns it took; what is around may
# count exits meanwhile.
timed() {
    local name=$1 start end
    shift
    echo "count $name"
    start=$(now)
    "$@" > /tmp/out 2>&1
    fact status "$name" $?
    end=$(now)
    echo count end
    fact time "$name" $((end - start))
}

# What a compiler's steps are to the kernel: programs that read, write and end.
compile() {
    sed 's/1/one/' /tmp/source > "/tmp/unit.$1.i"
    awk '{ print NR, $0 }' "/tmp/unit.$1.i" > "/tmp/unit.$1.s"
    sort "/tmp/unit.$1.s" > "/tmp/unit.$1.o"
    rm "/tmp/unit.$1.i" "/tmp/unit.$1.s" "/tmp/unit.$1.o"
}

# $1 of them, one for each CPU at a time.
build() {
    local unit=0
    while [ $unit -lt "$1" ]; do
        compile $unit &
        unit=$((unit + 1))
        [ $((unit % $(nproc))) = 0 ] && wait
    done
    wait
}

# The kernel's own time since it began, when the first program runs its job.
read -r uptime _ < /proc/uptime
fact boot "$uptime"
seq 1 500000 > /tmp/numbers
seq 1 500 > /tmp/source
# Does all loads, $2 times their smallest, under names that begin with $1.
work() {
    # Computing on one CPU, in user mode.
    timed "$1-hash" sha256sum $(yes /tmp/numbers | head -n "$2")
    timed "$1-count" awk "BEGIN { for (i = 0; i < 20000 * $2; i++) n += i % 7; print n }"
    # The kernel and its page tables.
    timed "$1-fork" perf bench syscall fork -l $((40 * $2))
    timed "$1-exec" perf bench syscall execve -l $((40 * $2))
    timed "$1-mmap" perf bench mem mmap -f demand -s 16MB -l $((4 * $2))
    timed "$1-build" build $((8 * $2))
    # Processes and threads that wake each other.
    timed "$1-pipe" perf bench sched pipe -l $((1000 * $2))
    timed "$1-hackbench" hackbench --groups 1 --fds 4 --loops $((20 * $2))
    timed "$1-messaging" perf bench sched messaging --group 1 --nr_loops $((5 * $2))
    timed "$1-switch" stress-ng --switch 1 --switch-ops $((500 * $2))
    timed "$1-futex" stress-ng --futex 1 --futex-ops $((500 * $2))
}
# The first round is for what is there only once: pages of files, caches.
work first 1
work then "$WORK"
kernel_log measured
