"""Open work: what is not at its end, and what tenants spent, beside the records."""

from django.db import migrations

from ledger.open_work import CREATE, DROP, FILL_FIRST


class Migration(migrations.Migration):
    dependencies = [("ledger", "0009_outcome_report")]
    operations = [migrations.RunSQL([*CREATE, *FILL_FIRST], list(DROP))]
