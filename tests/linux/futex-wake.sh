# Measures wake-ups: THREADS that wait on a futex are woken one at a time, REPEATS times.
# What is around may count exits at the lines "count start" and "count end"; nothing
# else runs while it does, nor while perf measures.

. /job.d/lib.sh

fact cpus "$(nproc)"
# The first touches of perf's pages and the kernel's.
perf bench -r 3 futex wake -t "$THREADS" > /tmp/futex
echo count start
usleep 500000
perf bench -r "$REPEATS" futex wake -t "$THREADS" > /tmp/futex
echo count end
usleep 500000
cat /tmp/futex
snapshot end
kernel_log measured
