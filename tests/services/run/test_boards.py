"""What the learner's processes tell each other."""

from pathlib import Path

from vedette_services.run.boards import BoardReader, BoardWriter, Evaluations, Learning


def test_a_board_is_empty_until_it_is_written(tmp_path: Path) -> None:
    assert BoardReader(tmp_path / "map", Learning).read() == Learning()


def test_the_newest_board_wins(tmp_path: Path) -> None:
    reader = BoardReader(tmp_path / "map", Learning)
    writer = BoardWriter(tmp_path / "map", Learning)
    for opt_steps in range(10):
        writer.write(Learning(opt_steps=opt_steps, record={"loss": 0.5}))
    assert reader.read() == Learning(opt_steps=9, record={"loss": 0.5})


def test_reading_again_without_news_gives_the_same_object(tmp_path: Path) -> None:
    writer = BoardWriter(tmp_path / "map", Evaluations)
    writer.write(Evaluations(count=1))
    reader = BoardReader(tmp_path / "map", Evaluations)
    assert reader.read() is reader.read()


def test_a_writer_that_let_go_can_be_followed_by_another(tmp_path: Path) -> None:
    first = BoardWriter(tmp_path / "map", Learning)
    first.write(Learning(opt_steps=1))
    first.close()
    second = BoardWriter(tmp_path / "map", Learning)
    assert BoardReader(tmp_path / "map", Learning).read().opt_steps == 1
    second.write(Learning(opt_steps=2))
    assert BoardReader(tmp_path / "map", Learning).read().opt_steps == 2
