#!/usr/bin/env bash
# Everything that needs a GPU, in order of value, for as many seconds as one has; call it again to go on.
#
#   reproduction/one-gpu.sh OUT SECONDS [further options of `fedegoists reproduce`, such as --bf16]
#
# The data is found through FEDEGOISTS_DATA, the program through FEDEGOISTS, such as "python -m fedegoists". The seconds
# behind each step are expected, not measured: for an H200 in 32 bits, from 0.55 million samples a second with 50 or more
# silos stacked, and a third more for evaluation. With --bf16 about two thirds of them.
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
best=local,local-twice,egomix
tuned=fedavg,fedavg+ft,pfedgraph,pfedgraph+ft
# Does the best variant do what it should? Table 1, both divisions.
step table1 --methods $best --only distribution=dirichlet    # 480: 31 + 65 + 325, and 60 to learn the graphs
step table1 --methods $best --only distribution=pathological # 480
step mixing                                                  # 370: 3 further weightings, 62 each, both divisions
step table1 --methods $tuned                                 # 680: 2 methods, 170 each, both divisions
step table1 --methods fedegoists,fedegoists+ft --only alpha=0.2 # 310: 155, both divisions
# The paper's own table, complete; then the others.
step table1 table3                                           # 3300: 6 methods, 170 each, both divisions; FedEgoists at 4 further α
step table4                                                  # 120
step table1 --budget published                               # 2900: 0.2 of it pathological, as many samples as above for Dirichlet
step coalitions                                              # 500
step contributors                                            # 310
step hypernetwork                                            # 450
step principles                                              # 700: without competition all ten are together
step benefit                                                 # 1000: 160 to measure, 8 rows of 62 or 155
step table2 --methods $best                                  # 860
step table2 --methods $tuned                                 # 680
step table5                                                  # 2000: four further β, a fifth of a division each
step table2 table3                                           # 3600
step table4 --budget published
step table5 --budget published
step table2 --budget published
