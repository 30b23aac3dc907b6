# Measures wake-ups, and prints the figures as one line of JSON.
#
# perf: THREADS that wait on a futex are woken one at a time, REPEATS times. Then, if the
# program is there, tests/wake: the same ROUNDS times, with threads that are made once.
# What is around may count exits between a line "count NAME" and the next "count end";
# nothing else runs meanwhile, nor while perf measures. It needs no hypervisor, and runs
# on a board as it is: with HOLD, "yes", it gives a shell at the end.

. /job.d/lib.sh

: "${THREADS:=$(nproc)}" "${REPEATS:=100}" "${ROUNDS:=64}"

# The interrupts so far by which CPUs wake each other, and those of their timers.
interrupts() {
    awk '
        /^ *IPI[0-9]*:/ { for (i = 2; $i ~ /^[0-9]+$/; i++) ipis += $i }
        / timer$/ { for (i = 2; $i ~ /^[0-9]+$/; i++) ticks += $i }
        END { print ipis + 0, ticks + 0 }' /proc/interrupts
}

# Joins lines to what stands between a JSON list's brackets.
list() {
    tr '\n' ',' | sed 's/,$//'
}

futex_wake() {
    perf bench -r "$1" futex wake -t "$THREADS" > /tmp/perf
}

echo "stage perf"
# The first touches of perf's pages and the kernel's.
futex_wake 3
usleep 500000
futex_wake "$REPEATS"
if [ -e /job.d/wake ]; then
    echo "stage rounds"
    cp /job.d/wake /tmp/wake
    chmod +x /tmp/wake
    /tmp/wake "$THREADS" 3 wake > /tmp/out
    for how in rest wake; do
        # Both kinds of round make the threads; only one wakes them.
        before=$(interrupts)
        echo "count $how"
        usleep 300000
        /tmp/wake "$THREADS" "$ROUNDS" $how > /tmp/rounds.$how
        usleep 300000
        echo count end
        set -- $before $(interrupts)
        echo $(($3 - $1)) > /tmp/ipis.$how
        echo $(($4 - $2)) > /tmp/ticks.$how
    done
fi

# `[Run 1]: Wokeup 16 of 16 threads in 0.0570 ms`, where all were woken.
perf_ms=$(sed -n "s/^\[Run .*Wokeup $THREADS of $THREADS threads in \([0-9.]*\) ms$/\1/p" /tmp/perf | list)
column() {
    awk -v column="$1" '/^wake / { print $column }' /tmp/rounds.wake 2> /tmp/none | list
}
number() {
    cat "$1" 2> /tmp/none || echo null
}
echo "{\"benchmark\":\"futex-wake\",\"cpus\":$(nproc),\"threads\":$THREADS," \
    "\"kernel\":\"$(uname -r)\",\"perf\":\"$(perf --version | awk '{ print $3 }')\"," \
    "\"perf_ms\":[$perf_ms],\"rounds_ns\":[$(column 3)],\"answered_ns\":[$(column 4)]," \
    "\"ipis\":{\"wake\":$(number /tmp/ipis.wake),\"rest\":$(number /tmp/ipis.rest)}," \
    "\"ticks\":{\"wake\":$(number /tmp/ticks.wake),\"rest\":$(number /tmp/ticks.rest)}}"
snapshot end
kernel_log measured
if [ "$HOLD" = yes ]; then
    setsid cttyhack sh -l
fi
