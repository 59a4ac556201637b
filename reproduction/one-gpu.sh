#!/usr/bin/env bash
# Everything that needs a GPU, in order of value, for as many seconds as one has; call it again to go on.
#
#   reproduction/one-gpu.sh OUT SECONDS [further options of `fedegoists reproduce`, such as --bf16]
#
# The data is found through FEDEGOISTS_DATA, the program through FEDEGOISTS, such as "python -m fedegoists".
# WORKERS processes (6) share the GPU and the folder: each takes what no other one is at. Small kernels of several processes
# run side by side if NVIDIA's MPS does: nvidia-cuda-mps-control -d. Two of the workers train FedEgoists, whose networks are large.
set -euo pipefail
out=$1 deadline=$((SECONDS + $2)) workers=${WORKERS:-6}
shift 2
options=("$@")
heavy=fedegoists,fedegoists+ft
others=local,local-kept,local-twice,egomix,egomix-twice
for name in fedavg fedprox scaffold pfedme pfedhn feddisco pfedgraph fedora; do others+=,$name,$name+ft; done

step() {
  local left=$((deadline - SECONDS))
  if ((left < 30)); then
    echo "out of time before: $*"
    return
  fi
  echo "== $* ($left s left)"
  ${FEDEGOISTS:-fedegoists} reproduce "$@" --device cuda --out "$out" --resume --time-limit "$left" "${options[@]}"
}

worker() { # METHODS STACK
  for table in table2 table1 table5; do step $table --methods "$1" --stack "$2"; done
  step table4
  step principles hypernetwork contributors coalitions mixing benefit --stack 500
  for table in table1 table2 table4 table5; do step $table --budget published --methods "$1" --stack "$2"; done
}

for ((number = 1; number <= workers; number++)); do
  if ((number <= 2)); then worker $heavy 500 & else worker $others 1250 & fi
done
wait
step table1 table2 table3 table4 table5 principles hypernetwork contributors coalitions mixing benefit figures --budget both
