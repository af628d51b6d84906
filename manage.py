#!/usr/bin/env python3
"""Weighbridge's command line: `python manage.py help` lists the commands."""

import os
import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command that the arguments name; Ctrl-C ends it with one line, status 130."""
    try:
        # Imported here: Ctrl-C while Django loads is Ctrl-C, too.
        from django.core.management import execute_from_command_line

        from gateway.management.edge import told_in_words
        from gateway.management.listing import quiet_without_a_reader

        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
        with told_in_words(), quiet_without_a_reader():
            execute_from_command_line(sys.argv)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)


if __name__ == "__main__":
    main()
