#!/usr/bin/env bash
# Agreement with the measured truth on both CIFAR-10 splits; needs a GPU and FEDEGOISTS_DATA.
# Usage, in the root of a checkout: reproduction/results/estimators/cifar10.sh FOLDER
set -euo pipefail
for split in pathological dirichlet; do
  time "${PYTHON:-python3}" -m reproduction benefit-study --data cifar10 --set "partition=$split" --device cuda \
    --estimator transfer,hypernetwork,pairs,alignment --seeds 3 --repeats 3 --learn steps=400 --learn layers=2 \
    --measure-repeats 2 --no-leave-one-out --out "$1/cifar10-$split"
done
# The hypernetwork at the paper's step counts, ten seeds at once.
time "${PYTHON:-python3}" -m fedegoists benefit --data cifar10 --set partition=pathological --device cuda \
  --estimator hypernetwork --seeds 10 --repeats 1 --threshold 0.1 --learn steps=100 --learn preference_steps=100 --learn layers=2 \
  --out "$1/ten-seeds"
