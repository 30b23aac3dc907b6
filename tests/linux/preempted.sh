# Which CPUs are off their physical CPU, by the byte of their steal-time records, each time
# that a file is opened. A CPU's record is found as it comes online and hands it over.

. /job.d/lib.sh

tracing=/sys/kernel/debug/tracing
cpus=/sys/devices/system/cpu

# What the probe $1 has seen since the last time, as values of the fact $2.
seen() {
    set -- "$2" $(sed -n "s/.* $1: .*) //p" $tracing/trace | sed 's/[a-z]*[0-9]*=//g; s/ /,/g')
    fact "$@"
    echo > $tracing/trace
}

# Opens a file, again and again, on CPU $1.
look_from() {
    echo 1 > $tracing/events/kprobes/look/enable
    taskset -c "$1" awk 'BEGIN {
        for (i = 0; i < 25; i++) {
            getline line < "/proc/uptime"
            close("/proc/uptime")
            for (j = 0; j < 3000; j++) k += j
        }
    }'
    echo 0 > $tracing/events/kprobes/look/enable
}

echo 'p:record per_cpu_ptr_to_phys at=%r4:x64' > $tracing/kprobe_events || exit 1
echo 1 > $tracing/events/kprobes/record/enable
for cpu in 1 2 3; do
    echo 0 > $cpus/cpu$cpu/online
    echo 1 > $cpus/cpu$cpu/online
done
echo 0 > $tracing/events/kprobes/record/enable
set -- $(sed -n 's/.* record: .*at=//p' $tracing/trace)
fact records "$@"
echo > $tracing/trace
# The byte is the 17th of a record.
echo "p:look do_sys_openat2 p1=@$(printf '0x%x' $(($1 + 16))):u8 p2=@$(printf '0x%x' $(($2 + 16))):u8 p3=@$(printf '0x%x' $(($3 + 16))):u8" >> $tracing/kprobe_events || exit 1
on_every_cpu spin
sleep 0.1
look_from 0
seen look busy
look_from 1
seen look one
kill $started
wait
sleep 0.5
look_from 0
seen look idle
kernel_log preempted
