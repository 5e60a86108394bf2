"""Traces for ui.perfetto.dev and chrome://tracing, from the frames that the figures are made of."""
