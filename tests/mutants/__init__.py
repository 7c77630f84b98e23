"""Mutation testing: a unit test must fail for each small change of the code. `make mutants`, docs/mutants.md."""
