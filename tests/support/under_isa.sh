#!/bin/sh
# under_isa.sh REDLINE ISA[,ISA...] PROGRAM [ARGUMENT...]: runs PROGRAM with the kernels of one instruction set, the first that
# this machine has; exit 77 and the reason where it has none.
redline=$1 sets=$2
shift 2
for set in $(echo "$sets" | tr , ' '); do
  REDLINE_CPU_ISA=$set
  export REDLINE_CPU_ISA
  reason=$("$redline" devices --kernels 2>&1 >/dev/null) && exec "$@"
done
printf 'Skipped\n%s\n' "$reason"
exit 77
