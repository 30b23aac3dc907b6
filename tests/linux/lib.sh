# What the jobs of this folder share. Jobs only measure and print; the host tool, which
# reads the console, judges.

# A fact: a name and its values.
fact() {
    echo "fact $*"
}

# The interrupt counts, between two lines, the first with a name, the time since boot in
# seconds, and for each CPU the time that the hypervisor gave to others, in hundredths of
# a second. All are read before anything is printed, since printing takes interrupts.
snapshot() {
    local counts stolen
    read -r uptime _ < /proc/uptime
    counts=$(cat /proc/interrupts)
    stolen=$(awk '/^cpu[0-9]/ { print $9 }' /proc/stat)
    echo "snapshot $1 $uptime" $stolen
    echo "$counts"
    echo "snapshot-end"
}

# The whole log of this kernel, between two lines.
kernel_log() {
    echo "log $1"
    dmesg
    echo "log-end"
}

# Starts the command $* for every CPU; it finds the CPU's number in $cpu. The processes
# are then in $started.
on_every_cpu() {
    started= cpu=0
    while [ $cpu -lt "$(nproc)" ]; do
        "$@" &
        started="$started $!" cpu=$((cpu + 1))
    done
}

# Keeps the CPU $cpu busy.
spin() {
    exec taskset -c $cpu sh -c 'while :; do :; done'
}

# Runs for a moment on the CPU $cpu.
touch_cpu() {
    exec taskset -c $cpu sh -c 'n=0; while [ $n -lt 10000 ]; do n=$((n + 1)); done'
}

# Sends bytes from the CPU $cpu to the next one while there is a file /tmp/waking, through
# a pipe that is mostly empty: each byte wakes somebody.
wake_the_next() {
    taskset -c $cpu sh -c 'while [ -e /tmp/waking ]; do echo; usleep 1000; done' |
        taskset -c $(((cpu + 1) % $(nproc))) cat > /dev/null
}

# Reads the clock and the timer interrupts of the CPU $cpu on that CPU, again and again
# for $1 seconds. The fact is: the CPU, the interrupts, the readings, and the longest row
# of readings that all saw the same number of interrupts.
watch_ticks() {
    taskset -c $cpu awk -v cpu=$cpu -v span="$1" '
        function now() {
            getline line < "/proc/uptime"
            close("/proc/uptime")
            return line + 0
        }
        function ticks() {
            while ((getline line < "/proc/interrupts") > 0)
                if (line ~ / timer$/) { split(line, word, " "); count = word[cpu + 2] + 0 }
            close("/proc/interrupts")
            return count
        }
        BEGIN {
            end = now() + span
            first = last = ticks()
            while (now() < end) {
                readings++
                count = ticks()
                same = count == last ? same + 1 : 0
                if (same > most) most = same
                last = count
            }
            print "fact ticks", cpu, last - first, readings, most + 0
        }'
}

# Data with known content: the numbers up to $LAST_NUMBER, written, copied to and fro
# $ROUNDS times, and each time compared; its hash is printed at the end.
work_on_data() {
    local from=/tmp/data.$cpu.a to=/tmp/data.$cpu.b round=0 swap
    seq 1 "$LAST_NUMBER" > $from
    while [ $round -lt "$ROUNDS" ]; do
        cp $from $to
        cmp $from $to || fact data-differs $cpu $round
        swap=$from; from=$to; to=$swap
        round=$((round + 1))
    done
    set -- $(sha256sum $from)
    fact data $cpu "$1"
}

# Runs until there is a file /tmp/enough, and prints the longest time in between that it
# didn't run, in hundredths of a second.
watch_gaps() {
    awk 'function now() {
             getline line < "/proc/uptime"
             close("/proc/uptime")
             split(line, word, " ")
             return word[1] * 100
         }
         BEGIN {
             last = now()
             while ((getline line < "/tmp/enough") < 0) {
                 time = now()
                 if (time - last > most) most = time - last
                 last = time
             }
             printf "%d\n", most + 0.5
         }'
}
