"""The ledger's commands as an operator runs them, in this process."""

import io

from django.core.management import call_command


def run(command, *arguments):
    """(exit status, standard output, standard error) of a command."""
    out, err = io.StringIO(), io.StringIO()
    status: object = 0
    try:
        call_command(command, *arguments, stdout=out, stderr=err)
    except SystemExit as leaving:
        status = leaving.code
    return status, out.getvalue(), err.getvalue()
