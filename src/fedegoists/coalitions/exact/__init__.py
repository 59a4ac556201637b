"""The partition of highest welfare that satisfies both principles, with an upper bound.

The paper stops at merge-stability (Equation 2). The best partition is always merge-stable, since
a merge with gain would raise its welfare, and often much better. How the parts work together::

    best_partition              splits the problem, scales the numbers, distributes the work
     ├ reduction                participants that are alone in any case; independent components
     ├ incumbent                the best partition so far and the lowest upper bound
     ├ enumeration              up to 14 participants: dynamic programming over all subsets
     ├ sparse_search            over 1,000: annealing on lists of neighbours, without tables
     └ column_generation        others: the linear program over all valid coalitions
        ├ annealing, moves        a good partition first, by local search
        ├ restricted_master       the linear program over the coalitions known so far; its prices
        ├ pricing                 coalitions worth more than their prices, by branch and bound
        │                         (`pair_splits` bounds its branches)
        ├ set_partitioning        the best choice out of a list of coalitions, by CP-SAT
        ├ pair_relaxation         a bound from pairs alone: a semidefinite program with cuts
        │                         (`pair_rows`, found by `pair_separation`)
        └ branching               pairs together or apart, where a gap is left
    value_enumeration           with coalition values, up to 20 participants (`subset_kernel`)
    value_search                more: annealing (`curve_annealing`), moves, bounds by tangents
    fairest_partition           for the objective ``fair``; enumeration, pricing and CP-SAT

`moves` and `pricing` are compiled (`compiled`) and share their state as arrays (`search_arrays`).
Work is counted, not timed (`fedegoists.coalitions.effort`), so that a seed gives one result.
"""
