"""FOCUS 1.2: our charges in the FinOps common billing format, and a checker of such files (REC-1).

The format is the FinOps Foundation's (FOCUS specification 1.2, CC-BY-4.0).
"""
