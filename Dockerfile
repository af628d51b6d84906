# One process that owns its ledger: give it a volume, never two containers on one.
FROM python:3.11-slim

ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 WEIGHBRIDGE_VAR=/var/lib/weighbridge
WORKDIR /opt/weighbridge

COPY requirements.lock .
RUN python -m pip install --no-cache-dir --require-hashes -r requirements.lock

COPY manage.py pyproject.toml README.md LICENSE ./
COPY gateway gateway
COPY ledger ledger
COPY simulator simulator
COPY templates templates

RUN useradd --system --home-dir /var/lib/weighbridge --create-home weighbridge
USER weighbridge
VOLUME /var/lib/weighbridge
EXPOSE 8000
STOPSIGNAL SIGTERM

HEALTHCHECK --interval=10s --timeout=3s --start-period=60s CMD ["python", "-c", \
  "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]

# The first start needs a fleet in the volume: docs/operate.md#deploying.
CMD ["sh", "-c", "python manage.py migrate --no-input && \
  python manage.py migrate --no-input --database ledger && \
  exec python manage.py serve --host 0.0.0.0 --port 8000"]
