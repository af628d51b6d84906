"""The rollups' tables: projections without a model, filled by `rebuild_rollups` where receipts are."""

from django.db import migrations

from ledger.rollups.tables import LIVE


class Migration(migrations.Migration):
    dependencies = [("ledger", "0001_initial")]
    operations = [migrations.RunSQL(list(LIVE.create), list(LIVE.drop))]
