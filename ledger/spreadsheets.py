"""Cells that are safe to open in a spreadsheet (CST-9). Pure."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


def safe_cell(text: str) -> str:
    """The text, with an apostrophe in front where a spreadsheet would take it for a formula."""
    return "'" + text if text.startswith(_FORMULA) else text
