"""SEC-3: how much may wait for clients that don't read, and whose connection ends first."""

from dataclasses import dataclass, field

from gateway import metrics
from gateway.unread import Unread


@dataclass(eq=False)
class Client:
    """A connection whose client is behind by so many bytes."""

    behind_bytes: int
    ended: list[str] = field(default_factory=list)

    def unread_bytes(self) -> int:
        return self.behind_bytes

    def give_up(self, reason: str) -> None:
        self.ended.append(reason)


def told() -> float:
    lines = metrics.exposition().decode().splitlines()
    name = "weighbridge_unread_answer_bytes "
    return next(float(line.removeprefix(name)) for line in lines if line.startswith(name))


def test_whoever_fell_behind_first_goes_once_all_together_are_over_the_limit():
    unread, clients = Unread(limit_bytes=100), [Client(40), Client(40), Client(90)]
    for each in clients[:2]:
        unread.add(each)
    assert (unread.total_bytes, told()) == (80, 80)
    unread.add(clients[2])
    assert [each.ended for each in clients] == [["ANSWERS_UNREAD"], ["ANSWERS_UNREAD"], []]
    assert (unread.total_bytes, told()) == (90, 90)


def test_what_was_read_in_part_counts_whole_since_memory_holds_it_whole():
    unread, clients = Unread(limit_bytes=100), [Client(60), Client(60)]
    unread.add(clients[0])
    clients[0].behind_bytes = 10
    unread.add(clients[1])
    assert [each.ended for each in clients] == [["ANSWERS_UNREAD"], []]
    assert unread.total_bytes == 60


def test_one_answer_over_the_limit_ends_all_and_what_has_been_read_is_counted_no_more():
    unread, clients = Unread(limit_bytes=100), [Client(20), Client(101)]
    unread.add(clients[0])
    unread.drop(clients[0])
    unread.drop(clients[0])
    assert (unread.total_bytes, told()) == (0, 0)
    unread.add(clients[0])
    unread.add(clients[1])
    assert [each.ended for each in clients] == [["ANSWERS_UNREAD"]] * 2
    assert unread.total_bytes == 0


def test_all_together_may_have_the_whole_limit():
    unread, clients = Unread(limit_bytes=100), [Client(40), Client(60), Client(1)]
    for each in clients[:2]:
        unread.add(each)
    assert [each.ended for each in clients] == [[], [], []]
    unread.add(clients[2])
    assert [each.ended for each in clients] == [["ANSWERS_UNREAD"], [], []]


def test_who_falls_behind_again_is_counted_once_as_it_is_now_and_is_the_last_to_go():
    unread, clients = Unread(limit_bytes=100), [Client(40), Client(30), Client(30)]
    unread.add(clients[0])
    unread.add(clients[1])
    clients[0].behind_bytes = 50
    unread.add(clients[0])
    assert (unread.total_bytes, told()) == (80, 80)
    unread.add(clients[2])
    assert [each.ended for each in clients] == [[], ["ANSWERS_UNREAD"], []]
    assert (unread.total_bytes, told()) == (80, 80)
