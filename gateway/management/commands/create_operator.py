"""`manage.py create_operator USERNAME --role admin`: a login whose password is shown once."""

import secrets
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gateway.auth_roles import ROLES, Role, ensure_groups

PASSWORD_BYTES = 15  # 120 random bits, 20 characters


def make_operator(username: str, role: Role) -> str:
    """Make the login and return its generated password, which is kept nowhere.

    ValueError where the name is empty, too long or taken.
    """
    longest = User._meta.get_field("username").max_length or 150
    if not 0 < len(username) <= longest:
        raise ValueError(f"a username has 1 to {longest} characters")
    if User.objects.filter(username=username).exists():
        raise ValueError(f"there is already an operator named {username!r}")
    ensure_groups()
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    user = User.objects.create_user(username=username, password=password)
    user.groups.set([Group.objects.get(name=role)])
    return password


class Command(BaseCommand):
    help = "Make an operator login with a generated password, and print the password once."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")
        parser.add_argument("--role", choices=ROLES, default="viewer")

    def handle(self, *args: Any, **options: Any) -> None:
        username, role = options["username"], options["role"]
        try:
            password = make_operator(username, role)
        except ValueError as problem:
            raise CommandError(f"No operator was made: {problem}.") from problem
        self.stdout.write(f"{username} ({role}) can log in with this password, shown once:")
        self.stdout.write(password)
