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

# Runs the command after the name $1, and reports how many ns it took.
timed() {
    local name=$1 start end
    shift
    start=$(now)
    "$@" > /tmp/out 2>&1
    fact status "$name" $?
    end=$(now)
    fact time "$name" $((end - start))
}

# The kernel's own time since it began, when the first program runs its job.
read -r uptime _ < /proc/uptime
fact boot "$uptime"
seq 1 500000 > /tmp/numbers
# Does all loads, $2 times their smallest, under names that begin with $1.
work() {
    # Computing on one CPU, in user mode.
    timed "$1-hash" sha256sum $(yes /tmp/numbers | head -n "$2")
    timed "$1-count" awk "BEGIN { for (i = 0; i < 20000 * $2; i++) n += i % 7; print n }"
    # The kernel and its page tables.
    timed "$1-fork" perf bench syscall fork -l $((40 * $2))
    timed "$1-exec" perf bench syscall execve -l $((40 * $2))
    timed "$1-mmap" perf bench mem mmap -f demand -s 16MB -l $((4 * $2))
    timed "$1-pipe" perf bench sched pipe -l $((1000 * $2))
    timed "$1-threads" hackbench --groups 1 --fds 4 --loops $((20 * $2))
}
# The first round is for what is there only once: pages of files, caches.
work first 1
echo count start
work then "$WORK"
echo count end
kernel_log measured
