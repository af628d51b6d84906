"""Cells that are safe to open in a spreadsheet (CST-9). Pure."""

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a formula begins with; some spreadsheets take the full-width signs for the same."""


def safe_cell(text: str) -> str:
    """The text, with an apostrophe in front where a spreadsheet would take it for a formula.

    Spaces before the sign don't change what it is taken for.
    """
    return "'" + text if text.startswith(_FORMULA) or text.lstrip().startswith(_FORMULA) else text
