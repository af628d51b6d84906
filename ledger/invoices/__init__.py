"""Providers' usage and cost reports, read into typed lines (REC-1). Pure but for `read`'s bytes.

`formats.read` takes the bytes of a report's files and gives its lines, or one refusal that says
what was wrong and where. `importing` turns them into the records that are appended.
"""
