"""The roots of whole blocks of rows, kept as they end: what proofs start from."""

from django.db import migrations

from ledger.block_roots import CREATE, DROP


class Migration(migrations.Migration):
    dependencies = [("ledger", "0010_open_work")]
    operations = [migrations.RunSQL(CREATE, DROP)]
