#!/usr/bin/env python3
"""Weighbridge's command line: `python manage.py help` lists the commands."""

import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    execute_from_command_line(sys.argv)
