"""Written by `python -m gen render` and `build`; never by hand."""
