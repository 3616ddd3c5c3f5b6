"""The queries of `docs/tables.md`, in DuckDB and in SQLite."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from conftest import FAILED
from test_program import run

PAGE = Path(__file__).parents[3] / "docs/tables.md"


def test_the_queries_of_the_page_have_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    done = run("convert", FAILED, "recording.parquet")
    assert done.returncode == 0, done.stderr
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    answers = [duckdb.sql(query).fetchall() for query in queries]
    assert len(answers) == 5 and all(answers)
    # As `orlop info` prints it.
    peak = answers[0][0]
    assert peak[2] == 4_656_525_048
    done = run("convert", FAILED, FAILED, "ranks", "--to", "parquet")
    assert done.returncode == 0, done.stderr
    ranks = duckdb.sql(
        "SELECT rank, max(live) FROM read_parquet('ranks/*/*.parquet', hive_partitioning = true) "
        "GROUP BY rank ORDER BY rank"
    )
    assert ranks.fetchall() == [(0, peak[2]), (1, peak[2])]
    held = duckdb.sql(
        "SELECT sum(bytes) FROM 'recording.parquet' WHERE action IN ('start', 'allocate') "
        f"AND coalesce(event, -1) <= {peak[1]} AND (freed IS NULL OR freed > {peak[1]})"
    )
    assert held.fetchall() == [(peak[2],)]


def test_sqlite_answers_the_same_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("convert", FAILED, "recording.sqlite")
    assert done.returncode == 0, done.stderr
    database = sqlite3.connect("recording.sqlite")
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)
    asked = [query.replace("'recording.parquet'", "recording") for query in queries]
    answers = [database.execute(query).fetchall() for query in asked]
    assert len(answers) == 5 and all(answers)
    assert answers[0][0][2] == 4_656_525_048
    database.close()
