"""Mutation testing: does a unit test fail for each small change of the code? `make mutants`, docs/mutants.md."""
