"""Instrumented programs to capture; they need the ``workloads`` extra (torch, nvtx)."""
