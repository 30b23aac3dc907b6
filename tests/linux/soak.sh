# Work of every kind at once, for SOAK seconds: each of stress-ng's KINDS, messages between
# processes, data that is copied and compared. LAST_NUMBER and ROUNDS of the data are those
# of work_on_data.

. /job.d/lib.sh

messages() {
    local runs=0
    while [ ! -e /tmp/done ]; do
        hackbench --groups 1 --fds 4 --loops 50 > /tmp/hackbench 2>&1 || return 1
        runs=$((runs + 1))
    done
    echo $runs > /tmp/messages
}

data() {
    while [ ! -e /tmp/done ]; do
        work_on_data | grep -v "^fact data $cpu $1\$"
        echo >> /tmp/copies
    done
}

fact cpus "$(nproc)"
set -- $(seq 1 "$LAST_NUMBER" | sha256sum)
fact hash "$1"
on_every_cpu data "$1" > /tmp/wrong
workers=$started
messages &
messages=$!
# Its worker vm writes patterns into a sixth of the memory, in every way it knows, and
# reads them back.
for kind in $KINDS; do set -- "$@" --$kind 1; done
shift 2
stress-ng "$@" --vm-bytes 128M --vm-method all --verify \
    --timeout "${SOAK}s" --metrics-brief > /tmp/stress-ng 2>&1
fact stress $?
touch /tmp/done
wait $messages
fact hackbench $?
wait $workers
fact wrong "$(wc -l < /tmp/wrong)"
fact messages "$(cat /tmp/messages)"
fact copies "$(wc -l < /tmp/copies)"
cat /tmp/stress-ng /tmp/wrong
kernel_log soak
