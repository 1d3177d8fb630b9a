"""The Python of docs/construction.md runs as it is printed."""

from pathlib import Path

import layerstep as ls

PAGE = (Path(__file__).parents[2] / "docs" / "construction.md").read_text()


def test_the_examples_run(examples, capsys):
    blocks = examples("docs/construction.md")
    assert len(blocks) == 2
    prompts = ls.sample(ls.Task(N=12), 2, seed=1)
    names = {"x": prompts.x[0, :10], "y": prompts.y[0, :10], "xq": prompts.x[0, 10:], "prompts": prompts}
    for block in blocks:
        exec(block, names)
    assert "712 blocks of width 6" in PAGE
    assert (names["network"].depth, names["network"].width) == (712, 6)
    assert "712" in capsys.readouterr().out
    assert names["bound"].max() < 0.01 * 346  # of the largest label
    assert (names["answer"].bound < 0.01).all()
    assert names["path"].values.shape == (712, 2, 12)
