"""Synthetic Nsight Systems exports with exact ground truth; run by make_trace.py beside this folder."""
