"""What goes wrong under a library is told in the words of whoever met it first, with the file."""

import errno
import os

import optuna
import pytest
import sqlalchemy
from optuna.exceptions import StorageInternalError

from orchestrator import command


@pytest.fixture
def told(capsys):
    """The line for an error, and the exit code."""

    def line(error):
        code = command.tell(error)
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        return code, err

    return line


def test_a_full_disk_under_a_database(tmp_path, told):
    database = tmp_path / "study.db"
    storage = optuna.storages.RDBStorage(f"sqlite:///{database}")
    study = optuna.create_study(storage=storage)
    storage.engine.dispose()  # what is connected from now on may not let the file grow
    sqlalchemy.event.listen(storage.engine, "connect", lambda c, _: c.execute("PRAGMA max_page_count=1"))
    with pytest.raises(StorageInternalError) as error:
        study.set_user_attr("much", "x" * 100_000)
    error.value.add_note(str(database))
    code, line = told(error.value)
    assert code == 1
    assert line.startswith(f"error: the disk is full: {database}: database or disk is full; with space again")


def test_a_database_that_another_process_holds(tmp_path, told):
    database = tmp_path / "study.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{database}", connect_args={"timeout": 0})
    with engine.connect() as first, engine.connect() as second:
        first.exec_driver_sql("BEGIN EXCLUSIVE")
        with pytest.raises(sqlalchemy.exc.OperationalError) as error:
            second.exec_driver_sql("CREATE TABLE t (x)")
    error.value.add_note(str(database))
    code, line = told(error.value)
    assert code == 1
    assert line.startswith(f"error: {database}: database is locked: another process is writing to it")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_whatever_the_system_calls_it(number, told):
    code, line = told(OSError(number, os.strerror(number), "/x/y"))
    assert (code, line.startswith("error: the disk is full: ")) == (1, True)
    assert "'/x/y'" in line
