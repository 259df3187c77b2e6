#!/usr/bin/env bash
# Runs a command as one of several workers: sets TF_CONFIG from the worker's number and the list of all hosts.
#
#   scripts/worker.sh INDEX HOST[:PORT],HOST[:PORT],... COMMAND...
#
# The port is 2222 where none is given. With FINISHED=FILE in the environment, a command that ends with exit code 0
# while the file is not there, as after SIGTERM, gives exit code 75: a scheduler takes 0 for "finished" and would not
# start it again. Where the file is there before, nothing is started: the other workers may have ended and not come again.
set -eu

if (($# < 3)); then
    echo "usage: scripts/worker.sh INDEX HOST[:PORT],HOST[:PORT],... COMMAND..." >&2
    exit 2
fi
index=$1 hosts=$2
shift 2

addresses=
for host in ${hosts//,/ }; do
    [[ $host == *:* ]] || host+=:2222
    addresses+="${addresses:+, }\"$host\""
done
export TF_CONFIG="{\"cluster\": {\"worker\": [$addresses]}, \"task\": {\"type\": \"worker\", \"index\": $index}}"

[[ ${FINISHED:-} ]] || exec "$@"
if [[ -e $FINISHED ]]; then
    echo "note: $FINISHED is there, nothing is left to do"
    exit 0
fi

child= passed_on=
pass_on() {
    passed_on=$1
    [[ ! $child ]] || kill -s "$passed_on" "$child"
}
trap 'pass_on TERM' TERM
trap 'pass_on INT' INT
"$@" &
child=$!
[[ ! $passed_on ]] || pass_on "$passed_on" # it came before the child was known
wait $child || true
while kill -0 $child 2>/dev/null; do # a signal ends `wait` before its time
    wait $child || true
done
code=0
wait $child || code=$?
[[ $code != 0 || -e $FINISHED ]] || code=75
exit $code
