"""Django settings, and the only place that reads the environment.

Each WEIGHBRIDGE_* variable is listed in docs/operate.md. A value that can't be used stops the
start with a sentence that says what to do.
"""

import os
import secrets
import sys
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent

# What the process writes holds money, keys' hashes and logins: readable by its owner alone.
os.umask(0o077)


def _flag(name: str) -> bool:
    """Whether a variable says yes; not where it isn't set."""
    value = os.environ.get(name, "0").strip().lower()
    if value not in {"0", "1", "true", "false", "yes", "no"}:
        raise ImproperlyConfigured(f"{name} is {value!r}; set it to 1 or 0.")
    return value in {"1", "true", "yes"}


TIME_SCALE_LIMIT = 1_000.0  # at this scale a replica begins anew each 38 minutes


def _positive_number(name: str, default: float, most: float = sys.float_info.max) -> float:
    raw = os.environ.get(name, str(default))
    try:
        value = float(raw)
    except ValueError:
        value = 0.0
    if not 0 < value <= most:  # NaN isn't either
        above = "" if most == sys.float_info.max else f" and at most {most:g}"
        raise ImproperlyConfigured(f"{name} is {raw!r}; set it to a finite number above 0{above}.")
    return value


def _local_secret(path: Path) -> str:
    """The instance's own secret, made on first use and readable by its owner alone."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as secret_file:
            secret_file.write(secrets.token_urlsafe(48))
    return path.read_text().strip()


def _one_of(name: str, values: tuple[str, ...]) -> str:
    """One of the values; the first where the variable isn't set."""
    value = os.environ.get(name, "").strip().lower() or values[0]
    if value not in values:
        raise ImproperlyConfigured(f"{name} is {value!r}; set it to one of {', '.join(values)}.")
    return value


def _credential(name: str) -> str | None:
    """The secret in the environment variable that a route's address names; None: it isn't set."""
    return os.environ.get(name, "").strip() or None


def _told_of(signal: str) -> bool:
    """Whether OpenTelemetry's collector is told of a signal: where the environment names one."""
    exporter = os.environ.get(f"OTEL_{signal}_EXPORTER", "").strip() or "otlp"
    variables = (f"OTEL_EXPORTER_OTLP_{signal}_", "OTEL_EXPORTER_OTLP_")
    endpoint, protocol = (
        next(filter(None, (os.environ.get(each + name, "").strip() for each in variables)), "")
        for name in ("ENDPOINT", "PROTOCOL")
    )
    if not endpoint or exporter == "none" or _flag("OTEL_SDK_DISABLED"):
        return False
    if exporter != "otlp" or protocol not in ("", "http/protobuf"):
        raise ImproperlyConfigured(
            f"OpenTelemetry's {signal.lower()} are told over OTLP as http/protobuf alone: set "
            f"OTEL_{signal}_EXPORTER to otlp or none, and OTEL_EXPORTER_OTLP_PROTOCOL to that."
        )
    if not endpoint.startswith(("http://", "https://")):
        raise ImproperlyConfigured(
            "OTEL_EXPORTER_OTLP_ENDPOINT needs http:// or https:// and a host."
        )
    return True


VAR_DIR = Path(os.environ.get("WEIGHBRIDGE_VAR", BASE_DIR / "var"))
WEIGHBRIDGE_DB = Path(os.environ.get("WEIGHBRIDGE_DB", VAR_DIR / "ledger.sqlite3"))
WEIGHBRIDGE_CONSOLE_DB = Path(
    os.environ.get("WEIGHBRIDGE_CONSOLE_DB", WEIGHBRIDGE_DB.with_name("console.sqlite3"))
)
SHARED_DIR = Path(os.environ.get("WEIGHBRIDGE_SHARED", BASE_DIR.parent / "shared"))  # real data
TIME_SCALE = _positive_number("WEIGHBRIDGE_TIME_SCALE", 1.0, TIME_SCALE_LIMIT)
ALLOW_LINK_LOCAL = _flag("WEIGHBRIDGE_ALLOW_LINK_LOCAL")
PROVIDER_CREDENTIAL = _credential  # looked up when it is needed, kept nowhere
CONTROL_MODE = _one_of("WEIGHBRIDGE_CONTROL", ("automatic", "approve", "off"))
WEBHOOK_URL = os.environ.get("WEIGHBRIDGE_WEBHOOK_URL", "").strip()
WEBHOOK_SECRET = os.environ.get("WEIGHBRIDGE_WEBHOOK_SECRET", "").strip()
if WEBHOOK_URL and not (WEBHOOK_SECRET and WEBHOOK_URL.startswith(("http://", "https://"))):
    raise ImproperlyConfigured(
        "WEIGHBRIDGE_WEBHOOK_URL needs http:// or https://, and WEIGHBRIDGE_WEBHOOK_SECRET with it."
    )
TELEMETRY = frozenset(name for name in ("traces", "metrics") if _told_of(name.upper()))
BODY_LIMIT_BYTES = int(_positive_number("WEIGHBRIDGE_BODY_LIMIT_BYTES", 1_048_576))

DEBUG = _flag("WEIGHBRIDGE_DEBUG")
SECRET_KEY = os.environ.get("WEIGHBRIDGE_SECRET_KEY") or _local_secret(VAR_DIR / "secret_key")
ALLOWED_HOSTS = os.environ.get("WEIGHBRIDGE_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]").split(",")

ROOT_URLCONF = "gateway.urls"
ASGI_APPLICATION = "gateway.asgi.application"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_htmx",
    "ledger",
    "gateway",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "gateway.pages.middleware.ContentSecurityPolicy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "gateway.pages.middleware.ReadableRequests",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "gateway.pages.middleware.UnreadableLedger",
    "gateway.pages.zone.ChosenZone",
    "gateway.pages.saving.SavedTables",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["gateway.pages.templatetags.weighbridge"],
        },
    }
]

# Logins and sessions live beside the ledger, never in it: the ledger file has one writer.
_SQLITE = {
    "ENGINE": "django.db.backends.sqlite3",
    "OPTIONS": {
        "transaction_mode": "IMMEDIATE",
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    },
}
DATABASES = {
    "default": {**_SQLITE, "NAME": WEIGHBRIDGE_CONSOLE_DB},
    "ledger": {"ENGINE": "django.db.backends.sqlite3", "NAME": WEIGHBRIDGE_DB},
}
DATABASE_ROUTERS = ["ledger.routing.LedgerRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "login"
LOGIN_REDIRECT_URL = "now"
LOGOUT_REDIRECT_URL = "login"
SESSION_COOKIE_AGE = 12 * 3600
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
BEHIND_TLS = _flag("WEIGHBRIDGE_HTTPS")
if BEHIND_TLS:
    SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = True
    SECURE_SSL_REDIRECT = True
    SECURE_HSTS_SECONDS = 31_536_000
    SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = True

LANGUAGE_CODE = "en"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "gateway" / "static"]
WHITENOISE_USE_FINDERS = True

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"plain": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
    # Anybody can send a wrong Host: it gets its 400, and no stack trace in the log.
    "loggers": {"django.security.DisallowedHost": {"level": "CRITICAL"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
