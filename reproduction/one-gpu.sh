#!/usr/bin/env bash
# Everything that needs a GPU, in order of value, for as many seconds as one has; call it again to go on.
#
#   reproduction/one-gpu.sh OUT SECONDS [further options of `fedegoists reproduce`, such as --bf16]
#
# The data is found through FEDEGOISTS_DATA, the program through FEDEGOISTS, such as "python -m fedegoists". Seconds behind a
# step were measured on an H200 with --bf16 --stack 1250; others are not known yet.
set -euo pipefail
out=$1 seconds=$2
shift 2
began=$SECONDS
step() {
  local left=$((seconds - (SECONDS - began)))
  if ((left < 30)); then
    echo "out of time before: $*"
    exit 0
  fi
  echo "== $* ($left s left)"
  ${FEDEGOISTS:-fedegoists} reproduce "$@" --device cuda --out "$out" --resume --time-limit "$left" "${options[@]}"
}
options=("$@")
step table1                             # 630, of them 79 to learn the graphs and 160 for FedEgoists
step mixing                             # 150
step coalitions                         # 90
step contributors                       # 60
step hypernetwork
step principles
step benefit
step table4
step table2 table3
step table5
step table1 --budget published
step table2 --budget published
step table4 --budget published
step table5 --budget published
