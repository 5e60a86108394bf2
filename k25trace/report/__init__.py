"""One module an output: build(), then render()."""
