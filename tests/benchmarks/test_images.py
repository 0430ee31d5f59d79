"""The benchmark of image networks runs, and its shares follow from its times."""

import json
from pathlib import Path

import pytest

from benchmarks.images import SMOKE, main


def test_it_runs_in_seconds_and_writes_what_it_prints(tmp_path: Path, capsys):
    path = tmp_path / "images.json"
    report = main(["--smoke", "--json", str(path)])
    assert json.loads(path.read_text(encoding="utf-8")) == report
    vits = report["vits"]
    assert vits["runs"] == 4
    both = vits["one_after_another_seconds_a_step"], vits["batched_seconds_a_step"]
    assert vits["gain"] == pytest.approx(both[0] / both[1])
    assert report["mini_batches"]["gain"] > 0
    assert [row["runs"] for row in vits["by_runs"]] == list(SMOKE.runs)
    assert [row["precision"] for row in report["resnet"]] == ["float32", "tf32", "mixed"]
    for row in report["resnet"]:
        share = row["attacked_images_a_second"] * 3 / row["plain_images_a_second"]
        assert row["share_of_plain"] == pytest.approx(share)
    assert "small ViTs" in capsys.readouterr().out
