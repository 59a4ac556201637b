#!/usr/bin/env bash
# Trains the corrected tables that need no GPU, in order of value, for a number of seconds. Call it again to continue.
#
#   reproduction/cpu-tables.sh OUT SECONDS [further options of `python -m reproduction`]
#
# Tables 7 and 6 come first: synthetic data, all methods, ten repetitions. Then what one bad member costs the others, a task, a
# behaviour and a rule at a time, in OUT/free-riders, with the data of FEDEGOISTS_DATA. Hospitals (Table 4) take ten times as long,
# and need a GPU.
# OUT begins with the committed cells and benefit graphs, so nothing of them is trained again.
# Run it in the root of a checkout. PYTHON names the interpreter (python3). WORKERS processes of one thread each (as many as there
# are cores) share OUT: each trains groups of cells that no other process has claimed; one that is killed loses no finished cell.
# With ARCHIVE=FILE.tar.gz, all that is new is copied there every minute and at the end.
set -euo pipefail
out=$1 deadline=$((SECONDS + $2)) workers=${WORKERS:-$(nproc)}
shift 2
options=("$@")
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE
committed=reproduction/results
jobs_=()
trap 'kill "${jobs_[@]}" 2>/dev/null; exit 130' INT TERM

reproduce() { # TABLES AND OPTIONS
  "${PYTHON:-python3}" -m reproduction tables "$@" --out "$out" --resume "${options[@]}"
}

tables() {
  # Writing tables and the last archive take some seconds.
  local left=$((deadline - SECONDS - 20))
  ((left >= 10)) || return 0
  reproduce table7-corrected table6-corrected --time-limit "$left"
}

riders() {
  local left place task behaviour rule failed=0
  for task in heart synthetic-weak eicu-demo; do
    for behaviour in honest "one per cent" "random labels" scaled flipped; do
      for rule in everybody learned; do
        place=$out/free-riders/$task-${behaviour// /-}-$rule left=$((deadline - SECONDS - 5))
        [[ ! -e $place/free-riders.csv ]] || continue
        # It writes nothing before its end, so it is not begun in the last minutes.
        ((left >= ${RIDER_SECONDS:-180})) || return $failed
        mkdir -p "$place"
        (
          flock -n 9 || exit 0
          [[ ! -e $place/free-riders.csv ]] || exit 0
          timeout "$left" "${PYTHON:-python3}" -m reproduction free-riders "$task" --behaviour "$behaviour" --rule "$rule" --out "$place"
        ) 9>"$place/lock" || failed=1
      done
    done
  done
  return $failed
}

worker() {
  local failed=0
  tables || failed=1
  riders || failed=1
  return $failed
}

archive() {
  [[ -n ${ARCHIVE:-} ]] || return 0
  # What is packed already was committed before.
  (cd "$out" && find cells graphs free-riders logs -name '*.json' -o -name '*.csv' -o -name '*.log' | sort | tar czf - -T -) >"$ARCHIVE.part"
  mv "$ARCHIVE.part" "$ARCHIVE"
}

if [[ ! -e $out/cells ]]; then
  mkdir -p "$out/cells" "$out/graphs"
  for table in table6-corrected table7-corrected groups; do
    [[ ! -e $committed/cells/$table.jsonl.gz ]] || cp "$committed/cells/$table.jsonl.gz" "$out/cells/"
  done
  cp "$committed/graphs/graphs.jsonl.gz" "$out/graphs/"
fi
mkdir -p "$out/logs" "$out/free-riders"
for ((number = 1; number <= workers; number++)); do
  worker >>"$out/logs/$number.log" 2>&1 &
  jobs_+=($!)
done
failed=0 next=$((SECONDS + 60))
while running=$(jobs -rp) && [[ -n $running ]]; do
  sleep 1
  if ((SECONDS >= next)); then
    archive
    next=$((SECONDS + 60))
  fi
done
for job in "${jobs_[@]}"; do wait "$job" || failed=1; done
archive
tail -qn 3 "$out"/logs/*.log | sort | uniq -c
exit $failed
