"""The demonstration: a fleet, an hour of traffic, and its replay in virtual time."""
