"""SIM-1: Ctrl-C is taken between two steps, never within a calculation of the engine."""

import io
import os
import signal
import threading

import pytest
from django.core.management.base import OutputWrapper

from gateway.management.progress import ctrl_c_at_a_step, progress_bar


@pytest.fixture(autouse=True)
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pressed():
    """The handler of the signal has run once this has returned."""
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_waits_for_the_next_step():
    done = []
    with pytest.raises(KeyboardInterrupt), ctrl_c_at_a_step() as step:
        step()
        pressed()
        done.append("the calculation went on")
        step()
        done.append("no further")
    assert done == ["the calculation went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_where_no_step_follows_ctrl_c_is_taken_at_the_end():
    done = []
    with pytest.raises(KeyboardInterrupt), ctrl_c_at_a_step():
        pressed()
        done.append("whole")
    assert done == ["whole"]


def test_a_second_ctrl_c_waits_for_nothing():
    with pytest.raises(KeyboardInterrupt), ctrl_c_at_a_step():
        pressed()
        pressed()
        pytest.fail("the second one was not taken")


def test_an_error_of_the_run_is_told_though_ctrl_c_was_pressed():
    with pytest.raises(ValueError, match="of the run"), ctrl_c_at_a_step():
        pressed()
        raise ValueError("of the run")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_ctrl_c_that_somebody_else_handles_or_ignores_stays_theirs():
    heard = []
    for handler in (signal.SIG_IGN, lambda number, frame: heard.append(number)):
        signal.signal(signal.SIGINT, handler)
        with ctrl_c_at_a_step() as step:
            pressed()
            step()
        assert signal.getsignal(signal.SIGINT) is handler
    assert heard == [signal.SIGINT]


def test_in_another_thread_than_the_main_one_nothing_is_handled():
    done = []

    def run():
        with ctrl_c_at_a_step() as step:
            step()
            done.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert done == [signal.default_int_handler]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_progress_bar_is_such_a_step_and_is_wiped(terminal):
    class Text(io.StringIO):
        def isatty(self):
            return terminal

    text = Text()
    screen = OutputWrapper(text)
    with pytest.raises(KeyboardInterrupt), progress_bar(screen, "simulating") as tell:
        tell(0.1)
        pressed()
        tell(0.5)
    assert "50 %" not in text.getvalue()
    assert text.getvalue().endswith("\r") is terminal
