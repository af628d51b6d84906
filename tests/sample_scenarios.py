"""`python -m tests.sample_scenarios SEED`: a ledger for each diagnosis, and one console over them.

In the folder of the environment's ledger: `<scenario>.sqlite3` for each one with a fault, and a
login whose session is printed. In a process of its own: it sets Django up.
"""

import json
import os
import shutil
import sys
from pathlib import Path


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gateway.settings")
    django.setup()
    from django.conf import settings
    from django.core.management import call_command

    from gateway.demo.scenario_run import run
    from gateway.demo.scenarios import SCENARIOS
    from gateway.management.commands.scenario import migrated
    from tests.sample_books import logins

    call_command("migrate", database="default", verbosity=0, skip_checks=True)
    folder = Path(settings.WEIGHBRIDGE_DB).parent
    template = folder / "template.sqlite3"
    migrated(template)
    for name, scenario in SCENARIOS.items():
        if scenario.finds:
            ledger = folder / f"{name}.sqlite3"
            shutil.copyfile(template, ledger)
            run(ledger, scenario, int(sys.argv[1]))
    print(json.dumps(logins()))


if __name__ == "__main__":
    main()
