#!/bin/sh
# Measures the steps that bench/predictions_table.py holds predictions against (evidence/predictions,
# "Predicted and measured"), as JSON files: over modelled links, and as root over MPI in lab/netlab.
#
#     sudo bench/predicted_steps.sh TERSEWIRE MODELLED-DIRECTORY NETLAB-DIRECTORY
#
# A quarter of an hour, with the machine to itself. What is there already is not measured again.
set -eu
tersewire=$1 modelled=$2 netlab=$3
lab=$(dirname "$0")/../lab/netlab
mkdir -p "$modelled" "$netlab"

into() {  # FILE COMMAND...
  file=$1
  shift
  [ -e "$file" ] || { "$@" >"$file.part" && mv "$file.part" "$file"; }
}

# EXCHANGE's steps with 8 workers, 300 ms of computation and 100 Mbit/s.
exchange() {  # NAME EXCHANGE CODECS OPTION...
  name=$1 exchange=$2 codecs=$3
  shift 3
  # shellcheck disable=SC2046,SC2086 # an option for each word of CODECS
  into "$modelled/ex-$name.json" "$tersewire" bench exchange --model resnet110 --workers 8 --exchange "$exchange" \
    $(printf -- '--codec %s ' $codecs) --rate 100mbit --compute-ms 300 --steps 4 --json --quiet "$@"
}
exchange allgather all-gather "int8 3lc 3lc:s=1.75 adacomp"
exchange colocated parameter-server "int8 3lc 3lc:s=1.75" --servers colocated
exchange gs gradient-server "int8 3lc 3lc:s=1.75" --servers 2
exchange hring hierarchical-ring "int8 inceptionn"
exchange hringtree hierarchical-ring:top=tree "int8 inceptionn"
exchange ring ring "int8 inceptionn"
exchange tree aggregator-tree "int8 3lc 3lc:s=1.75"
exchange wa weight-average "int8 fp16"

# 3LC's Table 1 with 10 workers.
table1() {  # RATE STEPS BASELINE CODECS
  # shellcheck disable=SC2046,SC2086
  into "$modelled/table1-$1.json" "$tersewire" bench exchange --model resnet110 --workers 10 --baseline "$3" \
    $(printf -- '--codec %s ' $4) --rate "$1" --compute-ms 760 --steps "$2" --json --quiet
}
table1 100mbit 4 fp32 "int8 3lc 3lc:s=1.75 topk stoch3 mqe1bit"
table1 1gbit 8 fp32 "int8 3lc 3lc:s=1.75"
table1 10mbit 2 none "int8 3lc 3lc:s=1.75"

over_mpi() {  # NAME NODES OPTION...
  name=$1 nodes=$2
  shift 2
  into "$netlab/$name.json" "$lab" run --nodes "$nodes" --rate 100mbit -- \
    "$tersewire" bench exchange --transport mpi --warm-up 1 --json --quiet "$@"
}
over_mpi colocated 10 --model resnet110 --workers 10 --servers colocated --codec int8 --compute-ms 760 --steps 5
for workers in 2 4 8; do
  over_mpi servers-$workers-workers $((workers + 1)) --model resnet110 --workers $workers --codec int8 --steps 3
done
for workers in 2 4 6 8; do
  over_mpi ring-$workers $workers --model alexnet --scale 0.1 --workers $workers --exchange ring \
    --codec inceptionn:bound=2^-10 --steps 5
done
over_mpi hierarchical-ring-8 8 --model alexnet --scale 0.1 --workers 8 --exchange hierarchical-ring:group=4 \
  --codec inceptionn:bound=2^-10 --steps 5
