"""Figures: pure functions from frames to ``plotly.graph_objects.Figure``, for pages and for notebooks."""
