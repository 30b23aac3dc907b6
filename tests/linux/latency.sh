# How late a task of the highest priority is woken while a neighbour's CPUs wake each other
# all the time. From the kernel's command line: role=latency measures on CPUs 0 to 3,
# role=storm is the neighbour, role=both is both on one machine, the neighbour on CPUs 4
# to 7. Variables: LOOPS, how often each measuring thread sleeps; STORM, how much the
# neighbour does.

. /job.d/lib.sh

# Processes that pass on messages: each wakes another one.
storm() {
    fact storm begins
    "$@" hackbench --groups 1 --fds 4 --loops "$STORM" > /tmp/storm 2>&1
    fact storm ends $?
}

latency() {
    # The neighbour has begun by then.
    usleep 300000
    fact latency begins
    cyclictest --affinity=0-3 --threads=4 --priority=80 --interval=1000 --loops="$LOOPS" --quiet \
        > /tmp/latency 2>&1
    fact latency ends $?
    # `T: 0 (   87) P:80 I:1000 C:    500 Min:      6 Act:    8 Avg:    7 Max:      34`
    sed -n 's/.*Min: *\([0-9]*\) .*Avg: *\([0-9]*\) .*Max: *\([0-9]*\).*/fact late \1 \2 \3/p' /tmp/latency
}

case "$role" in
    storm) storm ;;
    latency) latency ;;
    both)
        storm taskset -c 4-7 &
        latency
        wait
        ;;
esac
