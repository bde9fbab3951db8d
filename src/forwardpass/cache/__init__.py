"""Answers that are kept: what a row's key is made of, where they are kept, and who waits for whom (FAULTS R16)."""
