"""Measurements on this machine; Django is set up for whichever module of these is run."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
django.setup()
