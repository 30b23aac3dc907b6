# IPIs of every kind between two snapshots: wake-ups of THREADS threads, messages between
# processes while a CPU goes off and on ONLINED times, and for STORM seconds futexes, switches, and membarriers, which interrupt all
# CPUs at once.

. /job.d/lib.sh

fact cpus "$(nproc)"
set -- $(dmesg | sed -n 's/.*Using paravirt //p')
[ $# -gt 0 ] && fact paravirt "$@"
snapshot start
perf bench -r 5 futex wake -t "$THREADS" > /tmp/futex 2>&1
fact futex $?
perf bench sched messaging -g 1 -l 10 > /tmp/messaging 2>&1 &
messaging=$! onlined=0
while [ $onlined -lt "$ONLINED" ]; do
    echo 0 > /sys/devices/system/cpu/cpu5/online || break
    echo 1 > /sys/devices/system/cpu/cpu5/online || break
    onlined=$((onlined + 1))
done
fact onlined $onlined
wait $messaging
fact messaging $?
if [ "$STORM" -gt 0 ]; then
    stress-ng --membarrier 4 --futex "$(nproc)" --switch "$(nproc)" --timeout "${STORM}s" \
        > /tmp/storm 2>&1
fi
fact storm $?
snapshot end
cat /tmp/futex /tmp/messaging
kernel_log load
