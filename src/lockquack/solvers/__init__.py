"""Solvers that certify their answers, one file per problem: plain arrays in, a Solution out."""
