"""`benign verify`: runs what claims need, once, then prints and writes the verdicts."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import benign as bo
from benign.claims import Question, Study
from benign.cli import main as cli
from benign.papers.frozen import readings_of
from benign.papers.registry import claims, matching
from benign.papers.verify import Verifier, verify
from tests.registry import forgetting
from tests.says import holds, says

PAPER = '''
"""A paper with claims in its figures."""

import benign as bo
from benign.claims import Claims, Study, Undecided, at_least, at_most, exact, mean
from benign.claims.conditions import Condition, Conditions


def build(scale, reading):
    return bo.Experiment(
        data=bo.Mixture(samples=10, dim=20, signal=[4.0, 8.0]),
        network=bo.Linear(),
        training=bo.GradientDescent(rate=0.1, max_steps={"smoke": 20, "quick": 40, "paper": 80}[scale]),
        evaluation=bo.Evaluation(samples=50),
        seeds=3,
    )


RUNS = Study(name="mine/runs", build=build)
RECIPES = []
CLAIMS = Claims("mine")


def conditions(cell):
    return Conditions("Theorem 1", (Condition.at_least("(1)", "|mu| >= 5", cell.data.signal, 5.0),))


@CLAIMS.add("thm1.accuracy", "Theorem 1", at_least(0.9), RUNS, conditions=conditions)
def accuracy(evidence):
    """Accuracy is at least 0.9."""
    return mean("test accuracy", evidence.result.test_accuracy.mean("signal"))


@CLAIMS.add("thm1.chance", "Theorem 1", at_most(0.6), RUNS)
def chance(evidence):
    """Accuracy is no better than chance."""
    return mean("test accuracy", evidence.result.test_accuracy.mean("signal"))


@CLAIMS.add("lem2.vacuous", "Lemma 2", at_most(0.0))
def vacuous(evidence):
    """Nothing at all."""
    raise Undecided("vacuous: the bound exceeds 1")


@CLAIMS.add("fig9.images", "Figure 9", at_least(0.5), "mine/fig9")
def images(evidence):
    """Images are learned."""
    return mean("accuracy", evidence.result.test_accuracy)
'''


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "mine.py"
    file.write_text(PAPER, encoding="utf-8")
    with forgetting():
        yield file


def run(capsys, *words):
    code = cli.main(list(words))
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_claims_are_judged_printed_and_written(paper, capsys):
    code, out, _ = run(capsys, "--plugin", "mine.py", "verify", "mine", "--scale", "smoke")
    assert code == 0
    assert "holds outside its conditions  mine/thm1.accuracy" in out
    assert any(holds(line, "conditions", "1 of 2 cells", "(1) at 0.8") for line in out.splitlines())
    assert "refuted       mine/thm1.chance" in out
    assert "vacuous: the bound exceeds 1" in out
    assert any(holds(line, "recipe", "mine/fig9") for line in out.splitlines())
    assert holds(out, "1 holds outside its conditions", "1 refuted", "2 inconclusive")
    verdicts = json.loads(Path("runs/verdicts/verdicts.json").read_text())["verdicts"]
    by_id = {verdict["id"]: verdict for verdict in verdicts}
    assert by_id["mine/thm1.chance"]["parts"][0]["low"] > 0.6
    assert by_id["mine/thm1.accuracy"]["condition ratios"] == {"(1)": 0.8}
    page = Path("runs/verdicts/verdicts.md").read_text()
    assert "| mine/thm1.chance | refuted |" in page


def test_a_second_call_computes_nothing_and_says_the_same(paper, capsys):
    words = ["--plugin", "mine.py", "verify", "mine/thm1*", "--scale", "smoke"]
    first = run(capsys, *words)
    stamps = {path: path.stat().st_mtime_ns for path in Path("runs/mine").rglob("*.zip")}
    second = run(capsys, *words)

    def without_times(text):
        return [line.partition("  (")[0] for line in text.splitlines()]

    assert without_times(first[1]) == without_times(second[1])
    assert stamps == {path: path.stat().st_mtime_ns for path in Path("runs/mine").rglob("*.zip")}


def test_runs_are_shared_between_claims(paper):
    bo.load(paper)
    requested = []

    def runner(experiment, folder, title):
        requested.append((folder, title))
        return experiment.run(folder)

    verifier = Verifier("smoke", Path("runs"), runner)
    for claim in matching(["mine/thm1*"]):
        assert [each.verdict.error for each in verifier.judge(claim)] == [""]
    assert requested == [
        (Path("runs/mine/runs/smoke/default"), "mine/runs, smoke scale, reading default")
    ]


def test_each_reading_is_judged_alone():
    def build(scale, reading):
        raise AssertionError

    question = Question("w_O", "which?", {"fixed": "", "divided": ""}, "")
    other = Question("noise", "which?", {"std": "", "variance": ""}, "")
    one = Study(name="a/b", build=build, questions=(question,))
    two = Study(name="a/c", build=build, questions=(question, other))
    fixed, std = {"w_O": "fixed"}, {"noise": "std"}
    assert readings_of([one, two], "default") == [fixed | std]
    assert readings_of([one, two], "all") == [
        fixed | std,
        {"w_O": "divided"} | std,
        fixed | {"noise": "variance"},
    ]
    assert readings_of([], "all") == [{}]


def test_a_broken_statistic_fails_the_command(paper, capsys):
    paper.write_text(PAPER.replace("evidence.result.test_accuracy", "evidence.result.nonsense"))
    code, out, _ = run(
        capsys, "--plugin", "mine.py", "verify", "mine/thm1.chance", "--scale", "smoke"
    )
    assert code == 1
    assert "error         mine/thm1.chance" in out
    assert "nonsense" in out


def test_claims_are_listed_without_running(paper, capsys):
    code, out, _ = run(capsys, "--plugin", "mine.py", "verify", "mine", "--list")
    assert code == 0
    assert holds(out, "Accuracy is at least 0.9.", "Theorem 1", "mine/runs")
    assert any(holds(line, "4 claims", "1") for line in out.splitlines())
    assert not Path("runs").exists()


def test_what_matches_nothing_is_refused(paper, capsys):
    code, _, err = run(capsys, "--plugin", "mine.py", "verify", "--only", "mine/thm9*")
    assert code == 2
    assert holds(err, "claim", "'mine/thm9*'", "paper (", "jiang")


def test_two_claims_of_one_id_are_refused(paper):
    paper.write_text(PAPER.replace("thm1.chance", "thm1.accuracy"))
    bo.load(paper)
    with pytest.raises(ValueError, match=says("two", "'mine/thm1.accuracy'")):
        claims()


def test_a_claim_is_called_as_its_paper(paper):
    paper.write_text(PAPER.replace('Claims("mine")', 'Claims("other")'))
    bo.load(paper)
    with pytest.raises(ValueError, match=says("'other/thm1.accuracy'", "`mine/...`")):
        claims()


def test_existing_runs_are_judged_as_they_are(tmp_path):
    """Nothing is run: a smaller grid than the recipe's is judged, and says so; what is not there cannot be."""
    recipe = bo.recipe("jiang/fig1")
    fields = recipe.experiment("smoke").as_dict()
    small = bo.Experiment.from_dict({**fields, "seeds": 2})
    made = {"target": "jiang/fig1", "scale": "paper", "reading": {}, "changes": ["seeds=2"]}
    small.run(tmp_path / "jiang" / "fig1" / "paper" / "default", made=made)
    chosen = matching(["jiang/fig1.monotone", "jiang/fig2.mnist"])
    verify(chosen, "paper", "default", "cpu", 1, tmp_path, False, no_run=True)
    verdicts = json.loads((tmp_path / "verdicts" / "verdicts.json").read_text())["verdicts"]
    by_id = {verdict["id"]: verdict for verdict in verdicts}
    assert by_id["jiang/fig1.monotone"]["changes"] == ["jiang/fig1: seeds=2"]
    assert by_id["jiang/fig1.monotone"]["seeds"] == [2]
    assert "confirmed" not in by_id["jiang/fig1.monotone"]["verdict"]
    assert holds(by_id["jiang/fig2.mnist"]["reason"], "runs", "jiang/fig2")


def test_existing_runs_of_two_readings_keep_their_own_changes(tmp_path):
    """Changes were kept by study: those of the reading that was opened last stood for all readings."""
    recipe = bo.recipe("jiang/fig1")
    readings = recipe.readings("all")[:2]
    changes = [["seeds=2"], []]
    for reading, changed in zip(readings, changes, strict=True):
        fields = recipe.experiment("smoke", reading).as_dict()
        label = recipe.label(reading)
        made = {"target": "jiang/fig1", "scale": "paper", "reading": reading, "changes": changed}
        folder = tmp_path / "jiang" / "fig1" / "paper" / label
        bo.Experiment.from_dict({**fields, "seeds": 2}).run(folder, made=made)
    [claim] = matching(["jiang/fig1.monotone"])
    verifier = Verifier("paper", tmp_path, None)
    for order in ("first", "again, from what is known"):
        judged = [each.verdict for each in verifier.judge(claim, "all")]
        first, second = (
            next(verdict for verdict in judged if verdict.evidence.reading == reading)
            for reading in readings
        )
        assert first.evidence.changes == ("jiang/fig1: seeds=2",), order
        assert first.label not in ("confirmed", "refuted"), order
        assert second.evidence.changes == (), order


def test_a_rule_that_changed_after_runs_existed_is_named(paper, capsys):
    """The text and the file name the field; a renamed function and another docstring change nothing."""
    words = ["--plugin", "mine.py", "verify", "mine/thm1*", "--scale", "smoke"]

    def judged(source):
        paper.write_text(source)
        with forgetting():
            code, out, _ = run(capsys, *words)
        assert code == 0
        verdicts = json.loads(Path("runs/verdicts/verdicts.json").read_text())["verdicts"]
        return " ".join(out.split()), {each["id"]: each["frozen"] for each in verdicts}

    out, first = judged(PAPER)
    assert "the rule changed" not in out
    assert "runs existed" not in out
    renamed = PAPER.replace("def accuracy(", "def precision(").replace("is at least", "exceeds")
    assert judged(renamed)[1] == first
    out, now = judged(PAPER.replace("at_least(0.9)", "at_least(0.95)"))
    changes = "rule fails_below from 0.9 to 0.95; rule low from 0.9 to 0.95"
    assert f"the rule changed after runs existed: {changes}" in out
    assert now["mine/thm1.accuracy"]["changed"] == changes.split("; ")
    assert now["mine/thm1.accuracy"]["first seen"] == first["mine/thm1.accuracy"]["first seen"]
    assert now["mine/thm1.chance"] == first["mine/thm1.chance"]
    out, now = judged(PAPER.replace("signal=[4.0, 8.0]", "signal=[4.0, 8.0, 9.0]"))
    assert "grid mine/runs data signal from [4.0, 8.0] to [4.0, 8.0, 9.0]" in out
    assert all(each["changed"] for each in now.values())


def test_rules_of_all_claims_that_share_runs_are_recorded_before_them(paper, capsys):
    """The second claim is judged on runs that the first one made."""
    words = ["--plugin", "mine.py", "verify", "--scale", "smoke"]
    for name in ("mine/thm1.accuracy", "mine/thm1.chance"):
        code, out, _ = run(capsys, *words, name)
        assert code == 0
        assert "runs existed" not in out


def test_runs_without_a_recorded_rule_are_named(paper, capsys):
    bo.load(paper)
    study = matching(["mine/thm1.accuracy"])[0].studies[0]
    assert isinstance(study, Study)
    study.experiment("smoke").run("runs/mine/runs/smoke/default")
    code, out, _ = run(capsys, "verify", "mine/thm1.chance", "--scale", "smoke")
    assert code == 0
    assert "runs existed before the rule was recorded" in " ".join(out.split())


def test_a_damaged_file_of_rules_stops_the_command(paper, capsys):
    words = ["--plugin", "mine.py", "verify", "mine/lem2*", "--scale", "smoke"]
    assert run(capsys, *words)[0] == 0
    file = Path("runs/verdicts/frozen.jsonl")
    file.write_bytes(file.read_bytes().replace(b"measured", b"identity", 1))
    code, _, err = run(capsys, *words)
    assert code == 2
    assert holds(err, str(file), "line 1", "checksum", "move it away")
    assert "Traceback" not in err


def test_refutations_of_a_whole_paper_are_corrected_for_the_number_of_claims(paper, capsys):
    code, out, _ = run(capsys, "--plugin", "mine.py", "verify", "mine", "--scale", "smoke")
    assert code == 0
    assert "1 refuted (1 of 1 among all claims of a paper)" in out
    text = "mine/thm1.chance: refuted; holds up against 4 claims (Holm p = "
    assert text in out
    verdicts = json.loads(Path("runs/verdicts/verdicts.json").read_text())["verdicts"]
    families = {each["id"]: each["family"] for each in verdicts}
    assert families["mine/thm1.chance"]["holds up"] is True
    assert families["mine/fig9.images"] == {
        "paper": "mine", "claims": 4, "judged": 4, "Holm p-value": 1.0, "holds up": False,
    }  # fmt: skip
    assert "**refuted**; holds up against 4 claims" in Path("runs/verdicts/verdicts.md").read_text()


def test_one_claim_gets_the_plain_word(paper, capsys):
    words = ["--plugin", "mine.py", "verify", "mine/thm1.chance", "--scale", "smoke"]
    code, out, _ = run(capsys, *words)
    assert code == 0
    assert "1 refuted\n" in out
    assert "no correction for the number of claims was made: 1 of 4 claims of mine judged" in out
    assert "Holm" not in out


def test_a_family_that_changed_after_runs_existed_is_named(paper, capsys):
    words = ["--plugin", "mine.py", "verify", "mine", "--scale", "smoke"]
    for source, text in (
        (PAPER, ""),
        (PAPER.replace("thm1.chance", "thm1.other"), "claim mine/thm1.other is new"),
    ):
        paper.write_text(source)
        with forgetting():
            code, out, _ = run(capsys, *words)
        assert code == 0
        assert ("the family of mine changed after runs existed" in out) == bool(text)
        assert text in out


def test_what_is_judged_in_python_is_corrected_too(paper):
    bo.load(paper)
    by_id = {each.verdict.claim.id: each for each in bo.judge("mine", scale="smoke")}
    place = by_id["mine/thm1.chance"].family
    assert place
    assert place.holds_up
    [alone] = bo.judge("mine/thm1.chance", scale="smoke")
    assert alone.family
    assert alone.family.holds_up is None


LADDER = PAPER.replace("seeds=3", "seeds=5").replace(
    '@CLAIMS.add("lem2', '''
@CLAIMS.add("thm1.scatter", "Theorem 1", at_least(-0.02), RUNS)
def scatter(evidence):
    """A number that scatters: its sign is the parity of the last digit of a draw."""
    spread = evidence.result.train_loss.sel(signal=4.0) * 1e6 % 10
    return mean("x", (spread - spread.mean("seed")) * evidence.result.seed.size ** -0.25)


@CLAIMS.add("lem2'''
)  # fmt: skip


def test_an_inconclusive_claim_gets_more_seeds(paper, capsys):
    """Runs of earlier rungs are kept, and a second call computes nothing."""
    paper.write_text(LADDER)
    words = ["--plugin", "mine.py", "verify", "mine/thm1*", "--scale", "smoke", "--ladder"]
    code, out, _ = run(capsys, *words)
    assert code == 0
    text = " ".join(out.split())
    assert "ladder: rung 4 of 4 (40 seeds, intervals of 98.75 %), no rung is left" in text
    assert "ladder: rung 1 of 4 (5 seeds, intervals of 98.75 %), decided; 1.25 % of" in text
    verdicts = json.loads(Path("runs/verdicts/verdicts.json").read_text())["verdicts"]
    by_id = {each["id"]: each for each in verdicts}
    assert by_id["mine/thm1.scatter"]["ladder"] == {
        "rungs": [5, 10, 20, 40], "rung": 4, "stop": "no rung is left", "spent": 0.05, "left": 0.0,
    }  # fmt: skip
    assert by_id["mine/thm1.scatter"]["seeds"] == [40]
    assert by_id["mine/thm1.scatter"]["confidence"] == 0.9875
    assert by_id["mine/thm1.chance"]["seeds"] == [5]
    runs = {path: path.stat().st_mtime_ns for path in Path("runs/mine").rglob("records/*.npz")}
    assert len(runs) == 4  # a unit for each rung: nothing was computed twice
    plain = run(capsys, *words[:-1])[1]
    assert "ladder" not in plain
    assert "(5 seeds" in plain
    assert run(capsys, *words)[1].count("ladder: ") == 3
    assert runs == {
        path: path.stat().st_mtime_ns for path in Path("runs/mine").rglob("records/*.npz")
    }
    found = " ".join(run(capsys, *words[:-1], "--no-run")[1].split())
    assert "seeds were added, without a ladder: mine/runs has 40 instead of 5" in found


def test_a_ladder_needs_runs(paper, capsys):
    words = ["--plugin", "mine.py", "verify", "mine", "--scale", "smoke", "--ladder", "--no-run"]
    code, _, err = run(capsys, *words)
    assert code == 2
    assert holds(err, "--ladder", "--no-run")


def test_verdicts_of_other_claims_stay_in_the_file(paper, capsys):
    """Each call wrote its own verdicts alone. A damaged file, or one of another version, is written anew."""
    file = Path("runs/verdicts/verdicts.json")
    words = ["--plugin", "mine.py", "verify", "--scale"]

    def judged(*more):
        assert run(capsys, *words, *more)[0] == 0
        return [(each["id"], each["scale"]) for each in json.loads(file.read_text())["verdicts"]]

    accuracy, vacuous = ("mine/thm1.accuracy", "smoke"), ("mine/lem2.vacuous", "smoke")
    assert judged("smoke", accuracy[0]) == [accuracy]
    assert judged("smoke", vacuous[0]) == [vacuous, accuracy]
    assert judged("smoke", vacuous[0]) == [vacuous, accuracy]
    assert judged("quick", vacuous[0]) == [(vacuous[0], "quick"), vacuous, accuracy]
    assert "holds 2 earlier verdicts besides" in file.with_suffix(".md").read_text()
    for damaged in ("[[[", '{"benign": "0.0.1", "verdicts": [{}]}', "[]"):
        file.write_text(damaged)
        assert judged("smoke", vacuous[0]) == [vacuous]


def test_claims_on_images_that_are_not_here_are_inconclusive_and_the_others_are_judged(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("BENIGN_DATA", str(tmp_path / "none"))
    chosen = matching(["jiang/fig2.mnist", "jiang/D1.loss_derivative"])
    assert verify(chosen, "quick", "default", "cpu", 1, tmp_path / "runs", False)
    out = capsys.readouterr().out
    assert holds(out, "inconclusive", "jiang/fig2.mnist", "cannot run here", "--download")
    assert holds(out, "identity", "jiang/D1.loss_derivative")
