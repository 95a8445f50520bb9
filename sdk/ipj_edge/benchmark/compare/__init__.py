"""Results against each other: regressions, Pareto fronts, quality targets."""
