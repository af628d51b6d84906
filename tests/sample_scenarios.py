"""`python -m tests.sample_scenarios SEED [NAME…]`: a ledger for each diagnosis, and a login.

In the folder of the environment's ledger: `<scenario>.sqlite3` for each one with a fault, and a
login of each role. Printed as JSON with `ends`, when the window with the fault ends, as the page
Now takes it. In a process of its own: it sets Django up.
"""

import json
import os
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path


def lead_to(folder: Path, scenario: str) -> None:
    """Make the scenario's ledger the folder's own; readers notice, as after a restore."""
    link = folder / "next.sqlite3"
    link.symlink_to(folder / f"{scenario}.sqlite3")
    os.replace(link, folder / "ledger.sqlite3")


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from gateway.demo.scenario_run import START_US, run
    from gateway.demo.scenarios import SCENARIOS, WINDOW_US
    from gateway.management.commands.scenario import migrated
    from tests.sample_books import logins

    call_command("migrate", database="default", verbosity=0, skip_checks=True)
    folder = Path(settings.WEIGHBRIDGE_DB).parent
    template = folder / "template.sqlite3"
    migrated(template)
    wanted = sys.argv[2:] or list(SCENARIOS)
    for name, scenario in SCENARIOS.items():
        if scenario.finds and name in wanted:
            ledger = folder / f"{name}.sqlite3"
            shutil.copyfile(template, ledger)
            run(ledger, scenario, int(sys.argv[1]))
    ends = datetime.fromtimestamp((START_US + 2 * WINDOW_US) // 1_000_000, UTC)
    print(json.dumps({"ends": ends.isoformat()[:19], **logins()}))


if __name__ == "__main__":
    main()
