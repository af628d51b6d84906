"""The gaps between a job's tokens are the differences of their times, whenever asked for."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from simulator.engine import Replica
from simulator.scheduler import Job, ReplicaConfig
from simulator.timing import TimeModel
from tests.simulator.scheduling_cases import Case, seeded_cases


def check_gaps(replica: Replica, job_id: int | str) -> None:
    times = replica.token_times_ps(job_id).tolist()
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert replica.inter_token_ps(job_id).tolist() == gaps


@given(seeded_cases(), st.data())
def test_the_gaps_of_running_and_ended_jobs_are_the_differences_of_their_times(
    case: Case, data: st.DataObject
):
    replica = Replica(case.config, case.model)
    ended: list[int | str] = []
    for job in sorted(case.jobs, key=lambda job: job.arrival_ps):
        due = replica.next_token_ps()
        for at in sorted({min(due or job.arrival_ps, job.arrival_ps), job.arrival_ps}):
            ends = [end.job_id for end in replica.advance_to(at) if end.outcome != "refused"]
            for job_id in ends if data.draw(st.booleans()) else ():
                check_gaps(replica, job_id)
            for job_id, _ in replica.running_progress():
                check_gaps(replica, job_id)
            ended += ends
        replica.submit(job)
    while (due := replica.next_event_ps()) is not None:
        ended += [end.job_id for end in replica.advance_to(due) if end.outcome != "refused"]
    for job_id in ended:
        check_gaps(replica, job_id)


def test_gaps_stay_exact_when_old_iterations_are_dropped():
    model = TimeModel(name="flat", breakpoints=((0, 10),), per_context_token_ps=3)
    replica = Replica(ReplicaConfig(kv_blocks=4_000), model, retain_finished=4)
    replica._log_limit = 60  # some segments, so that dropping them is soon due
    known = []
    for number in range(400):
        arrival_ps = number * 700
        for end in replica.advance_to(arrival_ps):
            check_gaps(replica, end.job_id)
            known = [*known, end.job_id][-4:]
        if known and number % 7 == 0:
            check_gaps(replica, known[0])
        replica.submit(
            Job(
                job_id=number, arrival_ps=arrival_ps, input_tokens=5,
                output_tokens=1 + number * 7 % 23,
            )
        )  # fmt: skip
