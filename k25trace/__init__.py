"""Attribution and accounting of Nsight Systems traces of LLM workloads."""

__version__ = "0.1.0.dev0"
