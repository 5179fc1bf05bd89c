"""Filters on segmented pairs, and their report."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jointnmt.data.filtering import SeenDigests, keep_by_length
from jointnmt.data.filters import FilterConfig, FilterReport
from jointnmt.errors import ConfigurationError


def keep(config: FilterConfig, lengths: list[tuple[int, int]]) -> tuple[list[bool], FilterReport]:
    report = FilterReport(read=len(lengths))
    source, target = np.array(lengths, dtype=np.int32).T
    kept = keep_by_length(config, source, target, "f:{}".format, report)
    return kept.tolist(), report


def test_each_filter_counts_what_it_removes_and_the_first_reason_counts() -> None:
    config = FilterConfig(min_length=3, max_length=10, max_ratio=2)
    lengths = [(5, 5), (2, 5), (5, 2), (11, 5), (5, 11), (4, 9), (4, 8), (3, 10), (2, 11), (11, 11)]
    kept, report = keep(config, lengths)
    assert kept == [True, False, False, False, False, False, True, False, False, False]
    assert report.removed == {
        "shorter than 3 pieces": 3,
        "longer than 10 pieces": 3,
        "length ratio above 2": 2,
    }
    assert list(report.examples.values()) == ["f:1", "f:3", "f:5"]
    assert (report.read, report.kept) == (10, 2)


def test_by_default_only_sides_without_a_piece_go() -> None:
    kept, report = keep(FilterConfig(), [(1, 5), (2, 500), (2, 500)])
    assert kept == [False, True, True]
    assert report.removed == {"shorter than 2 pieces": 1}


def test_validation_text_is_not_cleaned_beyond_what_cannot_be_used() -> None:
    config = FilterConfig(invalid="drop", empty="drop", min_length=5, max_length=100, max_ratio=2, duplicates="drop")
    assert config.for_validation() == FilterConfig(invalid="drop", empty="drop", min_length=1, max_length=100)


def test_lengths_out_of_order_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="max_length 5 is less than min_length 6"):
        FilterConfig.parse({"min_length": 6, "max_length": 5}, "test")


def test_the_report_reads_well_and_survives_json() -> None:
    report = FilterReport(read=12_345)
    report.remove("empty source", "a.de:3")
    report.remove("empty source", "a.de:9")
    report.remove("duplicate", "a.de:5", count=2000)
    assert report.render() == (
        "12,345 pairs read, 10,343 kept, 2,002 removed:\n"
        "  empty source: 2 (first: a.de:3)\n"
        "  duplicate: 2,000 (first: a.de:5)"
    )
    assert FilterReport.parse(json.loads(json.dumps(report.plain()))) == report
    assert FilterReport(read=7).render() == "7 pairs read, 7 kept, 0 removed."


def test_reports_of_parts_add_up_to_that_of_the_whole() -> None:
    whole, later = FilterReport(read=3, removed={"a": 1}, examples={"a": "f:1"}), FilterReport(read=4)
    later.remove("b", "f:5")
    later.remove("a", "f:6", 2)
    whole.add(later)
    assert whole == FilterReport(7, {"a": 3, "b": 1}, {"a": "f:1", "b": "f:5"})


@given(st.lists(st.lists(st.integers(0, 50) | st.integers(0, 2**64 - 1), max_size=20), max_size=20))
def test_seen_digests_are_a_set(chunks: list[list[int]]) -> None:
    seen, expected = SeenDigests(), set[int]()
    for chunk in chunks:
        fresh = []
        for digest in chunk:
            fresh.append(digest not in expected)
            expected.add(digest)
        assert seen.add(np.array(chunk, dtype=np.uint64)).tolist() == fresh


def test_seen_digests_take_eight_bytes_each() -> None:
    seen = SeenDigests()
    for begin in range(0, 100_000, 1000):
        seen.add(np.arange(begin, begin + 1000, dtype=np.uint64))
    assert sum(run.nbytes for run in seen._runs) == 8 * 100_000
    assert len(seen._runs) <= 17  # log2 of the number
