"""The default classification rules, as data (``kernels.toml``)."""
