"""Files are whole or absent, and an error says which file, why, and what to do."""

import errno
import os
import subprocess

import pytest
import torch

import layerstep.files
from layerstep.errors import FileError
from layerstep.files import (
    digest,
    locked,
    provenance,
    read_json,
    read_tensors,
    require_writable,
    write_aside,
    write_json,
    write_tensors,
)

FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_file_appears_whole_and_leaves_nothing_beside_it(tmp_path):
    write_json(tmp_path / "deep" / "a.json", {"x": 1})
    assert read_json(tmp_path / "deep" / "a.json") == {"x": 1}
    assert os.listdir(tmp_path / "deep") == ["a.json"]


@pytest.mark.parametrize("failure", [FULL, ValueError("no"), KeyboardInterrupt()])
def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path, failure):
    file = write_json(tmp_path / "a.json", 1)
    expected = FileError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(expected), write_aside(file) as aside:
        aside.write_text("half")
        raise failure
    assert read_json(file) == 1
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_is_a_sentence(tmp_path):
    with pytest.raises(FileError, match=r"a\.json: No space left.*unchanged.*free some space"):
        with write_aside(tmp_path / "a.json"):
            raise FULL


def test_a_device_or_a_folder_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, words in {"pipe": "Not a regular file", "folder": "Is a directory"}.items():
        with pytest.raises(FileError, match=rf"cannot write .*{name}: {words}"):
            write_json(tmp_path / name, 1)
    assert (tmp_path / "pipe").is_fifo()
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


def test_a_link_stays_a_link_and_its_target_is_written(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "a.json").symlink_to("disk/b.json")
    for value in (1, 2):
        write_json(tmp_path / "a.json", value)
    assert (tmp_path / "a.json").is_symlink()
    assert read_json(tmp_path / "disk" / "b.json") == 2


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    file = write_json(tmp_path / "a.json", 1)
    require_writable(file)
    assert read_json(file) == 1
    assert os.listdir(tmp_path) == ["a.json"]
    with pytest.raises(FileError, match=r"a\.json is a file, not a directory"):
        require_writable(file / "b.json")


def test_a_file_is_locked_by_one_at_a_time(tmp_path):
    pytest.importorskip("fcntl")
    file = write_json(tmp_path / "a.json", 1)
    with locked(file, "Somebody has it. Wait."), pytest.raises(FileError, match=r"Somebody has it\. Wait\."):
        with locked(file, "Somebody has it. Wait."):
            pass
    with locked(file, "Somebody has it. Wait."):
        pass


def test_a_lock_needs_a_file_that_is_open_for_writing(tmp_path, monkeypatch):
    """Network disks give flock by POSIX locks, which a file opened to be read may not take."""
    fcntl = pytest.importorskip("fcntl")
    modes = []
    monkeypatch.setattr(fcntl, "flock", lambda file, how: modes.append(file.writable()))
    for _ in range(2):  # new, and found
        with locked(tmp_path / "deep" / "lock", "no"):
            assert modes.pop() is True


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_disk_without_locks_is_said(tmp_path, monkeypatch, code):
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match=rf"lock cannot be locked \({os.strerror(code)}\)\. See to it that no other"):
        with locked(tmp_path / "lock", "no"):
            pass


def test_unreadable_files_are_sentences(tmp_path):
    with pytest.raises(FileError, match="is not there"):
        read_json(tmp_path / "no.json")
    (tmp_path / "cut.json").write_text('{"x": ')
    with pytest.raises(FileError, match=r"cut\.json is not readable JSON .* Copy or write it again"):
        read_json(tmp_path / "cut.json")
    with pytest.raises(FileError, match=r"cannot read .*: Is a directory"):
        read_json(tmp_path)


def test_the_identity_of_a_configuration_ignores_the_order_of_its_keys():
    assert digest({"a": 1, "b": 2.5}) == digest({"b": 2.5, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_tensors_come_back_with_their_header(tmp_path):
    matrix = torch.arange(6.0).view(2, 3)
    file = write_tensors(tmp_path / "a.safetensors", {"m": matrix.T}, {"format": "pt", "facts": {"N": [1, 2]}})
    tensors, header = read_tensors(file)
    assert torch.equal(tensors["m"], matrix.T)
    assert header == {"format": "pt", "facts": {"N": [1, 2]}}
    assert read_tensors(write_tensors(tmp_path / "b.safetensors", tensors))[1] == {}


def test_a_full_disk_under_tensors_is_a_sentence(tmp_path):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # files of more bytes do not fit
    try:
        with pytest.raises(FileError, match=r"cannot write .*a\.safetensors: .*too large.*is unchanged"):
            write_tensors(tmp_path / "a.safetensors", {"m": torch.zeros(1000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert os.listdir(tmp_path) == []


def test_files_that_hold_no_tensors_are_sentences(tmp_path):
    with pytest.raises(FileError, match="is not there"):
        read_tensors(tmp_path / "no.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(b"1234")
    with pytest.raises(FileError, match=r"cut\.safetensors is not a whole safetensors file"):
        read_tensors(tmp_path / "cut.safetensors")


@pytest.mark.parametrize(("place", "known"), [("src/layerstep", True), ("lib/site-packages/layerstep", False)])
def test_the_commit_of_somebody_elses_repository_is_not_recorded(tmp_path, monkeypatch, place, known):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    (tmp_path / place).mkdir(parents=True)
    monkeypatch.setattr(layerstep.files, "__file__", str(tmp_path / place / "files.py"))
    assert (provenance()["commit"] != "unknown") == known


def test_an_archive_knows_the_commit_it_was_made_from(tmp_path, monkeypatch):
    monkeypatch.setattr(layerstep.files, "__file__", str(tmp_path / "files.py"))
    (tmp_path / "commit.txt").write_text("$Format:%H$\n")  # as it lies in a clone
    assert provenance()["commit"] == "unknown"
    layerstep.files._commit.cache_clear()
    (tmp_path / "commit.txt").write_text("0123456789abcdef0123456789abcdef01234567\n")
    assert provenance()["commit"] == "0123456789"
