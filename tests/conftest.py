"""Shared by all tests: this folder is importable (``fixtures_onnx``, ``serving``)."""
