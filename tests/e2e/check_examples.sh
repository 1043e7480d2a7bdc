#!/usr/bin/env bash
# check_examples.sh REDLINE DOCUMENT...: runs the example command lines of documents, for at most a second each, in an
# empty folder. That their models are missing there (3), or their server (6), is as good as success; a wrong command
# line (2) is not. Examples may need a GPU, oneDNN's int8 products or an instruction set that this machine lacks (2, 4).
# Nothing is fetched.
set -u
redline=$1
shift
documents=$(realpath "$@")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/bin" && ln -s "$redline" "$folder/bin/redline"
export PATH=$folder/bin:$PATH HOME=$folder HF_HUB_OFFLINE=1
unset HF_HOME HF_HUB_CACHE
cd "$folder" || exit 1
# Lines that end in a backslash go on.
sed -e :a -e '/\\$/{N;s/\\\n *//;ta' -e '}' $documents | sed -n 's/^ \{2,\}\(redline .*\)/\1/p' | grep -v ' \.\.\. ' | sort -u > lines
failed=0
while IFS= read -r line; do
    [[ $line =~ \<\ *([^ ]+) ]] && : > "${BASH_REMATCH[1]}"
    [[ $line =~ \>\ *~/([^ ]+)/ ]] && mkdir -p "${BASH_REMATCH[1]}"
    timeout -s KILL 1 bash -c "$line" > /dev/null 2> messages < /dev/null
    code=$?
    case $code in
        0 | 3 | 137) ;;
        6) grep -q "Connection refused\|HF_HUB_OFFLINE is set\|start a server with redline serve" messages || { failed=1 && echo "$line: exit code 6: $(head -1 messages)"; } ;;
        2) grep -q "flag --isa: this \(machine lacks\|build has no kernels for\) the instruction set" messages || { failed=1 && echo "$line: exit code 2: $(head -1 messages)"; } ;;
        4) grep -q "oneDNN is not here\|int8 sums saturate on a CPU without VNNI\|no NVIDIA driver\|the device is the CPU" messages || { failed=1 && echo "$line: exit code 4: $(head -1 messages)"; } ;;
        *) failed=1 && echo "$line: exit code $code: $(head -1 messages)" ;;
    esac
done < lines
[[ $(wc -l < lines) -gt 20 ]] || { echo "few examples were found" && failed=1; }
exit $failed
