"""The settings of the consoles that browser tests drive: gateway's own, but that a login is quick.

A password's hash takes half a second by intention; these logins protect nothing.
"""

from gateway.settings import *  # noqa: F403 - every setting, whatever it is called

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
