"""Every claim of the four papers is there, with a statement, a statistic and a rule, and is judged without error."""

import warnings
from pathlib import Path

import pytest
import xarray as xr

from benign.claims import Kind, Outcome, Study
from benign.claims.study import SCALES
from benign.experiment import Experiment
from benign.papers.frozen import cannot
from benign.papers.registry import claims, matching, study_of
from benign.papers.verify import Verifier

IDS = (Path(__file__).parent / "claim_ids.txt").read_text().split()
HOLDING = {"jiang": 30, "li": 5, "wang": 8, "zhang": 20}
"""a lower bound on the number of claims that hold at smoke scale, by paper"""


def test_all_claims_are_there():
    assert sorted(claims()) == sorted(IDS)


def test_every_claim_can_run():
    for claim in claims().values():
        assert not cannot(claim), claim.id


def test_every_claim_says_what_and_where():
    for claim in claims().values():
        assert len(claim.statement.split()) >= 4, claim.id
        assert claim.source, claim.id


WITHOUT_ERROR = {"exact", "worst"}
"""statistics whose numbers have no sampling error, so that one run shows as much as a thousand"""


def test_numbers_that_runs_measure_have_a_sampling_error():
    for claim in claims().values():
        if claim.kind is Kind.MEASURED:
            used = WITHOUT_ERROR & set(claim.statistic.__code__.co_names)
            assert not used, f"{claim.id} uses {used}"


def test_two_studies_of_one_name_are_the_same():
    studies: dict[str, Study] = {}
    for claim in claims().values():
        for need in claim.studies:
            study = study_of(need)
            if study is not None:
                assert studies.setdefault(study.name, study) is study, study.name
                assert study.name.partition("/")[0] == claim.id.partition("/")[0] or isinstance(
                    need, str
                )


@pytest.mark.parametrize("scale", SCALES)
def test_every_study_can_be_built_at_every_scale(scale):
    studies = {
        s.name: s for claim in claims().values() for need in claim.studies if (s := study_of(need))
    }
    for study in studies.values():
        assert isinstance(study.experiment(scale), Experiment), study.name


def test_claims_are_found_by_paper_by_id_and_by_glob():
    assert {claim.id.split("/")[0] for claim in matching(["wang"])} == {"wang"}
    assert [claim.id for claim in matching(["li/label-leak"])] == ["li/label-leak"]
    assert len(matching(["zhang/thm3*", "jiang/C*"])) == 10
    assert len(matching([])) == len(IDS)


def run_here(experiment: Experiment, folder: Path, title: str) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return experiment.run(folder, workers=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("paper", HOLDING)
def test_every_claim_is_judged_at_smoke_scale(paper: str, tmp_path: Path):
    verifier = Verifier("smoke", tmp_path, run_here)
    verdicts = [each.verdict for claim in matching([paper]) for each in verifier.judge(claim)]
    assert [verdict.claim.id for verdict in verdicts] == [c.id for c in matching([paper])]
    assert not [(verdict.claim.id, verdict.error) for verdict in verdicts if verdict.error]
    assert all(verdict.parts for verdict in verdicts)
    assert not [
        (verdict.claim.id, part.name)
        for verdict in verdicts
        for part in verdict.deciding
        if verdict.claim.kind is Kind.MEASURED and part.measured and part.measured.interval is None
    ]
    holding = [verdict for verdict in verdicts if verdict.outcome is Outcome.HOLDS]
    assert len(holding) > HOLDING[paper]


def test_claims_can_be_members_of_a_set():
    """Whatever their rules, directions and levels are."""
    assert len({*claims().values()}) == len(claims())
