"""Public price tables read into rates: exactly, or listed as left out (CST-7). Pure.

`genai` and `litellm` each read one published format; `imported` is what both return, and makes a
rate table of it; `disagreements` compares what several say of one model.
"""

from ledger.prices.disagreements import Disagreement, disagreements
from ledger.prices.genai import read_genai
from ledger.prices.imported import FORMATS, Imported, LeftOut, rate_table
from ledger.prices.litellm import read_litellm

READERS = {"genai": read_genai, "litellm": read_litellm}

__all__ = [
    "FORMATS",
    "READERS",
    "Disagreement",
    "Imported",
    "LeftOut",
    "disagreements",
    "rate_table",
    "read_genai",
    "read_litellm",
]
