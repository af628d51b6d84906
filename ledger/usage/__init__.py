"""What a provider reports of a call's usage, read into one typed usage (CST-6). Pure.

`conventions` says how each family of providers counts; `reading` reads a payload by one of them;
`streams` puts the reports of a stream together first.
"""

from ledger.usage.conventions import CONVENTIONS, Convention, convention_of
from ledger.usage.counts import count_of
from ledger.usage.reading import Normalised, normalise
from ledger.usage.streams import StreamUsage

__all__ = [
    "CONVENTIONS",
    "Convention",
    "Normalised",
    "StreamUsage",
    "convention_of",
    "count_of",
    "normalise",
]
