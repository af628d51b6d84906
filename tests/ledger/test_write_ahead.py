"""The write-ahead log is copied beside the commits, and stays bounded (LED-7)."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import write_ahead
from ledger.errors import WRITE_FAULTS, LedgerUnavailable
from ledger.reading import connect_read_only, fetch
from ledger.store import Store
from ledger.write_ahead import LogPages, copy_log
from ledger.writer import Writer
from tests import factories


def receipts_in(path):
    connection = connect_read_only(path)
    try:
        return fetch(connection, "SELECT count(*) FROM receipt")[0][0]
    finally:
        connection.close()


def log_bytes(path):
    return path.with_name(path.name + "-wal").stat().st_size


def test_what_was_copied_beside_the_commits_is_in_the_file_without_its_log(ledger_path, tmp_path):
    with Store.open(ledger_path) as store:
        store.append([factories.receipt(number) for number in range(50)]).result()
        assert copy_log(ledger_path) > 0
        store.append([factories.receipt(50)]).result()  # in the log alone, or in one begun anew
        alone = tmp_path / "alone.sqlite3"
        shutil.copyfile(ledger_path, alone)
        assert receipts_in(alone) == 50
        assert receipts_in(ledger_path) == 51


def test_led_7_a_log_that_was_copied_whole_begins_anew_and_the_file_of_it_stays(ledger_path):
    writer = Writer(ledger_path)
    numbers = iter(range(10_000))
    sizes = []
    for _ in range(6):
        for _ in range(40):
            writer.commit([[factories.receipt(next(numbers))]])
        pages = copy_log(ledger_path)
        writer.commit([[factories.receipt(next(numbers))]])  # came while it was copied
        writer.checkpoint(pages)
        sizes.append(log_bytes(ledger_path))
    writer.close()
    assert sizes[-1] == max(sizes) < 3 * sizes[0]
    assert receipts_in(ledger_path) == 6 * 41


def test_led_7_a_busy_store_copies_its_log_and_keeps_it_under_its_limit(ledger_path, monkeypatch):
    """However slow the copying thread: at the limit the commits wait for it."""
    for name, pages in (
        ("PAGES_IDLE", 16),
        ("PAGES_LONG", 32),
        ("PAGES_BUSY", 64),
        ("PAGES_LIMIT", 256),
    ):
        monkeypatch.setattr(write_ahead, name, pages)
    with Store.open(ledger_path) as store:
        for number in range(400):
            store.append([factories.receipt(number)]).result()
        assert store.status().since_checkpoint_s is not None
        assert log_bytes(ledger_path) < 2 * 256 * 4_096
    assert receipts_in(ledger_path) == 400


def test_a_log_that_can_not_be_copied_says_why_by_a_known_code(tmp_path):
    with pytest.raises(LedgerUnavailable, match="can't be checkpointed") as failed:
        copy_log(tmp_path / "moved.sqlite3")
    assert failed.value.code in WRITE_FAULTS
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "ledger.sqlite3")


class Log(LogPages):
    """What is known of a log whose header is written here."""

    def __init__(self, ledger):
        self.file = ledger.with_name(ledger.name + "-wal")
        self.turn = 7
        self.begin_anew()
        super().__init__(ledger)
        self.copied(0)

    def begin_anew(self):
        self.turn += 1
        self.file.write_bytes(bytes(12) + self.turn.to_bytes(4, "big") + bytes(16))

    @property
    def guess(self):
        return self._waiting()


def test_pages_are_guessed_from_rows_and_from_commits_and_the_more_is_taken(log):
    assert log.guess == 0
    log.committed(10)
    assert log.guess == 40  # 4 a row, until a copy has said
    log.copied(30)  # 3 a row, 30 a commit
    assert log.guess == 0
    log.committed(1)
    assert log.guess == 30  # one row, but a commit
    log.committed(99)
    assert log.guess == 300  # a hundred rows
    log.copied(0)  # nothing was told: the guess stays
    log.committed(20)
    assert log.guess == 60


def test_what_came_is_told_by_what_is_in_the_log_and_how_often_it_began_anew(log):
    def per_row(pages, beside=0, *, anew=0):
        for _ in range(anew):
            log.begin_anew()
        for _ in range(100):
            log.committed(1)
        log.copied(pages, beside)
        log.committed(1)
        guess, log._rows, log._commits = log.guess, 0, 0
        return guess

    assert per_row(900) == 9
    assert per_row(1_800) == 9  # it went on: 900 came
    assert per_row(900, anew=1) == 9
    assert per_row(50, 850, anew=1) == 9  # of 900 there were 900 before: nothing is learned
    assert per_row(100, 850, anew=1) == 9  # 800 of the turn before, and 100 of this
    assert per_row(60, 840, anew=2) == 9  # anew before it was copied beside, and after
    assert per_row(960) == 9


def test_led_7_a_long_log_that_does_not_begin_anew_is_soon_copied_again(log):
    for _ in range(1_000):
        log.committed(1)
    log.copied(9_000)  # 9 a commit
    for _ in range(112):
        log.committed(1)
    assert log.due(idle=False)  # 1,008
    log.begin_anew()
    for _ in range(766):
        log.committed(1)
    log.copied(7_902)  # of 878; it needn't be the whole of what makes a log busy
    for _ in range(112):
        log.committed(1)
    assert log.due(idle=False)
    log.copied(8_910)
    for _ in range(112):
        log.committed(1)
    log.begin_anew()
    assert not log.due(idle=False)
    assert log.due(idle=True)
    for _ in range(777):
        log.committed(1)
    assert log.due(idle=False)  # 8,001


def test_led_7_a_reader_that_stays_makes_no_copy_for_each_commit(log):
    """What such a log has in all grows, what a row writes doesn't."""
    pages = 0
    for _ in range(50):
        commits = 0
        while not log.due(idle=False):
            log.committed(1)
            commits += 1
        pages += 9 * commits  # as a row alone in its commit takes
        log.copied(pages)
    assert commits == 112  # 1,000 pages


@given(
    st.lists(st.integers(1, 500), min_size=1, max_size=20),
    st.integers(1, 40),
    st.integers(0, 9),
    st.lists(st.integers(1, 500), min_size=1, max_size=20),
)
def test_a_load_that_changes_is_guessed_at_half_of_its_pages_or_more(
    before, a_commit, a_row, after
):
    """Where a commit writes some pages, and each row some: whatever the sizes of the batches."""
    log = LogPages(Path("nowhere"))
    for rows in before:
        log.committed(rows)
    log.copied(len(before) * a_commit + sum(before) * a_row)
    for rows in after:
        log.committed(rows)
    assert log._waiting() >= (len(after) * a_commit + sum(after) * a_row) / 2
