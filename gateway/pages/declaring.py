"""What the forms that declare something share."""

from django import forms

from gateway.operations.base import Refused


def tell(form: forms.Form, refused: Refused) -> None:
    """Why the operation was refused, above the form, with its code and every problem."""
    form.add_error(None, f"{refused.message} ({refused.code})")
    for problem in refused.problems:
        if problem not in refused.message:
            form.add_error(None, problem)
