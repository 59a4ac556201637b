"""A library of instances with best known welfare and upper bound, for comparisons.

    python -m benchmarks.instances            solve all again, and update index.csv
    python -m benchmarks.instances NAME       print an instance as clique partitioning, as in CP-Lib
    python -m benchmarks.instances --files    write them all to clique_partitioning/

An instance is drawn from a seed (`benchmarks.measure.random_consortium`), so `index.csv` holds all:
the name, its parameters, the SHA-256 of both graphs, the best known welfare, and an upper bound
that a certificate proves. A line of the printed form has the weights of a participant with all
later ones, as integers in millionths; competing pairs weigh less than minus the sum of all others.
Its best clique partition is an upper bound: it need not satisfy Principle 1.
"""
