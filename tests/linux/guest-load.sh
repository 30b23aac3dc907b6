# The load of a guest. Variables: SPIN, seconds of each timer measurement; MESSAGES, per
# sender of hackbench; MEMORY_OPS of stress-ng; LAST_NUMBER of the data, and ROUNDS of
# copying it.

. /job.d/lib.sh

fact cpus "$(nproc)"

# Timer interrupts: the tick stops on an idle CPU, so all are kept busy; the scheduler's
# own timer, which ends a process's turn between ticks, would count too.
echo NO_HRTICK > /sys/kernel/debug/sched/features
# Nothing is printed in between: a CPU that prints is often in the hypervisor.
on_every_cpu spin
usleep 500000
snapshot spin-start > /tmp/spin
sleep "$SPIN"
snapshot spin-end >> /tmp/spin
kill $started
cat /tmp/spin
on_every_cpu watch_ticks "$SPIN"
wait

# Load on everything at once: wake-ups between CPUs, memory, data.
snapshot load-start
on_every_cpu work_on_data
stress-ng --vm "$(nproc)" --vm-bytes "$((4 * $(nproc)))M" --vm-ops "$MEMORY_OPS" --verify \
    --metrics-brief > /tmp/stress-ng 2>&1 &
memory=$!
hackbench --groups 1 --fds 4 --loops "$MESSAGES" > /tmp/hackbench 2>&1
fact hackbench $? $(tail -n 1 /tmp/hackbench)
perf bench -r 20 futex wake -t 16 > /tmp/futex 2>&1
fact futex $? $(grep '^Wokeup' /tmp/futex)
wait $memory
fact memory $?
cat /tmp/stress-ng
wait
snapshot load-end

kernel_log guest
