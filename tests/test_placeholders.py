"""Numbers of pages come from stored files: what placeholders give, and hand-typed results that are found."""

import json
import shutil
from pathlib import Path

import pytest
from showcase import lint, pages
from showcase.values import UNKNOWN, Values

from benign.papers import published

ROOT = Path(__file__).parents[1]
GALLERY = ROOT / "gallery"
STORED = Values(GALLERY)


def rendered(text: str) -> str:
    values = Values(GALLERY)
    filled = values.render(text, "a text")
    assert not values.problems
    return filled


def test_numbers_are_those_of_the_files():
    entry = published.figures()["jiang-fig1"].as_dict()
    assert rendered("{{made jiang-fig1 work_seconds}} s") == f"{entry['work_seconds']} s"
    assert rendered("{{made jiang-fig1 runs}}") == str(sum(entry["runs"].values()))
    line = next(line for line in entry["summary"] if "at exponent 2" in line)
    said = rendered('{{said jiang-fig1 "at exponent 2:" "SNR^2 ="}}')
    assert f"N SNR^2 = {said};" in line
    alone = rendered('{{said jiang-fig1 "at exponent 2:" "SNR^2 =" value}}')
    assert said.startswith(f"{alone} [")
    data = published.numbers("zhang-fig2")
    place = list(zip(data.samples.values, data.snr.values, strict=True)).index((22, 4))
    mean = data.robust_accuracy.values
    expected = f"{mean[place]:#.3g}"
    assert rendered("{{data zhang-fig2 robust_accuracy samples=22 snr=4}}") == expected
    both = rendered("{{data zhang-fig2 robust_accuracy range}}")
    assert both == f"{min(mean):#.3g} to {max(mean):#.3g}"
    peers = rendered("{{file benchmarks/results/h200.json ratio_to_loop digits=2}}")
    assert peers == "4.2"


def test_marks_leave_only_the_number():
    assert rendered("{{printed 1000}} and {{setting 0.05 ‖μ‖}}") == "1000 and 0.05 ‖μ‖"


@pytest.mark.parametrize(
    "wrong",
    [
        "{{verdict jiang/no.claim}}",
        "{{verdict jiang/no.claim word}}",
        "{{made jiang-fig1 no_field}}",
        '{{said jiang-fig1 "never printed"}}',
        "{{data zhang-fig2 robust_accuracy}}",
        "{{data zhang-fig2 robust_accuracy snr=3}}",
        "{{fact nobody nothing}}",
        "{{nonsense 1}}",
    ],
)
def test_a_placeholder_without_a_number_is_reported_and_the_rest_is_written(wrong: str):
    values = Values(GALLERY)
    text = values.render(f"one {wrong}, {{{{count derived}}}} two", "a text")
    assert text.startswith(f"one {UNKNOWN}, ")
    assert text.endswith(" two")
    [problem] = values.problems
    assert problem.startswith("a text: {{")


def texts() -> list[Path]:
    """The files that people write and that may hold results."""
    return [*sorted((GALLERY / "texts").glob("*.md")), *pages.templates(GALLERY)]


TYPED = {
    "adding.md": "settings of examples",
    "architecture.md": "two times that explain a decision; no file has them",
    "attacks.md": "bounds, settings, and gains of attacks that `benchmarks/` prints",
    "claims.md": "levels of rules; coverage that a command prints",
    "clusters.md": "a time limit of Dask",
    "concepts.md": "settings",
    "faults.md": "counts of tests/faults, which fail if they change",
    "figures.md": "settings and sizes of figures",
    "own-lemma.md": "output of its examples, which tests run; coverage that a command prints",
    "statistics.md": "tables of simulated coverage that a command prints; the page names it",
    "performance.md": "its table is written by benchmarks/figures/report.py, which tests/benchmarks checks",
    "symbols.md": "numbers of the papers",
    "tutorial.md": "settings of examples",
}
"""pages of docs/ without a template that hold numbers like results, and why they may"""


def test_pages_of_docs_without_a_template_hold_no_results():
    made = {pages.target(path).name for path in pages.templates(GALLERY)}
    assert not made & TYPED.keys()
    for path in sorted((ROOT / "docs").glob("*.md")):
        if path.name not in made | TYPED.keys():
            assert not list(lint.hand_typed(path.read_text(encoding="utf-8"))), path.name


@pytest.mark.parametrize("path", texts(), ids=lambda path: path.stem)
def test_nobody_typed_a_result(path: Path):
    found = list(lint.hand_typed(path.read_text(encoding="utf-8")))
    assert not found, "take it from a stored file (showcase/values.py), or mark it: {{setting ...}}"


def test_facts_say_where_they_come_from_and_all_are_shown():
    shown = "".join(path.read_text(encoding="utf-8") for path in texts())
    for group, fact in STORED.facts.items():
        assert all(fact[key] for key in ("origin", "command", "machine", "date", "numbers"))
        for name in fact["numbers"]:
            assert f"{{{{fact {group} {name}}}}}" in shown, f"{group} {name} is on no page"


@pytest.mark.parametrize(
    "sentence",
    [
        "Accuracy falls to 0.263 there.",
        "It takes 16 seconds on one H200.",
        "It is right on 84 % of the points.",
        "The constant is 951 [780, 1161].",
        "4 of 11 rows never cross.",
        "The loss is 3e-7.",
        "The exponent is p = 2.5.",
    ],
)
@pytest.mark.parametrize("name", ["docs/templates/README.md", "gallery/texts/jiang-fig1.md"])
def test_a_planted_result_is_caught(name: str, sentence: str):
    text = (ROOT / name).read_text(encoding="utf-8")
    assert not list(lint.hand_typed(text))
    found = list(lint.hand_typed(f"{text}\n{sentence}\n"))
    assert found
    assert all(sentence in each for each in found)


def test_what_is_no_result_is_free():
    text = (
        "With N = 20, SNR >= 0.5 and r = 0.02 to 0.1, `rate=0.05`, Theorem 3.1, [Figure 2](a-0.5.md), "
        "$x = 0.5$, {{setting 0.05}}, {{made jiang-fig1 work_seconds}} s; numerics 4, d ~ r^2.\n"
        "{{setting 0.05}}, {{made jiang-fig1 work_seconds}} s; numerics 4, d ~ r^2.\n"
        "## What the paper shows\n\nA curve at 0.2.\n\n## What we find\n"
    )
    assert not list(lint.hand_typed(text))


def test_a_stale_total_is_caught(tmp_path: Path):
    """A page that was not written again after verdicts changed differs from what `index` writes."""
    copy = tmp_path / "gallery"
    shutil.copytree(GALLERY / "verdicts", copy / "verdicts")
    pages.write(copy)
    page = copy / "README.md"
    assert pages.texts(copy)[0][page] == page.read_text(encoding="utf-8")
    path = copy / "verdicts" / "jiang.json"
    stored = json.loads(path.read_text(encoding="utf-8"))
    del stored["jiang/fig1.monotone"]
    path.write_text(json.dumps(stored), encoding="utf-8")
    assert pages.texts(copy)[0][page] != page.read_text(encoding="utf-8")
