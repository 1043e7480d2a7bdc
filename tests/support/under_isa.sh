#!/bin/sh
# under_isa.sh REDLINE ISA PROGRAM [ARGUMENT...]: runs PROGRAM with the kernels of one instruction set; exit 77 and the reason
# where this machine lacks it.
redline=$1 REDLINE_CPU_ISA=$2
export REDLINE_CPU_ISA
shift 2
reason=$("$redline" devices --kernels 2>&1 >/dev/null) || { printf 'Skipped\n%s\n' "$reason"; exit 77; }
exec "$@"
