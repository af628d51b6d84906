"""`make bench`: Weighbridge and other gateways, side by side, in one run on this machine."""
