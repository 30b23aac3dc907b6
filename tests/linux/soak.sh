# Work of every kind at once, for SOAK seconds; LAST_NUMBER and ROUNDS of the data are
# those of work_on_data.

. /job.d/lib.sh

messages() {
    while [ ! -e /tmp/done ]; do
        hackbench --groups 1 --fds 4 --loops 50 > /tmp/hackbench 2>&1 || return 1
    done
}

data() {
    while [ ! -e /tmp/done ]; do
        work_on_data | grep -v "^fact data $cpu $1\$"
    done
}

fact cpus "$(nproc)"
set -- $(seq 1 "$LAST_NUMBER" | sha256sum)
fact hash "$1"
on_every_cpu data "$1" > /tmp/wrong
workers=$started
messages &
messages=$!
stress-ng --cpu 1 --vm 1 --vm-bytes 16M --fork 1 --futex 1 --timer 1 --switch 1 --verify \
    --timeout "${SOAK}s" --metrics-brief > /tmp/stress-ng 2>&1
fact stress $?
touch /tmp/done
wait $messages
fact hackbench $?
wait $workers
fact wrong "$(wc -l < /tmp/wrong)"
cat /tmp/stress-ng /tmp/wrong
kernel_log soak
