"""What stays of rows that are moved to an archive: their hashes, requests and sums."""

from django.db import migrations

from ledger.archive_tables import CREATE, DROP


class Migration(migrations.Migration):
    dependencies = [("ledger", "0014_attempt_service_tier")]
    operations = [migrations.RunSQL(list(CREATE), list(DROP))]
