#!/usr/bin/env bash
# Trains everything that needs a GPU, in order of value, for a number of seconds. Call it again to continue.
#
#   reproduction/one-gpu.sh OUT SECONDS [further options of `python -m reproduction`, such as --bf16]
#
# Corrected tables come first: 1, 2 and 5 with all methods and ten repetitions, then PFLlib's settings. TABLES names others, or fewer.
# STEPS, with semicolons between them, are tables and options that each worker goes through instead, again and
# again; it waits for nobody: STEPS="table2-corrected --only alpha=0.2 --methods fedprox-wide,fedprox-wide+ft; pfllib".
# BEFORE=1 trains the tables from before the corrections instead, with the methods as they are now: their
# committed cells are of older code, and `--resume` keeps these.
# Run it in the root of a checkout. FEDEGOISTS_DATA names the folder with data, PYTHON the interpreter (python3).
# WORKERS processes (6) share the GPU and the folder: each trains groups of cells that no other process has claimed.
# Small kernels of several processes run side by side with NVIDIA's MPS: nvidia-cuda-mps-control -d.
# A third of the workers train FedEgoists, whose networks are large.
set -euo pipefail
out=$1 deadline=$((SECONDS + $2)) workers=${WORKERS:-6}
shift 2
options=("$@")
failed=0
beyond=(company plain principles hypernetwork contributors coalitions benefit longer) # rows of mixing have settings that EgoMix has no longer
heavy=fedegoists,fedegoists+ft
others=local,local-kept,egomix,egomix-wide
for name in fedavg fedprox scaffold pfedme pfedhn feddisco pfedgraph fedora; do others+=,$name,$name+ft; done
trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT TERM

reproduce() { # TABLES AND OPTIONS
  "${PYTHON:-python3}" -m reproduction tables "$@" --device "${DEVICE:-cuda}" --out "$out" --resume "${options[@]}"
}

step() {
  local left=$((deadline - SECONDS))
  if ((left < 30)); then
    echo "out of time before: $*"
    return 0
  fi
  echo "== $* ($left s left)"
  if ! reproduce "$@" --time-limit "$left"; then
    echo "failed: $*" >&2
    failed=1
  fi
}

corrected=(${TABLES:-table2-corrected table1-corrected table5-corrected table4-corrected pfllib pfllib-augmented})

corrected_worker() { # STACK
  if [[ -z ${STEPS:-} ]]; then
    step "${corrected[@]}" --stack "$1"
    return $failed
  fi
  local said each one left=yes
  said=$(mktemp)
  while [[ -n $left ]] && ((deadline - SECONDS >= 30)); do
    left=
    IFS=';' read -ra each <<<"$STEPS"
    for one in "${each[@]}"; do
      # Not quoted, so that it is split into words.
      step $one --no-wait --stack "$1" 2>&1 | tee "$said"
      if grep -qE 'are left|^out of time' "$said"; then left=yes; fi
      if grep -q '^failed' "$said"; then failed=1 left=; fi
    done
    sleep 1
  done
  rm "$said"
  return $failed
}

worker() { # STACK [--methods METHODS]
  local stack=$1
  shift
  if [[ -z ${BEFORE:-} ]]; then
    corrected_worker "$stack"
    return
  fi
  for table in table2 table1 table5; do step $table --stack "$stack" "$@"; done
  step table4
  step "${beyond[@]}" --stack 500
  for table in table1 table2 table4 table5; do step $table --budget published --stack "$stack" "$@"; done
  return $failed
}

if ((workers < 2)); then
  worker 1250 || failed=1
else
  for ((number = 1; number <= workers; number++)); do
    if ((number <= (workers + 2) / 3)); then worker 500 --methods $heavy & else worker 1250 --methods $others & fi
  done
  for job in $(jobs -p); do wait "$job" || failed=1; done
fi
# Write all tables with the cells of all workers.
if [[ -n ${STEPS:-} ]]; then
  IFS=';' read -ra each <<<"$STEPS"
  for one in "${each[@]}"; do reproduce $one --time-limit 0; done
  exit $failed
fi
if [[ -z ${BEFORE:-} ]]; then
  reproduce "${corrected[@]}" --time-limit 0
  exit $failed
fi
reproduce table1 table2 table3 table4 table5 "${beyond[@]}" figures --budget both --time-limit 0
exit $failed
