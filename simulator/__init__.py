"""Discrete-event simulator of continuous-batching inference replicas (SIM-1).

Needs numpy and the standard library only; knows neither the web framework nor the
gateway nor the ledger. Reads no clock and draws no random number that was not seeded
by its caller.
"""

from simulator import compiled

compiled.prefer(__path__)
