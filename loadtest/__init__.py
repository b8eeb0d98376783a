"""Load, simulated and real. Runs from a checkout; no part of the installed package."""
