"""The gateway: everything that touches the world, and decides nothing (`policies` decides).

Read `app.py` first: it composes the rest. `pipeline.py` is the line that every request follows.
"""
